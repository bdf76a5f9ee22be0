#include "workload/replay.hpp"

#include <algorithm>
#include <cmath>

#include "workload/data_parallel.hpp"

namespace stepcast {
namespace {

Clocks after_pass(const Segment& segment, double pace, Clocks clocks) {
  for (const Task& task : segment.tasks) {
    const auto& compute = std::get<Compute>(task);
    if (compute.phase == Phase::host) {  // whatever the host does
      clocks.compute += compute.duration;
      continue;
    }
    clocks.compute = std::max(clocks.compute, clocks.host) + pace * compute.duration;
    clocks.host += compute.host;
    if (compute.host_waits) clocks.host = std::max(clocks.host, clocks.compute);
  }
  return clocks;
}

}  // namespace

Clocks after_passes(const Segment& segment, std::int64_t passes, double pace, Clocks clocks) {
  for (; passes > 0; --passes) {
    const Clocks next = after_pass(segment, pace, clocks);
    const Seconds period = next.compute - clocks.compute;
    const Seconds lead_gained = period - (next.host - clocks.host);
    const bool steady = std::abs(lead_gained.value()) <= 1e-12 * std::abs(period.value());
    // A host that is so far ahead that nothing waits for it and gets further ahead stays there.
    const bool ahead = lead_gained > Seconds{} && clocks.compute >= next.host;
    clocks = next;
    if (steady || ahead) {
      const Seconds rest = static_cast<double>(passes - 1) * period;
      const Seconds host = static_cast<double>(passes - 1) * (period - lead_gained);
      return {clocks.compute + rest, clocks.host + host};
    }
  }
  return clocks;
}

Seconds replay_alone(const MeasuredStep& measured) {
  constexpr std::int64_t settling = 7;  // steps
  Segment step;
  const auto add = [&](Phase phase, const std::vector<Span>& spans) {
    for (const Span& span : spans) append_span(step.tasks, phase, span);
  };
  add(Phase::forward, measured.forward);
  add(Phase::backward, measured.backward);
  add(Phase::finalize, measured.finalize);
  add(Phase::optimizer, measured.optimizer);
  const Clocks settled = after_passes(step, settling, 1.0, {});
  return after_passes(step, 1, 1.0, settled).compute - settled.compute;
}

}  // namespace stepcast
