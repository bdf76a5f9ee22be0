#include "result/memory.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <string>

namespace stepcast {
namespace {

// Buffers of one NCCL connection: LL 512 KiB, LL128 4 915 200 B, Simple 4 MiB (NCCL v2.28.9
// src/transport/p2p.cc:370-455 and src/init.cc:697-735); a ring has one per channel and GPU, a tree
// up to three: two children and a parent.
constexpr std::int64_t nccl_connection_bytes =
    (std::int64_t{512} << 10) + 4'915'200 + (std::int64_t{4} << 20);

constexpr std::int64_t tree_connections = 3;
// NVLS, per channel and head: reduce and broadcast, each 8 slots of 128 KiB (nvlsChunkSize and
// NCCL_STEPS of src/transport/nvls.cc): 256 MiB for 16 channels and 8 heads.
constexpr std::int64_t nvls_head_bytes = std::int64_t{2} * 8 * (std::int64_t{128} << 10);
constexpr std::size_t most_nvls_heads = 8;

// A CUDA context with the libraries' kernels takes 0.3 to 0.6 GiB; not confirmed at a source.
constexpr std::int64_t cuda_context_bytes = std::int64_t{512} << 20;
constexpr std::int64_t float32_bytes = 4;
constexpr std::int64_t half_precision_bytes = 2;

/// Buffers of all algorithms that are used; each has as many channels as its largest collective.
std::int64_t nccl_bytes_of(const Job& job) {
  std::map<std::string, std::int64_t> channels;
  for (const LoweredCollective& lowered : job.lowered) {
    std::int64_t& most = channels[lowered.algorithm];
    most = std::max(most, std::int64_t{lowered.channels});
  }
  const auto heads =
      static_cast<std::int64_t>(std::min(job.cluster.ranks_of(0).size(), most_nvls_heads));
  std::int64_t bytes = 0;
  for (const auto& [algorithm, count] : channels) {
    const bool tree = algorithm == "double_binary_tree" || algorithm == "nvls_tree";
    const bool nvls = algorithm == "nvls" || algorithm == "nvls_tree";
    if (nvls) bytes += count * heads * nvls_head_bytes;
    if (tree || !nvls) bytes += count * (tree ? tree_connections : 1) * nccl_connection_bytes;
  }
  return bytes;
}

/// Flat copies of gradients.
std::int64_t bucket_bytes_of(const StepTrace& model, const TrainingSettings& training) {
  switch (training.sync) {
    case SyncMode::ddp: return training.gradient_as_bucket_view ? 0 : model.gradient_bytes();
    case SyncMode::flat:
    case SyncMode::merged: return model.gradient_bytes();
    case SyncMode::horovod: return training.fusion_bytes;
    case SyncMode::per_tensor:
    case SyncMode::overlapped_per_tensor: break;
  }
  return 0;
}

/// The cast buckets of a communication hook.
std::int64_t hook_bytes_of(const StepTrace& model, const TrainingSettings& training) {
  const CommunicationHook hook = training.communication_hook;
  if (training.sync != SyncMode::ddp || hook == CommunicationHook::none) return 0;
  const char* same = hook == CommunicationHook::fp16 ? "float16" : "bfloat16";
  std::int64_t bytes = 0;
  for (const Parameter& parameter : model.parameters)
    if (parameter.dtype != same) bytes += half_precision_bytes * parameter.elements;
  return bytes;
}

}  // namespace

MemoryResult memory_of(const Point& point, const Job& job, const MeasuredStep& step) {
  MemoryResult memory;
  const StepTrace& model = *point.model;
  memory.gradients_bytes = model.gradient_bytes();
  memory.parameters_bytes =
      model.gradient_bytes();  // the trace holds gradients in the parameters' dtype
  if (model.master_weights)
    for (const Parameter& parameter : model.parameters)
      if (parameter.bytes() == half_precision_bytes * parameter.elements)
        memory.master_bytes += float32_bytes * parameter.elements;
  memory.optimizer_bytes =
      std::llround(static_cast<double>(model.elements()) * model.optimizer_state_bytes_per_element);
  if (!job.program.collectives.empty()) {
    memory.bucket_bytes = bucket_bytes_of(model, point.scenario.training);
    memory.hook_bytes = hook_bytes_of(model, point.scenario.training);
    memory.nccl_bytes = nccl_bytes_of(job);
  }
  memory.framework_bytes = cuda_context_bytes;
  memory.activation_bytes = step.activation_bytes;
  memory.gpu_bytes = point.platform->gpu.memory_bytes;
  return memory;
}

std::int64_t MemoryResult::known_bytes() const {
  return parameters_bytes + master_bytes + gradients_bytes + optimizer_bytes + bucket_bytes +
         hook_bytes + nccl_bytes + framework_bytes + activation_bytes.value_or(0);
}

std::optional<bool> MemoryResult::fits() const {
  if (!gpu_bytes) return std::nullopt;
  if (known_bytes() > *gpu_bytes) return false;
  return activation_bytes ? std::optional(true) : std::nullopt;
}

std::optional<MicroSteps> largest_that_fits(const MemoryResult& memory, std::int64_t micro_batch,
                                            std::int64_t accumulation_steps) {
  if (!memory.gpu_bytes || !memory.activation_bytes || *memory.activation_bytes == 0)
    return std::nullopt;
  const std::int64_t left = *memory.gpu_bytes - (memory.known_bytes() - *memory.activation_bytes);
  if (left <= 0) return std::nullopt;
  const std::int64_t samples = micro_batch * accumulation_steps;
  const double fit = std::floor(static_cast<double>(left) * static_cast<double>(micro_batch) /
                                static_cast<double>(*memory.activation_bytes));
  const std::int64_t most =
      fit < static_cast<double>(micro_batch) ? static_cast<std::int64_t>(fit) : micro_batch;
  for (std::int64_t size = most; size >= 1; --size)
    if (samples % size == 0) return MicroSteps{size, samples / size};
  return std::nullopt;
}

}  // namespace stepcast
