// One question: which step, on which machines, how synchronised (scenarios/*.json,
// stepcast.scenario/1).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/json_view.hpp"
#include "base/units.hpp"
#include "input/collective_settings.hpp"
#include "input/imperfections.hpp"

namespace stepcast {

enum class SyncMode {
  ddp,         ///< buckets, launched during backward
  flat,        ///< one AllReduce of everything after backward
  per_tensor,  ///< one blocking AllReduce per parameter after backward, each followed by its
               ///< division
  overlapped_per_tensor,  ///< one AllReduce per parameter, launched during backward
  merged,  ///< during backward, merged where waiting for the next gradient costs less than a launch
  horovod,  ///< during backward, what is ready at each tick of a cycle is fused
};

enum class AccumulationMode {
  no_sync,                ///< the ranks communicate in the last micro-step only
  sync_every_micro_step,  ///< in each
};

/// DDP's: what is sent in place of the gradients.
enum class CommunicationHook { none, fp16, bf16 };

enum class Iteration {
  steady,  ///< DDP has rebuilt its buckets in the order in which gradients become ready
  first,   ///< it does not know the order yet
};

/// What SyncMode::merged expects an AllReduce of S bytes to take: overhead + S / rate.
struct MergeCost {
  Seconds overhead;
  BytesPerSecond rate;
};

/// What each rank's loader needs to have a sample ready; the workers share the samples.
struct DataLoader {
  Seconds time_per_sample;  ///< of one worker
  std::int64_t workers = 1;
};

struct TrainingSettings {
  std::optional<std::int64_t> micro_batch;  ///< empty: the one that was measured
  std::int64_t accumulation_steps = 1;
  SyncMode sync = SyncMode::ddp;
  AccumulationMode accumulation = AccumulationMode::no_sync;
  std::int64_t bucket_cap_bytes = 0;
  std::int64_t first_bucket_bytes = 0;
  bool broadcast_buffers = true;  ///< from rank 0 before forward, as DDP does
  bool gradient_as_bucket_view = false;
  bool find_unused_parameters = false;
  CommunicationHook communication_hook = CommunicationHook::none;
  std::optional<Seconds> host_per_kernel;  ///< empty: what the step trace says
  Iteration iteration = Iteration::steady;
  bool synchronized_batch_norm = false;   ///< statistics over the samples of all ranks
  std::int64_t fusion_bytes = 0;          ///< HOROVOD_FUSION_THRESHOLD; 0: nothing is fused
  Seconds cycle_time;                     ///< HOROVOD_CYCLE_TIME
  std::optional<MergeCost> merge_cost;    ///< always there for SyncMode::merged
  std::optional<DataLoader> data_loader;  ///< empty: never late
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
[[nodiscard]] std::string to_string(CommunicationHook hook);
[[nodiscard]] std::string to_string(Iteration iteration);

}  // namespace stepcast
