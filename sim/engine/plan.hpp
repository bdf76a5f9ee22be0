// A collective's schedule as the SimGrid engine runs it: written out, with connections that are
// alike only once.
#pragma once

#include <optional>
#include <vector>

#include "collective/lower.hpp"
#include "engine/groups.hpp"

namespace stepcast {

struct Plan {
  /// Where channels are limited, connection i of the collective has a link of its own,
  /// *first_channel_link + i.
  Plan(const LoweredCollective& collective, const Cluster& cluster,
       std::optional<int> first_channel_link);

  struct Dependent {
    int transfer = 0;
    Seconds heard_after;  ///< from the end of what it waits for until its sender knows
  };

  Schedule schedule;  ///< without dependencies
  // By connection:
  std::vector<int> src, dst;            ///< the first ends of their classes
  std::vector<std::vector<int>> links;  ///< each as often as connections of this class pass it
  std::vector<Seconds> alpha, latency;
  Groups<int> queues;  ///< its transfers, in the order of service
  // By transfer:
  std::vector<int> dependencies;  ///< how many
  Groups<Dependent> dependents;
  // By rank:
  std::vector<int> representative;  ///< the one in the schedule that is done when it is
  Groups<int> followers;            ///< those whose representative it is, without itself
  /// Of each rank and switch: how many transfers it sends or receives.
  std::vector<int> transfers_of_end;
};

}  // namespace stepcast
