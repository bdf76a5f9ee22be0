// The two clocks of a rank that talks to nobody: its compute stream and its host (docs/model.md
// §1.1).
#pragma once

#include <cstdint>

#include "input/step_trace.hpp"
#include "workload/program.hpp"

namespace stepcast {

struct Clocks {
  Seconds compute;  ///< when the compute stream is free
  Seconds host;     ///< when the host comes to the next task
};

/// After so many passes of a local segment, its computation taking `pace` times as long as it says.
[[nodiscard]] Clocks after_passes(const Segment& segment, std::int64_t passes, double pace,
                                  Clocks clocks);

/// Time from one step to the next of the spans of a trace, once the slower of the two clocks sets
/// the pace: what the trace says of the machine that it was measured on.
[[nodiscard]] Seconds replay_alone(const MeasuredStep& measured);

}  // namespace stepcast
