// The two ways to put a job on the clock. They share no code and must agree to 1e-9 wherever no
// link is contended; tests/property holds them to it.
#pragma once

#include "engine/job.hpp"
#include "engine/timeline.hpp"

namespace stepcast {

/// Fluid simulation on SimGrid: links are shared max-min fairly, whatever the schedule. SimGrid
/// allows one simulation per process, so call it inside run_isolated() (isolate.hpp).
/// Throws SimulationError naming what still waited when nothing could move any more.
[[nodiscard]] Timeline simulate_with_simgrid(const Job& job);

/// Longest path through the schedule, no fluid sharing: each connection gets an even share of its
/// links for good. The result is checked to be the max-min fair one at all times (docs/model.md
/// §4); where it is not, throws SimulationError naming the contended link.
[[nodiscard]] Timeline simulate_analytically(const Job& job);
/// When each rank is done with one collective, from the arrival of the last. Throws like the above.
[[nodiscard]] std::vector<Seconds> done_analytically(const LoweredCollective& collective,
                                                     const Cluster& cluster);

/// The same as SimGrid says, whatever the links. Each collective is simulated by itself, in a child
/// of its own, so that its times do not depend on what else is asked for, to the last bit. What any
/// process of this program has simulated is not simulated again (finished.hpp).
[[nodiscard]] std::vector<std::vector<Seconds>> done_on_simgrid(
    const std::vector<const LoweredCollective*>& collectives, const Cluster& cluster);

struct DoneTimes {
  std::vector<std::vector<Seconds>> by_collective;  ///< then by rank
  bool used_simgrid = false;
};
/// The same on the longest path where that is exact, else on SimGrid.
[[nodiscard]] DoneTimes done_times(const std::vector<const LoweredCollective*>& collectives,
                                   const Cluster& cluster);

struct Simulation {
  Timeline timeline;
  bool used_simgrid = false;
};
/// The same as SimGrid says, but each distinct collective is put on the clock once, and on SimGrid
/// only where its links are shared unevenly: in a job nothing but collectives meets on a link, and
/// they run one after the other.
[[nodiscard]] Simulation simulate(const Job& job);

}  // namespace stepcast
