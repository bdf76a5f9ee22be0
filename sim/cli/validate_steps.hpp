// Predicts the measured steps of a validation file, after fitting what it wants fitted.
#pragma once

#include "input/validation.hpp"
#include "result/validation.hpp"

namespace stepcast {

/// Each case in a process of its own, `jobs` at a time. Throws InputError and SimulationError.
[[nodiscard]] FileResult validate_steps(const ValidationFile& file, int jobs);

}  // namespace stepcast
