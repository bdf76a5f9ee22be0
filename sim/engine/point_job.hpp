// From a point of a scenario to the job that an engine is given.
#pragma once

#include <optional>

#include "engine/job.hpp"
#include "engine/timeline.hpp"
#include "input/study.hpp"
#include "workload/micro_batch.hpp"

namespace stepcast {

/// The step that a point replays.
[[nodiscard]] StepEstimate step_of(const Point& point);
/// The program of a point with its lowered collectives.
[[nodiscard]] Job job_of(const Point& point);
/// A rank cannot start a step before its loader has the samples, so steps follow one another no
/// faster than the loader: where the step is shorter, all of it moves back by the difference, which
/// becomes a task of the host. Exact, as nothing in a step depends on when the step starts.
void wait_for_data(const Point& point, Job& job, Timeline& timeline);

/// The job of the steps in which the scenario's straggler is slow.
[[nodiscard]] std::optional<Job> late_job_of(const Point& point, const Job& job);

/// What the loader of one rank takes for the samples of a step.
[[nodiscard]] Seconds loading_time(const Point& point);

}  // namespace stepcast
