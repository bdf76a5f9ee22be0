#include "workload/micro_batch.hpp"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "testing.hpp"

namespace stepcast {
namespace {

constexpr Seconds no_floor{0.0};

/// A step of one forward, one backward and one optimizer span.
MeasuredStep step(std::int64_t micro_batch, double forward_s, double backward_s) {
  MeasuredStep made;
  made.micro_batch = micro_batch;
  made.steps = 1;
  made.forward = {{"f", Seconds{0.5}, Seconds{forward_s}, {}, Seconds{0.25}}};
  made.backward = {{"b", Seconds{}, Seconds{backward_s}, {0}}};
  made.optimizer = {{"o", Seconds{}, Seconds{3.0}, {}}};
  made.median = Seconds{forward_s + backward_s + 3.5};
  made.fastest = made.median * 0.75;
  made.slowest = made.median * 1.5;
  return made;
}

StepTrace trace(std::vector<MeasuredStep> measured) {
  StepTrace made;
  made.parameters = {{"w", 1, "float32"}};
  made.measured = std::move(measured);
  return made;
}

double forward_s(const StepTrace& of, std::int64_t micro_batch, Seconds floor = no_floor) {
  return step_at(of, micro_batch, floor).step.forward.front().duration.value();
}

/// max(t_launch, t0 + k b) with t_launch = 12, t0 = 4, k = 1: flat up to 8, linear from there.
StepTrace bent() {
  return trace({step(2, 12, 24), step(8, 12, 24), step(16, 20, 40), step(32, 36, 72)});
}

TEST(MicroBatch, ThatWasMeasuredIsTheMeasuredStep) {
  for (const std::int64_t micro_batch : {2, 8, 16, 32}) {
    const StepEstimate estimate = step_at(bent(), micro_batch, Seconds{1.0});
    EXPECT_EQ(estimate.basis, Basis::measured);
    EXPECT_EQ(estimate.relative_error, 0.0);
    EXPECT_EQ(estimate.step.micro_batch, micro_batch);
    EXPECT_EQ(estimate.step.forward.front().duration.value(),
              micro_batch <= 8 ? 12.0 : 4.0 + static_cast<double>(micro_batch));
  }
}

TEST(MicroBatch, FollowsTheLawInsideAndOutside) {
  for (const std::int64_t micro_batch : {1, 3, 5, 7, 9, 12, 24, 31, 33, 64, 256}) {
    const double law = std::max(12.0, 4.0 + static_cast<double>(micro_batch));
    EXPECT_DOUBLE_EQ(forward_s(bent(), micro_batch), law) << micro_batch;
    EXPECT_DOUBLE_EQ(step_at(bent(), micro_batch, no_floor).step.backward.front().duration.value(),
                     2 * law);
  }
}

TEST(MicroBatch, NeverTakesLessTimeForMoreSamples) {
  for (const StepTrace& of :
       {bent(), trace({step(8, 12, 24)}), trace({step(8, 12, 24), step(16, 50, 60)})}) {
    double before = 0.0;
    for (std::int64_t micro_batch = 1; micro_batch <= 300; ++micro_batch) {
      const double now = forward_s(of, micro_batch, Seconds{0.5});
      EXPECT_GE(now, before) << micro_batch;
      before = now;
    }
  }
}

TEST(MicroBatch, SaysWhatItRestsOn) {
  EXPECT_EQ(step_at(bent(), 24, no_floor).basis, Basis::interpolated);
  EXPECT_EQ(step_at(bent(), 1, no_floor).basis, Basis::extrapolated);
  EXPECT_EQ(step_at(bent(), 33, no_floor).basis, Basis::extrapolated);
  StepTrace modelled = bent();
  modelled.modelled = true;
  for (const std::int64_t micro_batch : {8, 24, 33})
    EXPECT_EQ(step_at(modelled, micro_batch, no_floor).basis, Basis::mechanism);
}

TEST(MicroBatch, OfOneMeasuredScalesAllButTheFloorOfAKernel) {
  const StepTrace one = trace({step(8, 12, 24)});
  EXPECT_DOUBLE_EQ(forward_s(one, 16), 24.0);                // 12 * 16/8
  EXPECT_DOUBLE_EQ(forward_s(one, 2), 3.0);                  // 12 * 2/8
  EXPECT_DOUBLE_EQ(forward_s(one, 16, Seconds{4.0}), 20.0);  // 4 + 8 * 16/8
  EXPECT_DOUBLE_EQ(forward_s(one, 2, Seconds{4.0}), 6.0);    // 4 + 8 * 2/8
  EXPECT_DOUBLE_EQ(forward_s(one, 2, Seconds{99.0}), 12.0);  // nothing to scale
}

TEST(MicroBatch, IsNotMoreEfficientBelowTheSmallest) {
  // The slope of 4 a sample would give 12 - 4 * 6 < 0 at 2; time per sample stays 12/8.
  EXPECT_DOUBLE_EQ(forward_s(trace({step(8, 12, 24), step(16, 44, 60)}), 2), 3.0);
}

TEST(MicroBatch, DoesNotShrinkAboveTheLargest) {
  // 16 samples were faster than 8, which is noise.
  EXPECT_DOUBLE_EQ(forward_s(trace({step(8, 12, 24), step(16, 11, 24)}), 64), 11.0);
}

TEST(MicroBatch, LeavesHostAndOptimizerAsTheyAre) {
  for (const std::int64_t micro_batch : {1, 24, 200}) {
    const MeasuredStep made = step_at(bent(), micro_batch, no_floor).step;
    EXPECT_EQ(made.forward.front().gap.value(), 0.5);
    EXPECT_EQ(made.forward.front().host.value(), 0.25);
    EXPECT_EQ(made.optimizer.front().duration.value(), 3.0);
    EXPECT_EQ(made.backward.front().gradients, std::vector<int>{0});
  }
}

TEST(MicroBatch, KeepsTheSpreadOfTheSteps) {
  const MeasuredStep made = step_at(bent(), 64, no_floor).step;
  EXPECT_DOUBLE_EQ(made.median.value(), 68.0 + 136.0 + 3.5);  // the law at 64
  EXPECT_DOUBLE_EQ(made.fastest / made.median, 0.75);
  EXPECT_DOUBLE_EQ(made.slowest / made.median, 1.5);
}

TEST(MicroBatch, OfOtherKernelsScalesTheNearestToTheTotal) {
  MeasuredStep other = step(16, 0, 60);
  other.forward = {{"f1", Seconds{}, Seconds{5.0}, {}}, {"f2", Seconds{}, Seconds{15.0}, {}}};
  const MeasuredStep made =
      step_at(trace({step(8, 12, 24), other}), 14, no_floor).step;  // 12 + 8 * 6/8 = 18 in all
  ASSERT_EQ(made.forward.size(), 2u);
  EXPECT_DOUBLE_EQ(made.forward[0].duration.value(), 4.5);
  EXPECT_DOUBLE_EQ(made.forward[1].duration.value(), 13.5);
  EXPECT_DOUBLE_EQ(made.backward[0].duration.value(), 24 + 36 * 0.75);
}

TEST(MicroBatch, InterpolatesActivations) {
  StepTrace two = trace({step(8, 12, 24), step(16, 20, 40)});
  two.measured[0].activation_bytes = 1000;
  EXPECT_FALSE(step_at(two, 12, no_floor).step.activation_bytes.has_value());
  two.measured[1].activation_bytes = 1800;
  EXPECT_EQ(step_at(two, 12, no_floor).step.activation_bytes, 1400);
  EXPECT_EQ(step_at(two, 32, no_floor).step.activation_bytes, 3400);
  EXPECT_EQ(step_at(two, 1, no_floor).step.activation_bytes, 300);
}

TEST(MicroBatch, TakesTheErrorOfOthersWhereNothingCanBeLeftOut) {
  const StepTrace two = trace({step(8, 12, 24), step(16, 20, 40)});
  EXPECT_EQ(step_at(two, 12, no_floor).relative_error, 0.01);
  EXPECT_EQ(step_at(two, 4, no_floor).relative_error, 0.02);
  EXPECT_EQ(step_at(two, 17, no_floor).relative_error, 0.02);
  const StepTrace one = trace({step(8, 12, 24)});
  EXPECT_DOUBLE_EQ(step_at(one, 16, no_floor).relative_error, 0.1);
  EXPECT_DOUBLE_EQ(step_at(one, 1, no_floor).relative_error, 0.3);  // three halvings
}

TEST(MicroBatch, KnowsItsErrorFromWhatIsLeftOut) {
  // Without 16 the line from 8 to 32 says 20 and 40 there; 25 and 50 were measured beside the 3.5
  // of optimizer and gap.
  const StepTrace three = trace({step(8, 12, 24), step(16, 25, 50), step(32, 36, 72)});
  EXPECT_DOUBLE_EQ(step_at(three, 12, no_floor).relative_error, 15.0 / 78.5);
  // Without 32 the slopes of 13/8 and 26/8 a sample lead to 51 and 102; 36 and 72 were measured.
  EXPECT_DOUBLE_EQ(step_at(three, 64, no_floor).relative_error, 45.0 / 111.5);
}

}  // namespace
}  // namespace stepcast
