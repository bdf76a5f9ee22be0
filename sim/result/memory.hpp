// What a step holds in the memory of a GPU.
#pragma once

#include <cstdint>
#include <optional>

#include "engine/job.hpp"
#include "input/study.hpp"

namespace stepcast {

struct MemoryResult {
  std::int64_t parameters_bytes = 0;
  std::int64_t master_bytes = 0;  ///< fp32 copies of the parameters
  std::int64_t gradients_bytes = 0;
  std::int64_t optimizer_bytes = 0;
  std::int64_t bucket_bytes = 0;
  std::int64_t hook_bytes = 0;  ///< compressed copies of the gradients
  std::int64_t nccl_bytes = 0;
  std::int64_t framework_bytes = 0;
  std::optional<std::int64_t> activation_bytes;
  std::optional<std::int64_t> gpu_bytes;
  [[nodiscard]] std::int64_t known_bytes() const;
  /// Empty when it is not known: the known part fits, and activations or the GPU's memory are
  /// unknown.
  [[nodiscard]] std::optional<bool> fits() const;
};

/// A micro-batch and as many micro-steps as make the same step of them.
struct MicroSteps {
  std::int64_t micro_batch = 0;
  std::int64_t accumulation_steps = 0;
};
/// The largest micro-batch that fits when activations grow with it and nothing else does, among
/// those that divide the samples of one GPU's step. Empty: none fits, or it cannot be said.
[[nodiscard]] std::optional<MicroSteps> largest_that_fits(const MemoryResult& memory,
                                                          std::int64_t micro_batch,
                                                          std::int64_t accumulation_steps);

/// What a rank holds of the step that was measured.
[[nodiscard]] MemoryResult memory_of(const Point& point, const Job& job, const MeasuredStep& step);

}  // namespace stepcast
