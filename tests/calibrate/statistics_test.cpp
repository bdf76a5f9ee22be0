#include "statistics.hpp"

#include <cmath>
#include <vector>

#include <gtest/gtest.h>

namespace stepcast::calibrate {
namespace {

/// A made-up machine: its clock moves only while a call is timed.
struct Machine {
  std::vector<double> call_s;  ///< of one call in each sample; the last one for all that follow
  double clock_s = 0;
  std::vector<int> calls = {};  ///< of each sample
  double rank_0_says = -1;      ///< instead of what this process thinks; -1: nothing

  double time(int count) {
    const double one = call_s[std::min(calls.size(), call_s.size() - 1)];
    calls.push_back(count);
    clock_s += one * count;
    return one;
  }
  Statistics sample_with(const Accuracy& accuracy) {
    return sample({[this](int count) { return time(count); },
                   [this](double value) { return rank_0_says < 0 ? value : rank_0_says; },
                   [this] { return clock_s; }},
                  accuracy);
  }
};

TEST(MedianSpread, IsInfiniteForSamplesTooFewForAnInterval) {
  // P(all 5 on one side) = 2 / 2^5 = 6 % > 5 %
  EXPECT_TRUE(std::isinf(median_spread({1, 1, 1, 1, 1})));
}

TEST(MedianSpread, OfSixIsTheirWholeRange) {
  // 2 / 2^6 = 3 % <= 5 %, but with the next order statistics 2 (1 + 6) / 2^6 = 22 %.
  EXPECT_DOUBLE_EQ(median_spread({8, 10, 10, 10, 10, 14}), (14.0 - 8.0) / 2 / 10);
}

TEST(MedianSpread, OfTenLeavesOutTheOutermostOnEachSide) {
  // P(Bin(10, 1/2) <= 1) = 11 / 1024 = 1.1 % and P(<= 2) = 56 / 1024 = 5.5 %, so i = 1.
  EXPECT_DOUBLE_EQ(median_spread({1, 9, 10, 10, 10, 10, 10, 10, 13, 99}), (13.0 - 9.0) / 2 / 10);
}

TEST(Sample, FillsAShortSampleWithCalls) {
  Machine machine{{3e-6}};
  Accuracy accuracy;
  accuracy.least_sample_s = 200e-6;
  const Statistics times = machine.sample_with(accuracy);
  EXPECT_EQ(machine.calls.back(), 67);  // 200 us / 3 us, rounded up
  EXPECT_EQ(times.calls, 67 * times.samples);
}

TEST(Sample, PutsALimitToTheCalls) {
  Machine machine{{1e-12}};
  Accuracy accuracy;
  accuracy.most_calls = 50;
  EXPECT_EQ((machine.sample_with(accuracy), machine.calls.back()), 50);
}

TEST(Sample, DiscardsTheFirstTwoAndCorrectsTheNumberOfCalls) {
  // A first call of 64 s would mean one call a sample; the second tells that 100 are needed.
  Machine machine{{64, 0.5}};
  const Statistics times = machine.sample_with({0.01, 50, 1e9, 4096, 10, 200});
  EXPECT_EQ(machine.calls[0], 1);
  EXPECT_EQ(machine.calls[1], 1);
  EXPECT_EQ(machine.calls[2], 100);
  EXPECT_DOUBLE_EQ(times.p90_s, 0.5);
  EXPECT_EQ(times.samples, static_cast<int>(machine.calls.size()) - 2);
}

TEST(Sample, StopsAtTheLeastNumberOfSamplesWhenTheyAgree) {
  Machine machine{{1e-3}};
  const Statistics times = machine.sample_with({});
  EXPECT_EQ(times.samples, 10);
  EXPECT_TRUE(times.reached);
  EXPECT_DOUBLE_EQ(times.median_s, 1e-3);
}

TEST(Sample, GoesOnWhileTheyDisagree) {
  // Two discarded, then ten that are wide apart, then equal ones.
  Machine machine{{1, 1, 1, 2, 1, 2, 1, 2, 1, 2, 1, 2, 2}};
  const Statistics times = machine.sample_with({0.01, 0, 1e9, 1, 10, 200});
  EXPECT_GT(times.samples, 10);
  EXPECT_LT(times.samples, 200);
  EXPECT_TRUE(times.reached);
  EXPECT_DOUBLE_EQ(times.median_s, 2);
  EXPECT_DOUBLE_EQ(times.min_s, 1);
}

TEST(Sample, GivesUpAfterTheTimeLimitAndSaysSo) {
  Machine machine{{1, 1, 1, 2, 1, 2, 1, 2, 1, 2}};
  const Statistics times = machine.sample_with({0.01, 0, 6.5, 1, 10, 200});
  EXPECT_FALSE(times.reached);
  EXPECT_EQ(times.samples, 4);  // 1 + 1 discarded, then 1 + 2 + 1 + 2 = 6: the clock says 8
}

TEST(Sample, GivesUpAfterTheLastSample) {
  Machine machine{{1, 1, 1, 2, 1, 2, 1, 2, 1, 2, 1, 2, 1, 2}};
  const Statistics times = machine.sample_with({1e-9, 0, 1e9, 1, 6, 8});
  EXPECT_FALSE(times.reached);
  EXPECT_EQ(times.samples, 8);
  EXPECT_DOUBLE_EQ(times.median_s, 1.5);
  EXPECT_DOUBLE_EQ(times.p90_s, 2);
}

TEST(Sample, StopsWhenRankZeroSaysSo) {
  Machine machine{{1e-3}};
  machine.rank_0_says = 0;
  EXPECT_EQ(machine.sample_with({}).samples, 1);
}

}  // namespace
}  // namespace stepcast::calibrate
