#include "convolution.hpp"

namespace stepcast::calibrate {

struct Convolution::Plan {};

std::string cudnn_version() { return {}; }

Convolution::Convolution() = default;
Convolution::~Convolution() = default;

std::string Convolution::prepare(const ComputeCase&) {
  return "this program was built without cuDNN";
}

void Convolution::enqueue(const Operands&, cudaStream_t) {}

}  // namespace stepcast::calibrate
