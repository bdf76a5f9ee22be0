#include "collective/lower.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "base/error.hpp"
#include "base/text.hpp"
#include "collective/algorithms.hpp"

namespace stepcast {
namespace {

constexpr const char* default_algorithm = "ring";
constexpr const char* fitted_algorithm = "ring";  // what the figures of a calibration are of
constexpr double most_transfers = 2e8;            // about 5 GB of schedule

/// The protocols this machine has figures for. Without a calibration there is one, at nominal cost.
std::vector<ProtocolFigures> protocols_of(const Cluster& cluster) {
  if (cluster.calibration() != nullptr) return cluster.calibration()->protocols;
  ProtocolFigures nominal;
  nominal.name = "Simple";
  nominal.alpha_intra_node = cluster.platform().intra_node.alpha;
  if (cluster.platform().nics) nominal.alpha_inter_node = cluster.platform().nics->figures.alpha;
  return {nominal};
}

ProtocolFigures find_protocol(const std::vector<ProtocolFigures>& protocols,
                              const Choice<std::string>& wanted) {
  std::vector<std::string> known;
  for (const ProtocolFigures& protocol : protocols) {
    if (protocol.name == *wanted.value) return protocol;
    known.push_back(protocol.name);
  }
  throw InputError(wanted.origin, fmt::format("no figures for \"{}\"{}", *wanted.value,
                                              suggest(*wanted.value, known)));
}

const AllReduceAlgorithm& find_algorithm(const Choice<std::string>& wanted,
                                         const std::string& name) {
  const AllReduceAlgorithm* algorithm = all_reduce_algorithms().find(name);
  if (algorithm != nullptr) return *algorithm;
  throw InputError(wanted.origin, fmt::format("unknown \"{}\"{}", name,
                                              suggest(name, all_reduce_algorithms().names())));
}

/// launch + steps (alpha + bytes / rate) of the slowest hop, docs/model.md §3.
Seconds estimate(const AllReduceAlgorithm& algorithm, const ProtocolFigures& protocol, Bytes bytes,
                 const Cluster& cluster, std::size_t channels) {
  const double n = cluster.ranks();
  const double steps = algorithm.steps(n);
  const Bytes block = bytes * (algorithm.critical_bytes(n) /
                               (steps * static_cast<double>(channels) * protocol.efficiency));
  Seconds slowest_hop;
  if (cluster.gpus_used(0) > 1)
    slowest_hop =
        std::max(slowest_hop, protocol.alpha_intra_node + block / cluster.intra_node_bandwidth());
  if (cluster.nodes() > 1) {
    const double nics = cluster.platform().nics->count;
    const double per_nic = std::max(1.0, static_cast<double>(channels) / nics);
    slowest_hop = std::max(
        slowest_hop, protocol.alpha_inter_node + block * per_nic / cluster.inter_node_bandwidth());
  }
  return protocol.launch + steps * slowest_hop;
}

ProtocolFigures choose_protocol(const AllReduceAlgorithm& algorithm,
                                const CollectiveSettings& settings, Bytes bytes,
                                const Cluster& cluster, std::size_t channels) {
  const std::vector<ProtocolFigures> protocols = protocols_of(cluster);
  if (settings.protocol.value) return find_protocol(protocols, settings.protocol);
  return *std::min_element(protocols.begin(), protocols.end(), [&](const auto& a, const auto& b) {
    return estimate(algorithm, a, bytes, cluster, channels) <
           estimate(algorithm, b, bytes, cluster, channels);
  });
}

/// LL sends 4 B of flag with each 4 B of data, LL128 8 B in 128 (NCCL src/device/prims_ll.h,
/// prims_ll128.h).
double wire_bytes_per_byte(const std::string& protocol) {
  if (protocol == "LL") return 2.0;
  return protocol == "LL128" ? 128.0 / 120.0 : 1.0;
}

Basis basis_of(const std::string& algorithm, const ProtocolFigures& protocol, Bytes bytes,
               const Cluster& cluster) {
  if (cluster.calibration() == nullptr) return Basis::mechanism;
  const bool same_machine = cluster.calibration()->platform == cluster.platform().name;
  const bool inside = same_machine && algorithm == fitted_algorithm &&
                      protocol.bytes.holds(static_cast<std::int64_t>(bytes.value())) &&
                      protocol.ranks.holds(cluster.ranks()) &&
                      protocol.nodes.holds(cluster.nodes());
  return inside ? Basis::interpolated : Basis::extrapolated;
}

void refuse_too_many(double transfers, const CollectiveSettings& settings, const Cluster& cluster,
                     Bytes bytes) {
  if (transfers <= most_transfers) return;
  const std::string limit = fmt::format("at most {:.0e} are simulated", most_transfers);
  if (const auto& chunk = settings.chunk_bytes; chunk.value && *chunk.value != infinite_chunk)
    throw InputError(chunk.origin, fmt::format("{} cuts {} into {:.3g} transfers; {}", *chunk.value,
                                               format_bytes(bytes.value()), transfers, limit));
  throw InputError(cluster.origin(), fmt::format("{} ranks need {:.3g} transfers; {}",
                                                 cluster.ranks(), transfers, limit));
}

/// The route of each connection: the hop of its channel's ring where the ring leads that way, else
/// the way between the two ranks.
std::vector<Route> routes_of(const Schedule& schedule, const std::vector<Ring>& rings,
                             const Cluster& cluster) {
  std::vector<std::vector<std::size_t>> place_of(rings.size());  // [channel][rank], on the ring
  for (std::size_t channel = 0; channel < rings.size(); ++channel) {
    place_of[channel].resize(static_cast<std::size_t>(schedule.ranks));
    for (std::size_t i = 0; i < rings[channel].ranks.size(); ++i)
      place_of[channel][static_cast<std::size_t>(rings[channel].ranks[i])] = i;
  }
  std::vector<Route> routes;
  routes.reserve(schedule.connections.size());
  for (const Connection& connection : schedule.connections) {
    const std::size_t channel = static_cast<std::size_t>(connection.channel) % rings.size();
    const Ring& ring = rings[channel];
    const std::size_t place = place_of[channel][static_cast<std::size_t>(connection.src)];
    if (ring.ranks[(place + 1) % ring.ranks.size()] == connection.dst)
      routes.push_back(ring.hops[place]);
    else
      routes.push_back(cluster.between_ranks(connection.src, connection.dst, connection.channel));
  }
  return routes;
}

}  // namespace

std::string to_string(Basis basis) {
  switch (basis) {
    case Basis::measured: return "measured";
    case Basis::mechanism: return "mechanism";
    case Basis::interpolated: return "interpolated";
    case Basis::extrapolated: return "extrapolated";
  }
  return {};
}

void check_choices(const CollectiveSettings& settings, const Cluster& cluster) {
  if (const auto& algorithm = settings.algorithm; algorithm.value)
    static_cast<void>(find_algorithm(algorithm, *algorithm.value));
  if (settings.protocol.value)
    static_cast<void>(find_protocol(protocols_of(cluster), settings.protocol));
}

LoweredCollective lower_all_reduce(Bytes bytes, const CollectiveSettings& settings,
                                   const Cluster& cluster, const std::vector<Ring>& rings) {
  LoweredCollective lowered;
  lowered.bytes = bytes;
  lowered.algorithm = settings.algorithm.value.value_or(default_algorithm);
  const AllReduceAlgorithm& algorithm = find_algorithm(settings.algorithm, lowered.algorithm);

  // One channel for each ring of the machine; more share its links, fewer leave some idle.
  lowered.channels = settings.channels.value.value_or(static_cast<int>(rings.size()));
  const auto channels = static_cast<std::size_t>(lowered.channels);
  const ProtocolFigures protocol = choose_protocol(algorithm, settings, bytes, cluster, channels);
  lowered.protocol = protocol.name;
  lowered.basis = basis_of(lowered.algorithm, protocol, bytes, cluster);
  lowered.worst_residual = protocol.worst_residual;
  lowered.work_per_byte = 1.0 / protocol.efficiency;
  lowered.wire_bytes_per_byte = wire_bytes_per_byte(protocol.name);

  const auto& chunk = settings.chunk_bytes.value;
  CollectiveSpec spec{
      .bytes = bytes,
      .largest_chunk = chunk ? Bytes{static_cast<double>(*chunk)} : algorithm.default_chunk,
      .rings = {},
      .nodes = {}};
  for (std::size_t channel = 0; channel < channels; ++channel)
    spec.rings.push_back(rings[channel % rings.size()].ranks);
  spec.nodes.resize(static_cast<std::size_t>(cluster.nodes()));
  for (int rank = 0; rank < cluster.ranks(); ++rank)
    spec.nodes[static_cast<std::size_t>(cluster.node_of(rank))].push_back(rank);
  refuse_too_many(algorithm.count_transfers(spec), settings, cluster, bytes);
  lowered.schedule = algorithm.generate(spec);
  if (!lowered.schedule.chunk_bytes.empty())
    lowered.chunk =
        *std::max_element(lowered.schedule.chunk_bytes.begin(), lowered.schedule.chunk_bytes.end());
  lowered.routes = routes_of(lowered.schedule, rings, cluster);
  for (const Route& route : lowered.routes)
    lowered.alpha.push_back(route.inter_node ? protocol.alpha_inter_node
                                             : protocol.alpha_intra_node);
  if (!lowered.schedule.transfers.empty()) lowered.launch = protocol.launch;
  return lowered;
}

std::vector<int> connections_per_link(const LoweredCollective& collective, std::size_t links) {
  std::vector<int> connections(links, 0);
  for (const Route& route : collective.routes)
    for (const int link : route.links) ++connections[static_cast<std::size_t>(link)];
  return connections;
}

std::vector<BytesPerSecond> rates_when_shared(const LoweredCollective& collective,
                                              const std::vector<BytesPerSecond>& bandwidths,
                                              const std::vector<int>& sharing) {
  std::vector<BytesPerSecond> rates;
  rates.reserve(collective.routes.size());
  for (const Route& route : collective.routes) {
    BytesPerSecond rate{std::numeric_limits<double>::infinity()};
    for (const int link : route.links) {
      const auto index = static_cast<std::size_t>(link);
      rate = std::min(rate, bandwidths[index] / static_cast<double>(sharing[index]));
    }
    rates.push_back(rate);
  }
  return rates;
}

std::vector<BytesPerSecond> even_share_rates(const LoweredCollective& collective,
                                             const std::vector<BytesPerSecond>& bandwidths) {
  return rates_when_shared(collective, bandwidths,
                           connections_per_link(collective, bandwidths.size()));
}

}  // namespace stepcast
