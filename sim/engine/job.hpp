// What an engine is given: one training step, ready to be put on the clock.
#pragma once

#include <cstddef>
#include <vector>

#include "base/units.hpp"
#include "collective/lower.hpp"
#include "workload/program.hpp"

namespace stepcast {

/// What a kernel and a collective that run at the same time on a GPU take, in units of what they
/// take alone.
struct Interference {
  double computation = 1.0;
  double communication = 1.0;
  enum class Basis { none, set, measured, modelled } basis = Basis::none;
  /// What computation takes while no byte of the collective moves: never more than above.
  double waiting = computation;
};
[[nodiscard]] const char* to_string(Interference::Basis basis);

struct Job {
  Cluster cluster;
  Program program;
  /// Equal collectives share one schedule: collectives[c] is lowered[lowered_of[c]].
  std::vector<LoweredCollective> lowered;
  std::vector<std::size_t> lowered_of;
  /// By rank, what its computation takes in units of the trace's; empty: 1 on all.
  std::vector<double> pace = {};
  /// By lowered collective; empty: nothing is slowed.
  std::vector<Interference> interference = {};
  bool fold = true;  ///< ranks that are alike are walked through the program once

  [[nodiscard]] double pace_of(std::size_t rank) const { return pace.empty() ? 1.0 : pace[rank]; }
  [[nodiscard]] Interference interference_of(std::size_t collective) const {
    return interference.empty() ? Interference{} : interference[lowered_of[collective]];
  }
  /// Steps that are simulated before the one that counts, all ranks beginning each together: what
  /// it finds of the host's lead, and of how much of each collective runs beside computation.
  [[nodiscard]] int warm_ups() const;

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
