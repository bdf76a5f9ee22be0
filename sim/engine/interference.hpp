// Kernels and collectives that run at the same time slow each other (docs/model.md §1.2).
#pragma once

#include <vector>

#include "engine/job.hpp"
#include "engine/timeline.hpp"
#include "input/imperfections.hpp"

namespace stepcast {

/// By lowered collective: as the settings say, else as the calibration measured it, else by the
/// model, else nothing.
[[nodiscard]] std::vector<Interference> interference_of(const Job& job,
                                                        const InterferenceSettings& settings);

/// By collective of the program: what it takes in units of its time alone, when as much of it runs
/// beside computation as in this timeline, averaged over ranks.
[[nodiscard]] std::vector<double> time_factors(const Job& job, const Timeline& timeline);

}  // namespace stepcast
