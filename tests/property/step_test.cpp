// Whole steps over random scenarios: the split adds up, nothing is negative, bytes are conserved.
#include "engine/point_job.hpp"
#include "input/study.hpp"
#include "jobs.hpp"
#include "result/metrics.hpp"
#include "simulate.hpp"

namespace stepcast {
namespace {

/// The shipped ResNet-50 trace on one of the machines, synchronised in some way.
Point random_point(Random& random) {
  static const auto model = std::make_shared<const StepTrace>(read_step_trace(
      JsonDocument::read_file(repository_file("models/resnet50_v100_fp32.json")).root()));
  static const auto calibration = std::make_shared<const Calibration>(read_calibration(
      JsonDocument::read_file(repository_file("platforms/abci_v100.calibration.json")).root()));
  static const std::vector<std::shared_ptr<const Platform>> platforms = {
      std::make_shared<const Platform>(repository_platform("dgx1v")),
      std::make_shared<const Platform>(repository_platform("abci_v100")),
      std::make_shared<const Platform>(ideal_platform(1e9, 2e-6)),
      std::make_shared<const Platform>(switched_platform(4, 1e11, 2e9, 3e-6, 2e-5))};
  Point point;
  point.model = model;
  point.platform = platforms[static_cast<std::size_t>(random.whole(0, 3))];
  if (random.whole(0, 1) == 1) point.calibration = calibration;
  const std::vector<int> gpus = {1, 2, 3, 4, 6, 8, 12, 16, 24};
  point.scenario.gpus = gpus[static_cast<std::size_t>(random.whole(0, 8))];
  point.scenario.collective.algorithm = {"ring", "test"};
  TrainingSettings& training = point.scenario.training;
  training.accumulation_steps = random.whole(1, 5);
  training.sync = static_cast<SyncMode>(random.whole(0, 2));
  training.accumulation = static_cast<AccumulationMode>(random.whole(0, 1));
  training.first_bucket_bytes = static_cast<std::int64_t>(random.magnitude(1e5, 1e7));
  training.bucket_cap_bytes = static_cast<std::int64_t>(random.magnitude(1e5, 1e8));
  return point;
}

/// Step, the five parts, communication, overlapped, sent per rank, reduced per sample.
std::vector<double> figures(const Point& point) {
  return isolated_numbers([&] {
    const Job job = job_of(point);
    const StepResult result = summarize(point, job, simulate_with_simgrid(job));
    const Split& split = result.split;
    return std::vector<double>{result.step_time.value(),     split.compute.value(),
                               split.exposed_comm.value(),   split.host.value(),
                               split.wait.value(),           split.optimizer.value(),
                               result.comm.value(),          result.overlapped.value(),
                               result.sent_per_rank.value(), result.all_reduce_bytes_per_sample};
  });
}

TEST(Step, SplitAddsUpToTheStepOverRandomScenarios) {
  Random random(42);
  for (int trial = 0; trial < random_cases(80); ++trial) {
    const Point point = random_point(random);
    const std::vector<double> found = figures(point);
    ASSERT_EQ(found.size(), 10u);
    const std::string what = fmt::format(
        "trial {}: {} GPUs of {}, {}, {} x {}", trial, point.scenario.gpus, point.platform->name,
        to_string(point.scenario.training.sync), point.scenario.training.accumulation_steps,
        to_string(point.scenario.training.accumulation));
    const double sum = found[1] + found[2] + found[3] + found[4] + found[5];
    EXPECT_NEAR(sum / found[0], 1.0, 1e-9) << what;
    for (std::size_t part = 1; part < found.size(); ++part)
      EXPECT_GE(found[part], -1e-12) << what << ", part " << part;
    EXPECT_NEAR(found[2] + found[7], found[6], 1e-12)
        << what;  // exposed + overlapped = communication

    // Each synchronised micro-step moves every gradient once: 2(n-1)/n S per rank with a ring.
    const double gradients = static_cast<double>(point.model->gradient_bytes());
    const TrainingSettings& training = point.scenario.training;
    const double synchronised = training.accumulation == AccumulationMode::no_sync
                                    ? 1.0
                                    : static_cast<double>(training.accumulation_steps);
    const double n = point.scenario.gpus;
    // LL128 rounds most: 1920 B a channel, at most 64 of them, for each parameter at worst and both
    // halves of the ring.
    const double rounding =
        synchronised * 2.0 * 64.0 * 1920.0 * static_cast<double>(point.model->parameters.size());
    // NCCL rounds the blocks of a ring on each channel, so the rank that sends most is that
    // much above.
    const double most = synchronised * 2.0 * (n - 1) / n * gradients;
    EXPECT_NEAR(found[8], most, 1e-12 * found[8] + rounding) << what;
    EXPECT_GE(found[8], most * (1 - 1e-12)) << what;
    const double samples = 32.0 * static_cast<double>(training.accumulation_steps);
    EXPECT_NEAR(found[9], n > 1 ? synchronised * gradients / samples : 0.0, 1e-6) << what;
  }
}

TEST(Step, BlockingPerTensorIsNeverFasterThanOverlap) {
  Random random(43);
  for (int trial = 0; trial < 10; ++trial) {
    Point point = random_point(random);
    point.scenario.gpus = 8;
    point.scenario.training.first_bucket_bytes = 1 << 20;
    point.scenario.training.bucket_cap_bytes = 25 << 20;
    point.scenario.training.sync = SyncMode::ddp;
    const double overlap = figures(point)[0];
    point.scenario.training.sync = SyncMode::per_tensor;
    // The loop has no copies out of buckets (0.69 ms in this trace) but pays 161 launches.
    const double copies = step_of(point).step.finalize.front().duration.value();
    EXPECT_GE(
        figures(point)[0],
        overlap - 2 * copies * static_cast<double>(point.scenario.training.accumulation_steps));
  }
}

TEST(Step, AccumulationDividesTheBytesPerSample) {
  Random random(44);
  Point point = random_point(random);
  point.scenario.gpus = 8;
  point.scenario.training.accumulation = AccumulationMode::no_sync;
  point.scenario.training.accumulation_steps = 1;
  const double once = figures(point)[9];
  point.scenario.training.accumulation_steps = 8;
  EXPECT_NEAR(figures(point)[9], once / 8, 1e-9 * once);
}

TEST(Step, ManyMicroStepsAreSimulatedAsOne) {
  Random random(45);
  Point point = random_point(random);
  point.scenario.gpus = 8;
  for (const auto mode : {AccumulationMode::no_sync, AccumulationMode::sync_every_micro_step}) {
    point.scenario.training.accumulation = mode;
    point.scenario.training.accumulation_steps = 3;  // the first may broadcast buffers
    const Job three = job_of(point);
    point.scenario.training.accumulation_steps = 1'000'000;
    const Job million = job_of(point);
    ASSERT_EQ(three.program.segments.size(), million.program.segments.size());
    for (std::size_t s = 0; s < three.program.segments.size(); ++s)
      EXPECT_EQ(three.program.segments[s].tasks.size(), million.program.segments[s].tasks.size());
    EXPECT_EQ(three.program.collectives.size(), million.program.collectives.size());
  }
}

}  // namespace
}  // namespace stepcast
