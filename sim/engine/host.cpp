#include "engine/host.hpp"

#include <algorithm>
#include <cmath>

namespace stepcast {
namespace {

Clocks after_pass(const Segment& segment, double pace, Clocks clocks) {
  for (const Task& task : segment.tasks) {
    const auto& compute = std::get<Compute>(task);
    const double factor = compute.phase == Phase::host ? 1.0 : pace;
    clocks.compute = std::max(clocks.compute, clocks.host) + factor * compute.duration;
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

}  // namespace stepcast
