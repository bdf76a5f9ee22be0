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

/// By collective of the program, in a first step: collectives take what they take alone.
[[nodiscard]] std::vector<Interference> slowed_at_first(const Job& job);
/// By collective of the program, when as much of it runs beside computation and moves bytes as in
/// this timeline, whose collectives take what they take alone; both averaged over ranks.
[[nodiscard]] std::vector<Interference> slowed_as_in(const Job& job, const Timeline& timeline);

}  // namespace stepcast
