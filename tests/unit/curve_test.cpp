#include "fit/curve.hpp"

#include <cmath>

#include "fit/regimes.hpp"
#include "testing.hpp"

namespace stepcast {
namespace {

Curve curve_of(const std::vector<CurvePoint>& points) { return {{}, points}; }

CollectiveSample sample(std::int64_t bytes, double time_s) {
  CollectiveSample one;
  one.operation = "all_reduce";
  one.nodes = 2;
  one.ranks = 16;
  one.bytes = bytes;
  one.time = Seconds{time_s};
  return one;
}

TEST(Curve, IsAffineInTheSizeBetweenTwoPoints) {
  // 10 us and 30 us at 1000 and 5000 B: 5 us + S / 200 MB/s.
  const Curve curve = curve_of({{Bytes{1000}, Seconds{10e-6}}, {Bytes{5000}, Seconds{30e-6}}});
  EXPECT_NEAR(curve.at(Bytes{2000}).value(), 15e-6, 1e-18);
  EXPECT_EQ(curve.at(Bytes{1000}), Seconds{10e-6});
  EXPECT_EQ(curve.at(Bytes{5000}), Seconds{30e-6});
}

TEST(Curve, KnowsWhatItHolds) {
  const Curve curve = curve_of({{Bytes{1000}, Seconds{10e-6}}, {Bytes{5000}, Seconds{30e-6}}});
  EXPECT_TRUE(curve.holds(Bytes{1000}));
  EXPECT_FALSE(curve.holds(Bytes{999}));
  EXPECT_FALSE(curve.holds(Bytes{5001}));
  EXPECT_TRUE(curve.has_point(Bytes{5000}));
  EXPECT_FALSE(curve.has_point(Bytes{2000}));
  EXPECT_EQ(curve.nearest(Bytes{1}), Bytes{1000});
  EXPECT_EQ(curve.nearest(Bytes{1e9}), Bytes{5000});
}

TEST(Curve, TakesTheMedianOfRepeats) {
  const Curve curve = curve_of({{Bytes{8}, Seconds{3.0}},
                                {Bytes{8}, Seconds{1.0}},
                                {Bytes{8}, Seconds{2.0}},
                                {Bytes{4}, Seconds{1.0}},
                                {Bytes{4}, Seconds{4.0}}});
  ASSERT_EQ(curve.points().size(), 2u);
  EXPECT_EQ(curve.points()[0].time, Seconds{2.5});
  EXPECT_EQ(curve.points()[1].time, Seconds{2.0});
}

TEST(Curve, IsAsFarOffAsItsPointsAreFromTheirNeighbours) {
  // The middle one of (1, 2, 3) is expected at 2 s; it is 1.25 s, so 2 / 1.25 - 1 = 0.6.
  const Curve curve =
      curve_of({{Bytes{1}, Seconds{1.0}}, {Bytes{2}, Seconds{1.25}}, {Bytes{3}, Seconds{3.0}}});
  EXPECT_NEAR(curve.relative_error(), 1.4826 * 0.6, 1e-12);
  EXPECT_EQ(curve_of({{Bytes{1}, Seconds{1.0}}}).relative_error(), 0.0);
}

TEST(Curves, AreOfOneOperationRanksNodesAlgorithmAndProtocol) {
  std::vector<CollectiveSample> samples = {sample(8, 1e-5), sample(16, 2e-5)};
  samples.push_back(sample(8, 3e-5));
  samples.back().protocol = "LL";
  samples.push_back(sample(8, 4e-5));
  samples.back().ranks = 8;
  samples.push_back(sample(8, 5e-5));
  samples.back().channels = 2;  // not as a user meets it
  const std::vector<Curve> curves = curves_of(samples);
  ASSERT_EQ(curves.size(), 3u);
  EXPECT_EQ(curves[0].key().ranks, 8);
  EXPECT_EQ(curves[1].points().size(), 2u);
  EXPECT_EQ(curves[2].key().protocol, "LL");
}

/// alpha + S / B up to 1 MiB, another from there on, in powers of two from 1 KiB to 1 GiB.
std::vector<CurvePoint> two_regimes() {
  std::vector<CurvePoint> points;
  for (int power = 10; power <= 30; ++power) {
    const double bytes = std::ldexp(1.0, power);
    const double time = power <= 20 ? 10e-6 + bytes / 20e9 : 40e-6 + bytes / 100e9;
    points.push_back({Bytes{bytes}, Seconds{time}});
  }
  return points;
}

TEST(Regimes, AreFoundWithTheirValues) {
  const CurveFit fit = fit_regimes(curve_of(two_regimes()));
  ASSERT_EQ(fit.regimes.size(), 2u);
  EXPECT_EQ(fit.regimes[0].to, Bytes{1 << 20});
  EXPECT_EQ(fit.regimes[1].from, Bytes{2 << 20});
  EXPECT_NEAR(fit.regimes[0].overhead_s.value, 10e-6, 1e-10);
  EXPECT_NEAR(fit.regimes[0].s_per_byte.value, 1 / 20e9, 1e-15);
  EXPECT_NEAR(fit.regimes[1].overhead_s.value, 40e-6, 1e-9);
  EXPECT_NEAR(fit.regimes[1].s_per_byte.value, 1 / 100e9, 1e-15);
  EXPECT_LT(fit.max_abs, 1e-6);
  EXPECT_LT(fit.held_out_median_abs, 1e-6);
  EXPECT_TRUE(fit.outliers.empty());
}

TEST(Regimes, NameAnOutlierAndAreNotMovedByIt) {
  std::vector<CurvePoint> points = two_regimes();
  points[15].time = 2.0 * points[15].time;  // 32 MiB
  const CurveFit fit = fit_regimes(curve_of(points));
  EXPECT_EQ(fit.outliers, std::vector<Bytes>{Bytes{32 << 20}});
  EXPECT_NEAR(fit.regimes.back().s_per_byte.value * 100e9, 1.0, 0.01);
  EXPECT_NEAR(fit.max_abs, 0.5, 0.02);  // fitted / measured = 1 / 2
}

TEST(Regimes, HaveStandardErrorsThatCoverWhatWasPutIn) {
  // Errors of 2 % in turn: the rate is known to about 2 % / sqrt(points).
  std::vector<CurvePoint> points;
  for (int i = 0; i < 40; ++i) {
    const double bytes = 1e8 * (1.0 + i);
    points.push_back({Bytes{bytes}, Seconds{bytes / 50e9 * (i % 2 == 0 ? 1.02 : 0.98)}});
  }
  const CurveFit fit = fit_regimes(curve_of(points));
  ASSERT_EQ(fit.regimes.size(), 1u);
  const FittedValue& rate = fit.regimes[0].s_per_byte;
  EXPECT_NEAR(rate.value * 50e9, 1.0, 3.0 * rate.standard_error * 50e9);
  EXPECT_GT(rate.standard_error * 50e9, 0.002);
  EXPECT_LT(rate.standard_error * 50e9, 0.02);
}

TEST(Regimes, NeedThreePoints) {
  EXPECT_TRUE(
      fit_regimes(curve_of({{Bytes{1}, Seconds{1.0}}, {Bytes{2}, Seconds{2.0}}})).regimes.empty());
  EXPECT_EQ(
      fit_regimes(
          curve_of({{Bytes{1}, Seconds{1.0}}, {Bytes{2}, Seconds{2.0}}, {Bytes{3}, Seconds{3.0}}}))
          .regimes.size(),
      1u);
}

TEST(Regimes, HaveNoNegativeOverhead) {
  // Superlinear: 1 / 4 / 9 s at 1 / 2 / 3 B would want an overhead below zero.
  const CurveFit fit = fit_regimes(
      curve_of({{Bytes{1}, Seconds{1.0}}, {Bytes{2}, Seconds{4.0}}, {Bytes{3}, Seconds{9.0}}}));
  EXPECT_EQ(fit.regimes[0].overhead_s.value, 0.0);
  EXPECT_GT(fit.regimes[0].s_per_byte.value, 0.0);
}

}  // namespace
}  // namespace stepcast
