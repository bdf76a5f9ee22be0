#include "input/scenario.hpp"

#include <array>
#include <utility>

namespace stepcast {
namespace {

// torch.nn.parallel.DistributedDataParallel: bucket_cap_mb = 25, and reducer.hpp
// kDefaultFirstBucketBytes = 1 MiB (pytorch @00463a4).
constexpr std::int64_t ddp_bucket_cap_bytes = std::int64_t{25} << 20;
constexpr std::int64_t ddp_first_bucket_bytes = std::int64_t{1} << 20;
constexpr std::int64_t largest_bytes = std::int64_t{1} << 50;

// Horovod @2626dc8: horovod/common/operations.cc:519; older releases have 64 MiB and 5 ms.
constexpr std::int64_t horovod_fusion_bytes = std::int64_t{128} << 20;
constexpr double horovod_cycle_s = 1e-3;
constexpr double least_cycle_s = 1e-6;
constexpr double longest_s = 3600.0;

constexpr std::array<std::pair<SyncMode, const char*>, 6> sync_modes = {
    {{SyncMode::ddp, "ddp"},
     {SyncMode::flat, "flat"},
     {SyncMode::per_tensor, "per_tensor"},
     {SyncMode::overlapped_per_tensor, "overlapped_per_tensor"},
     {SyncMode::merged, "merged"},
     {SyncMode::horovod, "horovod"}}};
constexpr std::array<std::pair<CommunicationHook, const char*>, 3> communication_hooks = {
    {{CommunicationHook::none, "none"},
     {CommunicationHook::fp16, "fp16"},
     {CommunicationHook::bf16, "bf16"}}};
constexpr std::array<std::pair<Iteration, const char*>, 2> iterations = {
    {{Iteration::steady, "steady"}, {Iteration::first, "first"}}};
constexpr std::array<std::pair<AccumulationMode, const char*>, 2> accumulation_modes = {
    {{AccumulationMode::no_sync, "no_sync"},
     {AccumulationMode::sync_every_micro_step, "sync_every_micro_step"}}};

template <class Table>
auto read_enum(const JsonView& json, const Table& table) {
  std::vector<std::string> names;
  for (const auto& [value, name] : table) names.emplace_back(name);
  const std::string found = json.word(names);
  auto result = table.front().first;
  for (const auto& [value, name] : table)
    if (found == name) result = value;
  return result;
}

template <class Table, class Enum>
std::string name_of(Enum wanted, const Table& table) {
  for (const auto& [value, name] : table)
    if (value == wanted) return name;
  return {};
}

std::optional<std::int64_t> integer_or_auto(const JsonView& json, std::int64_t min,
                                            std::int64_t max) {
  if (json.is_auto()) return std::nullopt;
  return json.integer(min, max);
}

MergeCost read_merge_cost(const JsonView& json) {
  json.allow_only({"overhead_s", "rate_Bps"});
  return {Seconds{json.at("overhead_s").number(0.0, longest_s)},
          BytesPerSecond{json.at("rate_Bps").number(1.0, 1e15)}};
}

DataLoader read_data_loader(const JsonView& json) {
  json.allow_only({"time_s_per_sample", "workers"});
  DataLoader loader{Seconds{json.at("time_s_per_sample").number(0.0, longest_s)}};
  if (const auto workers = json.find("workers")) loader.workers = workers->integer(1, 1 << 16);
  return loader;
}

TrainingSettings read_training(const std::optional<JsonView>& json) {
  TrainingSettings training;
  training.bucket_cap_bytes = ddp_bucket_cap_bytes;
  training.first_bucket_bytes = ddp_first_bucket_bytes;
  training.fusion_bytes = horovod_fusion_bytes;
  training.cycle_time = Seconds{horovod_cycle_s};
  if (!json) return training;
  json->allow_only({"micro_batch", "accumulation_steps", "sync", "accumulation", "bucket_cap_bytes",
                    "first_bucket_bytes", "broadcast_buffers", "gradient_as_bucket_view",
                    "find_unused_parameters", "communication_hook", "iteration",
                    "synchronized_batch_norm", "fusion_bytes", "cycle_time_s", "merge_cost",
                    "data_loader", "host_per_kernel_s", "reference_global_batch"});
  if (const auto value = json->find("micro_batch"))
    training.micro_batch = integer_or_auto(*value, 1, 1 << 24);
  if (const auto value = json->find("accumulation_steps"))
    training.accumulation_steps = value->integer(1, 1 << 20);
  if (const auto value = json->find("sync")) training.sync = read_enum(*value, sync_modes);
  if (const auto value = json->find("accumulation"))
    training.accumulation = read_enum(*value, accumulation_modes);
  if (const auto value = json->find("bucket_cap_bytes"))
    training.bucket_cap_bytes = value->integer(1, largest_bytes);
  if (const auto value = json->find("first_bucket_bytes"))
    training.first_bucket_bytes = value->integer(1, largest_bytes);
  if (const auto value = json->find("broadcast_buffers"))
    training.broadcast_buffers = value->boolean();
  if (const auto value = json->find("gradient_as_bucket_view"))
    training.gradient_as_bucket_view = value->boolean();
  if (const auto value = json->find("find_unused_parameters"))
    training.find_unused_parameters = value->boolean();
  if (const auto value = json->find("communication_hook"))
    training.communication_hook = read_enum(*value, communication_hooks);
  if (const auto value = json->find("iteration"))
    training.iteration = read_enum(*value, iterations);
  if (const auto value = json->find("synchronized_batch_norm"))
    training.synchronized_batch_norm = value->boolean();
  if (const auto value = json->find("fusion_bytes"))
    training.fusion_bytes = value->integer(0, largest_bytes);
  if (const auto value = json->find("cycle_time_s"))
    training.cycle_time = Seconds{value->number(least_cycle_s, longest_s)};
  if (const auto value = json->find("merge_cost"); value && !value->is_null())
    training.merge_cost = read_merge_cost(*value);
  if (const auto value = json->find("data_loader"); value && !value->is_null())
    training.data_loader = read_data_loader(*value);
  if (training.sync == SyncMode::merged && !training.merge_cost)
    json->fail("\"merged\" needs merge_cost: what the merging expects an AllReduce to take");
  if (const auto value = json->find("host_per_kernel_s"); value && !value->is_auto())
    training.host_per_kernel = Seconds{value->number(0.0, longest_s)};
  if (const auto value = json->find("reference_global_batch"))
    training.reference_global_batch = integer_or_auto(*value, 1, std::int64_t{1} << 40);
  return training;
}

}  // namespace

Placement read_placement(const JsonView& cluster) {
  constexpr int most_gpus = 1024;  // of a node
  Placement placement;
  if (const auto value = cluster.find("gpus_per_node"); value && !value->is_auto()) {
    placement.origin = value->where();
    if (value->is_array() && value->elements().empty()) value->fail("must list at least one node");
    if (value->is_array())
      for (const JsonView& count : value->elements())
        placement.gpus_of_nodes.push_back(static_cast<int>(count.integer(1, most_gpus)));
    else
      placement.gpus_per_node = static_cast<int>(value->integer(1, most_gpus));
  }
  if (const auto value = cluster.find("placement"))
    placement.scattered = value->word({"packed", "scattered"}) == "scattered";
  return placement;
}

Scenario read_scenario(const JsonView& json) {
  json.expect_format("stepcast.scenario/1");
  json.allow_only({"format", "base", "question", "model", "platform", "calibration", "training",
                   "collective", "cluster", "imperfections", "interference", "vary", "cases",
                   "constraints"});
  Scenario scenario;
  scenario.question = json.at("question").string();
  scenario.model = json.at("model").string();
  scenario.platform = json.at("platform").string();
  if (const auto calibration = json.find("calibration"); calibration && !calibration->is_null())
    scenario.calibration = calibration->string();
  scenario.training = read_training(json.find("training"));
  if (const auto collective = json.find("collective"))
    scenario.collective = read_collective_settings(*collective);
  const JsonView cluster = json.at("cluster");
  cluster.allow_only({"gpus", "gpus_per_node", "placement"});
  scenario.gpus = static_cast<int>(cluster.at("gpus").integer(1, 1 << 20));
  scenario.placement = read_placement(cluster);
  if (const auto imperfections = json.find("imperfections"))
    scenario.imperfections = read_imperfections(*imperfections);
  if (const auto interference = json.find("interference"))
    scenario.interference = read_interference(*interference);
  scenario.gpus_origin = cluster.at("gpus").where();
  return scenario;
}

std::string to_string(SyncMode mode) { return name_of(mode, sync_modes); }
std::string to_string(AccumulationMode mode) { return name_of(mode, accumulation_modes); }
std::string to_string(CommunicationHook hook) { return name_of(hook, communication_hooks); }
std::string to_string(Iteration iteration) { return name_of(iteration, iterations); }

}  // namespace stepcast
