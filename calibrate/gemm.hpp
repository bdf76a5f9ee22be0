// Matrix multiplication by cuBLAS, as a linear layer uses it: y = x W^T.
#pragma once

#include <memory>
#include <string>
#include <type_traits>

#include <cublasLt.h>
#include <cublas_v2.h>
#include <cuda_runtime.h>

#include "backend.hpp"
#include "gpu.hpp"

namespace stepcast::calibrate {

/// Why this GPU cannot multiply them; empty when it can.
[[nodiscard]] std::string gemm_obstacle(const ComputeCase& what, const cudaDeviceProp& properties);

/// Matrices of m x k, n x k and m x n elements, row by row.
struct Operands {
  const void* x;
  const void* w;
  void* y;
};

class Gemm {
 public:
  void prepare(const ComputeCase& what);
  /// Of the case that was prepared last.
  void enqueue(const Operands& operands, cudaStream_t stream);

  /// Bytes of one element of the product: float8 leaves bfloat16.
  [[nodiscard]] static int product_bytes(const std::string& dtype);

 private:
  struct Float8;
  struct DestroyFloat8 {
    void operator()(Float8* plan) const;
  };
  struct DestroyHandle {
    void operator()(cublasHandle_t handle) const { cublasDestroy(handle); }
  };
  void prepare_float8();

  ComputeCase what_;
  std::unique_ptr<std::remove_pointer_t<cublasHandle_t>, DestroyHandle> handle_;
  std::unique_ptr<Float8, DestroyFloat8> float8_;
};

}  // namespace stepcast::calibrate
