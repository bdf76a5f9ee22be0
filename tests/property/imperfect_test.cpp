// Hosts that are late, computation and collectives that slow each other, machines that are not
// alike: closed forms, on both engines.
#include <cmath>
#include <numeric>

#include "base/error.hpp"
#include "engine/interference.hpp"
#include "engine/pace.hpp"
#include "engine/point_job.hpp"
#include "jobs.hpp"
#include "simulate.hpp"
#include "workload/data_parallel.hpp"

namespace stepcast {
namespace {

constexpr double ms = 1e-3;

Compute span(double duration_s, double host_s, bool host_waits = false) {
  return {Phase::backward, "span", Seconds{duration_s}, Seconds{host_s}, host_waits};
}

/// Nothing but these tasks, on so many ranks of a machine without overheads: an AllReduce of S
/// bytes takes 2(n-1)/n S / (1 GB/s), so 1 ms for 1 MB on two ranks.
Job job_of(std::vector<Segment> segments, int ranks = 2, std::size_t collectives = 0) {
  Program program;
  program.collectives.assign(collectives, {1'000'000, {}});
  program.segments = std::move(segments);
  settle_host(program);
  return make_job(std::move(program), ring_settings(1, infinite_chunk),
                  Cluster(ideal_platform(1e9, 0.0), nullptr, ranks, "test"));
}

void expect_step(const Job& job, double expected_s) {
  const Timeline timeline = simulate_analytically(job);
  const Timeline::SegmentTimes& last = timeline.segments.back();
  const Seconds end = *std::max_element(last.first_end.begin(), last.first_end.end()) +
                      static_cast<double>(job.program.segments.back().repeat - 1) * last.period;
  EXPECT_NEAR(end.value(), expected_s, 1e-9);
  EXPECT_LE(worst_difference(numbers_of(timeline), simgrid_numbers(job)), 1e-9);
}

TEST(Host, BoundsAStepThatItIsTooSlowFor) {
  // In the second step it is 1 ms late at the start: 6 ms of issuing less the 5 ms of the first.
  const Job job = job_of({{1, {span(1 * ms, 2 * ms), span(1 * ms, 2 * ms), span(1 * ms, 2 * ms)}}});
  expect_step(job, 6 * ms);
  const Timeline timeline = simulate_analytically(job);
  EXPECT_NEAR(timeline.task(0, 0).begin.value(), 1 * ms, 1e-12);
  EXPECT_NEAR(timeline.task(0, 2).begin.value(), 5 * ms, 1e-12);
}

TEST(Host, IsForgottenWhereTheGpuIsSlower) {
  const Job job = job_of({{1, {span(1 * ms, 2.9 * ms), span(2 * ms, 0.0)}}});
  EXPECT_EQ(job.warm_ups(), 0);
  expect_step(job, 3 * ms);
}

TEST(Host, GetsAheadWhileTheGpuWaitsForOthers) {
  // 6 ms of issuing, 3 ms of spans and 5 AllReduces of 1 ms one after the other: 8 ms.
  Segment segment{1, {span(1 * ms, 2 * ms), span(1 * ms, 2 * ms), span(1 * ms, 2 * ms)}};
  for (int i = 0; i < 5; ++i) segment.tasks.insert(segment.tasks.end(), {Launch{i}, Wait{i}});
  expect_step(job_of({segment}, 2, 5), 8 * ms);
}

TEST(Host, HandsOverNoEarlierThanItComesToIt) {
  // Spans of 1 ms issued every 2 ms; the AllReduce is called 4 ms after the step's first launch, in
  // the steady state 5 ms after its start, for the host is 1 ms late.
  const Job job = job_of(
      {{1, {span(1 * ms, 2 * ms), span(1 * ms, 2 * ms), Launch{0}, span(1 * ms, 2 * ms), Wait{0}}}},
      2, 1);
  const Timeline timeline = simulate_analytically(job);
  EXPECT_NEAR(timeline.collectives[0].start.value(), 5 * ms, 1e-12);
  expect_step(job, 6 * ms);
}

TEST(Host, StaysBehindOverManyMicroSteps) {
  expect_step(job_of({{4, {span(1 * ms, 2 * ms)}}}), 8 * ms);
  // The last segment gives it a lead of 2 ms, which two micro-steps use up.
  expect_step(job_of({{4000, {span(1 * ms, 2 * ms)}}, {1, {span(3 * ms, 1 * ms)}}}), 8001 * ms);
}

TEST(Host, IssuesDuringAGap) {
  // The stream is free after 1 ms, its gap is over after 2, the host is there after 3 ms.
  const Compute gap{Phase::host, "gap", Seconds{1 * ms}};
  const Job job = job_of({{1, {span(1 * ms, 3 * ms), gap, span(1 * ms, 3 * ms)}}});
  expect_step(job, 6 * ms);
}

TEST(Host, ThatWaitsForTheGpuIsNeverAhead) {
  // The second span is issued 1 ms after the first has ended.
  const Job job = job_of({{1, {span(3 * ms, 0.0, true), span(0.0, 1 * ms), span(2 * ms, 0.0)}}});
  expect_step(job, 6 * ms);
}

TEST(Interference, SlowsComputationWhileACollectiveRuns) {
  // In the 1 ms of the AllReduce half a millisecond of computation is done.
  Job job = job_of({{1, {Launch{0}, span(10 * ms, 0.0), Wait{0}}}}, 2, 1);
  job.interference = {{2.0, 1.0, Interference::Basis::set}};
  expect_step(job, 10.5 * ms);
  // The AllReduce starts in the middle of a span.
  job = job_of(
      {{1, {span(1 * ms, 0.0), Launch{0}, span(0.25 * ms, 0.0), span(2 * ms, 0.0), Wait{0}}}}, 2,
      1);
  job.interference = {{2.0, 1.0, Interference::Basis::set}};
  expect_step(job, 1 * ms + 0.5 * ms + 2.25 * ms);
}

TEST(Interference, SlowsWhatOverlapsOfACollective) {
  Job job = job_of({{1, {Launch{0}, span(10 * ms, 0.0), Wait{0}}}}, 2, 1);
  job.interference = {{1.0, 3.0, Interference::Basis::set}};
  EXPECT_NEAR(simulate_analytically(job).collectives[0].last_end().value(), 3 * ms, 1e-12);
  expect_step(job, 10 * ms);
  // Half of it overlaps: 1 + (3 - 1) / 2 = 2 times as long.
  job = job_of({{1, {Launch{0}, span(0.5 * ms, 0.0), Wait{0}}}}, 2, 1);
  job.interference = {{1.0, 3.0, Interference::Basis::set}};
  expect_step(job, 2 * ms);
  // Nothing does.
  job = job_of({{1, {span(0.5 * ms, 0.0), Launch{0}, Wait{0}}}}, 2, 1);
  job.interference = {{1.0, 3.0, Interference::Basis::set}};
  expect_step(job, 1.5 * ms);
}

TEST(Interference, SlowsNoOverheads) {
  // Two rounds, each 0.5 ms of bytes and 0.5 ms of overhead: half of the 2 ms takes 3 times as
  // long.
  Program program;
  program.collectives.assign(1, {1'000'000, {}});
  program.segments = {{1, {Launch{0}, span(10 * ms, 0.0), Wait{0}}}};
  Job job = make_job(std::move(program), ring_settings(1, infinite_chunk),
                     Cluster(ideal_platform(1e9, 0.5 * ms), nullptr, 2, "test"));
  job.interference = {{1.0, 3.0, Interference::Basis::set}};
  EXPECT_NEAR(simulate_analytically(job).collectives[0].last_end().value(), 4 * ms, 1e-12);
  expect_step(job, 10 * ms);
}

TEST(Interference, CanMakeOverlapLose) {
  const double computation = 1.0 * ms;
  Job apart = job_of({{1, {span(computation, 0.0), Launch{0}, Wait{0}}}}, 2, 1);
  Job beside = job_of({{1, {Launch{0}, span(computation, 0.0), Wait{0}}}}, 2, 1);
  for (Job* job : {&apart, &beside}) job->interference = {{3.0, 2.5, Interference::Basis::set}};
  expect_step(apart, 2 * ms);
  // Computation is slowed for the 2.5 ms of the collective, 0.83 ms of it are done by then.
  expect_step(beside, 2.5 * ms + computation - 2.5 * ms / 3.0);
}

TEST(Interference, IsModelledFromTheShareOfTheGpuThatNcclTakes) {
  // 10 channels of 80 multiprocessors; 1 GB/s sent of 10 GB/s of memory: 1 + 2.5 / 10.
  Platform platform = ideal_platform(1e9, 0.0);
  platform.gpu.multiprocessors = 80;
  platform.gpu.memory_bandwidth = BytesPerSecond{10e9};
  Job job = all_reduce_job(platform, 2, 1'000'000, ring_settings(1, infinite_chunk));
  job.lowered.front().channels = 10;
  Interference its = interference_of(job, {}).front();
  EXPECT_EQ(its.basis, Interference::Basis::modelled);
  EXPECT_DOUBLE_EQ(its.computation, 1.25);  // more than 80 / 70
  EXPECT_DOUBLE_EQ(its.communication, 1.25);
  job.lowered.front().channels = 40;
  EXPECT_DOUBLE_EQ(interference_of(job, {}).front().computation, 2.0);
  its = interference_of(job, {std::nullopt, 1.5}).front();
  EXPECT_EQ(its.basis, Interference::Basis::set);
  EXPECT_DOUBLE_EQ(its.computation, 2.0);
  EXPECT_DOUBLE_EQ(its.communication, 1.5);
  job.cluster = Cluster(ideal_platform(1e9, 0.0), nullptr, 2, "test");
  EXPECT_EQ(interference_of(job, {}).front().basis, Interference::Basis::none);
}

TEST(Interference, TakesFromComputationWhatTheBytesTakeHoweverSlowTheNetworkIs) {
  // 1 MB sent is 2.5 MB through 10 GB/s of memory: a quarter of a millisecond.
  for (const double network : {1e9, 0.25e9})
    for (const double alpha : {0.0, 0.5 * ms}) {
      Platform platform = ideal_platform(network, alpha);
      platform.gpu.multiprocessors = 1 << 30;  // a thread block of them is nothing
      platform.gpu.memory_bandwidth = BytesPerSecond{10e9};
      Program program;
      program.collectives.assign(1, {1'000'000, {}});
      program.segments = {{1, {Launch{0}, span(50 * ms, 0.0), Wait{0}}}};
      Job job = make_job(std::move(program), ring_settings(1, infinite_chunk),
                         Cluster(platform, nullptr, 2, "test"));
      job.interference = interference_of(job, {});
      expect_step(job, 50.25 * ms);
    }
}

TEST(Interference, IsMeasuredWhereTheCalibrationHasIt) {
  Calibration calibration;
  for (const auto& [channels, factor] : {std::pair{8, 1.2}, {8, 1.4}, {8, 1.3}, {32, 2.0}})
    calibration.interference.push_back({"gemm", "all_reduce", channels, factor, factor + 1.0});
  Job job =
      all_reduce_job(ideal_platform(1e9, 0.0), 2, 1'000'000, ring_settings(1, infinite_chunk));
  job.cluster = Cluster(ideal_platform(1e9, 0.0), &calibration, 2, "test");
  job.lowered.front().channels = 10;  // nearer to 8 than to 32
  const Interference its = interference_of(job, {}).front();
  EXPECT_EQ(its.basis, Interference::Basis::measured);
  EXPECT_DOUBLE_EQ(its.computation, 1.3);
  EXPECT_DOUBLE_EQ(its.communication, 2.3);
}

TEST(Interference, SlowsWhatIsInsideTheNodeAndNotTheNetwork) {
  // Rings over 2 nodes of 2 GPUs: 8 GB/s inside, the network slower, as fast, or faster.
  const auto factor = [](double network) {
    const Job job = all_reduce_job(switched_platform(2, 8e9, network, 0.0, 0.0), 4, 1'000'000,
                                   ring_settings(1, infinite_chunk));
    return interference_of(job, {std::nullopt, 2.0}).front().communication;
  };
  EXPECT_DOUBLE_EQ(factor(1e9), 1.0);  // the node needs an eighth of the time, twice that is spare
  EXPECT_DOUBLE_EQ(factor(6e9), 1.5);  // 2 x 6 / 8
  EXPECT_DOUBLE_EQ(factor(8e9), 2.0);
  EXPECT_DOUBLE_EQ(factor(50e9), 2.0);
}

TEST(Pace, MakesTheOthersWaitForASlowRank) {
  Job job = job_of({{1, {span(10 * ms, 0.0), Launch{0}, Wait{0}}}}, 2, 1);
  job.pace = {1.0, 1.5};
  expect_step(job, 16 * ms);
  const Timeline timeline = simulate_analytically(job);
  EXPECT_NEAR(timeline.collectives[0].ready[0].value(), 10 * ms, 1e-12);
  EXPECT_NEAR(timeline.collectives[0].start.value(), 15 * ms, 1e-12);
}

TEST(Pace, OfASlowRankAndASlowNodeMultiplies) {
  Imperfections imperfections;
  imperfections.slow_ranks = {{3, 1.5, "s.json:/rank"}};
  imperfections.slow_nodes = {{1, 2.0, "s.json:/node"}};
  const Cluster cluster(switched_platform(2, 1e9, 1e9, 0.0, 0.0), nullptr, 4, "test");
  EXPECT_EQ(paces(imperfections, cluster, {}), (std::vector<double>{1.0, 1.0, 2.0, 3.0}));
  EXPECT_TRUE(paces({}, cluster, {}).empty());
  const auto text_of = [&] {
    try {
      static_cast<void>(paces(imperfections, cluster, {}));
    } catch (const InputError& error) {
      return std::string(error.what());
    }
    return std::string("no error");
  };
  imperfections.slow_ranks = {{4, 1.5, "s.json:/rank"}};
  EXPECT_EQ(text_of(), "s.json:/rank: there are 4 ranks, got rank 4");
  imperfections.slow_ranks.clear();
  imperfections.slow_nodes = {{2, 2.0, "s.json:/node"}};
  EXPECT_EQ(text_of(), "s.json:/node: 4 GPUs are on 2 nodes, got node 2");
}

TEST(Pace, OfTheSlowestIsWhatManyDrawsExpect) {
  // E[max of n] = integral of x d F(x)^n, here with x = exp(-v/2 + sqrt(v) z) over z.
  const double relative_sd = 0.1;
  const double variance = std::log1p(relative_sd * relative_sd);
  double last = 0.0;
  for (const std::size_t n : {1u, 2u, 8u, 64u, 512u}) {
    double expected = 0.0;
    double below = 0.0;
    for (double z = -8.0; z < 8.0; z += 1e-3) {
      const double above = std::pow(0.5 * std::erfc(-(z + 1e-3) / std::sqrt(2.0)), n);
      expected += std::exp(-0.5 * variance + std::sqrt(variance) * (z + 0.5e-3)) * (above - below);
      below = above;
    }
    const std::vector<double> factors = lognormal_order_statistics(n, relative_sd);
    ASSERT_EQ(factors.size(), n);
    EXPECT_NEAR(factors.back(), expected, 0.004) << n;
    EXPECT_NEAR(std::accumulate(factors.begin(), factors.end(), 0.0), static_cast<double>(n), 1e-9);
    EXPECT_TRUE(std::is_sorted(factors.begin(), factors.end()));
    EXPECT_GT(factors.back(), last);
    last = factors.back();
  }
}

TEST(Pace, OfJitterDependsOnTheSeedOnly) {
  Imperfections imperfections;
  imperfections.jitter = {0.05, false, 1};
  const Cluster cluster(ideal_platform(1e9, 0.0), nullptr, 16, "test");
  const std::vector<double> one = paces(imperfections, cluster, {});
  EXPECT_EQ(paces(imperfections, cluster, {}), one);
  imperfections.jitter->seed = 2;
  std::vector<double> other = paces(imperfections, cluster, {});
  EXPECT_NE(other, one);
  std::sort(other.begin(), other.end());
  EXPECT_EQ(other, lognormal_order_statistics(16, 0.05));
}

TEST(Pace, TakesTheSpreadOfTheTrace) {
  // Of five samples the largest lies 1.18 standard deviations above the mean (Blom: quantile of
  // 4.625 / 5.25), so a range of 10 % is a deviation of 4.2 %.
  MeasuredStep measured;
  measured.steps = 5;
  measured.fastest = Seconds{0.95};
  measured.median = Seconds{1.0};
  measured.slowest = Seconds{1.05};
  Imperfections imperfections;
  imperfections.jitter = {0.0, true, 1};
  const Cluster cluster(ideal_platform(1e9, 0.0), nullptr, 8, "test");
  std::vector<double> found = paces(imperfections, cluster, measured);
  std::sort(found.begin(), found.end());
  const std::vector<double> expected = lognormal_order_statistics(8, 0.1 / (2 * 1.1798));
  for (std::size_t i = 0; i < found.size(); ++i) EXPECT_NEAR(found[i], expected[i], 1e-4);
}

TEST(SlowNic, HalvesTheRingThatPassesIt) {
  const Platform platform = ideal_platform(1e9, 0.0);
  Cluster cluster(platform, nullptr, 4, "test");
  const auto time = [&] {
    return duration_of(
               simulate_analytically(make_job(single_collective(Operation::all_reduce, 1'000'000),
                                              ring_settings(1, infinite_chunk), cluster)))
        .value();
  };
  const double healthy = time();
  cluster.slow_down({2, 0, 0.5, "s.json:/nic"});
  EXPECT_TRUE(cluster.is_degraded());
  EXPECT_NEAR(time(), 2 * healthy, 1e-12);
  try {
    cluster.slow_down({2, 1, 0.5, "s.json:/nic"});
    FAIL() << "accepted";
  } catch (const InputError& error) {
    EXPECT_STREQ(error.what(), "s.json:/nic: a node of ideal has 1 NICs, got NIC 1");
  }
}

}  // namespace
}  // namespace stepcast
