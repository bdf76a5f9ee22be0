// Attention as a training step without fused kernels has it: two batched products by cuBLAS and a
// softmax between them, queued one behind the other.
#pragma once

#include <string>

#include <cuda_runtime.h>

#include "backend.hpp"
#include "gemm.hpp"
#include "gpu.hpp"

namespace stepcast::calibrate {

/// Why this GPU cannot do it; empty when it can.
[[nodiscard]] std::string attention_obstacle(const ComputeCase& what,
                                             const cudaDeviceProp& properties);

class Attention {
 public:
  void prepare(const ComputeCase& what);
  /// Of the case that was prepared last. x is Q, w is K and behind it V, y is the result; each is
  /// [batch][head][position][head_size].
  void enqueue(const Operands& operands, cudaStream_t stream);

 private:
  ComputeCase what_;
  Blas handle_;
  Buffer scores_;
};

}  // namespace stepcast::calibrate
