// NVIDIA GPUs: kernels, cuBLAS and NCCL.
#pragma once

#include <memory>

#include "backend.hpp"

namespace stepcast::calibrate {

/// Throws Missing where there is no GPU, no driver, or where not all processes of a launcher
/// arrive.
///
/// Alone, one process drives all GPUs that it sees. Started by torchrun or srun, each process
/// drives one; see processes.hpp for the environment variables.
[[nodiscard]] std::unique_ptr<Backend> make_cuda_backend();

}  // namespace stepcast::calibrate
