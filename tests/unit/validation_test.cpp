#include "result/validation.hpp"

#include "testing.hpp"

namespace stepcast {
namespace {

CaseResult one(double predicted, double measured, std::optional<double> noise = {},
               bool is_fitted = false) {
  CaseResult result;
  result.is_fitted = is_fitted;
  result.measured = Seconds{measured};
  result.noise = noise;
  result.predicted.time = Seconds{predicted};
  result.predicted.band.trace = {Seconds{0.05 * predicted}, Seconds{0.05 * predicted}};
  return result;
}

TEST(Validation, ErrorsOfTestCasesOnly) {
  FileResult result;
  // Errors +10 %, -20 %, +40 %, -2 %; the fitted one is not among them.
  result.cases = {one(1.1, 1.0), one(0.8, 1.0), one(1.4, 1.0), one(0.98, 1.0),
                  one(9.0, 1.0, {}, true)};
  const ErrorSummary test = result.summary(false);
  EXPECT_EQ(test.cases, 4u);
  EXPECT_NEAR(test.median_abs, 0.15, 1e-12);  // between 10 and 20 %
  EXPECT_NEAR(test.mean_abs, 0.18, 1e-12);
  EXPECT_NEAR(test.p90_abs, 0.4, 1e-12);  // three of four are not nine of ten
  EXPECT_NEAR(test.max_abs, 0.4, 1e-12);
  EXPECT_NEAR(test.bias, 0.07, 1e-12);
  EXPECT_NEAR(test.inside, 0.25, 1e-12);  // 1.0 lies in 0.98 +- 5 %
  EXPECT_EQ(result.summary(true).cases, 1u);
}

TEST(Validation, BarsAreOfTestCases) {
  FileResult result;
  result.cases = {one(1.1, 1.0), one(9.0, 1.0, {}, true)};
  result.bars.mean_abs_error = 0.2;
  EXPECT_TRUE(result.missed().empty());
  result.bars.mean_abs_error = 0.05;
  EXPECT_EQ(result.missed(), std::vector<std::string>{"mean error 10.0 %, at most 5.0 % wanted"});
  result.bars = {};
  result.bars.order_right = 0.9;
  result.orders = 10;
  result.orders_right = 9;
  EXPECT_TRUE(result.missed().empty());
  result.orders_right = 8;
  EXPECT_EQ(result.missed().size(), 1u);
  result.skipped = "no such file";
  EXPECT_TRUE(result.missed().empty());
}

TEST(Validation, OrderHoldsBeyondTheNoise) {
  const CaseResult fast = one(2.0, 1.0), slow = one(1.9, 1.5);
  EXPECT_FALSE(is_order_right({&fast, &slow}));
  const CaseResult close = one(1.9, 1.01);  // as fast, for what is known
  EXPECT_TRUE(is_order_right({&fast, &close}));
  const CaseResult exact_fast = one(2.0, 1.0, 0.001), exact_slow = one(1.9, 1.01, 0.001);
  EXPECT_FALSE(is_order_right({&exact_fast, &exact_slow}));
  const CaseResult tie = one(1.999, 1.01, 0.001);
  EXPECT_TRUE(is_order_right({&exact_fast, &tie}));
}

}  // namespace
}  // namespace stepcast
