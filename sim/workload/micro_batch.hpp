// What one GPU does for a micro-batch that may not have been measured (docs/model.md §1.4).
#pragma once

#include <cstdint>

#include "base/basis.hpp"
#include "base/units.hpp"
#include "input/step_trace.hpp"

namespace stepcast {

struct StepEstimate {
  MeasuredStep step;
  Basis basis = Basis::measured;
  double relative_error = 0.0;  ///< of the whole step; 0 where it was measured
};

/// The measured step of that micro-batch, or one made from those around it, span by span.
/// `kernel_floor`: the shortest kernel of the GPU, which no span falls below by being scaled.
[[nodiscard]] StepEstimate step_at(const StepTrace& trace, std::int64_t micro_batch,
                                   Seconds kernel_floor);

}  // namespace stepcast
