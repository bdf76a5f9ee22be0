// The backends. A program contains one of them: STEPCAST_BACKEND is its name.
#pragma once

#include <memory>

#include "backend.hpp"

namespace stepcast::calibrate {

/// Throw Missing when there is nothing to measure.
[[nodiscard]] std::unique_ptr<Backend> make_cuda_backend();
[[nodiscard]] std::unique_ptr<Backend> make_mpi_backend();

}  // namespace stepcast::calibrate
