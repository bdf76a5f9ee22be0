// Which connections of a collective do the same at the same times, found by colour refinement.
#pragma once

#include <vector>

#include "collective/lower.hpp"
#include "engine/groups.hpp"

namespace stepcast {

/// An equitable partition (docs/model.md §4.1): connections of a class carry the same sizes at the
/// same costs, wait in the same places for connections of the same classes, join ends of the same
/// classes and pass links of the same classes; links of a class have the same rate and, by class,
/// the same connections on them; ends of a class have the same connections. A class goes by its
/// first member.
struct Alike {
  std::vector<int> connection;  ///< the first one of its class, by connection
  std::vector<int> link;
  std::vector<int> end;  ///< of ranks and switches
};

/// One that is coarse. `schedule` is the collective's, written out, and `queues` are the transfers
/// of each of its connections. Where hardly two connections are alike each is a class of its own.
[[nodiscard]] Alike find_alike(const LoweredCollective& collective, const Schedule& schedule,
                               const Groups<int>& queues,
                               const std::vector<BytesPerSecond>& bandwidths);
/// Each a class of its own.
[[nodiscard]] Alike none_alike(const Schedule& schedule, std::size_t links);

}  // namespace stepcast
