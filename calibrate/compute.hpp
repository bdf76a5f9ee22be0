// The compute cases on one GPU.
//
// `bytes` of a case is the size of one tensor. A copy or a layer norm reads one and writes one, an
// addition reads two and writes one, a reduction reads one, a copy to or from the host moves one.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include <cuda_runtime.h>

#include "attention.hpp"
#include "backend.hpp"
#include "convolution.hpp"
#include "gemm.hpp"
#include "gpu.hpp"

namespace stepcast::calibrate {

class Compute {
 public:
  explicit Compute(const Gpu& gpu) : gpu_(gpu) {}

  /// Why it cannot be measured here; empty when it can. Nothing is prepared afterwards.
  [[nodiscard]] std::string obstacle(const ComputeCase& what);
  /// Makes the buffers and does a few calls. The others are for the case that was prepared last.
  void prepare(const ComputeCase& what);
  /// Queues at least so many calls and returns how many: of graph nodes, whole graphs.
  int enqueue(int calls);
  /// Mean time of one call.
  double time(int calls);
  /// Whether the last call left the right numbers; nothing where that is not checked.
  [[nodiscard]] std::optional<bool> is_correct() const;

 private:
  void call();
  void make_graph();
  double time_cold(int calls);

  const Gpu& gpu_;
  ComputeCase what_;
  Gemm gemm_;
  Attention attention_;
  Convolution convolution_;
  Buffer a_, b_, c_, flush_, host_{true};
  std::size_t flush_bytes_ = 0;
  Operands buffers_{};  ///< of any kernel: what it reads, reads too and writes
  void* host_data_ = nullptr;
  struct DestroyGraph {
    void operator()(cudaGraphExec_t graph) const { cudaGraphExecDestroy(graph); }
  };
  std::unique_ptr<std::remove_pointer_t<cudaGraphExec_t>, DestroyGraph> empty_nodes_;
  std::vector<Event> events_;
};

}  // namespace stepcast::calibrate
