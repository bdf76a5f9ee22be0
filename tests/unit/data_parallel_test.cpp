#include "workload/data_parallel.hpp"

#include <cstddef>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "testing.hpp"

namespace stepcast {
namespace {

constexpr std::int64_t no_limit = std::int64_t{1} << 40;

/// Four parameters of 4 B; the gradients become ready as 3, then 2 and 1, then 0.
MeasuredStep measured_step() {
  MeasuredStep step;
  step.micro_batch = 8;
  step.forward = {{"embed", Seconds{}, Seconds{1.0}, {}}, {"head", Seconds{}, Seconds{2.0}, {}}};
  step.backward = {{"head", Seconds{}, Seconds{3.0}, {3}},
                   {"middle", Seconds{}, Seconds{4.0}, {2, 1}},
                   {"embed", Seconds{}, Seconds{5.0}, {0}}};
  step.finalize = {{"copy", Seconds{}, Seconds{6.0}, {}}};
  step.optimizer = {{"step", Seconds{}, Seconds{7.0}, {}}};
  return step;
}

std::vector<Parameter> parameters() {
  return {{"a", 1, "float32"}, {"b", 1, "float32"}, {"c", 1, "float32"}, {"d", 1, "float32"}};
}

/// Buckets of 4 B and then of 8 B: {3}, {2, 1}, {0}.
TrainingSettings settings(SyncMode sync) {
  TrainingSettings training;
  training.sync = sync;
  training.first_bucket_bytes = 4;
  training.bucket_cap_bytes = 8;
  return training;
}

StepTrace model_of(std::vector<Parameter> parameters) {
  StepTrace model;
  model.parameters = std::move(parameters);
  model.in_ddp = true;  // its steps have copies out of buckets
  return model;
}

Program program_of(const TrainingSettings& training, int world_size = 2) {
  return data_parallel_step(model_of(parameters()), measured_step(), training, Gpu{}, world_size);
}

using Lines = std::vector<std::string>;

Lines lines_of(const std::vector<Task>& tasks) {
  Lines lines;
  for (const Task& task : tasks) {
    if (const auto* compute = std::get_if<Compute>(&task))
      lines.push_back(std::string(to_string(compute->phase)) + ": " + compute->name);
    else if (const auto* launch = std::get_if<Launch>(&task))
      lines.push_back("launch " + std::to_string(launch->collective));
    else
      lines.push_back("wait " + std::to_string(std::get<Wait>(task).collective));
  }
  return lines;
}

template <class... Texts>
Lines lines(const Texts&... texts) {
  return {texts...};
}

Lines operator+(Lines a, const Lines& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

const Lines forward = {"forward: embed", "forward: head"};
const Lines backward = {"backward: head", "backward: middle", "backward: embed"};

// Broadcast of buffers ---------------------------------------------------------------------------

class BufferBroadcast : public testing::Test {
 protected:
  [[nodiscard]] Program program(int world_size = 2) const {
    return data_parallel_step(model, measured_step(), training, Gpu{}, world_size);
  }
  /// How many collectives each segment launches, as "broadcasts+all_reduces x repeat".
  [[nodiscard]] Lines launches() const {
    const Program made = program();
    Lines all;
    for (const Segment& segment : made.segments) {
      int broadcasts = 0;
      int reductions = 0;
      for (const Task& task : segment.tasks)
        if (const auto* launch = std::get_if<Launch>(&task))
          ++(made.collectives[static_cast<std::size_t>(launch->collective)].operation ==
                     Operation::broadcast
                 ? broadcasts
                 : reductions);
      all.push_back(std::to_string(broadcasts) + "+" + std::to_string(reductions) + " x " +
                    std::to_string(segment.repeat));
    }
    return all;
  }

  StepTrace model = [] {
    StepTrace with_buffers = model_of(parameters());
    with_buffers.buffers = {{100, "float32"}, {3, "int64"}};
    return with_buffers;
  }();
  TrainingSettings training = settings(SyncMode::ddp);
};

TEST_F(BufferBroadcast, ComesBeforeForwardWhichWaitsForIt) {
  const Program made = program();
  EXPECT_EQ(
      lines_of(made.segments[0].tasks),
      lines("launch 0", "launch 1", "wait 0", "wait 1") + forward +
          lines("backward: head", "launch 2", "backward: middle", "launch 3", "backward: embed",
                "launch 4", "wait 2", "wait 3", "wait 4", "finalize: copy", "optimizer: step"));
  EXPECT_EQ(made.collectives[0].bytes, 400);
  EXPECT_EQ(made.collectives[1].bytes, 24);
  EXPECT_EQ(made.collectives[1].operation, Operation::broadcast);
  EXPECT_EQ(made.collectives[2].operation, Operation::all_reduce);
}

TEST_F(BufferBroadcast, ComesOnceInAStepUnderNoSync) {
  training.accumulation_steps = 2;
  EXPECT_EQ(launches(), lines("2+0 x 1", "0+3 x 1"));
  training.accumulation_steps = 5;
  EXPECT_EQ(launches(), lines("2+0 x 1", "0+0 x 3", "0+3 x 1"));
}

TEST_F(BufferBroadcast, ComesInEachMicroStepThatIsSynchronised) {
  training.accumulation_steps = 5;
  training.accumulation = AccumulationMode::sync_every_micro_step;
  EXPECT_EQ(launches(), lines("2+3 x 4", "2+3 x 1"));
}

TEST_F(BufferBroadcast, IsDdpsAloneAndCanBeSwitchedOff) {
  EXPECT_EQ(program(1).collectives.size(), 0u);
  training.broadcast_buffers = false;
  EXPECT_EQ(launches(), lines("0+3 x 1"));
  training = settings(SyncMode::flat);
  EXPECT_EQ(launches(), lines("0+1 x 1"));
}

// One micro-step ---------------------------------------------------------------------------------

TEST(DdpStep, LaunchesEachBucketWhenItsGradientsAreThereAndWaitsForAllBehindBackward) {
  const Program program = program_of(settings(SyncMode::ddp));
  ASSERT_EQ(program.segments.size(), 1u);
  EXPECT_EQ(program.segments[0].repeat, 1);
  EXPECT_EQ(lines_of(program.segments[0].tasks),
            forward + lines("backward: head", "launch 0", "backward: middle", "launch 1",
                            "backward: embed", "launch 2", "wait 0", "wait 1", "wait 2",
                            "finalize: copy", "optimizer: step"));
}

TEST(DdpStep, CarriesTheMeasuredDurations) {
  const Program program = program_of(settings(SyncMode::ddp));
  std::vector<double> durations;
  for (const Task& task : program.segments[0].tasks)
    if (const auto* compute = std::get_if<Compute>(&task))
      durations.push_back(compute->duration.value());
  EXPECT_EQ(durations, (std::vector<double>{1, 2, 3, 4, 5, 6, 7}));
}

TEST(DdpStep, ReducesTheBuckets) {
  const Program program = program_of(settings(SyncMode::ddp));
  ASSERT_EQ(program.collectives.size(), 3u);
  EXPECT_EQ(program.collectives[0].parameters, std::vector<int>{3});
  EXPECT_EQ(program.collectives[1].parameters, (std::vector<int>{2, 1}));
  EXPECT_EQ(program.collectives[1].bytes, 2 * 4);
  EXPECT_EQ(program.collectives[2].parameters, std::vector<int>{0});
}

TEST(DdpStep, LaunchesABucketBehindTheSpanOfItsLastGradient) {
  TrainingSettings training = settings(SyncMode::ddp);
  training.first_bucket_bytes = 8;  // {3, 2} is complete in the middle, {1, 0} at the end
  EXPECT_EQ(lines_of(program_of(training).segments[0].tasks),
            forward + lines("backward: head", "backward: middle", "launch 0", "backward: embed",
                            "launch 1", "wait 0", "wait 1", "finalize: copy", "optimizer: step"));
}

TEST(DdpStep, LaunchesTheBucketsOfOneSpanInTheirOrder) {
  TrainingSettings training = settings(SyncMode::ddp);
  training.bucket_cap_bytes = 4;  // {3}, {2}, {1}, {0}
  EXPECT_EQ(lines_of(program_of(training).segments[0].tasks),
            forward + lines("backward: head", "launch 0", "backward: middle", "launch 1",
                            "launch 2", "backward: embed", "launch 3", "wait 0", "wait 1", "wait 2",
                            "wait 3", "finalize: copy", "optimizer: step"));
}

TEST(DdpStep, LaunchesNoBucketBeforeOneThatIsCompleteEarlier) {
  // c's bucket (float16) is opened behind d's (float32) and complete before it.
  std::vector<Parameter> mixed = parameters();
  mixed[2] = {"c", 4, "float16"};
  TrainingSettings training = settings(SyncMode::ddp);
  training.first_bucket_bytes = 8;
  const Program program = data_parallel_step(model_of(mixed), measured_step(), training, Gpu{}, 2);
  ASSERT_EQ(program.collectives.size(), 3u);
  EXPECT_EQ(program.collectives[0].parameters, std::vector<int>{2});
  EXPECT_EQ(program.collectives[1].parameters, (std::vector<int>{3, 1}));
  EXPECT_EQ(program.collectives[2].parameters, std::vector<int>{0});
  EXPECT_EQ(lines_of(program.segments[0].tasks),
            forward + lines("backward: head", "backward: middle", "launch 0", "launch 1",
                            "backward: embed", "launch 2", "wait 0", "wait 1", "wait 2",
                            "finalize: copy", "optimizer: step"));
}

TEST(DdpStep, LaunchesBucketsInTheirOrderEvenIfALaterOneIsCompleteFirst) {
  // d is the only float16 and never fills a bucket; it is ready first.
  std::vector<Parameter> mixed = parameters();
  mixed[3].dtype = "float16";
  const Program program =
      data_parallel_step(model_of(mixed), measured_step(), settings(SyncMode::ddp), Gpu{}, 2);
  ASSERT_EQ(program.collectives.size(), 3u);
  EXPECT_EQ(program.collectives[2].parameters, std::vector<int>{3});
  EXPECT_EQ(lines_of(program.segments[0].tasks),
            forward + lines("backward: head", "backward: middle", "launch 0", "backward: embed",
                            "launch 1", "launch 2", "wait 0", "wait 1", "wait 2", "finalize: copy",
                            "optimizer: step"));
}

TEST(FlatStep, ReducesAllGradientsAtOnceBehindBackward) {
  const Program program = program_of(settings(SyncMode::flat));
  ASSERT_EQ(program.collectives.size(), 1u);
  EXPECT_EQ(program.collectives[0].bytes, 4 * 4);
  EXPECT_EQ(program.collectives[0].parameters, (std::vector<int>{3, 2, 1, 0}));
  ASSERT_EQ(program.segments.size(), 1u);
  EXPECT_EQ(lines_of(program.segments[0].tasks),
            forward + backward +
                lines("launch 0", "wait 0", "finalize: divide by world size", "optimizer: step"));
}

TEST(FlatStep, ReducesEachDtypeByItself) {
  std::vector<Parameter> mixed = parameters();
  mixed[2].dtype = "float16";
  const Program program =
      data_parallel_step(model_of(mixed), measured_step(), settings(SyncMode::flat), Gpu{}, 2);
  ASSERT_EQ(program.collectives.size(), 2u);
  EXPECT_EQ(program.collectives[0].parameters, std::vector<int>{2});
  EXPECT_EQ(program.collectives[0].bytes, 2);
  EXPECT_EQ(program.collectives[1].parameters, (std::vector<int>{3, 1, 0}));
  EXPECT_EQ(program.collectives[1].bytes, 3 * 4);
}

TEST(PerTensorStep, ReducesAndDividesOneParameterAfterTheOtherInRegistrationOrder) {
  const Program program = program_of(settings(SyncMode::per_tensor));
  ASSERT_EQ(program.collectives.size(), 4u);
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(program.collectives[i].bytes, 4);
    EXPECT_EQ(program.collectives[i].parameters, std::vector<int>{static_cast<int>(i)});
  }
  EXPECT_EQ(lines_of(program.segments[0].tasks),
            forward + backward +
                lines("launch 0", "wait 0", "finalize: divide by world size",  //
                      "launch 1", "wait 1", "finalize: divide by world size",  //
                      "launch 2", "wait 2", "finalize: divide by world size",  //
                      "launch 3", "wait 3", "finalize: divide by world size",  //
                      "optimizer: step"));
}

// DDP's options ----------------------------------------------------------------------------------

TEST(GradientAsBucketView, SavesTheCopiesOutOfTheBuckets) {
  TrainingSettings training = settings(SyncMode::ddp);
  training.gradient_as_bucket_view = true;
  EXPECT_EQ(lines_of(program_of(training).segments[0].tasks),
            forward + lines("backward: head", "launch 0", "backward: middle", "launch 1",
                            "backward: embed", "launch 2", "wait 0", "wait 1", "wait 2",
                            "optimizer: step"));
  EXPECT_EQ(lines_of(program_of(training, 1).segments[0].tasks),
            forward + backward + lines("optimizer: step"));
}

/// A step that was recorded without DDP, on a host that takes 0.25 s for each kernel.
Program copying_program_of(const TrainingSettings& training, int world_size = 2) {
  StepTrace model = model_of(parameters());
  model.in_ddp = false;
  model.host_per_kernel = Seconds{0.25};
  MeasuredStep measured = measured_step();
  measured.finalize.clear();
  // So late that none of it is ahead for good.
  for (Span& span : measured.forward) span.host = Seconds{100.0};
  Gpu gpu;
  gpu.kernel_floor = Seconds{0.5};
  gpu.memory_bandwidth = BytesPerSecond{8.0};
  return data_parallel_step(model, measured, training, gpu, world_size);
}

TEST(Copies, AreAddedToAStepThatWasRecordedWithoutDdp) {
  TrainingSettings training = settings(SyncMode::ddp);
  const Program program = copying_program_of(training);
  const std::vector<Task>& tasks = program.segments[0].tasks;
  EXPECT_EQ(lines_of(tasks),
            forward + lines("backward: head", "finalize: copy into bucket", "launch 0",    //
                            "backward: middle", "finalize: copy into bucket", "launch 1",  //
                            "backward: embed", "finalize: copy into bucket", "launch 2",   //
                            "wait 0", "finalize: copy out of bucket",                      //
                            "wait 1", "finalize: copy out of bucket",                      //
                            "wait 2", "finalize: copy out of bucket", "optimizer: step"));
  // Two gradients of 4 B: two kernels, each reads and writes 4 B at 8 B/s; the host issues both and
  // calls an AllReduce, which takes it as long as 6.5 kernels.
  const auto& into = std::get<Compute>(tasks[6]);
  EXPECT_EQ(into.duration, Seconds{2 * (0.5 + 8.0 / 8.0)});
  EXPECT_EQ(into.host, Seconds{(2 + 6.5) * 0.25});
  const auto& out_of = std::get<Compute>(tasks[14]);
  EXPECT_EQ(out_of.duration, Seconds{2 * (0.5 + 8.0 / 8.0)});
  EXPECT_EQ(out_of.host, Seconds{2 * 0.25});
}

TEST(Copies, AreOfSynchronisedMicroStepsOfDdpOnly) {
  const auto copies = [](const Program& program) {
    std::size_t count = 0;
    for (const Segment& segment : program.segments)
      for (const std::string& line : lines_of(segment.tasks))
        if (line.find("copy") != std::string::npos) ++count;
    return count;
  };
  TrainingSettings training = settings(SyncMode::ddp);
  EXPECT_EQ(copies(copying_program_of(training, 1)), 0u);
  EXPECT_EQ(copies(copying_program_of(settings(SyncMode::flat))), 0u);
  EXPECT_EQ(copies(copying_program_of(settings(SyncMode::overlapped_per_tensor))), 0u);
  training.accumulation_steps = 3;
  EXPECT_EQ(copies(copying_program_of(training)), 6u);
  training.gradient_as_bucket_view = true;
  EXPECT_EQ(copies(copying_program_of(training)), 3u);
}

TEST(CommunicationHook, CastsDividesAndCastsBackEachBucket) {
  TrainingSettings training = settings(SyncMode::ddp);
  training.communication_hook = CommunicationHook::bf16;
  Gpu gpu;
  gpu.kernel_floor = Seconds{0.5};
  gpu.memory_bandwidth = BytesPerSecond{8.0};
  const Program program =
      data_parallel_step(model_of(parameters()), measured_step(), training, gpu, 2);
  ASSERT_EQ(program.collectives.size(), 3u);
  EXPECT_EQ(program.collectives[0].bytes, 4 / 2);
  EXPECT_EQ(program.collectives[1].bytes, 8 / 2);
  const std::vector<Task>& tasks = program.segments[0].tasks;
  EXPECT_EQ(
      lines_of(tasks),
      forward + lines("backward: head", "finalize: cast bucket", "finalize: divide by world size",
                      "launch 0", "backward: middle", "finalize: cast bucket",
                      "finalize: divide by world size", "launch 1", "backward: embed",
                      "finalize: cast bucket", "finalize: divide by world size", "launch 2",  //
                      "wait 0", "finalize: cast bucket back",                                 //
                      "wait 1", "finalize: cast bucket back",                                 //
                      "wait 2", "finalize: cast bucket back", "finalize: copy", "optimizer: step"));
  // The second bucket: reads 8 B and writes 4, reads and writes 4, reads 4 and writes 8, at 8 B/s.
  EXPECT_EQ(std::get<Compute>(tasks[7]).duration, Seconds{0.5 + 12.0 / 8.0});
  EXPECT_EQ(std::get<Compute>(tasks[8]).duration, Seconds{0.5 + 8.0 / 8.0});
  EXPECT_EQ(std::get<Compute>(tasks[17]).duration, Seconds{0.5 + 12.0 / 8.0});
}

TEST(CommunicationHook, CastsNothingThatHasItsDtype) {
  std::vector<Parameter> halves = parameters();
  for (Parameter& parameter : halves) parameter.dtype = "float16";
  TrainingSettings training = settings(SyncMode::ddp);
  training.first_bucket_bytes = no_limit;
  training.communication_hook = CommunicationHook::fp16;
  const Program program = data_parallel_step(model_of(halves), measured_step(), training, Gpu{}, 2);
  EXPECT_EQ(program.collectives.at(0).bytes, 4 * 2);
  EXPECT_EQ(lines_of(program.segments[0].tasks),
            forward + backward +
                lines("finalize: divide by world size", "launch 0", "wait 0", "finalize: copy",
                      "optimizer: step"));
}

TEST(FindUnusedParameters, KeepsTheBucketsOfTheRegistrationAndAddsUpABitmap) {
  // In the order of the registration {a}, {b, c}, {d}; launched from the last to the first.
  TrainingSettings training = settings(SyncMode::ddp);
  training.find_unused_parameters = true;
  for (const Iteration iteration : {Iteration::steady, Iteration::first}) {
    training.iteration = iteration;
    const Program program = program_of(training);
    ASSERT_EQ(program.collectives.size(), 4u);
    EXPECT_EQ(program.collectives[0].parameters, std::vector<int>{3});
    EXPECT_EQ(program.collectives[1].parameters, (std::vector<int>{1, 2}));
    EXPECT_EQ(program.collectives[2].parameters, std::vector<int>{0});
    EXPECT_EQ(program.collectives[3].bytes, 4 * 4);  // an int32 for each of four parameters
    EXPECT_TRUE(program.collectives[3].parameters.empty());
    EXPECT_TRUE(program.collectives[3].as_library_chooses);
    EXPECT_EQ(lines_of(program.segments[0].tasks),
              forward + lines("backward: head", "launch 0", "backward: middle", "launch 1",
                              "backward: embed", "launch 2", "launch 3", "wait 0", "wait 1",
                              "wait 2", "finalize: copy", "wait 3", "optimizer: step"));
  }
  EXPECT_TRUE(program_of(training, 1).collectives.empty());
}

TEST(FirstIteration, HasOneBucketBehindBackward) {
  TrainingSettings training = settings(SyncMode::ddp);
  training.iteration = Iteration::first;
  const Program program = program_of(training);
  ASSERT_EQ(program.collectives.size(), 1u);
  EXPECT_EQ(program.collectives[0].bytes, 4 * 4);
  EXPECT_EQ(lines_of(program.segments[0].tasks),
            forward + backward + lines("launch 0", "wait 0", "finalize: copy", "optimizer: step"));
}

class SynchronizedBatchNorm : public testing::Test {
 protected:
  [[nodiscard]] Program program(int world_size) const {
    return data_parallel_step(model, measured_step(), training, Gpu{}, world_size);
  }
  StepTrace model = [] {
    StepTrace with_norm = model_of(parameters());
    with_norm.batch_norms = {{"head", 64}};
    return with_norm;
  }();
  TrainingSettings training = [] {
    TrainingSettings synchronized = settings(SyncMode::ddp);
    synchronized.synchronized_batch_norm = true;
    return synchronized;
  }();
};

TEST_F(SynchronizedBatchNorm, GathersInForwardAndReducesInBackward) {
  const Program made = program(8);
  EXPECT_EQ(lines_of(made.segments[0].tasks),
            lines("forward: embed", "launch 0", "wait 0", "forward: head", "launch 1", "wait 1",
                  "backward: head", "launch 2", "backward: middle", "launch 3", "backward: embed",
                  "launch 4", "wait 2", "wait 3", "wait 4", "finalize: copy", "optimizer: step"));
  EXPECT_EQ(made.collectives[0].operation, Operation::all_gather);
  EXPECT_EQ(made.collectives[0].bytes, 8 * 4 * (2 * 64 + 1));  // of all ranks, fp32
  EXPECT_EQ(made.collectives[1].operation, Operation::all_reduce);
  EXPECT_EQ(made.collectives[1].bytes, 4 * 2 * 64);
  EXPECT_TRUE(made.collectives[0].as_library_chooses);
}

TEST_F(SynchronizedBatchNorm, BlocksMicroStepsThatDoNotReduceToo) {
  training.accumulation_steps = 3;
  const Program made = program(2);
  ASSERT_EQ(made.segments.size(), 2u);
  EXPECT_EQ(made.segments[0].repeat, 2);
  EXPECT_EQ(lines_of(made.segments[0].tasks),
            lines("forward: embed", "launch 0", "wait 0", "forward: head", "launch 1", "wait 1") +
                backward);
}

TEST_F(SynchronizedBatchNorm, BlocksHorovodsBackwardAsWell) {
  training.sync = SyncMode::horovod;
  training.cycle_time = Seconds{12.0};  // backward ends at a tick
  EXPECT_EQ(lines_of(program(2).segments[0].tasks),
            lines("forward: embed", "launch 0", "wait 0", "forward: head", "launch 1", "wait 1") +
                backward +
                lines("launch 2", "launch 3", "launch 4", "launch 5",  //
                      "wait 2", "finalize: divide by world size",      //
                      "wait 3", "finalize: divide by world size",      //
                      "wait 4", "finalize: divide by world size",      //
                      "wait 5", "finalize: divide by world size", "optimizer: step"));
}

TEST_F(SynchronizedBatchNorm, OfOneRankIsAnOrdinaryOne) {
  EXPECT_TRUE(program(1).collectives.empty());
}

// Other ways to overlap --------------------------------------------------------------------------

TEST(OverlappedPerTensor, LaunchesEachGradientWhenItIsReady) {
  const Program program = program_of(settings(SyncMode::overlapped_per_tensor));
  ASSERT_EQ(program.collectives.size(), 4u);
  EXPECT_EQ(program.collectives[1].parameters, std::vector<int>{2});
  EXPECT_EQ(lines_of(program.segments[0].tasks),
            forward + lines("backward: head", "launch 0", "backward: middle", "launch 1",
                            "launch 2", "backward: embed", "launch 3",   //
                            "wait 0", "finalize: divide by world size",  //
                            "wait 1", "finalize: divide by world size",  //
                            "wait 2", "finalize: divide by world size",  //
                            "wait 3", "finalize: divide by world size", "optimizer: step"));
}

TEST(Merged, MergesWhatIsReadyBeforeTheOverheadIsOver) {
  TrainingSettings training = settings(SyncMode::merged);
  // Ready at 3, 7 and 12 s. At 4.5 s of overhead the first two wait for each other (7 - 3), and an
  // AllReduce of them takes from 7 to 11.5 s and longer: the last cannot go with it (12 - 7 > 4.5).
  training.merge_cost = MergeCost{Seconds{4.5}, BytesPerSecond{1e9}};
  const Program program = program_of(training);
  ASSERT_EQ(program.collectives.size(), 2u);
  EXPECT_EQ(program.collectives[0].parameters, (std::vector<int>{3, 2, 1}));
  EXPECT_EQ(program.collectives[1].parameters, std::vector<int>{0});
  EXPECT_EQ(lines_of(program.segments[0].tasks),
            forward + lines("backward: head", "backward: middle", "launch 0", "backward: embed",
                            "launch 1", "wait 0", "finalize: divide by world size", "wait 1",
                            "finalize: divide by world size", "optimizer: step"));
}

TrainingSettings horovod(double cycle_s, std::int64_t fusion_bytes) {
  TrainingSettings training = settings(SyncMode::horovod);
  training.cycle_time = Seconds{cycle_s};
  training.fusion_bytes = fusion_bytes;
  return training;
}

TEST(Horovod, LaunchesAtTheTicksOfItsCycle) {
  // Gradients are ready at 3, 7 and 12 s; the ticks after them are at 5, 10 and 15 s.
  const Program program = program_of(horovod(5.0, no_limit));
  ASSERT_EQ(program.collectives.size(), 3u);
  EXPECT_EQ(program.collectives[1].parameters, (std::vector<int>{2, 1}));
  const std::vector<Task>& tasks = program.segments[0].tasks;
  EXPECT_EQ(lines_of(tasks),
            forward + lines("backward: head", "backward: middle", "launch 0", "backward: middle",
                            "backward: embed", "launch 1", "backward: embed",
                            "host: wait for Horovod's cycle", "launch 2",  //
                            "wait 0", "finalize: divide by world size",    //
                            "wait 1", "finalize: divide by world size",    //
                            "wait 2", "finalize: divide by world size", "optimizer: step"));
  std::vector<double> durations;
  for (std::size_t i = 2; i < 11; ++i)
    if (const auto* compute = std::get_if<Compute>(&tasks[i]))
      durations.push_back(compute->duration.value());
  // 3 to 5, 5 to 7, 7 to 10, 10 to 12, and from 12 to the tick at 15.
  EXPECT_EQ(durations, (std::vector<double>{3, 2, 2, 3, 2, 3}));
}

TEST(Horovod, LaunchesAtOnceWhatIsReadyAtATick) {
  // Ticks at each whole second: nothing is cut and nobody waits.
  const Program program = program_of(horovod(1.0, no_limit));
  EXPECT_EQ(lines_of(program.segments[0].tasks),
            forward + lines("backward: head", "launch 0", "backward: middle", "launch 1",
                            "backward: embed", "launch 2",               //
                            "wait 0", "finalize: divide by world size",  //
                            "wait 1", "finalize: divide by world size",  //
                            "wait 2", "finalize: divide by world size", "optimizer: step"));
}

TEST(Horovod, FusesAllThatIsReadyIntoNoMoreThanTheBuffer) {
  // All are ready by 12 s; 3 of 4 B fit into 13 B.
  const Program program = program_of(horovod(20.0, 13));
  ASSERT_EQ(program.collectives.size(), 2u);
  EXPECT_EQ(program.collectives[0].parameters, (std::vector<int>{3, 2, 1}));
  EXPECT_EQ(program.collectives[1].parameters, std::vector<int>{0});
  EXPECT_EQ(program_of(horovod(20.0, 0)).collectives.size(), 4u);
}

TEST(Horovod, FusesLaterOnesOfTheSameDtypePastAnotherOne) {
  std::vector<Parameter> mixed = parameters();
  mixed[2].dtype = "float16";
  const Program program =
      data_parallel_step(model_of(mixed), measured_step(), horovod(20.0, 8), Gpu{}, 2);
  ASSERT_EQ(program.collectives.size(), 3u);
  EXPECT_EQ(program.collectives[0].parameters, (std::vector<int>{3, 1}));
  EXPECT_EQ(program.collectives[1].parameters, std::vector<int>{2});
  EXPECT_EQ(program.collectives[2].parameters, std::vector<int>{0});
}

TEST(EveryWayToSynchronise, SendsTheSameGradientsAndComputesTheSame) {
  for (const SyncMode sync :
       {SyncMode::ddp, SyncMode::flat, SyncMode::per_tensor, SyncMode::overlapped_per_tensor,
        SyncMode::merged, SyncMode::horovod}) {
    TrainingSettings training = settings(sync);
    training.merge_cost = MergeCost{Seconds{1.0}, BytesPerSecond{1.0}};
    training.cycle_time = Seconds{0.7};
    const Program program = program_of(training);
    std::int64_t bytes = 0;
    std::vector<int> seen(4, 0);
    for (const Collective& collective : program.collectives) {
      bytes += collective.bytes;
      for (const int parameter : collective.parameters) ++seen[static_cast<std::size_t>(parameter)];
    }
    EXPECT_EQ(bytes, 4 * 4) << to_string(sync);
    EXPECT_EQ(seen, std::vector<int>(4, 1)) << to_string(sync);
    double computed = 0.0;
    for (const Task& task : program.segments[0].tasks)
      if (const auto* compute = std::get_if<Compute>(&task);
          compute && (compute->phase == Phase::forward || compute->phase == Phase::backward))
        computed += compute->duration.value();
    EXPECT_NEAR(computed, 1 + 2 + 3 + 4 + 5, 1e-12) << to_string(sync);
  }
}

// Division ---------------------------------------------------------------------------------------

Seconds division_on(const Gpu& gpu) {
  const Program program =
      data_parallel_step(model_of(parameters()), measured_step(), settings(SyncMode::flat), gpu, 2);
  for (const Task& task : program.segments[0].tasks)
    if (const auto* compute = std::get_if<Compute>(&task);
        compute && compute->phase == Phase::finalize)
      return compute->duration;
  return Seconds{-1.0};
}

TEST(Division, ReadsAndWritesEachGradientOnce) {
  Gpu gpu;
  gpu.kernel_floor = Seconds{0.5};
  gpu.memory_bandwidth = BytesPerSecond{8.0};
  // floor + 2 * 16 B / 8 B/s
  EXPECT_EQ(division_on(gpu), Seconds{0.5 + 2.0 * 16.0 / 8.0});
}

TEST(Division, CostsTheFloorAloneWhereTheMemoryIsUnknown) {
  Gpu gpu;
  gpu.kernel_floor = Seconds{0.5};
  EXPECT_EQ(division_on(gpu), Seconds{0.5});
}

// One rank ---------------------------------------------------------------------------------------

TEST(OneRank, WithDdpStillCopiesAndStepsButReducesNothing) {
  const Program program = program_of(settings(SyncMode::ddp), 1);
  EXPECT_TRUE(program.collectives.empty());
  EXPECT_EQ(lines_of(program.segments.at(0).tasks),
            forward + backward + lines("finalize: copy", "optimizer: step"));
}

TEST(OneRank, WithALoopHasNothingToReduceOrDivide) {
  for (const SyncMode sync : {SyncMode::flat, SyncMode::per_tensor}) {
    const Program program = program_of(settings(sync), 1);
    EXPECT_TRUE(program.collectives.empty());
    EXPECT_EQ(lines_of(program.segments.at(0).tasks),
              forward + backward + lines("optimizer: step"));
  }
}

// Host gaps --------------------------------------------------------------------------------------

TEST(HostGap, StandsBeforeItsSpan) {
  MeasuredStep step = measured_step();
  step.forward[1].gap = Seconds{0.25};
  step.optimizer[0].gap = Seconds{0.5};
  const Program program =
      data_parallel_step(model_of(parameters()), step, settings(SyncMode::flat), Gpu{}, 1);
  EXPECT_EQ(lines_of(program.segments.at(0).tasks),
            lines("forward: embed", "host: gap before head", "forward: head") + backward +
                lines("host: gap before step", "optimizer: step"));
  EXPECT_EQ(std::get<Compute>(program.segments[0].tasks[1]).duration, Seconds{0.25});
}

TEST(HostGap, OfDdpsCopiesStandsBehindTheWaits) {
  MeasuredStep step = measured_step();
  step.finalize[0].gap = Seconds{0.5};
  TrainingSettings training = settings(SyncMode::ddp);
  training.first_bucket_bytes = no_limit;
  const Program program = data_parallel_step(model_of(parameters()), step, training, Gpu{}, 2);
  EXPECT_EQ(lines_of(program.segments.at(0).tasks),
            forward + backward +
                lines("launch 0", "wait 0", "host: gap before copy", "finalize: copy",
                      "optimizer: step"));
}

// Accumulation -----------------------------------------------------------------------------------

TEST(Accumulation, WithoutSyncReducesInTheLastMicroStepOnly) {
  TrainingSettings training = settings(SyncMode::ddp);
  training.accumulation_steps = 4;
  const Program program = program_of(training);
  ASSERT_EQ(program.segments.size(), 2u);
  EXPECT_EQ(program.segments[0].repeat, 4 - 1);
  EXPECT_EQ(lines_of(program.segments[0].tasks), forward + backward);
  EXPECT_EQ(program.segments[1].repeat, 1);
  EXPECT_EQ(lines_of(program.segments[1].tasks),
            lines_of(program_of(settings(SyncMode::ddp)).segments[0].tasks));
  EXPECT_EQ(program.collectives.size(), 3u);
}

TEST(Accumulation, WithSyncReducesInEachMicroStep) {
  TrainingSettings training = settings(SyncMode::ddp);
  training.accumulation_steps = 4;
  training.accumulation = AccumulationMode::sync_every_micro_step;
  const Program program = program_of(training);
  ASSERT_EQ(program.segments.size(), 2u);
  EXPECT_EQ(program.segments[0].repeat, 4 - 1);
  EXPECT_EQ(lines_of(program.segments[0].tasks),
            forward + lines("backward: head", "launch 0", "backward: middle", "launch 1",
                            "backward: embed", "launch 2", "wait 0", "wait 1", "wait 2",
                            "finalize: copy"));
  EXPECT_EQ(program.segments[1].repeat, 1);
  // The last micro-step has collectives of its own.
  EXPECT_EQ(lines_of(program.segments[1].tasks),
            forward + lines("backward: head", "launch 3", "backward: middle", "launch 4",
                            "backward: embed", "launch 5", "wait 3", "wait 4", "wait 5",
                            "finalize: copy", "optimizer: step"));
  ASSERT_EQ(program.collectives.size(), 6u);
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(program.collectives[i + 3].bytes, program.collectives[i].bytes);
    EXPECT_EQ(program.collectives[i + 3].parameters, program.collectives[i].parameters);
  }
}

TEST(Accumulation, OfTheBlockingLoopSyncsInEachMicroStepWhenAsked) {
  TrainingSettings training = settings(SyncMode::flat);
  training.accumulation_steps = 2;
  training.accumulation = AccumulationMode::sync_every_micro_step;
  const Program program = program_of(training);
  ASSERT_EQ(program.segments.size(), 2u);
  EXPECT_EQ(lines_of(program.segments[0].tasks),
            forward + backward + lines("launch 0", "wait 0", "finalize: divide by world size"));
  EXPECT_EQ(lines_of(program.segments[1].tasks),
            forward + backward +
                lines("launch 1", "wait 1", "finalize: divide by world size", "optimizer: step"));
}

TEST(Accumulation, OfOneMicroStepIsOneSegment) {
  for (const AccumulationMode mode :
       {AccumulationMode::no_sync, AccumulationMode::sync_every_micro_step}) {
    TrainingSettings training = settings(SyncMode::ddp);
    training.accumulation = mode;
    EXPECT_EQ(program_of(training).segments.size(), 1u);
  }
}

}  // namespace
}  // namespace stepcast
