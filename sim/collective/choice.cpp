#include "collective/choice.hpp"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "base/error.hpp"
#include "base/text.hpp"

namespace stepcast {
namespace {

constexpr const char* default_algorithm = "ring";
constexpr nccl::Version default_version{2, 28, 9};  // the newest whose tables are all known

std::string name_of(nccl::Algorithm algorithm) {
  switch (algorithm) {
    case nccl::Algorithm::tree: return "double_binary_tree";
    case nccl::Algorithm::ring: return "ring";
    case nccl::Algorithm::nvls: return "nvls";
    case nccl::Algorithm::nvls_tree: return "nvls_tree";
  }
  return {};
}

const CollectiveAlgorithm& find_algorithm(Operation operation, const Choice<std::string>& wanted,
                                          const std::string& name) {
  const auto& known = collective_algorithms(operation);
  if (const CollectiveAlgorithm* algorithm = known.find(name)) return *algorithm;
  throw InputError(wanted.origin,
                   fmt::format("unknown \"{}\"{}", name, suggest(name, known.names())));
}

ProtocolFigures find_protocol(const std::vector<ProtocolFigures>& protocols,
                              const std::string& wanted, const std::string& origin) {
  std::vector<std::string> known;
  for (const ProtocolFigures& protocol : protocols) {
    if (protocol.name == wanted) return protocol;
    known.push_back(protocol.name);
  }
  throw InputError(origin, fmt::format("no figures for \"{}\"{}", wanted, suggest(wanted, known)));
}

/// launch + steps (alpha + latency + bytes / rate) of the slowest hop, docs/model.md §3.
Seconds estimate(const CollectiveAlgorithm& algorithm, const ProtocolFigures& protocol, Bytes bytes,
                 const Cluster& cluster, double channels,
                 const std::optional<nccl::Communicator>& communicator) {
  const Shape on{static_cast<double>(cluster.ranks()), static_cast<double>(cluster.nodes())};
  const double steps = algorithm.steps(on);
  if (steps == 0.0) return protocol.launch;
  const Bytes block =
      bytes * (algorithm.critical_bytes(on) / (steps * channels * protocol.efficiency));
  Seconds slowest_hop;
  BytesPerSecond intra_node = cluster.intra_node_bandwidth();
  if (communicator) intra_node = std::min(intra_node, channels * nccl::channel_rate(*communicator));
  if (on.per_node() > 1.0)
    slowest_hop = std::max(
        slowest_hop, protocol.alpha_intra_node + protocol.latency_intra_node + block / intra_node);
  if (cluster.nodes() > 1) {
    const double per_nic = std::max(1.0, channels / cluster.platform().nics->count);
    slowest_hop = std::max(slowest_hop, protocol.alpha_inter_node + protocol.latency_inter_node +
                                            block * per_nic / cluster.inter_node_bandwidth());
  }
  return protocol.launch + steps * slowest_hop;
}

nccl::Version version_of(const CollectiveSettings& settings, const Cluster& cluster) {
  if (const auto& wanted = settings.nccl_version; wanted.value) {
    const auto version = nccl::parse_version(*wanted.value);
    if (!version)
      throw InputError(wanted.origin,
                       fmt::format("must be a version such as 2.27.5, got {}", *wanted.value));
    return *version;
  }
  if (cluster.calibration() == nullptr) return default_version;
  const std::string& measured = cluster.calibration()->nccl_version;
  return nccl::parse_version(measured.substr(0, measured.find('-'))).value_or(default_version);
}

/// NCCL's figure for a slot of 16 lanes: 12 GB/s for PCIe 3, as V100's, twice that for each
/// generation since (src/graph/topo.h).
BytesPerSecond pci_speed(int compute_capability) {
  if (compute_capability < 80) return nccl::giga(12);
  return nccl::giga(compute_capability < 90 ? 24 : 48);
}

std::optional<nccl::Communicator> communicator_of(const CollectiveSettings& settings,
                                                  const Cluster& cluster,
                                                  const std::vector<Ring>& rings) {
  const Platform& platform = cluster.platform();
  if (!platform.gpu.compute_capability || cluster.ranks() < 2) return std::nullopt;
  nccl::Communicator communicator;
  communicator.version = version_of(settings, cluster);
  communicator.ranks = cluster.ranks();
  communicator.nodes = cluster.nodes();
  communicator.compute_capability = *platform.gpu.compute_capability;
  communicator.cpu = platform.cpu;
  communicator.nvlinks = platform.node_graph.nvlinks;
  communicator.nvswitch = platform.has_switch();
  communicator.nvlink_sharp = platform.node_graph.nvlink_sharp;
  communicator.mesh_rings = platform.has_switch() ? 0 : static_cast<int>(rings.size());
  communicator.pci = platform.over_pcie() ? platform.intra_node.bandwidth
                                          : pci_speed(communicator.compute_capability);
  if (platform.nics) {
    communicator.nics_per_node = platform.nics->count;
    communicator.nic = platform.nics->figures.bandwidth;
  }
  communicator.nvls_enabled = settings.nvls;
  return communicator;
}

int within_limits(int channels, const CollectiveSettings& settings) {
  return settings.channels.value.value_or(
      std::clamp(channels, settings.min_channels, settings.max_channels));
}

const std::string left_out_by = "left out by ";

/// Why the scenario leaves a way out; empty when it does not.
std::string left_out(const std::string& algorithm, const std::string& protocol,
                     const CollectiveSettings& settings) {
  const auto rules_out = [](const Choice<std::string>& wanted,
                            const std::vector<std::string>& allowed, const std::string& name) {
    if (wanted.value) return *wanted.value != name;
    return !allowed.empty() && std::find(allowed.begin(), allowed.end(), name) == allowed.end();
  };
  if (rules_out(settings.algorithm, settings.allowed_algorithms, algorithm))
    return left_out_by + settings.algorithm.origin;
  if (rules_out(settings.protocol, settings.allowed_protocols, protocol))
    return left_out_by + settings.protocol.origin;
  return "";
}

/// The one that is taken first, then what could have been by time, then the rest.
void put_in_order(std::vector<ConsideredChoice>& considered) {
  const auto place = [](const ConsideredChoice& one) {
    return std::pair{one.why_not.empty() ? 0
                     : one.estimate      ? 1
                                         : 2,
                     one.estimate.value_or(Seconds{})};
  };
  std::stable_sort(considered.begin(), considered.end(),
                   [&](const auto& a, const auto& b) { return place(a) < place(b); });
}

/// Measured on this machine with as many ranks and as many bytes: whatever NCCL chose, it took that
/// long. The figures of a calibration are of rings.
const ProtocolFigures* measured_there(const std::vector<ProtocolFigures>& protocols,
                                      const CollectiveSettings& settings, Operation operation,
                                      Bytes bytes, const Cluster& cluster) {
  const auto is_open = [](const Choice<std::string>& choice,
                          const std::vector<std::string>& allowed) {
    return !choice.value && allowed.empty();
  };
  const bool ring = settings.algorithm.value == "ring" ||
                    is_open(settings.algorithm, settings.allowed_algorithms);
  if (cluster.calibration() == nullptr || operation != Operation::all_reduce ||
      cluster.calibration()->platform != cluster.platform().name || settings.nccl_version.value ||
      !ring || !is_open(settings.protocol, settings.allowed_protocols))
    return nullptr;
  const auto found = std::find_if(protocols.begin(), protocols.end(), [&](const auto& protocol) {
    return protocol.measured && protocol.holds(bytes, cluster.ranks(), cluster.nodes());
  });
  return found == protocols.end() ? nullptr : &*found;
}

void choose_as_nccl(CollectiveChoice& choice, Operation operation, Bytes bytes,
                    const CollectiveSettings& settings, const Cluster& cluster,
                    const std::vector<ProtocolFigures>& protocols) {
  const nccl::Communicator& communicator = *choice.communicator;
  const nccl::Graphs graphs = nccl::search_graphs(communicator);
  std::vector<nccl::Candidate> table = nccl::cost_table(communicator, graphs, operation);
  std::string obstacle;  // of a way that the scenario would allow
  bool of_ring = false;
  for (nccl::Candidate& candidate : table) {
    const std::string algorithm = name_of(candidate.algorithm);
    const std::string protocol = to_string(candidate.protocol);
    ConsideredChoice& considered = choice.considered.emplace_back();
    considered = {algorithm, protocol, std::nullopt, candidate.why_not};
    const std::string out = left_out(algorithm, protocol, settings);
    if (!candidate.possible()) {
      // Of a ring where it is one; else of the last, Simple, which all have.
      if (out.empty() && (algorithm == default_algorithm || !of_ring)) {
        obstacle =
            settings.algorithm.value ? candidate.why_not : algorithm + ": " + candidate.why_not;
        of_ring = algorithm == default_algorithm;
      }
      continue;
    }
    considered.estimate = nccl::time_of(candidate, communicator, graphs, operation, bytes);
    considered.why_not = candidate.why_not = out;
  }
  const nccl::Candidate* taken = nccl::pick(table, communicator, graphs, operation, bytes);
  const ProtocolFigures* measured = measured_there(protocols, settings, operation, bytes, cluster);
  if (measured != nullptr)
    taken = &*std::find_if(table.begin(), table.end(), [&](const auto& candidate) {
      return candidate.algorithm == nccl::Algorithm::ring &&
             to_string(candidate.protocol) == measured->name;
    });
  if (taken == nullptr) {
    const auto& wanted = settings.algorithm.origin.empty() ? settings.protocol : settings.algorithm;
    throw InputError(wanted.origin, "NCCL cannot do that here: " + obstacle);
  }
  choice.algorithm_name = name_of(taken->algorithm);
  choice.protocol = find_protocol(protocols, to_string(taken->protocol), settings.protocol.origin);
  choice.channels = within_limits(
      nccl::channels_for(communicator, graphs, taken->algorithm, taken->protocol, bytes), settings);
  choice.chooser = measured != nullptr
                       ? "measurement: the calibration covers this size, ranks and nodes"
                       : "the tuner of NCCL " + nccl::to_string(communicator.version);
  for (std::size_t i = 0; i < table.size(); ++i)
    if (&table[i] != taken && table[i].possible())
      choice.considered[i].why_not = measured != nullptr ? "not measured here" : "slower";
}

/// Without NCCL's figures of the machine: the ring, or what is asked for, and the protocol that the
/// model of docs/model.md §3 expects to be fastest.
void choose_by_estimate(CollectiveChoice& choice, Bytes bytes, const CollectiveSettings& settings,
                        const Cluster& cluster, std::size_t rings,
                        const std::vector<ProtocolFigures>& protocols) {
  // What NCCL does not have gets as many channels as NCCL's ring would, or it would look slow.
  const int channels = choice.communicator
                           ? std::min(2 * nccl::search_graphs(*choice.communicator).ring.channels,
                                      nccl::channel_limit(choice.communicator->version))
                           : static_cast<int>(rings);
  choice.channels = within_limits(std::max(channels, static_cast<int>(rings)), settings);
  const bool any_measured = std::any_of(protocols.begin(), protocols.end(),
                                        [](const auto& protocol) { return protocol.measured; });
  for (const ProtocolFigures& protocol : protocols) {
    std::string why_not = left_out(choice.algorithm_name, protocol.name, settings);
    if (!settings.protocol.value && any_measured && !protocol.measured)
      why_not = "not in the calibration";
    choice.considered.push_back(
        {choice.algorithm_name, protocol.name,
         estimate(*choice.algorithm, protocol, bytes, cluster, static_cast<double>(choice.channels),
                  choice.communicator),
         why_not});
  }
  put_in_order(choice.considered);
  if (!choice.considered.front().why_not.empty()) {
    const std::string& why_not = choice.considered.front().why_not;
    throw InputError(why_not.starts_with(left_out_by) ? why_not.substr(left_out_by.size())
                                                      : settings.protocol.origin,
                     "leaves nothing that has figures here");
  }
  choice.protocol = find_protocol(protocols, choice.considered.front().protocol, "");
  for (std::size_t i = 1; i < choice.considered.size(); ++i)
    if (choice.considered[i].why_not.empty()) choice.considered[i].why_not = "slower";
  choice.chooser = choice.communicator
                       ? "docs/model.md section 3, as NCCL has no " + choice.algorithm_name
                       : "docs/model.md section 3, as the platform has no gpu.compute_capability";
}

void check_possible(const CollectiveChoice& choice, const CollectiveSettings& settings,
                    const Cluster& cluster) {
  const std::string& origin = settings.algorithm.origin;
  if (choice.algorithm->needs_switch_sum && !cluster.platform().node_graph.nvlink_sharp)
    throw InputError(origin, fmt::format("{} needs switches that reduce (nvlink_sharp), which {} "
                                         "has not",
                                         choice.algorithm_name, cluster.platform().name));
  if (choice.algorithm->one_node_only && cluster.nodes() > 1)
    throw InputError(origin, fmt::format("{} works inside one node only, and there are {}",
                                         choice.algorithm_name, cluster.nodes()));
}

Chunking chunking_of(const CollectiveChoice& choice, const CollectiveSettings& settings) {
  const bool as_nccl = choice.communicator && choice.algorithm->in_nccl;
  const Chunking chunking =
      settings.chunking.value.value_or(as_nccl ? Chunking::nccl : Chunking::plain);
  if (chunking == Chunking::nccl && !as_nccl)
    throw InputError(settings.chunking.origin,
                     choice.communicator
                         ? fmt::format("NCCL has no {}; use \"plain\"", choice.algorithm_name)
                         : "NCCL's chunks need a platform with gpu.compute_capability");
  return chunking;
}

}  // namespace

void check_names(Operation operation, const CollectiveSettings& settings, const Cluster& cluster) {
  if (const auto& algorithm = settings.algorithm; algorithm.value)
    static_cast<void>(find_algorithm(operation, algorithm, *algorithm.value));
  if (const auto& between = settings.inter_node_algorithm; between.value)
    static_cast<void>(find_algorithm(Operation::all_reduce, between, *between.value));
  if (const auto& protocol = settings.protocol; protocol.value)
    static_cast<void>(find_protocol(protocols_of(cluster), *protocol.value, protocol.origin));
}

CollectiveChoice choose(Operation operation, Bytes bytes, const CollectiveSettings& settings,
                        const Cluster& cluster, const std::vector<Ring>& rings) {
  check_names(operation, settings, cluster);
  CollectiveChoice choice;
  choice.communicator = communicator_of(settings, cluster, rings);
  choice.algorithm_name = settings.algorithm.value.value_or(default_algorithm);
  choice.algorithm = &find_algorithm(operation, settings.algorithm, choice.algorithm_name);
  const std::vector<ProtocolFigures> protocols = protocols_of(cluster);
  if (choice.communicator && choice.algorithm->in_nccl) {
    choose_as_nccl(choice, operation, bytes, settings, cluster, protocols);
    choice.algorithm = &find_algorithm(operation, settings.algorithm, choice.algorithm_name);
    put_in_order(choice.considered);
  } else {
    check_possible(choice, settings, cluster);
    choose_by_estimate(choice, bytes, settings, cluster, rings.size(), protocols);
  }
  choice.chunking = chunking_of(choice, settings);
  return choice;
}

}  // namespace stepcast
