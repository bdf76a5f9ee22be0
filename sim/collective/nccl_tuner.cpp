#include "collective/nccl_tuner.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <limits>

namespace stepcast::nccl {
namespace {

// The tables of NCCL, v2.28.9-1 src/graph/tuning.cc unless a line says otherwise, in its units: us
// and GB/s (1e9). Where versions differ, a function of the version.

constexpr Seconds us(double value) { return Seconds{1e-6 * value}; }

constexpr Version v2_18_1{2, 18, 1};
constexpr Version v2_18_3{2, 18, 3};
constexpr Version v2_19{2, 19, 0};
constexpr Version v2_21{2, 21, 0};
constexpr Version v2_23{2, 23, 0};
constexpr Version v2_27{2, 27, 0};
constexpr Version v2_28{2, 28, 0};
constexpr Version v2_28_9{2, 28, 9};
constexpr Version v2_29{2, 29, 0};
constexpr Version v2_30{2, 30, 0};

using ByProtocol = std::array<double, 3>;     // LL, LL128, Simple
using ByNodes = std::array<double, 3>;        // one node, two, more
using ByGeneration = std::array<ByNodes, 4>;  // Volta, Ampere, Hopper, Blackwell

enum class Hop { nvlink, pci, net };

template <class Enum>
constexpr std::size_t index(Enum value) {
  return static_cast<std::size_t>(value);
}

/// us, baseLatencies.
ByProtocol base_latency(Version version, Algorithm algorithm) {
  switch (algorithm) {
    case Algorithm::tree: return {6.8, 14.0, version < v2_23 ? 0.0 : 8.4};
    case Algorithm::ring: return {6.6, 14.0, 8.4};
    default: return {0.0, 0.0, version < v2_19 ? 23.0 : 0.0};
  }
}

/// us, of one hop of Tree/Simple. Until 2.22, but for late 2.18, it stood for a whole chunk of
/// 256 KiB, which in effect kept trees out of a node.
double tree_simple_hop(Version version, Hop hop) {
  if (version < v2_18_3 || (version >= v2_19 && version < v2_23)) return 28.0;
  switch (hop) {
    case Hop::nvlink: return 4.0;
    case Hop::pci: return version < v2_23 ? 6.0 : 4.0;
    default: return 14.0;
  }
}

/// us, hwLatencies (:149).
ByProtocol hop_latency(Version version, Hop hop, Algorithm algorithm) {
  const double nvls = version < v2_19 ? 0.0 : version < v2_21 ? 23.0 : 25.0;
  const double nvls_tree_net = version < v2_19 ? 19.0 : version < v2_28_9 ? 14.0 : 20.9;
  const double tree = tree_simple_hop(version, hop);
  switch (hop) {
    case Hop::nvlink:
      if (algorithm == Algorithm::tree) return {0.6, 1.25, tree};
      if (algorithm == Algorithm::ring) return {0.6, 1.9, 3.4};
      return {0.0, 0.0, nvls};
    case Hop::pci:
      if (algorithm == Algorithm::tree) return {1.0, 1.9, tree};
      if (algorithm == Algorithm::ring) return {1.0, 2.5, 5.7};
      return {0.0, 0.0, 0.0};
    default:
      if (algorithm == Algorithm::tree) return {5.0, 8.5, tree};
      if (algorithm == Algorithm::ring) return {2.7, 4.0, 14.0};
      return {0.0, 0.0, algorithm == Algorithm::nvls ? 18.0 : nvls_tree_net};
  }
}

/// GB/s, llMaxBws (:169).
ByGeneration ll_most(Version version) {
  return {{{39.0, 39.0, 20.4},
           {87.7, 22.5, 19.0},
           version < v2_21 ? ByNodes{87.7, 22.5, 19.0} : ByNodes{141.0, 45.0, 35.0},
           {282.0, 90.0, 70.0}}};
}

/// GB/s per channel, perChMaxRingLL128Bws (:175).
ByGeneration ring_ll128_most(Version version) {
  ByNodes blackwell{73.4, 73.4, 73.4};
  if (version >= v2_29)
    blackwell = {40.0, 40.0, 40.0};
  else if (version >= v2_28_9)
    blackwell = {73.4, 34.6, 73.4};
  return {{{20.0, 20.0, 20.0}, {20.0, 20.0, 20.0}, {36.7, 36.7, 36.7}, blackwell}};
}

/// GB/s per channel, perChMaxTreeLL128Bws (:181).
ByGeneration tree_ll128_most(Version version) {
  return {{{20.0, 20.0, 20.0},
           {20.0, 20.0, 20.0},
           {36.7, 36.7, 29.0},
           version < v2_28 ? ByNodes{73.4, 73.4, 58.0} : ByNodes{55.6, 31.67, 20.0}}};
}

/// GB/s per channel, perChMaxTreeBws (:187).
ByGeneration tree_most(Version version) {
  return {{{26.5, 18.5, 10.0},
           {24.0, 23.6, 17.8},
           {38.7, 41.4, version < v2_18_3 ? 33.0 : 36.0},
           version < v2_28 ? ByNodes{77.4, 82.8, 72.0} : ByNodes{70.0, 42.8, 24.0}}};
}

/// GB/s per channel since 2.28, perChMaxNVLSTreeBws (:193).
ByGeneration nvls_tree_most(Version version) {
  const double blackwell = version < v2_28_9 ? 43.1 : version < v2_30 ? 43.8 : 80.0;
  return {{{26.5, 18.5, 10.0}, {24.0, 23.6, 17.8}, {0.0, 57.7, 45.5}, {0.0, 96.0, blackwell}}};
}

/// Since 2.28, nvlsEfficiency (:134), by generation.
constexpr std::array<double, 4> nvls_efficiency{0.0, 0.0, 0.85, 0.74};

/// "Trees are not perfectly sticking to the model for medium sizes": by protocol and powers of two
/// from 64 B to 256 MiB, treeCorrectionFactor.
constexpr std::array<std::array<double, 23>, 3> tree_correction{{
    {1.0, 1.0, 1.0, 1.0, 0.9, 0.8, 0.7, 0.7, 0.7, 0.7, 0.6, 0.5,
     0.4, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.0, 1.0, 1.0},
    {1.0, 1.0, 1.0, 1.0, 1.0, 0.9, 0.8, 0.8, 0.8, 0.7, 0.6, 0.6,
     0.6, 0.6, 0.6, 0.6, 0.8, 0.9, 0.9, 0.9, 0.9, 1.0, 1.0},
    {0.9, 0.9, 0.9, 0.9, 0.9, 0.9, 0.9, 0.8, 0.7, 0.6, 0.6, 0.5,
     0.5, 0.5, 0.5, 0.6, 0.7, 0.8, 0.7, 0.7, 0.8, 0.9, 0.9},
}};

/// A communicator with what the formulas need of it.
struct Setting {
  const Communicator& communicator;
  const Graphs& graphs;
  Operation operation;
  Version version = std::max(communicator.version, v2_18_1);
  double ranks = communicator.ranks;
  double nodes = communicator.nodes;
  double per_node = ranks / nodes;
  std::size_t generation = index(generation_of(communicator));
  std::size_t scale = static_cast<std::size_t>(std::min(communicator.nodes, 3) - 1);
  Hop inside = over_nvlink(communicator) ? Hop::nvlink : Hop::pci;

  [[nodiscard]] bool one_node() const { return communicator.nodes == 1; }
  [[nodiscard]] bool all_reduce() const { return operation == Operation::all_reduce; }
  /// Steps of a ring, nsteps.
  [[nodiscard]] double steps() const {
    switch (operation) {
      case Operation::all_reduce: return 2 * (ranks - 1);
      case Operation::broadcast: return ranks;
      default: return ranks - 1;
    }
  }
  /// GB/s as a rate, of the row and column of this communicator.
  [[nodiscard]] BytesPerSecond most(const ByGeneration& table) const {
    return giga(table[generation][scale]);
  }
  /// On one node the GPU sets the limit of LL, on several the CPU: Ampere's row stands for AMD's,
  /// Volta's for Intel's (:240-258).
  [[nodiscard]] BytesPerSecond most_of_ll() const {
    const std::size_t by_cpu =
        index(communicator.cpu == Cpu::amd ? Generation::ampere : Generation::volta);
    return giga(ll_most(version)[one_node() ? generation : by_cpu][scale]);
  }
};

/// A graph's speed: of the intra-node links also over two nodes.
BytesPerSecond channel_speed(const Setting& setting, const Graph& graph) {
  return setting.communicator.nodes <= 2 ? graph.intra : graph.inter;
}

BytesPerSecond ring_bus(const Setting& setting, Protocol protocol) {
  const Graph& ring = setting.graphs.ring;
  const BytesPerSecond bus = ring.channels * channel_speed(setting, ring);
  switch (protocol) {
    case Protocol::ll: {
      // Half of each 8 B is a flag. The third and the quarter of old were measured.
      double share = 0.5;
      if (setting.version < v2_21)
        share = setting.one_node() && !setting.all_reduce() ? 1.0 / 3.0 : 0.25;
      return std::min(setting.most_of_ll(), share * bus);
    }
    case Protocol::ll128: {
      const double share = setting.version < v2_23 && setting.per_node < 2 ? 0.7 : 0.92;
      return std::min(share * bus, ring.channels * setting.most(ring_ll128_most(setting.version)));
    }
    default: return bus;
  }
}

BytesPerSecond tree_bus(const Setting& setting, Protocol protocol) {
  const Graph& tree = setting.graphs.tree;
  BytesPerSecond bus = std::min(0.92 * (tree.channels * channel_speed(setting, tree)),
                                tree.channels * setting.most(tree_most(setting.version)));
  if (protocol == Protocol::ll) bus = std::min(bus / 3.8, setting.most_of_ll());
  if (protocol == Protocol::ll128)
    bus = std::min((setting.one_node() ? 7.0 / 9.0 : 120.0 / 128.0) * bus,
                   tree.channels * setting.most(tree_ll128_most(setting.version)));
  if (setting.graphs.tree_pattern && setting.version >= v2_18_3) bus = 0.85 * bus;
  return bus;
}

BytesPerSecond nvls_bus(const Setting& setting, Algorithm algorithm) {
  const Graph& graph = *setting.graphs.nvls;
  const bool over_nodes = algorithm == Algorithm::nvls_tree;
  const bool two_nodes = setting.communicator.nodes == 2;
  const double others = (setting.per_node - 1) / setting.per_node;
  if (setting.version >= v2_28) {
    const double heads = (graph.channels - 1.0) / graph.channels;
    BytesPerSecond speed = nvls_efficiency[setting.generation] * heads *
                           (setting.all_reduce() ? 2.0 : others) * graph.intra;
    speed = std::min(speed, over_nodes && two_nodes ? 2 * graph.inter : graph.inter);
    if (over_nodes) speed = std::min(speed, setting.most(nvls_tree_most(setting.version)));
    return graph.channels * speed;
  }
  if (setting.version < v2_19) return graph.channels * channel_speed(setting, graph);
  if (over_nodes)
    return graph.channels * std::min(graph.intra, two_nodes ? graph.inter : graph.inter / 2);
  if (setting.version >= v2_27 && !setting.all_reduce())
    return graph.channels * std::min(others * graph.intra, 0.9 * graph.inter);
  return graph.channels * std::min(graph.intra, graph.inter);
}

/// From the bytes on a channel's links to bytes of the buffer.
double bus_to_buffer(const Setting& setting, Algorithm algorithm) {
  if (algorithm == Algorithm::ring) return setting.ranks / setting.steps();
  if (setting.version >= v2_23 && !setting.all_reduce()) return 1.0;
  if (algorithm == Algorithm::tree) return 0.5;
  if (setting.version >= v2_28) return setting.ranks / setting.steps();
  if (setting.version < v2_19 && algorithm == Algorithm::nvls_tree)
    return 0.7 * setting.nodes / (2 * (setting.nodes - 1));
  return setting.version < v2_18_3 ? 0.75 : 5.0 / 6.0;
}

BytesPerSecond bandwidth_of(const Setting& setting, Algorithm algorithm, Protocol protocol) {
  const double share = bus_to_buffer(setting, algorithm);
  switch (algorithm) {
    case Algorithm::ring: return share * ring_bus(setting, protocol);
    case Algorithm::tree: return share * tree_bus(setting, protocol);
    default: return share * nvls_bus(setting, algorithm);
  }
}

/// "Inter-node rings still have to launch nsteps * net overhead" (getNetOverhead).
Seconds net_overhead(const Setting& setting, Protocol protocol) {
  if (setting.one_node()) return us(0);
  const double posts = protocol == Protocol::simple ? 3.0 : 1.0;
  return posts * us(setting.communicator.cpu == Cpu::amd ? 2.0 : 1.0);
}

Seconds latency_of(const Setting& setting, Algorithm algorithm, Protocol protocol) {
  const Version version = setting.version;
  const auto hop = [&](Hop kind, Algorithm of) {
    return us(hop_latency(version, kind, of)[index(protocol)]);
  };
  const Seconds base = us(base_latency(version, algorithm)[index(protocol)]);
  const Seconds intra = hop(setting.inside, algorithm);
  // "With ppn=1 latencies are fully exposed, use the Tree network latency"; Simple also flushes.
  const bool exposed = setting.per_node == 1 && version >= v2_23;
  const Seconds inter =
      hop(Hop::net, exposed ? Algorithm::tree : algorithm) +
      (protocol == Protocol::simple ? 2.0 : 1.0) * setting.communicator.net_latency;
  const int rounds = std::bit_width(static_cast<unsigned>(setting.communicator.nodes)) - 1;
  const double nodes = setting.nodes;
  switch (algorithm) {
    case Algorithm::ring: {
      if (setting.operation == Operation::broadcast) {
        const Hop kind = setting.one_node() ? setting.inside : Hop::net;
        if (setting.graphs.same_channels) return base + hop(kind, Algorithm::ring);
        // "Add some chunk latency, waiting for proper chunk modeling."
        const bool whole_chunks = protocol == Protocol::simple;
        return base + setting.steps() * hop(kind, whole_chunks ? Algorithm::tree : Algorithm::ring);
      }
      double inter_steps = 0;
      if (!setting.one_node()) {
        inter_steps = nodes - 1;
        if (setting.all_reduce()) inter_steps = version < v2_23 ? 2 * nodes : 2 * (nodes - 1);
      }
      return base +
             (setting.steps() - inter_steps) * std::max(intra, net_overhead(setting, protocol)) +
             inter_steps * inter;
    }
    case Algorithm::tree:
      return base + 2 * ((gpus_per_node(setting.communicator) - 1) * intra + rounds * inter);
    case Algorithm::nvls: return base + intra;
    case Algorithm::nvls_tree:
      return base + intra + 2 * (version < v2_19 ? nodes - 1 : rounds) * inter;
  }
  return base;
}

/// What NCCL does not run, or leaves off unless asked (:405-500).
std::string why_not(const Setting& setting, Algorithm algorithm, Protocol protocol) {
  const Communicator& communicator = setting.communicator;
  const bool multicast = algorithm == Algorithm::nvls || algorithm == Algorithm::nvls_tree;
  if (communicator.ranks < 2) return "needs 2 ranks";
  if (setting.operation == Operation::broadcast && algorithm != Algorithm::ring)
    return "broadcast: Ring only";
  if (!setting.all_reduce() && (algorithm == Algorithm::tree || algorithm == Algorithm::nvls_tree))
    return "all_reduce only";
  if (multicast && protocol != Protocol::simple) return to_string(algorithm) + ": Simple only";
  if (algorithm == Algorithm::nvls && !setting.one_node()) return "needs CollNet across nodes";
  if (algorithm == Algorithm::nvls_tree && setting.one_node()) return "off on one node";
  if (multicast) {
    std::string no_graph = why_no_nvls(communicator);
    if (!no_graph.empty()) return no_graph;
    if (!setting.graphs.nvls) return "no NVLS graph was found";
    if (setting.version >= v2_28 && setting.graphs.nvls->channels < 2) return "needs 2 NICs";
  }
  if (protocol == Protocol::ll128) {
    if (communicator.compute_capability < 70) return "LL128 needs compute capability 7.0";
    if (gpus_per_node(communicator) > 1 && !over_nvlink(communicator))
      return "LL128 needs NVLink inside a node";
  }
  return "";
}

/// The factor on a tree's bandwidth (ncclTopoGetAlgoTime, :584-600).
double correction(const Candidate& candidate, const Communicator& communicator, Operation operation,
                  Bytes bytes) {
  const bool blackwell_nvls_tree = candidate.algorithm == Algorithm::nvls_tree &&
                                   communicator.version >= v2_29 && communicator.cpu != Cpu::arm &&
                                   communicator.compute_capability >= 100;
  if (operation != Operation::all_reduce) return 1.0;
  if (candidate.algorithm != Algorithm::tree && !blackwell_nvls_tree) return 1.0;
  const auto& factors = tree_correction[index(candidate.protocol)];
  const auto blocks = static_cast<std::uint64_t>(bytes.value()) / 64;
  const auto power = static_cast<std::size_t>(std::bit_width(blocks));  // log2 + 1, or 0
  return power == 0 || power > factors.size() ? 1.0 : factors[power - 1];
}

struct Threads {
  int per_channel;
  double bytes_each;  ///< below this a channel is not worth having
};

/// maxThreads and threadThresholds.
Threads threads_of(const Communicator& communicator, const Graphs& graphs, Algorithm algorithm,
                   Protocol protocol) {
  const bool ring = algorithm == Algorithm::ring;
  switch (protocol) {
    case Protocol::ll: return {512, ring ? 8.0 * communicator.ranks : 8.0};
    case Protocol::ll128: return {640, 8.0};
    default: break;
  }
  // A ring no faster than one PCIe gen3 slot needs half of them.
  const bool slow = graphs.ring.channels * graphs.ring.intra <= giga(12);
  return {ring && slow ? 256 : 512, 64.0};
}

}  // namespace

std::string to_string(Algorithm algorithm) {
  switch (algorithm) {
    case Algorithm::tree: return "Tree";
    case Algorithm::ring: return "Ring";
    case Algorithm::nvls: return "NVLS";
    case Algorithm::nvls_tree: return "NVLSTree";
  }
  return "";
}

std::string to_string(Protocol protocol) {
  switch (protocol) {
    case Protocol::ll: return "LL";
    case Protocol::ll128: return "LL128";
    case Protocol::simple: return "Simple";
  }
  return "";
}

std::vector<Candidate> cost_table(const Communicator& communicator, const Graphs& graphs,
                                  Operation operation) {
  const Setting setting{communicator, graphs, operation};
  std::vector<Candidate> table;
  for (const Algorithm algorithm :
       {Algorithm::tree, Algorithm::ring, Algorithm::nvls, Algorithm::nvls_tree}) {
    for (const Protocol protocol : {Protocol::ll, Protocol::ll128, Protocol::simple}) {
      Candidate candidate;
      candidate.algorithm = algorithm;
      candidate.protocol = protocol;
      candidate.why_not = why_not(setting, algorithm, protocol);
      if (candidate.possible()) {
        candidate.latency = latency_of(setting, algorithm, protocol);
        candidate.bandwidth = bandwidth_of(setting, algorithm, protocol);
      }
      table.push_back(candidate);
    }
  }
  return table;
}

Seconds time_of(const Candidate& candidate, const Communicator& communicator, const Graphs& graphs,
                Operation operation, Bytes bytes) {
  assert(candidate.possible());
  Seconds latency = candidate.latency;
  const bool ring_over_nodes = candidate.algorithm == Algorithm::ring &&
                               candidate.protocol == Protocol::simple && communicator.nodes > 1 &&
                               operation == Operation::all_reduce;
  const double channels = channels_launched(communicator, graphs, candidate.algorithm);
  // "Plateau effect of ring".
  if (ring_over_nodes && bytes.value() >= 64 * channels * communicator.ranks)
    latency = (communicator.compute_capability < 80 ? 1.9 : 1.4) * latency;
  return latency +
         bytes / (correction(candidate, communicator, operation, bytes) * candidate.bandwidth);
}

const Candidate* pick(const std::vector<Candidate>& table, const Communicator& communicator,
                      const Graphs& graphs, Operation operation, Bytes bytes) {
  const Candidate* best = nullptr;
  Seconds shortest{std::numeric_limits<double>::infinity()};
  for (const Candidate& candidate : table) {
    if (!candidate.possible()) continue;
    const Seconds time = time_of(candidate, communicator, graphs, operation, bytes);
    if (time >= shortest) continue;
    shortest = time;
    best = &candidate;
  }
  return best;
}

int channels_launched(const Communicator& communicator, const Graphs& graphs, Algorithm algorithm) {
  const int limit = channel_limit(communicator.version);
  if (algorithm == Algorithm::nvls || algorithm == Algorithm::nvls_tree) {
    // nvls.cc: NVLS_NCHANNELS_SM90, _SM100_NVL and _SM100.
    if (generation_of(communicator) != Generation::blackwell) return 16;
    return communicator.nodes == 1 ? 24 : 32;
  }
  // Rings and trees share their channels (init.cc), two for each of the graph (connect.cc:452),
  // and four where a channel is faster than 45 GB/s (:473).
  int channels = std::min(limit, 2 * std::min(graphs.ring.channels, graphs.tree.channels));
  if (communicator.compute_capability >= 90 && communicator.nodes > 1 &&
      graphs.ring.intra > giga(45) && channels < 16)
    channels = std::min(limit, 2 * channels);
  return channels;
}

int channels_for(const Communicator& communicator, const Graphs& graphs, Algorithm algorithm,
                 Protocol protocol, Bytes bytes) {
  int channels = channels_launched(communicator, graphs, algorithm);
  // NVLS always takes all (topoGetAlgoInfo, enqueue.cc:1865-1912).
  if (algorithm == Algorithm::nvls || algorithm == Algorithm::nvls_tree) return channels;
  const Threads threads = threads_of(communicator, graphs, algorithm, protocol);
  while (channels > 1 && bytes.value() < channels * threads.per_channel * threads.bytes_each)
    --channels;
  return channels;
}

RingLatency ring_latency(Protocol protocol) {
  constexpr Version any = v2_18_1;  // a ring's have never changed since
  const auto hop = [&](Hop kind) {
    return us(hop_latency(any, kind, Algorithm::ring)[index(protocol)]);
  };
  return {.base = us(base_latency(any, Algorithm::ring)[index(protocol)]),
          .nvlink = hop(Hop::nvlink),
          .pci = hop(Hop::pci),
          .net = hop(Hop::net)};
}

BytesPerSecond channel_rate(const Communicator& communicator) {
  const Version version = std::max(communicator.version, v2_18_1);
  return giga(tree_most(version)[index(generation_of(communicator))][0]);
}

double switch_sum_efficiency(const Communicator& communicator) {
  const double efficiency = nvls_efficiency[index(generation_of(communicator))];
  return efficiency > 0.0 ? efficiency : 1.0;
}

}  // namespace stepcast::nccl
