// One question: which step, on which machines, how synchronised (scenarios/*.json,
// stepcast.scenario/1).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/json_view.hpp"
#include "input/collective_settings.hpp"
#include "input/imperfections.hpp"

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
  bool broadcast_buffers = true;                       ///< from rank 0 before forward, as DDP does
  std::optional<std::int64_t> reference_global_batch;  ///< empty: one GPU's micro-batch
};

/// Which GPUs of which nodes the ranks are on.
struct Placement {
  /// How many of each node are used: one number for all, or a list by node. Empty: all.
  std::optional<int> gpus_per_node;
  std::vector<int> gpus_of_nodes;
  bool scattered =
      false;           ///< ranks are dealt to the nodes in turn; else consecutive ones share one
  std::string origin;  ///< what errors about the numbers of GPUs name
};
[[nodiscard]] Placement read_placement(const JsonView& cluster);

struct Scenario {
  std::string question;
  std::string model;
  std::string platform;
  std::optional<std::string> calibration;
  TrainingSettings training;
  CollectiveSettings collective;
  int gpus = 1;
  Placement placement;
  Imperfections imperfections;
  InterferenceSettings interference;
  std::string gpus_origin;  ///< what errors about the number of GPUs name
};

[[nodiscard]] Scenario read_scenario(const JsonView& json);

[[nodiscard]] std::string to_string(SyncMode mode);
[[nodiscard]] std::string to_string(AccumulationMode mode);

}  // namespace stepcast
