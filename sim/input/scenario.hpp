// One question: which step, on which machines, how synchronised (scenarios/*.json,
// stepcast.scenario/1).
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/json_view.hpp"

namespace stepcast {

enum class SyncMode {
  ddp,         ///< buckets, launched during backward
  flat,        ///< one AllReduce of everything after backward
  per_tensor,  ///< one blocking AllReduce per parameter after backward, each followed by its
               ///< division
};

enum class AccumulationMode {
  no_sync,                ///< the ranks communicate in the last micro-step only
  sync_every_micro_step,  ///< in each
};

struct TrainingSettings {
  std::optional<std::int64_t> micro_batch;  ///< empty: the one that was measured
  std::int64_t accumulation_steps = 1;
  SyncMode sync = SyncMode::ddp;
  AccumulationMode accumulation = AccumulationMode::no_sync;
  std::int64_t bucket_cap_bytes = 0;
  std::int64_t first_bucket_bytes = 0;
  std::optional<std::int64_t> reference_global_batch;  ///< empty: one GPU's micro-batch
};

/// A choice that is checked later, with the place that errors about it name.
template <class T>
struct Choice {
  std::optional<T> value;  ///< empty: stepcast chooses ("auto")
  std::string origin;
};

struct CollectiveSettings {
  Choice<std::string> algorithm;
  Choice<std::string> protocol;
  Choice<int> channels;
  Choice<std::int64_t> chunk_bytes;  ///< infinite_chunk for "max"
};
constexpr int most_channels = 64;  ///< NCCL's own limit (MAXCHANNELS since 2.25)
/// "max": a block is never cut.
constexpr std::int64_t infinite_chunk = std::int64_t{1} << 62;

struct Scenario {
  std::string question;
  std::string model;
  std::string platform;
  std::optional<std::string> calibration;
  TrainingSettings training;
  CollectiveSettings collective;
  int gpus = 1;
  std::string gpus_origin;  ///< what errors about the number of GPUs name
};

[[nodiscard]] Scenario read_scenario(const JsonView& json);

[[nodiscard]] std::string to_string(SyncMode mode);
[[nodiscard]] std::string to_string(AccumulationMode mode);

}  // namespace stepcast
