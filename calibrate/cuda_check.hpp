// CUDA, NCCL and cuBLAS say by a return value what went wrong; CHECK makes exceptions of it.
#pragma once

#include <cstring>
#include <stdexcept>
#include <string>

#include <cublas_v2.h>
#include <cuda_runtime.h>
#include <nccl.h>

#include "backend.hpp"

namespace stepcast::calibrate {

/// NCCL refused. Where a setting is only tried, that is an answer.
struct NcclError : std::runtime_error {
  NcclError(const std::string& where, const std::string& its_reason)
      : std::runtime_error(where + its_reason), reason(its_reason) {}
  std::string reason;
};

inline std::string at(const char* file, int line, const char* call) {
  const char* name = std::strrchr(file, '/');
  return std::string(name != nullptr ? name + 1 : file) + ':' + std::to_string(line) + ": " + call +
         ": ";
}

inline void check(cudaError_t error, const char* call, const char* file, int line) {
  switch (error) {
    case cudaSuccess: return;
    case cudaErrorNoDevice: throw Missing{"CUDA", "no GPU"};
    case cudaErrorInsufficientDriver:
      throw Missing{"CUDA", "no driver, or one older than this program's CUDA"};
    case cudaErrorNoKernelImageForDevice:
      throw Missing{"CUDA", "this program was built for other GPUs (CUDA_ARCHITECTURES)"};
    case cudaErrorSystemDriverMismatch:
    case cudaErrorSystemNotReady:  // nvidia-fabricmanager does not run
    case cudaErrorCompatNotSupportedOnDevice:
    case cudaErrorDevicesUnavailable: throw Missing{"CUDA", cudaGetErrorString(error)};
    default: throw std::runtime_error(at(file, line, call) + cudaGetErrorString(error));
  }
}

inline void check(ncclResult_t error, const char* call, const char* file, int line) {
  if (error == ncclSuccess) return;
  const char* last = ncclGetLastError(nullptr);
  std::string reason = ncclGetErrorString(error);
  if (last != nullptr && *last != '\0') reason += std::string(": ") + last;
  throw NcclError(at(file, line, call), reason);
}

inline void check(cublasStatus_t error, const char* call, const char* file, int line) {
  if (error == CUBLAS_STATUS_SUCCESS) return;
  if (error == CUBLAS_STATUS_NOT_INITIALIZED || error == CUBLAS_STATUS_ARCH_MISMATCH)
    throw Missing{"cuBLAS", cublasGetStatusString(error)};
  throw std::runtime_error(at(file, line, call) + cublasGetStatusString(error));
}

}  // namespace stepcast::calibrate

#define CHECK(call) ::stepcast::calibrate::check((call), #call, __FILE__, __LINE__)
