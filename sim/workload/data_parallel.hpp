// One data-parallel training step as a program.
#pragma once

#include "input/platform.hpp"
#include "input/scenario.hpp"
#include "input/step_trace.hpp"
#include "workload/program.hpp"

namespace stepcast {

/// Micro-steps of forward and backward, the AllReduce of the gradients as `training.sync` says, the
/// optimizer after the last of them (docs/model.md §1). With one rank there is nothing to reduce.
[[nodiscard]] Program data_parallel_step(const StepTrace& model, const MeasuredStep& measured,
                                         const TrainingSettings& training, const Gpu& gpu,
                                         int world_size);

/// The gap before a span, then the span.
void append_span(std::vector<Task>& tasks, Phase phase, const Span& span);

}  // namespace stepcast
