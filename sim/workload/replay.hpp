// One GPU alone, from its host's clock and its own: what a step trace says of the machine that it
// was measured on.
#pragma once

#include "input/step_trace.hpp"

namespace stepcast {

/// Time from one step to the next of spans that the host issues and the GPU runs in order, with no
/// communication: each span starts when the one before it has ended, its gap has passed and the
/// host has issued it; the host goes on after the span's host time, or when the span has ended
/// where it waits for it (docs/traces.md).
[[nodiscard]] Seconds replay_alone(const MeasuredStep& measured);

}  // namespace stepcast
