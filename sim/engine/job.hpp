// What an engine is given: one training step, ready to be put on the clock.
#pragma once

#include <cstddef>
#include <vector>

#include "base/units.hpp"
#include "collective/lower.hpp"
#include "workload/program.hpp"

namespace stepcast {

struct Job {
  Cluster cluster;
  Program program;
  /// Equal collectives share one schedule: collectives[c] is lowered[lowered_of[c]].
  std::vector<LoweredCollective> lowered;
  std::vector<std::size_t> lowered_of;

  [[nodiscard]] const LoweredCollective& collective(std::size_t index) const {
    return lowered[lowered_of[index]];
  }
};

/// Lowers every collective of the program.
[[nodiscard]] Job make_job(Program program, const CollectiveSettings& settings,
                           const Cluster& cluster);

/// How often each collective runs in one step.
[[nodiscard]] std::vector<std::int64_t> runs_per_step(const Program& program);
/// Bytes on the wire of each link in one step, payload and protocol flags.
[[nodiscard]] std::vector<Bytes> wire_bytes_per_link(const Job& job);
/// Payload bytes that each rank sends in one step.
[[nodiscard]] std::vector<Bytes> sent_bytes_per_rank(const Job& job);

}  // namespace stepcast
