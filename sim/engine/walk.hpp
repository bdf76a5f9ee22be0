// All ranks of a job, task by task and side by side, once it is known how long each collective
// takes.
#pragma once

#include <vector>

#include "engine/job.hpp"
#include "engine/timeline.hpp"

namespace stepcast {

/// `done_after_start` holds for each lowered collective when each rank is done, counted from the
/// arrival of the last. That is all there is to know, for collectives run one after the other.
[[nodiscard]] Timeline walk(const Job& job,
                            const std::vector<std::vector<Seconds>>& done_after_start);

}  // namespace stepcast
