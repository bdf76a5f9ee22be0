// NCCL's cost model: what it expects each algorithm and protocol to take, and so which it picks.
// A port of src/graph/tuning.cc and of topoGetAlgoInfo in src/enqueue.cc, versions 2.18 to 2.30; an
// older version gets the tables of 2.18. PAT (one GPU per node) and CollNet are not here.
#pragma once

#include <string>
#include <vector>

#include "base/units.hpp"
#include "collective/nccl_graphs.hpp"
#include "workload/program.hpp"

namespace stepcast::nccl {

// In the order of NCCL, which of equals takes the first.
enum class Algorithm { tree, ring, nvls, nvls_tree };
enum class Protocol { ll, ll128, simple };

/// As NCCL_ALGO and NCCL_PROTO spell them: `Ring`, `NVLSTree`, `LL128`.
[[nodiscard]] std::string to_string(Algorithm algorithm);
[[nodiscard]] std::string to_string(Protocol protocol);

/// One line of the table that NCCL_DEBUG_SUBSYS=TUNING prints.
struct Candidate {
  Algorithm algorithm = Algorithm::ring;
  Protocol protocol = Protocol::simple;
  Seconds latency;
  BytesPerSecond bandwidth;  ///< of the whole buffer (algbw); 0 when it may not be taken
  std::string why_not;       ///< empty when it may
  [[nodiscard]] bool possible() const { return why_not.empty(); }
};

/// Every algorithm with every protocol.
[[nodiscard]] std::vector<Candidate> cost_table(const Communicator& communicator,
                                                const Graphs& graphs, Operation operation);

/// What NCCL expects for a buffer of `bytes` (of all ranks together for all_gather and
/// reduce_scatter), with its corrections for medium sizes. The candidate has to be possible.
[[nodiscard]] Seconds time_of(const Candidate& candidate, const Communicator& communicator,
                              const Graphs& graphs, Operation operation, Bytes bytes);

/// The cheapest of `table` that is possible; null when there is none.
[[nodiscard]] const Candidate* pick(const std::vector<Candidate>& table,
                                    const Communicator& communicator, const Graphs& graphs,
                                    Operation operation, Bytes bytes);

/// Channels of the communicator: each is one thread block, about one SM.
[[nodiscard]] int channels_launched(const Communicator& communicator, const Graphs& graphs,
                                    Algorithm algorithm);

/// Of those, what one call of `bytes` gets.
[[nodiscard]] int channels_for(const Communicator& communicator, const Graphs& graphs,
                               Algorithm algorithm, Protocol protocol, Bytes bytes);

/// Of a ring: what it takes besides its hops, and a hop of each kind.
struct RingLatency {
  Seconds base, nvlink, pci, net;
};
[[nodiscard]] RingLatency ring_latency(Protocol protocol);

/// What one channel's thread block moves at most each way: perChMaxTreeBws on one node.
[[nodiscard]] BytesPerSecond channel_rate(const Communicator& communicator);

/// Share of the NVLinks' rate that reductions in the switch get (nvlsEfficiency). 1 before Hopper,
/// which has none.
[[nodiscard]] double switch_sum_efficiency(const Communicator& communicator);

}  // namespace stepcast::nccl
