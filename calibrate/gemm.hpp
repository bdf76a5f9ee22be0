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

/// Why this GPU has no multiplications of this type; empty when it has.
[[nodiscard]] std::string dtype_obstacle(const std::string& dtype,
                                         const cudaDeviceProp& properties);
/// Why this GPU cannot multiply them; empty when it can.
[[nodiscard]] std::string gemm_obstacle(const ComputeCase& what, const cudaDeviceProp& properties);

/// Matrices of m x k, n x k and m x n elements, row by row.
struct Operands {
  const void* x;
  const void* w;
  void* y;
};

struct DestroyBlas {
  void operator()(cublasHandle_t handle) const { cublasDestroy(handle); }
};
using Blas = std::unique_ptr<std::remove_pointer_t<cublasHandle_t>, DestroyBlas>;
[[nodiscard]] Blas make_blas();
/// cuBLAS's names for elements of a type and for how they are multiplied.
[[nodiscard]] cudaDataType_t data_type(const std::string& dtype);
[[nodiscard]] cublasComputeType_t compute_type(const std::string& dtype);

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
  void prepare_float8();

  ComputeCase what_;
  Blas handle_;
  std::unique_ptr<Float8, DestroyFloat8> float8_;
};

}  // namespace stepcast::calibrate
