#include "workload/replay.hpp"

#include <algorithm>

namespace stepcast {

Seconds replay_alone(const MeasuredStep& measured) {
  // The slower of the two clocks sets the pace after a few steps; a host that is ahead stays ahead.
  constexpr int steps = 8;
  Seconds host, gpu, before_last;
  for (int step = 0; step < steps; ++step) {
    before_last = gpu;
    for (const auto* spans :
         {&measured.forward, &measured.backward, &measured.finalize, &measured.optimizer})
      for (const Span& span : *spans) {
        gpu = std::max(gpu + span.gap, host) + span.duration;
        host += span.host;
        if (span.host_waits) host = std::max(host, gpu);
      }
  }
  return gpu - before_last;
}

}  // namespace stepcast
