#include "result/metrics.hpp"

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "documents.hpp"
#include "engine/point_job.hpp"
#include "hand_made_step.hpp"
#include "testing.hpp"

namespace stepcast {
namespace {

double sum(const Split& split) {
  return (split.compute + split.exposed_comm + split.host + split.wait + split.optimizer).value();
}

// The step of hand_made_step.hpp -----------------------------------------------------------------

class Summary : public testing::Test {
 protected:
  [[nodiscard]] StepResult summarise() const {
    return summarize(step.point, step.job, step.timeline);
  }
  void change_model(const std::string& pointer, const std::string& value) {
    step.point.model = std::make_shared<const StepTrace>(
        read_step_trace(JsonDocument::parse(with(tiny_trace(), pointer, value), "m.json").root()));
  }

  HandMadeStep step;
};

TEST_F(Summary, EndsWithTheLastRank) { EXPECT_EQ(summarise().step_time, Seconds{157.0}); }

TEST_F(Summary, SplitsTheStepOfTheMeanRank) {
  const Split split = summarise().split;
  // Rank 0: 3 (10 + 20) + 10 = 100; rank 1: 3 (12 + 23) + 10 = 115.
  EXPECT_EQ(split.compute, Seconds{(100.0 + 115.0) / 2});
  EXPECT_EQ(split.host, Seconds{5.0});
  EXPECT_EQ(split.optimizer, Seconds{7.0});
  // Rank 0 is blocked from 115 to 150, and the AllReduce starts at 120; rank 1 from 120 to 145.
  EXPECT_EQ(split.exposed_comm, Seconds{(30.0 + 25.0) / 2});
  // Rank 0: 120 - 115 before the AllReduce, and 35 - 30 behind each of two passes. Rank 1: from its
  // own end to that of the step, 157 - 152.
  EXPECT_EQ(split.wait, Seconds{(5.0 + 2 * 5.0 + 5.0) / 2});
}

TEST_F(Summary, SplitAddsUpToTheStep) { EXPECT_EQ(sum(summarise().split), 157.0); }

TEST_F(Summary, CountsTheTimeOfTheCommunicationStream) {
  const StepResult result = summarise();
  EXPECT_EQ(result.comm, Seconds{(30.0 + 25.0) / 2});
  EXPECT_EQ(result.overlapped, Seconds{0.0});  // all of it is exposed
  EXPECT_EQ(result.comm_fraction, 27.5 / 157.0);
}

TEST_F(Summary, CountsRanksNodesAndSamples) {
  const StepResult result = summarise();
  EXPECT_EQ(result.world_size, 2);
  EXPECT_EQ(result.nodes, 1);
  EXPECT_EQ(result.micro_batch, 8);
  EXPECT_EQ(result.global_batch, 8 * 4 * 2);  // micro-batch, accumulation steps, ranks
  EXPECT_EQ(result.throughput_samples_per_s, 64.0 / 157.0);
}

TEST_F(Summary, ComparesWithOneGpuThatDoesTheSameAlone) {
  // Four times forward 0.02 + 0.01 and backward 0.001 (gap) + 0.02 + 0.04, then copies and step.
  const double alone = 4 * (0.03 + 0.061) + 0.003 + 0.006;
  EXPECT_DOUBLE_EQ(summarise().scaling_efficiency, alone / 157.0);
}

TEST_F(Summary, DescribesEachBucket) {
  const std::vector<BucketResult> buckets = summarise().buckets;
  ASSERT_EQ(buckets.size(), 1u);
  const BucketResult& bucket = buckets[0];
  EXPECT_EQ(bucket.bytes, 1000);
  EXPECT_EQ(bucket.parameters, 3u);
  EXPECT_EQ(bucket.algorithm, "ring");
  EXPECT_EQ(bucket.protocol, "Simple");
  EXPECT_EQ(bucket.channels, 2);
  EXPECT_EQ(bucket.chunk, Bytes{250.0});
  EXPECT_EQ(bucket.basis, Basis::interpolated);
  EXPECT_EQ(bucket.runs_per_step, 1);
}

TEST_F(Summary, TimesABucketFromTheLastRankToTheLastRank) {
  const BucketResult bucket = summarise().buckets.at(0);
  EXPECT_EQ(bucket.ready, Seconds{120.0});
  EXPECT_EQ(bucket.start, Seconds{120.0});
  EXPECT_EQ(bucket.end, Seconds{150.0});
  EXPECT_EQ(bucket.algbw, BytesPerSecond{1000.0 / 30.0});
  EXPECT_EQ(bucket.busbw, BytesPerSecond{1000.0 / 30.0});  // times 2(n-1)/n = 1
}

TEST_F(Summary, CountsTheBytesThatAreReducedForASample) {
  EXPECT_EQ(summarise().all_reduce_bytes_per_sample, 1000.0 / (8 * 4));
}

TEST_F(Summary, BandHoldsWhatWasSeenToVary) {
  change_model("/measured/0/step_time_s", R"({"median": 1, "min": 0.875, "max": 1.5})");
  const StepResult result = summarise();
  // On the GPU: 107.5 compute + 5 host + 7 optimizer. The fit behind the bucket was off by 0.125.
  EXPECT_EQ(result.band.trace.below, Seconds{119.5 * 0.125});
  EXPECT_EQ(result.band.trace.above, Seconds{119.5 * 0.5});
  EXPECT_EQ(result.band.calibration.below, Seconds{27.5 * 0.125});
  EXPECT_EQ(result.band.calibration.above, Seconds{27.5 * 0.125});
}

TEST_F(Summary, BandHoldsWhatTheModelLeavesOutOnSeveralRanks) {
  const Band band = summarise().band;
  EXPECT_GT(band.computation.below, Seconds{});
  EXPECT_GT(band.computation.above, band.computation.below);  // what is left out takes time
  EXPECT_GT(band.communication.below, Seconds{});
  EXPECT_GT(band.communication.above, Seconds{});
}

TEST(Band, AddsUpWhatIsIndependent) {
  // 2^2 + 4^2 + 5^2 + 6^2 = 9^2 and 1^2 + 2^2 + 4^2 + 10^2 = 11^2
  const Band band{{Seconds{2.0}, Seconds{1.0}},
                  {Seconds{4.0}, Seconds{2.0}},
                  {Seconds{5.0}, Seconds{4.0}},
                  {Seconds{6.0}, Seconds{10.0}}};
  EXPECT_DOUBLE_EQ(band.low(Seconds{20.0}).value(), 20.0 - 9.0);
  EXPECT_DOUBLE_EQ(band.high(Seconds{20.0}).value(), 20.0 + 11.0);
  EXPECT_EQ(band.low(Seconds{8.0}), Seconds{});
}

TEST(Band, HiddenCommunicationCanOnlyMakeAStepLonger) {
  Band with, without;
  add_model_error(without, Seconds{10.0}, Seconds{2.0}, Seconds{});
  add_model_error(with, Seconds{10.0}, Seconds{2.0}, Seconds{2.0});
  EXPECT_EQ(with.communication.below, without.communication.below);
  EXPECT_EQ(with.communication.above, 2.0 * without.communication.above);
  EXPECT_EQ(with.computation.below, without.computation.below);
}

TEST_F(Summary, BandIsFiniteWhenTheMeasuredStepsTookNoTime) {
  change_model("/measured/0/step_time_s", R"({"median": 0, "min": 0, "max": 0})");
  EXPECT_EQ(summarise().band.trace.below, Seconds{});
}

TEST_F(Summary, SaysThatTheComputationWasMeasured) {
  EXPECT_EQ(summarise().compute_basis, Basis::measured);
}

TEST_F(Summary, SaysThatATraceOfAnotherGpuExtrapolates) {
  change_model("/gpu", R"("another")");
  EXPECT_EQ(summarise().compute_basis, Basis::extrapolated);
}

/// The hand-made step with a second bucket behind the first, for which nobody waits.
HandMadeStep two_buckets() {
  HandMadeStep step;
  step.job.program.collectives.push_back({2000, {}});
  step.job.lowered.push_back(step.job.lowered[0]);
  step.job.lowered_of.push_back(1);
  step.timeline.collectives.push_back(
      {{Seconds{115.0}, Seconds{120.0}}, Seconds{150.0}, {Seconds{156.0}, Seconds{156.0}}});
  step.job.program.segments[1].tasks.emplace_back(Launch{1});
  step.timeline.tasks = 8;
  step.timeline.task_times.insert(step.timeline.task_times.begin() + 7,
                                  {Seconds{157.0}, Seconds{157.0}});
  step.timeline.task_times.push_back({Seconds{152.0}, Seconds{152.0}});
  return step;
}

TEST(TwoBuckets, HaveTheWeakestBasisOfBoth) {
  for (const std::size_t which : {0u, 1u}) {
    HandMadeStep step = two_buckets();
    step.job.lowered[which].basis = Basis::extrapolated;
    step.job.lowered[1 - which].basis = Basis::mechanism;
    EXPECT_EQ(summarize(step.point, step.job, step.timeline).communication_basis,
              Basis::extrapolated);
  }
}

TEST(TwoBuckets, WidenTheBandByTheirResidualsForTheTimeTheyTake) {
  HandMadeStep step = two_buckets();
  step.job.lowered[0].relative_error = 0.5;  // for 30 s of the 36 s that both take
  const StepResult result = summarize(step.point, step.job, step.timeline);
  EXPECT_DOUBLE_EQ(result.band.calibration.above.value(), (0.5 * 30.0 + 0.125 * 6.0) / 36.0 * 27.5);
}

TEST(TwoBuckets, CountOnlyWhatIsReduced) {
  HandMadeStep step = two_buckets();
  step.job.lowered[1].operation = Operation::broadcast;
  const StepResult result = summarize(step.point, step.job, step.timeline);
  EXPECT_EQ(result.all_reduce_bytes_per_sample, 1000.0 / (8 * 4));
  EXPECT_EQ(result.buckets[1].operation, Operation::broadcast);
  EXPECT_EQ(result.buckets[1].busbw, result.buckets[1].algbw);
}

TEST(TwoBuckets, UseTheSameBuffers) {
  HandMadeStep step = two_buckets();
  step.job.lowered[1].channels = 1;
  // NCCL's buffers of the two channels of the first: CountsTheBuffersOfEachChannel.
  EXPECT_EQ(summarize(step.point, step.job, step.timeline).memory.nccl_bytes,
            2 * (524'288 + 4'915'200 + 4'194'304));
}

// Data loader ------------------------------------------------------------------------------------

TEST_F(Summary, StartsWhenTheLoaderHasTheSamples) {
  // 8 samples in each of 4 micro-steps at 12.5 s, by two workers: 200 s for a step of 157 s.
  step.point.scenario.training.data_loader = DataLoader{Seconds{12.5}, 2};
  const StepResult before = summarise();
  wait_for_data(step.point, step.job, step.timeline);
  const StepResult result = summarise();
  EXPECT_EQ(result.step_time, Seconds{200.0});
  EXPECT_EQ(result.split.host, before.split.host + Seconds{200.0 - 157.0});
  EXPECT_EQ(result.split.compute, before.split.compute);
  EXPECT_EQ(result.split.exposed_comm, before.split.exposed_comm);
  EXPECT_EQ(result.split.wait, before.split.wait);
  EXPECT_EQ(result.comm, before.comm);
  EXPECT_EQ(result.buckets[0].start, before.buckets[0].start + Seconds{43.0});
  EXPECT_EQ(sum(result.split), 200.0);
  // One GPU waits for its loader as well.
  EXPECT_EQ(result.scaling_efficiency, 1.0);
}

TEST_F(Summary, DoesNotWaitForALoaderThatIsFaster) {
  step.point.scenario.training.data_loader = DataLoader{Seconds{12.5}, 4};
  wait_for_data(step.point, step.job, step.timeline);
  EXPECT_EQ(summarise().step_time, Seconds{157.0});
  EXPECT_EQ(step.job.program.segments.size(), 2u);
}

// Learning rate and batches ----------------------------------------------------------------------

TEST_F(Summary, ScalesTheLearningRateFromOneMicroBatch) {
  const StepResult result = summarise();
  EXPECT_EQ(result.reference_global_batch, 8);
  EXPECT_EQ(result.linear_lr_factor, 64.0 / 8.0);
  EXPECT_EQ(result.sqrt_lr_factor, std::sqrt(64.0 / 8.0));
}

TEST_F(Summary, ScalesTheLearningRateFromTheReferenceBatch) {
  step.point.scenario.training.reference_global_batch = 256;
  const StepResult result = summarise();
  EXPECT_EQ(result.reference_global_batch, 256);
  EXPECT_EQ(result.linear_lr_factor, 64.0 / 256.0);
  EXPECT_EQ(result.sqrt_lr_factor, 0.5);  // sqrt(1/4)
}

// Memory -----------------------------------------------------------------------------------------

TEST_F(Summary, CountsTheMemoryOfTheModel) {
  const MemoryResult memory = summarise().memory;
  EXPECT_EQ(memory.parameters_bytes, 110 * 4 + 50 * 2);  // tiny_trace()
  EXPECT_EQ(memory.gradients_bytes, 110 * 4 + 50 * 2);
  EXPECT_EQ(memory.optimizer_bytes, 160 * 4);  // 4 B of state for each element
  EXPECT_EQ(memory.gpu_bytes, 1'000'000);
}

TEST_F(Summary, CountsMasterWeightsOfHalfPrecisionParameters) {
  EXPECT_EQ(summarise().memory.master_bytes, 0);
  change_model("/optimizer/master_weights", "true");
  EXPECT_EQ(summarise().memory.master_bytes, 50 * 4);  // second.weight is float16
}

TEST_F(Summary, CountsHalfAGibibyteForTheFramework) {
  EXPECT_EQ(summarise().memory.framework_bytes, 512 * 1024 * 1024);
}

TEST_F(Summary, CountsTheConnectionsOfATreeAndTheHeadsOfNvls) {
  step.job.lowered[0].algorithm = "double_binary_tree";
  EXPECT_EQ(summarise().memory.nccl_bytes, 3 * 2 * (524'288 + 4'915'200 + 4'194'304));
  step.job.lowered[0].algorithm = "nvls";
  // Two channels of two heads (ranks in the node): 8 slots of 128 KiB, up and down.
  EXPECT_EQ(summarise().memory.nccl_bytes, 2 * 2 * (2 * 8 * 128 * 1024));
}

TEST_F(Summary, CountsTheBuffersOfEachChannel) {
  // NCCL, per connection: LL 512 KiB, LL128 4 915 200 B, Simple 4 MiB; two channels.
  EXPECT_EQ(summarise().memory.nccl_bytes, 2 * (524'288 + 4'915'200 + 4'194'304));
}

TEST_F(Summary, CountsDdpsBuckets) { EXPECT_EQ(summarise().memory.bucket_bytes, 110 * 4 + 50 * 2); }

TEST_F(Summary, CountsTheCopyOfTheFlatLoop) {
  step.point.scenario.training.sync = SyncMode::flat;
  EXPECT_EQ(summarise().memory.bucket_bytes, 110 * 4 + 50 * 2);
}

TEST_F(Summary, CountsNoBucketsForTheLoopOverTensors) {
  step.point.scenario.training.sync = SyncMode::per_tensor;
  EXPECT_EQ(summarise().memory.bucket_bytes, 0);
}

TEST_F(Summary, CountsNoBucketsThatTheGradientsLiveIn) {
  step.point.scenario.training.gradient_as_bucket_view = true;
  EXPECT_EQ(summarise().memory.bucket_bytes, 0);
}

TEST_F(Summary, CountsHorovodsFusionBuffer) {
  step.point.scenario.training.sync = SyncMode::horovod;
  step.point.scenario.training.fusion_bytes = 12345;
  EXPECT_EQ(summarise().memory.bucket_bytes, 12345);
}

TEST_F(Summary, CountsWhatAHookCasts) {
  EXPECT_EQ(summarise().memory.hook_bytes, 0);
  step.point.scenario.training.communication_hook = CommunicationHook::bf16;
  EXPECT_EQ(summarise().memory.hook_bytes, 160 * 2);
  step.point.scenario.training.communication_hook = CommunicationHook::fp16;
  EXPECT_EQ(summarise().memory.hook_bytes, 110 * 2);  // 50 are float16 as they are
}

TEST_F(Summary, TakesTheActivationsFromTheTrace) {
  EXPECT_FALSE(summarise().memory.activation_bytes.has_value());
  change_model("/measured/0/activation_bytes", "77");
  EXPECT_EQ(summarise().memory.activation_bytes, 77);
}

MemoryResult memory_of(std::optional<std::int64_t> activation_bytes,
                       std::optional<std::int64_t> gpu_bytes) {
  MemoryResult memory;
  memory.parameters_bytes = 1;
  memory.gradients_bytes = 20;
  memory.optimizer_bytes = 300;
  memory.bucket_bytes = 4000;
  memory.nccl_bytes = 50000;
  memory.master_bytes = 7000000;
  memory.hook_bytes = 10000000;
  memory.framework_bytes = 200000000;
  memory.activation_bytes = activation_bytes;
  memory.gpu_bytes = gpu_bytes;
  return memory;
}

TEST(Memory, AddsUpWhatIsKnown) {
  EXPECT_EQ(memory_of({}, {}).known_bytes(), 217054321);
  EXPECT_EQ(memory_of(600000, {}).known_bytes(), 217654321);
}

struct Fit {
  std::string name;
  std::optional<std::int64_t> activation_bytes;
  std::optional<std::int64_t> gpu_bytes;
  std::optional<bool> fits;
};
void PrintTo(const Fit& fit, std::ostream* out) { *out << fit.name; }
class MemoryFits : public testing::TestWithParam<Fit> {};

TEST_P(MemoryFits, WhenAllOfItIsKnownToFit) {
  EXPECT_EQ(memory_of(GetParam().activation_bytes, GetParam().gpu_bytes).fits(), GetParam().fits);
}
INSTANTIATE_TEST_SUITE_P(
    Cases, MemoryFits,
    testing::Values(Fit{"Exactly", 600000, 217654321, true},
                    Fit{"OneByteShort", 600000, 217654320, false},
                    Fit{"UnknownGpu", 600000, {}, {}},
                    Fit{"UnknownActivations", {}, 1'000'000'000, {}},
                    Fit{"UnknownActivationsThatCannotFit", {}, 217054320, false}),
    case_name);

MemoryResult room_for(std::int64_t activations, std::int64_t left) {
  MemoryResult memory;
  memory.framework_bytes = 1000;
  memory.activation_bytes = activations;
  memory.gpu_bytes = 1000 + left;
  return memory;
}

TEST(LargestThatFits, KeepsTheSamplesOfTheStep) {
  // 10 B a sample and 95 B left: 9 samples fit; of 16 * 3 = 48 samples 8 is the largest divisor.
  const auto fitting = largest_that_fits(room_for(160, 95), 16, 3);
  ASSERT_TRUE(fitting.has_value());
  EXPECT_EQ(fitting->micro_batch, 8);
  EXPECT_EQ(fitting->accumulation_steps, 6);
}

TEST(LargestThatFits, MayBeExactlyFull) {
  EXPECT_EQ(largest_that_fits(room_for(160, 80), 16, 1)->micro_batch, 8);
  EXPECT_EQ(largest_that_fits(room_for(160, 79), 16, 1)->micro_batch, 4);
}

TEST(LargestThatFits, IsNoneWhereNotOneSampleFitsOrNothingIsKnown) {
  EXPECT_FALSE(largest_that_fits(room_for(160, 9), 16, 1).has_value());
  EXPECT_FALSE(largest_that_fits(room_for(160, -500), 16, 1).has_value());
  MemoryResult unknown = room_for(160, 100);
  unknown.activation_bytes = {};
  EXPECT_FALSE(largest_that_fits(unknown, 16, 1).has_value());
}

TEST_F(Summary, SaysWhatWouldFitOnlyWhereItDoesNot) {
  const auto give_memory = [&](std::int64_t bytes) {
    step.point.platform = std::make_shared<const Platform>(read_platform(
        JsonDocument::parse(with(tiny_platform(), "/gpu/memory_bytes", std::to_string(bytes)), "p")
            .root()));
  };
  change_model("/measured/0/activation_bytes", "80000000000");
  const std::int64_t others = summarise().memory.known_bytes() - 80'000'000'000;
  give_memory(others + 35'000'000'000);  // 10 GB a sample: 3 fit, 2 divide 8 * 4
  const StepResult result = summarise();
  EXPECT_EQ(result.memory.fits(), false);
  ASSERT_TRUE(result.fitting.has_value());
  EXPECT_EQ(result.fitting->micro_batch, 2);
  EXPECT_EQ(result.fitting->accumulation_steps, 16);
  give_memory(others + 80'000'000'000);
  EXPECT_EQ(summarise().memory.fits(), true);
  EXPECT_FALSE(summarise().fitting.has_value());
}

// Advice on the learning rate --------------------------------------------------------------------

TEST_F(Summary, AdvisesWarmUpForALargerBatch) {
  EXPECT_EQ(summarise().learning_rate.rule, "linear");  // SGD
  EXPECT_EQ(summarise().learning_rate.warm_up_epochs, 5);
  step.point.scenario.training.reference_global_batch = 64;
  EXPECT_EQ(summarise().learning_rate.warm_up_epochs, 0);
  change_model("/optimizer/name", R"("AdamW")");
  EXPECT_EQ(summarise().learning_rate.rule, "square_root");
  change_model("/optimizer/name", R"("Lion")");
  EXPECT_EQ(summarise().learning_rate.rule, "");
}

TEST_F(Summary, CountsTheSamplesBehindAStatisticOfBatchNorm) {
  EXPECT_FALSE(summarise().learning_rate.batch_norm_samples.has_value());
  change_model("/batch_norms", R"([{"span": "first", "channels": 4}])");
  EXPECT_EQ(summarise().learning_rate.batch_norm_samples, 8);
  step.point.scenario.training.synchronized_batch_norm = true;
  EXPECT_EQ(summarise().learning_rate.batch_norm_samples, 8 * 2);
  step.point.scenario.training.synchronized_batch_norm = false;
  change_model("/buffers", R"([{"elements": 8, "dtype": "float32"}])");
  EXPECT_EQ(summarise().learning_rate.batch_norm_samples, 8);
  change_model("/buffers", R"([{"elements": 8, "dtype": "int64"}])");
  EXPECT_FALSE(summarise().learning_rate.batch_norm_samples.has_value());
}

// Overlap and repetition -------------------------------------------------------------------------

/// One rank that computes for 40 s, waits until `wait_end` and steps for 2 s, with collectives at
/// the given times.
StepResult one_rank(const std::vector<Interval>& collectives, double wait_end,
                    std::int64_t repeat = 1) {
  HandMadeStep step;
  step.point.scenario.gpus = 1;
  step.job.cluster = Cluster(*step.point.platform, nullptr, 1, "test");
  step.job.program.segments = {{repeat,
                                {Compute{Phase::backward, "b", Seconds{}}, Launch{0}, Wait{0},
                                 Compute{Phase::optimizer, "step", Seconds{}}}}};
  step.job.program.collectives.resize(collectives.size());
  step.job.lowered_of.resize(collectives.size(), 0);
  Timeline timeline;
  timeline.ranks = 1;
  timeline.tasks = 4;
  const Seconds backward_end{40.0};
  const Seconds end{wait_end + 2.0};
  timeline.task_times = {{Seconds{0.0}, backward_end},
                         {backward_end, backward_end},
                         {backward_end, Seconds{wait_end}},
                         {Seconds{wait_end}, end}};
  for (const Interval& times : collectives)
    timeline.collectives.push_back({{times.begin}, times.begin, {times.end}});
  timeline.segments = {{{end}, end}};
  return summarize(step.point, step.job, timeline);
}

Interval between(double begin, double end) { return {Seconds{begin}, Seconds{end}}; }

TEST(Overlap, IsTheCommunicationBehindComputation) {
  const StepResult result = one_rank({between(10.0, 60.0)}, 60.0);
  EXPECT_EQ(result.comm, Seconds{50.0});
  EXPECT_EQ(result.split.exposed_comm, Seconds{20.0});  // from 40 to 60
  EXPECT_EQ(result.overlapped, Seconds{30.0});          // from 10 to 40
  EXPECT_EQ(result.split.wait, Seconds{0.0});
}

TEST(Overlap, IsAllWhenNobodyWaits) {
  const StepResult result = one_rank({between(10.0, 30.0)}, 40.0);
  EXPECT_EQ(result.split.exposed_comm, Seconds{0.0});
  EXPECT_EQ(result.overlapped, Seconds{20.0});
}

TEST(Overlap, CountsWaitingBetweenCollectivesAsWait) {
  // Blocked from 40 to 70, under way until 50 and from 55 on. Only the first is ever launched.
  const StepResult result = one_rank({between(30.0, 50.0), between(55.0, 70.0)}, 70.0);
  EXPECT_EQ(result.split.exposed_comm, Seconds{10.0 + 15.0});
  EXPECT_EQ(result.split.wait, Seconds{5.0});
  EXPECT_EQ(sum(result.split), 72.0);
}

TEST(Repetition, CountsCollectivesInEachPass) {
  const StepResult once = one_rank({between(10.0, 60.0)}, 60.0);
  const StepResult thrice = one_rank({between(10.0, 60.0)}, 60.0, 3);
  EXPECT_EQ(thrice.comm, 3.0 * once.comm);
  EXPECT_EQ(thrice.split.exposed_comm, 3.0 * once.split.exposed_comm);
  EXPECT_EQ(thrice.split.compute, 3.0 * once.split.compute);
  EXPECT_EQ(thrice.split.optimizer, 3.0 * once.split.optimizer);
  EXPECT_EQ(thrice.buckets.at(0).runs_per_step, 3);
  EXPECT_EQ(thrice.all_reduce_bytes_per_sample, 3.0 * once.all_reduce_bytes_per_sample);
}

TEST(Repetition, OfALaterSegmentIsNoWaitWhenItsPassesFollowOneAnother) {
  // One rank: 5 s once, then 10 s three times, then the optimizer for 2 s.
  HandMadeStep step;
  step.job.cluster = Cluster(*step.point.platform, nullptr, 1, "test");
  step.job.program.collectives.clear();
  step.job.program.segments = {{1, {Compute{Phase::forward, "f", Seconds{}}}},
                               {3, {Compute{Phase::backward, "b", Seconds{}}}},
                               {1, {Compute{Phase::optimizer, "step", Seconds{}}}}};
  Timeline timeline;
  timeline.ranks = 1;
  timeline.tasks = 3;
  timeline.task_times = {between(0.0, 5.0), between(5.0, 15.0), between(35.0, 37.0)};
  timeline.segments = {{{Seconds{5.0}}, Seconds{5.0}},
                       {{Seconds{15.0}}, Seconds{10.0}},
                       {{Seconds{37.0}}, Seconds{2.0}}};
  const Split split = summarize(step.point, step.job, timeline).split;
  EXPECT_EQ(split.compute, Seconds{5.0 + 3 * 10.0});
  EXPECT_EQ(split.optimizer, Seconds{2.0});
  EXPECT_EQ(split.wait, Seconds{0.0});
}

// A real job -------------------------------------------------------------------------------------

Point point_of(int gpus) {
  HandMadeStep step;
  step.point.scenario.gpus = gpus;
  step.point.scenario.training = TrainingSettings{};
  step.point.scenario.training.sync = SyncMode::flat;
  return step.point;
}

TEST(StepOf, APointIsTheMeasuredOneUnlessItIsNamed) {
  Point point = point_of(2);
  EXPECT_EQ(step_of(point).step.micro_batch, 8);
  point.scenario.training.micro_batch = 16;
  EXPECT_EQ(step_of(point).step.micro_batch, 16);
  EXPECT_EQ(step_of(point).basis, Basis::extrapolated);
}

TEST(JobOf, APointReducesTheGradientsOnItsRanks) {
  const Point point = point_of(8);
  const Job job = job_of(point);
  EXPECT_EQ(job.cluster.ranks(), 8);
  ASSERT_EQ(job.program.collectives.size(), 2u);  // one for each dtype
  EXPECT_EQ(job.program.collectives[0].bytes, 50 * 2);
  EXPECT_EQ(job.program.collectives[1].bytes, 110 * 4);
  EXPECT_EQ(job.collective(1).bytes, Bytes{110.0 * 4});
}

TEST(JobOf, APointUsesItsCalibration) {
  Point point = point_of(8);
  point.calibration = std::make_shared<const Calibration>(
      read_calibration(JsonDocument::parse(tiny_calibration(), "c.json").root()));
  const Job job = job_of(point);
  EXPECT_EQ(job.cluster.intra_node_bandwidth(), BytesPerSecond{80e9});
  EXPECT_EQ(job.collective(0).basis, Basis::extrapolated);  // 100 B, fitted from 1 KiB up
}

/// A timeline on which every rank does nothing for 10 s.
Timeline idle_timeline(const Job& job) {
  Timeline timeline;
  const auto ranks = static_cast<std::size_t>(job.cluster.ranks());
  timeline.ranks = job.cluster.ranks();
  for (const Segment& segment : job.program.segments) timeline.tasks += segment.tasks.size();
  timeline.task_times.resize(ranks * timeline.tasks);
  for (std::size_t c = 0; c < job.program.collectives.size(); ++c)
    timeline.collectives.push_back(
        {std::vector<Seconds>(ranks), Seconds{0.0}, std::vector<Seconds>(ranks, Seconds{1.0})});
  for (std::size_t s = 0; s < job.program.segments.size(); ++s)
    timeline.segments.push_back({std::vector<Seconds>(ranks, Seconds{10.0}), Seconds{10.0}});
  return timeline;
}

TEST(Links, AreSummedUpByTheirKind) {
  const Point point = point_of(8);
  const Job job = job_of(point);
  const StepResult result = summarize(point, job, idle_timeline(job));
  ASSERT_EQ(result.links.size(), 2u);
  EXPECT_EQ(result.links[0].kind, "intra_node");
  EXPECT_EQ(result.links[1].kind, "inter_node");
  // Two rings over two nodes of four, S = 540 B: each hop carries 2(n-1)/n S / 2 = 472.5 B. A ring
  // has 3 hops inside each node, over 2 links each, and 2 between the nodes, over 2 links each.
  const double hop = 2.0 * 7 / 8 * 540 / 2;
  EXPECT_DOUBLE_EQ(result.links[0].total.value(), 2 * 2 * 3 * 2 * hop);
  EXPECT_DOUBLE_EQ(result.links[1].total.value(), 2 * 2 * 2 * hop);
  // Both NICs of both nodes, each way.
  EXPECT_EQ(result.links[1].links, 2u * 2u * 2u);
}

TEST(Links, NameTheBusiest) {
  const Point point = point_of(8);
  const Job job = job_of(point);
  const StepResult result = summarize(point, job, idle_timeline(job));
  const LinkResult& nics = result.links.at(1);
  EXPECT_EQ(nics.busiest_link, "node0.nic0.up");  // all are equal: the first
  const double hop = 2.0 * 7 / 8 * 540 / 2;
  EXPECT_DOUBLE_EQ(nics.busiest.value(), hop);
  EXPECT_DOUBLE_EQ(nics.busiest_utilisation, hop / 10e9 / 10.0);  // 10 GB/s for 10 s
}

TEST(Links, OfOneNodeHaveOneKind) {
  const Point point = point_of(4);
  const Job job = job_of(point);
  const StepResult result = summarize(point, job, idle_timeline(job));
  ASSERT_EQ(result.links.size(), 1u);
  EXPECT_EQ(result.links[0].kind, "intra_node");
  EXPECT_EQ(result.links[0].links, 2u * 4u);  // up and down of four GPUs
}

TEST(Sent, IsThatOfTheRankThatSendsMost) {
  HandMadeStep step;
  Schedule& schedule = step.job.lowered[0].schedule;
  schedule.ranks = 2;
  schedule.connections = {{0, 1, 0}, {1, 0, 0}};
  schedule.chunk_bytes = {Bytes{500.0}};
  schedule.transfers = {{0, 0, true}, {0, 0, true}, {1, 0, false}};
  schedule.dependencies_begin = {0, 0, 0, 0};
  step.job.lowered[0].routes.resize(2);
  // Rank 0 sends twice, rank 1 once.
  EXPECT_EQ(summarize(step.point, step.job, step.timeline).sent_per_rank, Bytes{1000.0});
}

TEST(Sent, IsTwiceNMinusOneOverNOfTheGradientsInARing) {
  const Point point = point_of(4);
  const Job job = job_of(point);
  EXPECT_DOUBLE_EQ(summarize(point, job, idle_timeline(job)).sent_per_rank.value(),
                   2.0 * 3 / 4 * 540);
}

TEST(OneRank, HasNoCommunication) {
  const Point point = point_of(1);
  const Job job = job_of(point);
  const StepResult result = summarize(point, job, idle_timeline(job));
  EXPECT_EQ(result.comm, Seconds{0.0});
  EXPECT_TRUE(result.buckets.empty());
  EXPECT_TRUE(result.links.empty());
  EXPECT_FALSE(result.communication_basis.has_value());
  EXPECT_EQ(result.sent_per_rank, Bytes{0.0});
  EXPECT_EQ(result.memory.bucket_bytes, 0);
  EXPECT_EQ(result.memory.nccl_bytes, 0);
}

TEST(BusFactor, IsTwiceNMinusOneOverN) {
  EXPECT_EQ(bus_factor(Operation::all_reduce, 1), 0.0);
  EXPECT_EQ(bus_factor(Operation::all_reduce, 2), 1.0);
  EXPECT_EQ(bus_factor(Operation::all_reduce, 8), 1.75);
}

TEST(BusFactor, TurnsTheBandwidthOfABucketIntoThatOfTheBus) {
  const Point point = point_of(4);
  const Job job = job_of(point);
  const BucketResult bucket = summarize(point, job, idle_timeline(job)).buckets.at(0);
  EXPECT_EQ(bucket.algbw, BytesPerSecond{100.0});  // 100 B in 1 s
  EXPECT_EQ(bucket.busbw, BytesPerSecond{150.0});  // 2 * 3 / 4
}

TEST_F(Summary, OfStepsOfWhichSomeAreOfAnotherLengthIsTheirMean) {
  StepResult result = summarise();
  const StepResult before = result;
  std::vector<double> other = mean_times(result);
  for (double& time : other) time = 3.0 * time;
  mix(result, other, 0.25);  // 3/4 + 1/4 * 3 = 1.5 times as long
  EXPECT_DOUBLE_EQ(result.step_time.value(), 1.5 * before.step_time.value());
  EXPECT_DOUBLE_EQ(sum(result.split), 1.5 * before.step_time.value());
  EXPECT_DOUBLE_EQ(result.throughput_samples_per_s, before.throughput_samples_per_s / 1.5);
  EXPECT_DOUBLE_EQ(result.scaling_efficiency, before.scaling_efficiency / 1.5);
  EXPECT_DOUBLE_EQ(result.comm_fraction, before.comm_fraction);
}

}  // namespace
}  // namespace stepcast
