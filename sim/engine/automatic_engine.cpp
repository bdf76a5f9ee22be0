// Each distinct collective on the longest path where that is exact, on SimGrid where links are
// shared unevenly; then all ranks walk through the program.
#include "base/error.hpp"
#include "engine/engine.hpp"
#include "engine/walk.hpp"

namespace stepcast {
namespace {

/// The collectives one after the other, with nothing around them.
Job bare_job(const Job& job, const std::vector<std::size_t>& lowered) {
  Job bare{job.cluster, {}, {}, {}};
  Segment segment;
  for (const std::size_t index : lowered) {
    const LoweredCollective& collective = job.lowered[index];
    const auto place = static_cast<int>(bare.lowered.size());
    bare.program.collectives.push_back(
        {static_cast<std::int64_t>(collective.bytes.value()), {}, collective.operation});
    bare.lowered.push_back(collective);
    bare.lowered_of.push_back(bare.lowered_of.size());
    segment.tasks.emplace_back(Launch{place});
    segment.tasks.emplace_back(Wait{place});
  }
  bare.program.segments.push_back(std::move(segment));
  return bare;
}

}  // namespace

Simulation simulate(const Job& job) {
  std::vector<std::vector<Seconds>> done(job.lowered.size());
  std::vector<std::size_t> shared;
  for (std::size_t i = 0; i < job.lowered.size(); ++i) {
    try {
      done[i] = done_analytically(job.lowered[i], job.cluster);
    } catch (const SimulationError&) {
      shared.push_back(i);
    }
  }
  if (!shared.empty()) {
    const Timeline timeline = simulate_with_simgrid(bare_job(job, shared));
    for (std::size_t i = 0; i < shared.size(); ++i) {
      const Timeline::CollectiveTimes& times = timeline.collectives[i];
      for (const Seconds end : times.end) done[shared[i]].push_back(end - times.start);
    }
  }
  return {walk(job, done), !shared.empty()};
}

}  // namespace stepcast
