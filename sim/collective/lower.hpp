// From "AllReduce S bytes" to transfers on links: the schedule of what was chosen, with its routes
// and overheads.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "base/basis.hpp"
#include "base/units.hpp"
#include "collective/choice.hpp"
#include "collective/cluster.hpp"
#include "collective/rings.hpp"
#include "collective/schedule.hpp"
#include "input/collective_settings.hpp"

namespace stepcast {

/// Where nodes are alike, the schedule is of the first ones only, as if they were all: what happens
/// on them repeats on the others (docs/model.md §4.1).
struct NodeFold {
  int period = 0;  ///< node i does the same as node i - period
  int nodes = 0;   ///< those in the schedule

  /// The rank in the schedule that does the same as this one.
  [[nodiscard]] int representative(int rank, const Cluster& cluster) const;
};

struct LoweredCollective {
  Operation operation = Operation::all_reduce;
  Bytes bytes;
  std::string algorithm;
  std::string protocol;
  int channels = 1;     ///< those that move alike are simulated as one, docs/model.md §2.1
  Bytes chunk;          ///< what one channel moves in a step, at most
  std::string chooser;  ///< who chose, for people
  std::vector<ConsideredChoice> considered;  ///< the one taken first, then by estimate
  Basis basis = Basis::mechanism;
  double relative_error = 0.0;  ///< of its time: how far the fit or the curve behind it is off
  Seconds launch;               ///< from the last rank's arrival to the first transfers
  Schedule schedule;
  bool may_fold = true;          ///< else every node and every connection is simulated
  std::optional<NodeFold> fold;  ///< of the schedule
  std::string why_not_folded;    ///< for people
  // For each connection of the schedule:
  std::vector<Route> routes;
  std::vector<Seconds> alpha;    ///< overhead of each transfer, during which the connection is busy
  std::vector<Seconds> latency;  ///< from the end of a transfer to its arrival; keeps nothing busy
  /// No connection is faster: what its channels' thread blocks can copy.
  BytesPerSecond channel_rate{std::numeric_limits<double>::infinity()};
  double work_per_byte = 1.0;        ///< what payload takes of a link's time: 1 / efficiency
  double wire_bytes_per_byte = 1.0;  ///< payload with the protocol's flags

  /// From the end of a transfer until the sender of one that depends on it knows, by their
  /// connections: at once if it sent both, when it arrives if it receives it, else with the word
  /// that the receiver has room.
  [[nodiscard]] Seconds time_to_know(int dependency, int transfer) const;
  [[nodiscard]] int representative(int rank, const Cluster& cluster) const {
    return fold ? fold->representative(rank, cluster) : rank;
  }
};

/// `rings` are find_rings(cluster); what the settings leave open is chosen (choice.hpp). Throws
/// InputError for what cannot run here, or a chunk so small that the schedule would not fit in
/// memory.
[[nodiscard]] LoweredCollective lower(Operation operation, Bytes bytes,
                                      const CollectiveSettings& settings, const Cluster& cluster,
                                      const std::vector<Ring>& rings);

/// How many connections pass each link.
[[nodiscard]] std::vector<int> connections_per_link(const LoweredCollective& collective,
                                                    std::size_t links);

/// The rate of each connection when each link is shared evenly by so many.
[[nodiscard]] std::vector<BytesPerSecond> rates_when_shared(
    const LoweredCollective& collective, const std::vector<BytesPerSecond>& bandwidths,
    const std::vector<int>& sharing);
/// The same with all connections of a link.
[[nodiscard]] std::vector<BytesPerSecond> even_share_rates(
    const LoweredCollective& collective, const std::vector<BytesPerSecond>& bandwidths);

}  // namespace stepcast
