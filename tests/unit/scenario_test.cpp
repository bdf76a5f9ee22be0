#include "input/scenario.hpp"

#include <cstdint>
#include <string>
#include <vector>

#include "documents.hpp"
#include "testing.hpp"

namespace stepcast {
namespace {

Scenario read(const std::string& text) {
  return read_scenario(JsonDocument::parse(text, "s.json").root());
}

std::string error_of(const std::string& text) {
  return input_error([&] { static_cast<void>(read(text)); });
}

/// Only what must be there.
std::string bare() { return without(without(tiny_scenario(), "/training"), "/calibration"); }

TEST(Scenario, ReadsTheQuestionAndTheFiles) {
  const Scenario scenario = read(tiny_scenario());
  EXPECT_EQ(scenario.question, "Does it run?");
  EXPECT_EQ(scenario.model, "model.json");
  EXPECT_EQ(scenario.platform, "platform.json");
  EXPECT_EQ(scenario.calibration, "calibration.json");
  EXPECT_EQ(scenario.gpus, 4);
}

TEST(Scenario, DefaultsToPyTorchsBuckets) {
  const TrainingSettings training = read(bare()).training;
  EXPECT_EQ(training.sync, SyncMode::ddp);
  EXPECT_EQ(training.bucket_cap_bytes, 25 * 1024 * 1024);  // DDP's bucket_cap_mb = 25
  EXPECT_EQ(training.first_bucket_bytes, 1024 * 1024);     // reducer.hpp kDefaultFirstBucketBytes
}

TEST(Scenario, DefaultsToOneMicroStep) {
  const TrainingSettings training = read(bare()).training;
  EXPECT_EQ(training.accumulation_steps, 1);
  EXPECT_EQ(training.accumulation, AccumulationMode::no_sync);
  EXPECT_FALSE(training.micro_batch.has_value());
  EXPECT_FALSE(training.reference_global_batch.has_value());
}

TEST(Scenario, KeepsDefaultsBesideWhatIsGiven) {
  const TrainingSettings training =
      read(with(tiny_scenario(), "/training", R"({"accumulation_steps": 4})")).training;
  EXPECT_EQ(training.accumulation_steps, 4);
  EXPECT_EQ(training.bucket_cap_bytes, 25 * 1024 * 1024);
  EXPECT_EQ(training.first_bucket_bytes, 1024 * 1024);
}

TEST(Scenario, ReadsTheTrainingSettings) {
  const TrainingSettings training =
      read(with(tiny_scenario(), "/training",
                R"({"micro_batch": 8, "bucket_cap_bytes": 100, "first_bucket_bytes": 10,
                    "reference_global_batch": 256})"))
          .training;
  EXPECT_EQ(training.micro_batch, 8);
  EXPECT_EQ(training.bucket_cap_bytes, 100);
  EXPECT_EQ(training.first_bucket_bytes, 10);
  EXPECT_EQ(training.reference_global_batch, 256);
}

TEST(Scenario, TakesAutoForTheMicroBatchAndTheReferenceBatch) {
  const TrainingSettings training =
      read(with(tiny_scenario(), "/training",
                R"({"micro_batch": "auto", "reference_global_batch": "auto"})"))
          .training;
  EXPECT_FALSE(training.micro_batch.has_value());
  EXPECT_FALSE(training.reference_global_batch.has_value());
}

TEST(Scenario, LeavesEveryChoiceAboutCollectivesOpen) {
  const CollectiveSettings collective = read(bare()).collective;
  EXPECT_FALSE(collective.algorithm.value.has_value());
  EXPECT_FALSE(collective.protocol.value.has_value());
  EXPECT_FALSE(collective.channels.value.has_value());
  EXPECT_FALSE(collective.chunk_bytes.value.has_value());
}

TEST(Scenario, TakesAutoForEveryChoiceAboutCollectives) {
  const CollectiveSettings collective =
      read(with(tiny_scenario(), "/collective",
                R"({"algorithm": "auto", "protocol": "auto", "channels": "auto",
                    "chunk_bytes": "auto"})"))
          .collective;
  EXPECT_FALSE(collective.algorithm.value.has_value());
  EXPECT_FALSE(collective.protocol.value.has_value());
  EXPECT_FALSE(collective.channels.value.has_value());
  EXPECT_FALSE(collective.chunk_bytes.value.has_value());
}

TEST(Scenario, ReadsTheChoicesAboutCollectives) {
  const CollectiveSettings collective =
      read(with(tiny_scenario(), "/collective",
                R"({"algorithm": "ring", "protocol": "LL", "channels": 3, "chunk_bytes": 1000})"))
          .collective;
  EXPECT_EQ(collective.algorithm.value, "ring");
  EXPECT_EQ(collective.protocol.value, "LL");
  EXPECT_EQ(collective.channels.value, 3);
  EXPECT_EQ(collective.chunk_bytes.value, 1000);
}

TEST(Scenario, TakesMaxForAChunkThatIsNeverCut) {
  const Scenario scenario = read(with(tiny_scenario(), "/collective", R"({"chunk_bytes": "max"})"));
  EXPECT_EQ(scenario.collective.chunk_bytes.value, infinite_chunk);
}

TEST(Scenario, RemembersWhereTheChoicesStand) {
  const Scenario scenario =
      read(with(tiny_scenario(), "/collective", R"({"algorithm": "x", "chunk_bytes": "auto"})"));
  EXPECT_EQ(scenario.collective.algorithm.origin, "s.json:/collective/algorithm");
  EXPECT_EQ(scenario.collective.chunk_bytes.origin, "s.json:/collective/chunk_bytes");
  EXPECT_EQ(scenario.gpus_origin, "s.json:/cluster/gpus");
}

TEST(Scenario, NeedsNoCalibration) {
  EXPECT_FALSE(read(without(tiny_scenario(), "/calibration")).calibration.has_value());
  EXPECT_FALSE(read(with(tiny_scenario(), "/calibration", "null")).calibration.has_value());
}

TEST(Scenario, ReadsAndWritesEveryWayToSynchronise) {
  for (const auto& [name, mode] : {std::pair{"ddp", SyncMode::ddp},
                                   {"flat", SyncMode::flat},
                                   {"per_tensor", SyncMode::per_tensor},
                                   {"overlapped_per_tensor", SyncMode::overlapped_per_tensor},
                                   {"merged", SyncMode::merged},
                                   {"horovod", SyncMode::horovod}}) {
    const std::string scenario =
        with(tiny_scenario(), "/training/merge_cost", R"({"overhead_s": 1e-5, "rate_Bps": 1e9})");
    EXPECT_EQ(read(with(scenario, "/training/sync", quote_json(name))).training.sync, mode);
    EXPECT_EQ(to_string(mode), name);
  }
}

TEST(Scenario, ReadsAndWritesEveryCommunicationHookAndIteration) {
  for (const auto& [name, hook] : {std::pair{"none", CommunicationHook::none},
                                   {"fp16", CommunicationHook::fp16},
                                   {"bf16", CommunicationHook::bf16}}) {
    const std::string text =
        with(tiny_scenario(), "/training/communication_hook", quote_json(name));
    EXPECT_EQ(read(text).training.communication_hook, hook);
    EXPECT_EQ(to_string(hook), name);
  }
  for (const auto& [name, iteration] :
       {std::pair{"steady", Iteration::steady}, {"first", Iteration::first}}) {
    const std::string text = with(tiny_scenario(), "/training/iteration", quote_json(name));
    EXPECT_EQ(read(text).training.iteration, iteration);
    EXPECT_EQ(to_string(iteration), name);
  }
}

TEST(Scenario, DefaultsToPlainDdpAndTodaysHorovod) {
  const TrainingSettings training = read(bare()).training;
  EXPECT_FALSE(training.gradient_as_bucket_view);
  EXPECT_FALSE(training.find_unused_parameters);
  EXPECT_EQ(training.communication_hook, CommunicationHook::none);
  EXPECT_EQ(training.iteration, Iteration::steady);
  EXPECT_EQ(training.fusion_bytes, 128 * 1024 * 1024);  // horovod @2626dc8 operations.cc:519
  EXPECT_EQ(training.cycle_time, Seconds{1e-3});
  EXPECT_FALSE(training.merge_cost.has_value());
}

TEST(Scenario, ReadsWhatMergingExpects) {
  const TrainingSettings training =
      read(with(tiny_scenario(), "/training",
                R"({"merge_cost": {"overhead_s": 1e-5, "rate_Bps": 1e9}})"))
          .training;
  ASSERT_TRUE(training.merge_cost.has_value());
  EXPECT_EQ(training.merge_cost->overhead, Seconds{1e-5});
  EXPECT_EQ(training.merge_cost->rate, BytesPerSecond{1e9});
}

TEST(Scenario, ReadsAndWritesEveryWayToAccumulate) {
  for (const auto& [name, mode] :
       {std::pair{"no_sync", AccumulationMode::no_sync},
        {"sync_every_micro_step", AccumulationMode::sync_every_micro_step}}) {
    const std::string quoted = quote_json(name);
    EXPECT_EQ(read(with(tiny_scenario(), "/training/accumulation", quoted)).training.accumulation,
              mode);
    EXPECT_EQ(to_string(mode), name);
  }
}

class ScenarioRefuses : public testing::TestWithParam<Mistake> {};

TEST_P(ScenarioRefuses, AMistake) { EXPECT_EQ(error_of(GetParam().document), GetParam().error); }

std::vector<Mistake> scenario_mistakes() {
  const std::string good = with(tiny_scenario(), "/collective", "{}");
  return {
      {"AnotherFormat", with(good, "/format", R"("stepcast.scenario/0")"),
       "s.json:/format: must be \"stepcast.scenario/1\", got \"stepcast.scenario/0\""},
      {"AnUnknownKey", with(good, "/clutser", "{}"),
       "s.json: unknown key \"clutser\"; did you mean \"cluster\"? known: format, base, question, "
       "model, "
       "platform, calibration, training, collective, cluster, imperfections, interference, vary, "
       "cases, constraints"},
      {"AMissingQuestion", without(good, "/question"), "s.json: the key \"question\" is missing"},
      {"AMissingModel", without(good, "/model"), "s.json: the key \"model\" is missing"},
      {"AMissingPlatform", without(good, "/platform"), "s.json: the key \"platform\" is missing"},
      {"AMissingCluster", without(good, "/cluster"), "s.json: the key \"cluster\" is missing"},
      {"AMissingNumberOfGpus", without(good, "/cluster/gpus"),
       "s.json:/cluster: the key \"gpus\" is missing"},
      {"NoGpus", with(good, "/cluster/gpus", "0"),
       "s.json:/cluster/gpus: must be a whole number in [1, 1048576], got 0"},
      {"AFractionOfAGpu", with(good, "/cluster/gpus", "3.7"),
       "s.json:/cluster/gpus: must be a whole number in [1, 1048576], got 3.7"},
      {"AnUnknownKeyOfTheCluster", with(good, "/cluster/nodes", "2"),
       "s.json:/cluster: unknown key \"nodes\"; known: gpus, gpus_per_node, placement"},
      {"AnUnknownKeyOfTheTraining", with(good, "/training/micro_bacth", "8"),
       "s.json:/training: unknown key \"micro_bacth\"; did you mean \"micro_batch\"? known: "
       "micro_batch, accumulation_steps, sync, accumulation, bucket_cap_bytes, "
       "first_bucket_bytes, broadcast_buffers, gradient_as_bucket_view, "
       "find_unused_parameters, communication_hook, iteration, synchronized_batch_norm, "
       "fusion_bytes, cycle_time_s, "
       "merge_cost, data_loader, host_per_kernel_s, reference_global_batch"},
      {"AnUnknownWayToSynchronise", with(good, "/training/sync", R"("pertensor")"),
       "s.json:/training/sync: unknown \"pertensor\"; did you mean \"per_tensor\"? known: ddp, "
       "flat, per_tensor, overlapped_per_tensor, merged, horovod"},
      {"MergingWithoutItsCost", with(good, "/training/sync", R"("merged")"),
       "s.json:/training: \"merged\" needs merge_cost: what the merging expects an AllReduce to "
       "take"},
      {"AMergeCostWithoutARate", with(good, "/training/merge_cost", R"({"overhead_s": 0})"),
       "s.json:/training/merge_cost: the key \"rate_Bps\" is missing"},
      {"AnUnknownHook", with(good, "/training/communication_hook", R"("fp8")"),
       "s.json:/training/communication_hook: unknown \"fp8\"; did you mean \"fp16\"? known: none, "
       "fp16, bf16"},
      {"ALoaderWithoutWorkers",
       with(good, "/training/data_loader", R"({"time_s_per_sample": 1, "workers": 0})"),
       "s.json:/training/data_loader/workers: must be a whole number in [1, 65536], got 0"},
      {"NoCycle", with(good, "/training/cycle_time_s", "0"),
       "s.json:/training/cycle_time_s: must be in [1e-06, 3600], got 0"},
      {"AnUnknownWayToAccumulate", with(good, "/training/accumulation", R"("nosync")"),
       "s.json:/training/accumulation: unknown \"nosync\"; did you mean \"no_sync\"? known: "
       "no_sync, sync_every_micro_step"},
      {"NoMicroSteps", with(good, "/training/accumulation_steps", "0"),
       "s.json:/training/accumulation_steps: must be a whole number in [1, 1048576], got 0"},
      {"AWordForTheMicroBatch", with(good, "/training/micro_batch", R"("max")"),
       "s.json:/training/micro_batch: must be a whole number in [1, 16777216], got \"max\""},
      {"AnEmptyBucket", with(good, "/training/bucket_cap_bytes", "0"),
       "s.json:/training/bucket_cap_bytes: must be a whole number in [1, 1125899906842624], got "
       "0"},
      {"AnEmptyFirstBucket", with(good, "/training/first_bucket_bytes", "0"),
       "s.json:/training/first_bucket_bytes: must be a whole number in [1, 1125899906842624], got "
       "0"},
      {"AnUnknownKeyOfTheCollective", with(good, "/collective/chunk", "1"),
       "s.json:/collective: unknown key \"chunk\"; did you mean \"chunking\", \"chunk_bytes\"? "
       "known: "
       "algorithm, protocol, channels, chunk_bytes, chunking, nccl_version, min_channels, "
       "max_channels, nvls, intra_node_algorithm, inter_node_algorithm, NCCL_ALGO, NCCL_PROTO, "
       "NCCL_BUFFSIZE, NCCL_MIN_NCHANNELS, NCCL_MAX_NCHANNELS, NCCL_NVLS_ENABLE"},
      {"AnUnknownNcclAlgorithm", with(good, "/collective/NCCL_ALGO", R"("Ring,Treee")"),
       "s.json:/collective/NCCL_ALGO: unknown \"treee\"; did you mean \"tree\"? known: ring, tree, "
       "nvls, nvlstree"},
      {"NoProtocolLeft", with(good, "/collective/NCCL_PROTO", R"("^LL,LL128,Simple")"),
       "s.json:/collective/NCCL_PROTO: leaves nothing to choose from"},
      {"TheSameTwice",
       with(with(good, "/collective/NCCL_BUFFSIZE", "1024"), "/collective/chunk_bytes", "1"),
       "s.json:/collective/NCCL_BUFFSIZE: is the same as chunk_bytes; give one of them"},
      {"FewerChannelsThanTheLeast",
       with(with(good, "/collective/min_channels", "8"), "/collective/max_channels", "4"),
       "s.json:/collective/max_channels: must be a whole number in [8, 64], got 4"},
      {"NoChannels", with(good, "/collective/channels", "0"),
       "s.json:/collective/channels: must be a whole number in [1, 64], got 0"},
      {"TooManyChannels", with(good, "/collective/channels", "65"),
       "s.json:/collective/channels: must be a whole number in [1, 64], got 65"},
      {"AnAlgorithmThatIsNotText", with(good, "/collective/algorithm", "1"),
       "s.json:/collective/algorithm: must be a string, got 1"},
      {"AnEmptyChunk", with(good, "/collective/chunk_bytes", "0"),
       "s.json:/collective/chunk_bytes: must be a whole number in [1, 1125899906842624], got 0"},
      {"ACalibrationThatIsNotText", with(good, "/calibration", "false"),
       "s.json:/calibration: must be a string, got false"},
  };
}
INSTANTIATE_TEST_SUITE_P(Scenarios, ScenarioRefuses, testing::ValuesIn(scenario_mistakes()),
                         case_name);

}  // namespace
}  // namespace stepcast
