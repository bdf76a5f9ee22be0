#include "fit/figures.hpp"

#include <cmath>
#include <cstddef>
#include <vector>

#include "testing.hpp"

namespace stepcast {
namespace {

struct Row {
  double first, second;  ///< what the time has of each figure
};

FiguresModel linear(const std::vector<Row>& rows) {
  return [rows](const std::vector<double>& figures) {
    std::vector<double> times;
    for (const Row& row : rows) times.push_back(row.first * figures[0] + row.second * figures[1]);
    return times;
  };
}

const std::vector<Row> told_apart = {{2, 1}, {4, 1}, {6, 1}, {8, 1}, {12, 1}, {16, 1}, {24, 1}};
const std::vector<SoughtFigure> starts = {{3e-6, 0.0}, {7e-6, 0.0}};

TEST(Figures, OfExactTimesComeBack) {
  const FiguresModel model = linear(told_apart);
  const FiguresFit fit = fit_figures(model, starts, model({6e-6, 5e-6}));
  EXPECT_NEAR(fit.figures[0].fitted.value, 6e-6, 1e-12);
  EXPECT_NEAR(fit.figures[1].fitted.value, 5e-6, 1e-12);
  for (const FoundFigure& figure : fit.figures) {
    EXPECT_TRUE(figure.determined);
    EXPECT_FALSE(figure.held);
  }
  for (const double residual : fit.residuals) EXPECT_NEAR(residual, 0.0, 1e-6);
}

TEST(Figures, OfNoisyTimesLieWithinTheirErrors) {
  const FiguresModel model = linear(told_apart);
  std::vector<double> measured = model({6e-6, 5e-6});
  for (std::size_t i = 0; i < measured.size(); ++i) measured[i] *= i % 2 == 0 ? 1.02 : 0.98;
  const FiguresFit fit = fit_figures(model, starts, measured);
  // 2 % of seven times that are mostly the first figure: 2 % / sqrt(7) at least.
  EXPECT_GT(fit.figures[0].fitted.standard_error, 0.0075 * 6e-6);
  EXPECT_LT(fit.figures[0].fitted.standard_error, 0.05 * 6e-6);
  EXPECT_NEAR(fit.figures[0].fitted.value, 6e-6, 2 * fit.figures[0].fitted.standard_error);
  EXPECT_NEAR(fit.figures[1].fitted.value, 5e-6, 2 * fit.figures[1].fitted.standard_error);
}

TEST(Figures, AreNotMovedByOneBadTime) {
  const FiguresModel model = linear(told_apart);
  std::vector<double> measured = model({6e-6, 5e-6});
  measured[3] *= 3.0;
  const FiguresFit fit = fit_figures(model, starts, measured);
  EXPECT_NEAR(fit.figures[0].fitted.value, 6e-6, 0.03 * 6e-6);
  EXPECT_NEAR(fit.residuals[3], 1.0 / 3.0 - 1.0, 0.02);
}

TEST(Figures, ThatCannotBeToldApartAreNotDetermined) {
  // Always two of the first beside one of the second: the last is held, and the first is off by
  // half of what the held one may be: 7 us / 2 of (17 - 7) / 2 us.
  const FiguresModel model = linear({{2, 1}, {2, 1}, {2, 1}, {2, 1}});
  const FiguresFit fit = fit_figures(model, starts, model({6e-6, 5e-6}));
  EXPECT_TRUE(fit.figures[1].held);
  EXPECT_EQ(fit.figures[1].fitted.value, 7e-6);
  EXPECT_NEAR(fit.figures[0].fitted.value, 5e-6, 1e-12);
  EXPECT_NEAR(fit.figures[0].fitted.standard_error, 3.5e-6, 0.01e-6);
  EXPECT_FALSE(fit.figures[0].determined);
}

TEST(Figures, ThatNoTimeHasAreHeld) {
  const FiguresModel model = linear({{0, 1}, {0, 2}, {0, 3}});
  const FiguresFit fit = fit_figures(model, starts, model({6e-6, 5e-6}));
  EXPECT_TRUE(fit.figures[0].held);
  EXPECT_TRUE(fit.figures[1].determined);
  EXPECT_NEAR(fit.figures[1].fitted.value, 5e-6, 1e-12);
}

TEST(Figures, AreNotBelowTheLeastThatTheyMayBe) {
  const FiguresModel model = linear(told_apart);
  const FiguresFit fit = fit_figures(model, {{3e-6, 0.0}, {7e-6, 7e-6}}, model({6e-6, 5e-6}));
  EXPECT_EQ(fit.figures[1].fitted.value, 7e-6);
}

}  // namespace
}  // namespace stepcast
