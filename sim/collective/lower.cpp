#include "collective/lower.hpp"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "base/error.hpp"
#include "base/text.hpp"
#include "collective/algorithms.hpp"
#include "collective/nccl_chunks.hpp"
#include "collective/protocols.hpp"

namespace stepcast {
namespace {

constexpr const char* fitted_algorithm = "ring";  // what the figures of a calibration are of
constexpr double most_by_index = 1e10;            // transfers that need no list: about 20 s

Basis basis_of(const std::string& algorithm, const ProtocolFigures& protocol, Bytes bytes,
               const Cluster& cluster) {
  if (cluster.calibration() == nullptr) return Basis::mechanism;
  if (!protocol.measured) return Basis::extrapolated;
  const bool same_machine = cluster.calibration()->platform == cluster.platform().name;
  const bool inside = same_machine && algorithm == fitted_algorithm &&
                      protocol.holds(bytes, cluster.ranks(), cluster.nodes());
  return inside ? Basis::interpolated : Basis::extrapolated;
}

void refuse_too_many(double transfers, double most, const CollectiveSettings& settings,
                     const Cluster& cluster, Bytes bytes) {
  if (transfers <= most) return;
  const std::string limit = fmt::format("at most {:.0e} are simulated", most);
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
    if (std::max(connection.src, connection.dst) >= schedule.ranks) {
      routes.push_back(connection.src >= schedule.ranks ? cluster.from_switch(connection.dst)
                                                        : cluster.to_switch(connection.src));
      continue;
    }
    const std::size_t channel = static_cast<std::size_t>(connection.channel) % rings.size();
    const Ring& ring = rings[channel];
    const std::size_t place = place_of[channel][static_cast<std::size_t>(connection.src)];
    // Each stage of a channel has its own, as do NCCL's channels, of which half are one of two
    // trees.
    const int queue_pair = connection.channel + (connection.stage << 16);
    if (ring.ranks[(place + 1) % ring.ranks.size()] == connection.dst)
      routes.push_back(ring.hops[place].inter_node
                           ? cluster.between_nodes(connection.src, connection.dst, ring.nic,
                                                   ring.nic, queue_pair)
                           : ring.hops[place]);
    else
      routes.push_back(
          cluster.between_ranks(connection.src, connection.dst, connection.channel, queue_pair));
  }
  return routes;
}

/// How the channels are put into a schedule.
struct Folding {
  int channels = 1;   ///< of the schedule
  double each = 1.0;  ///< how many of the collective's channels each stands for
};

/// Channels on one ring have the same sizes on the same links, so they move in step, and moving
/// together they take as long as one that moves all their bytes: only then are they one.
Folding fold_channels(const CollectiveChoice& choice, std::size_t ring_count) {
  const auto rings = static_cast<int>(ring_count);
  const int channels = choice.channels;
  if (choice.algorithm->needs_switch_sum) return {1, static_cast<double>(channels)};
  if (choice.algorithm_name == "double_binary_tree" && choice.communicator) {
    // Half of NCCL's channels work on the one tree, half on the other.
    const int pairs = std::min(rings, (channels + 1) / 2);
    return {pairs, channels / (2.0 * pairs)};
  }
  if (channels > rings && channels % rings == 0)
    return {rings, static_cast<double>(channels) / rings};
  return {channels, 1.0};
}

struct Chunks {
  Bytes chunk;                        ///< of one channel
  int slices = 1;                     ///< of a chunk
  std::optional<int> in_flight = {};  ///< slices for which a receiver has room
};

/// Sets the sizes that the schedule is to be cut to.
Chunks set_chunks(CollectiveSpec& spec, const CollectiveChoice& choice,
                  const CollectiveSettings& settings, const Cluster& cluster, double each) {
  const auto& wanted = settings.chunk_bytes.value;
  if (choice.chunking == Chunking::plain) {
    const Bytes chunk =
        wanted ? Bytes{static_cast<double>(*wanted)} : choice.algorithm->default_chunk;
    spec.largest_chunk = chunk * each;
    return {.chunk = chunk};
  }
  const RingChunks cut = nccl::chunks_of(
      {.operation = spec.operation,
       .version = choice.communicator->version,
       .algorithm = choice.algorithm_name,
       .protocol = choice.protocol.name,
       .bytes = spec.bytes,
       .channels = choice.channels,
       .on = {static_cast<double>(cluster.ranks()), static_cast<double>(cluster.nodes())},
       .buffer = wanted ? Bytes{static_cast<double>(*wanted)} : nccl::default_buffer});
  spec.largest_chunk = cut.chunk * each;
  if (choice.algorithm_name != "ring" || spec.operation == Operation::broadcast)
    return {.chunk = cut.chunk, .in_flight = cut.in_flight};
  spec.ring_chunks = RingChunks{.chunk = cut.chunk * each,
                                .least_slice = cut.least_slice * each,
                                .grain = cut.grain * each,
                                .slices = cut.slices};
  const Bytes part = spec.bytes / static_cast<double>(choice.channels);
  return {cut.chunk_of(part, cluster.ranks()), cut.slices, cut.in_flight};
}

/// What the fastest connection could get if it were alone.
BytesPerSecond fastest_route(const LoweredCollective& lowered, const Cluster& cluster) {
  const std::vector<int> alone(cluster.bandwidths().size(), 1);
  const auto rates = rates_when_shared(lowered, cluster.bandwidths(), alone);
  return rates.empty() ? BytesPerSecond{} : *std::max_element(rates.begin(), rates.end());
}

/// Nodes that do the same, where that is known beforehand; else why not.
std::optional<NodeFold> fold_nodes(const CollectiveSpec& spec, const CollectiveChoice& choice,
                                   bool wanted, const Cluster& cluster, std::string& why_not) {
  const int nodes = cluster.nodes();
  if (!wanted) {
    why_not = "--no-fold";
    return std::nullopt;
  }
  if (choice.algorithm->turns == nullptr) {
    why_not = fmt::format("{} by {} does something else on each node", to_string(spec.operation),
                          choice.algorithm_name);
    return std::nullopt;
  }
  if (!choice.algorithm->turns(spec)) {
    why_not = fmt::format("{} by {} is not the same on each node with these chunks or levels",
                          to_string(spec.operation), choice.algorithm_name);
    return std::nullopt;
  }
  const int period = cluster.period();
  // With three nodes at least a rank's predecessor and its successor are not the same, and with two
  // periods every link between groups of nodes is passed.
  const int first = std::max(2, (3 + period - 1) / period) * period;
  if (first < nodes) return NodeFold{period, first};
  why_not = period == nodes && nodes > 3 ? "no two nodes are alike"
                                         : fmt::format("there are {} nodes only", nodes);
  return std::nullopt;
}

/// What the overheads, rates and flags of the protocol make of each connection. The slices of a
/// chunk share its alpha.
void set_costs(LoweredCollective& lowered, const CollectiveChoice& choice, const Cluster& cluster,
               double each, int slices) {
  const ProtocolFigures& protocol = choice.protocol;
  for (const Route& route : lowered.routes) {
    const Seconds alpha = route.inter_node ? protocol.alpha_inter_node : protocol.alpha_intra_node;
    lowered.alpha.push_back(alpha / static_cast<double>(slices));
    lowered.latency.push_back(route.inter_node ? protocol.latency_inter_node
                                               : protocol.latency_intra_node);
  }
  lowered.work_per_byte = 1.0 / protocol.efficiency;
  lowered.wire_bytes_per_byte = wire_bytes_per_byte(protocol.name);
  if (choice.communicator) {
    if (choice.algorithm->needs_switch_sum)
      lowered.work_per_byte /= nccl::switch_sum_efficiency(*choice.communicator);
    else if (const BytesPerSecond rate = each * nccl::channel_rate(*choice.communicator);
             rate < fastest_route(lowered, cluster))
      lowered.channel_rate = rate;
  }
  if (!lowered.schedule.is_empty()) lowered.launch = protocol.launch;
}

}  // namespace

LoweredCollective lower(Operation operation, Bytes bytes, const CollectiveSettings& settings,
                        const Cluster& cluster, const std::vector<Ring>& rings) {
  CollectiveChoice choice = choose(operation, bytes, settings, cluster, rings);
  LoweredCollective lowered;
  lowered.operation = operation;
  lowered.bytes = bytes;
  lowered.algorithm = choice.algorithm_name;
  lowered.channels = choice.channels;
  lowered.protocol = choice.protocol.name;
  lowered.basis = basis_of(lowered.algorithm, choice.protocol, bytes, cluster);
  lowered.relative_error = choice.protocol.worst_residual;

  // Hashed channels are not on the same links, even if they are on one ring.
  const Folding folding = fold_channels(
      choice, cluster.hashes_channels() ? static_cast<std::size_t>(choice.channels) : rings.size());
  CollectiveSpec spec{.operation = operation, .bytes = bytes};
  for (int channel = 0; channel < folding.channels; ++channel)
    spec.rings.push_back(rings[static_cast<std::size_t>(channel) % rings.size()].ranks);
  for (int node = 0; node < cluster.nodes(); ++node) spec.nodes.push_back(cluster.ranks_of(node));
  spec.direct_in_node = settings.intra_node_algorithm.value == "direct";
  if (settings.inter_node_algorithm.value)
    spec.between_nodes =
        collective_algorithms(Operation::all_reduce).find(*settings.inter_node_algorithm.value);
  const Chunks chunks = set_chunks(spec, choice, settings, cluster, folding.each);
  lowered.chunk = chunks.chunk;
  lowered.may_fold = settings.fold;
  lowered.fold = fold_nodes(spec, choice, settings.fold, cluster, lowered.why_not_folded);
  std::vector<Ring> first_rings;
  if (lowered.fold) {
    first_rings = through_first_nodes(rings, lowered.fold->nodes, cluster);
    spec.ranks_in_all = cluster.ranks();
    spec.nodes_in_all = cluster.nodes();
    spec.nodes.resize(static_cast<std::size_t>(lowered.fold->nodes));
    for (std::size_t channel = 0; channel < spec.rings.size(); ++channel)
      spec.rings[channel] = first_rings[channel % rings.size()].ranks;
  }

  const bool by_index = choice.algorithm->by_index != nullptr;
  const bool is_cut = settings.chunk_bytes.value && *settings.chunk_bytes.value != infinite_chunk;
  refuse_too_many(choice.algorithm->count_transfers(spec),
                  by_index && !is_cut ? most_by_index : most_listed_transfers, settings, cluster,
                  bytes);  // sizes of chunks are listed
  lowered.schedule = (by_index ? choice.algorithm->by_index : choice.algorithm->generate)(spec);
  if (chunks.in_flight) limit_in_flight(lowered.schedule, *chunks.in_flight);
  // A chunk is never more than there is to cut.
  if (choice.chunking == Chunking::plain && !lowered.schedule.chunk_bytes.empty())
    lowered.chunk = std::min(chunks.chunk, largest_transfer(lowered.schedule) / folding.each);
  lowered.routes = routes_of(lowered.schedule, lowered.fold ? first_rings : rings, cluster);
  set_costs(lowered, choice, cluster, folding.each, chunks.slices);
  lowered.chooser = std::move(choice.chooser);
  lowered.considered = std::move(choice.considered);
  return lowered;
}

int NodeFold::representative(int rank, const Cluster& cluster) const {
  const int node = cluster.node_of(rank);
  return node < nodes
             ? rank
             : cluster.ranks_of(node % period)[static_cast<std::size_t>(cluster.gpu_of(rank))];
}

Seconds LoweredCollective::time_to_know(int dependency, int transfer) const {
  const Connection& before = schedule.connections[static_cast<std::size_t>(dependency)];
  const int sender = schedule.connections[static_cast<std::size_t>(transfer)].src;
  if (before.src == sender) return {};
  return latency[static_cast<std::size_t>(before.dst == sender ? dependency : transfer)];
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
    BytesPerSecond rate = collective.channel_rate;
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
