// Convolutions by cuDNN, where the machine has it: it is loaded at run time, for the program must
// also run where there is none. convolution_without_cudnn.cpp takes the place of convolution.cpp
// where the compiler does not find its headers.
#pragma once

#include <memory>
#include <string>

#include <cuda_runtime.h>

#include "backend.hpp"
#include "gemm.hpp"

namespace stepcast::calibrate {

/// 9.10.2; empty without cuDNN.
[[nodiscard]] std::string cudnn_version();

class Convolution {
 public:
  Convolution();
  ~Convolution();

  /// Lets cuDNN choose an algorithm. Says why it cannot; empty when it can.
  [[nodiscard]] std::string prepare(const ComputeCase& what);
  /// Of the case that was prepared last; what x, w and y are is in reference.hpp.
  void enqueue(const Operands& operands, cudaStream_t stream);

 private:
  struct Plan;
  std::unique_ptr<Plan> plan_;
};

}  // namespace stepcast::calibrate
