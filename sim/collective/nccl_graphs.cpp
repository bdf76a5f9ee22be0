#include "collective/nccl_graphs.hpp"

#include <algorithm>
#include <charconv>
#include <system_error>
#include <vector>

#include <fmt/format.h>

namespace stepcast::nccl {
namespace {

using Ladder = std::vector<double>;  // GB/s, downwards

// Speeds of a channel that the search tries (search.cc: speedArrayIntra and speedArrayInter, with
// sm90 and sm100 before them). On one node the first, on several the second.
Ladder intra_ladder(const Communicator& communicator) {
  switch (generation_of(communicator)) {
    case Generation::blackwell:
      if (communicator.version >= Version{2, 29, 0})
        return {90, 80, 70, 60, 50, 45, 40, 30, 24, 20, 19, 18};
      return {90, 80, 70, 60, 50, 40, 30, 24, 20, 19, 18};
    case Generation::hopper: return {60, 50, 40, 30, 24, 20, 15, 12, 11, 6, 3};
    default: return {40, 30, 20, 18, 15, 12, 10, 9, 7, 6, 5, 4, 3};
  }
}

Ladder inter_ladder(const Communicator& communicator) {
  Ladder above;
  switch (generation_of(communicator)) {
    case Generation::blackwell:
      if (communicator.version >= Version{2, 28, 0}) above.push_back(96);
      if (communicator.version >= Version{2, 30, 0}) above.push_back(86);
      if (communicator.version >= Version{2, 29, 0}) above.push_back(80);
      [[fallthrough]];
    case Generation::hopper:
      for (const double speed : {48.0, 45.0, 42.0, 40.0, 30.0, 24.0, 22.0, 20.0, 17.5, 15.0, 12.0,
                                 6.0, 3.0, 2.4, 1.2, 0.24, 0.12})
        above.push_back(speed);
      return above;
    default: return {48, 30, 28, 24, 20, 18, 15, 12, 10, 9, 7, 6, 5, 4, 3, 2.4, 1.2, 0.24, 0.12};
  }
}

/// Sums of rounded figures may miss a limit by their last digit.
bool fits(BytesPerSecond sum, BytesPerSecond limit) { return sum <= (1 + 1e-9) * limit; }

struct Search {
  BytesPerSecond fastest;   // one channel at most
  BytesPerSecond capacity;  // all channels together at most
  int most_channels;
};

Graph best_graph(const Ladder& ladder, const Search& search) {
  Graph best;
  for (const double step : ladder) {
    const BytesPerSecond speed = giga(step);
    if (!fits(speed, search.fastest) || !fits(speed, search.capacity)) continue;
    // The search gives up below half of the speed it has found something at (ncclTopoCompute).
    if (best.channels > 0 && speed / best.intra <= 0.49) break;
    const int channels =
        std::min(search.most_channels, static_cast<int>(search.capacity / speed * (1 + 1e-9)));
    if (channels * speed > static_cast<double>(best.channels) * best.intra)
      best = {channels, speed, speed};
  }
  // "Could not find a path, falling back to simple order".
  if (best.channels == 0) return {1, giga(0.1), giga(0.1)};
  return best;
}

/// ncclTopoDupChannels: two channels on the way of one.
Graph duplicated(Graph graph, const Communicator& communicator) {
  if (graph.intra < giga(25)) return graph;
  if (communicator.compute_capability > 80 && graph.intra < giga(50) && graph.channels > 4)
    return graph;
  const int channels = std::min(2 * graph.channels, channel_limit(communicator.version) / 2);
  const int sharing = (channels + graph.channels - 1) / graph.channels;
  return {channels, graph.intra / sharing, graph.inter / sharing};
}

BytesPerSecond nvlink_total(const Communicator& communicator) {
  return communicator.nvlinks * nvlink_speed(communicator);
}

/// What the rings, or chains, inside a node may add up to. Over several nodes one GPU of each
/// channel sends to its NIC and not to another GPU.
Search inside_a_node(const Communicator& communicator) {
  const int gpus = gpus_per_node(communicator);
  const int most = channel_limit(communicator.version) / 2;
  if (over_nvlink(communicator) && communicator.nvswitch) {
    const double share = communicator.nodes > 1 ? (gpus - 1.0) / gpus : 1.0;
    const BytesPerSecond total = nvlink_total(communicator);
    return {.fastest = total, .capacity = total / share, .most_channels = most};
  }
  if (over_nvlink(communicator)) {
    const BytesPerSecond link = nvlink_speed(communicator);
    return {.fastest = link,
            .capacity = communicator.mesh_rings * link,
            .most_channels = std::min(most, communicator.mesh_rings)};
  }
  return {.fastest = communicator.pci, .capacity = communicator.pci, .most_channels = 1};
}

/// What a NIC gets: its PCIe slot may be slower than its port.
BytesPerSecond nic_speed(const Communicator& communicator) {
  if (communicator.pci <= BytesPerSecond{}) return communicator.nic;
  return std::min(communicator.nic, communicator.pci);
}

int heads(const Communicator& communicator) {
  return std::clamp(communicator.nics_per_node, 1, gpus_per_node(communicator));
}

Graph ring_over_nodes(const Communicator& communicator) {
  const BytesPerSecond nic = nic_speed(communicator);
  Search search{
      .fastest = nic, .capacity = heads(communicator) * nic, .most_channels = heads(communicator)};
  if (gpus_per_node(communicator) > 1) {
    const Search inside = inside_a_node(communicator);
    search.fastest = std::min(search.fastest, inside.fastest);
    search.capacity = std::min(search.capacity, inside.capacity);
    search.most_channels = std::min(search.most_channels, inside.most_channels);
  }
  return best_graph(inter_ladder(communicator), search);
}

/// The tree takes the ring's channels; inside a node it may be up to twice as fast as between
/// nodes, for a GPU passes on what two children send (ncclTopoCompute, pass 2).
Graph tree_over_nodes(const Communicator& communicator, Graph ring) {
  const bool alone = gpus_per_node(communicator) == 1;
  if (!alone && !(communicator.nvswitch && over_nvlink(communicator))) return ring;
  const BytesPerSecond capacity = inside_a_node(communicator).capacity;
  const Ladder ladder = inter_ladder(communicator);
  Graph tree = ring;
  for (auto step = ladder.rbegin(); step != ladder.rend(); ++step) {
    const BytesPerSecond speed = giga(*step);
    if (speed <= tree.intra) continue;
    if (tree.intra >= 2 * tree.inter) break;
    if (!alone && !fits(tree.channels * speed, capacity)) break;
    tree.intra = speed;
  }
  return tree;
}

/// Each channel has one GPU, its head, that pulls from and pushes to the switch for all. The search
/// charges the head twice: (channels + 1) * speed on its NVLinks (ncclTopoSearchTryNvls). H100: 9 *
/// 40 GB/s; NCCL 2.19 prints `Pattern 5 nChannels 8, bw 40/60` (nccl issue 1197). Empty where even
/// the slowest channel does not fit.
std::optional<Graph> nvls_graph(const Communicator& communicator) {
  const bool one_node = communicator.nodes == 1;
  const int channels = one_node ? gpus_per_node(communicator) : heads(communicator);
  const Ladder ladder = one_node ? intra_ladder(communicator) : inter_ladder(communicator);
  const BytesPerSecond total = nvlink_total(communicator);
  const BytesPerSecond port = one_node ? total : nic_speed(communicator);
  const auto found = std::find_if(ladder.begin(), ladder.end(), [&](double step) {
    return fits((channels + 1) * giga(step), total) && fits(giga(step), port);
  });
  if (found == ladder.end()) return std::nullopt;
  Graph graph{channels, giga(*found), giga(*found)};
  // Between nodes it may be up to twice as fast, where the NIC is (ncclTopoCompute, pass 2).
  for (auto step = ladder.rbegin(); step != ladder.rend(); ++step) {
    const BytesPerSecond speed = giga(*step);
    if (speed > graph.inter && graph.inter < 2 * graph.intra && fits(speed, port))
      graph.inter = speed;
  }
  return graph;
}

}  // namespace

std::optional<Version> parse_version(std::string_view text) {
  Version version;
  const char* at = text.data();
  const char* const end = at + text.size();
  for (int* number : {&version.major, &version.minor, &version.patch}) {
    if (number != &version.major && (at == end || *at++ != '.')) return std::nullopt;
    if (at == end || *at == '-') return std::nullopt;
    const auto [after, error] = std::from_chars(at, end, *number);
    if (error != std::errc{}) return std::nullopt;
    at = after;
  }
  if (at != end) return std::nullopt;
  return version;
}

std::string to_string(Version version) {
  return fmt::format("{}.{}.{}", version.major, version.minor, version.patch);
}

Generation generation_of(const Communicator& communicator) {
  if (communicator.compute_capability >= 100 && communicator.version >= Version{2, 25, 0})
    return Generation::blackwell;
  if (communicator.compute_capability >= 90) return Generation::hopper;
  if (communicator.compute_capability >= 80) return Generation::ampere;
  return Generation::volta;
}

int gpus_per_node(const Communicator& communicator) {
  return std::max(1, communicator.ranks / communicator.nodes);
}

bool over_nvlink(const Communicator& communicator) {
  return gpus_per_node(communicator) > 1 && communicator.nvlinks > 0 &&
         (communicator.nvswitch || communicator.mesh_rings > 0);
}

BytesPerSecond nvlink_speed(const Communicator& communicator) {
  // topo.h:15-32
  const Version& version = communicator.version;
  if (communicator.compute_capability >= 100)
    return giga(version < Version{2, 28, 0} ? 40.0 : 40.1);
  if (communicator.compute_capability >= 90) return giga(version < Version{2, 19, 0} ? 20.0 : 20.6);
  if (communicator.compute_capability == 86) return giga(12.0);
  return giga(communicator.compute_capability >= 70 ? 20.0 : 18.0);
}

int channel_limit(Version version) { return version < Version{2, 25, 0} ? 32 : 64; }

std::string why_no_nvls(const Communicator& communicator) {
  if (!communicator.nvls_enabled) return "NVLS is off";
  if (communicator.compute_capability < 90 || !communicator.nvswitch || !communicator.nvlink_sharp)
    return "needs switches with NVLink SHARP";
  // nvls.cc, ncclNvlsInit: gpuCount <= 2 returns.
  if (gpus_per_node(communicator) < 3) return "needs 3 GPUs of a node";
  return "";
}

Graphs search_graphs(const Communicator& communicator) {
  Graphs graphs;
  if (communicator.nodes == 1) {
    const Graph found = best_graph(intra_ladder(communicator), inside_a_node(communicator));
    graphs.ring = graphs.tree = duplicated(found, communicator);
    graphs.same_channels = communicator.nvswitch || found.channels == 1;
  } else {
    const Graph found = ring_over_nodes(communicator);
    graphs.ring = duplicated(found, communicator);
    graphs.tree = tree_over_nodes(communicator, graphs.ring);
    graphs.same_channels = found.channels == 1;
    // "Try a simpler tree" (ncclTopoCompute): since Hopper. Before, the NIC's traffic is balanced
    // over two GPUs; with one GPU in a node there is nothing to balance.
    graphs.tree_pattern = communicator.compute_capability >= 90 || gpus_per_node(communicator) == 1;
  }
  if (why_no_nvls(communicator).empty()) graphs.nvls = nvls_graph(communicator);
  return graphs;
}

}  // namespace stepcast::nccl
