// Figures of a model from times: robust weighted least squares, and which figures the times tell.
#pragma once

#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "fit/regimes.hpp"

namespace stepcast {

/// One figure that is looked for.
struct SoughtFigure {
  double start = 0.0;  ///< above 0; holds where the times do not tell it
  double least = 0.0;
  double most = std::numeric_limits<double>::infinity();
};

struct FoundFigure {
  FittedValue fitted;
  bool held = false;  ///< at its start
  bool determined = false;
};

struct FiguresFit {
  std::vector<FoundFigure> figures;  ///< as they were sought
  std::vector<double> residuals;     ///< predicted / measured - 1, of each time
};

/// What a model makes of these figures, a time for each measured one.
using FiguresModel = std::function<std::vector<double>(const std::vector<double>& figures)>;

/// How often derivatives are taken at most: twice is enough where the times are all but linear.
constexpr int few_rounds = 2;

/// Gauss-Newton with numeric derivatives on relative errors, Huber's weights (as fit_regimes). A
/// figure that the times do not tell is held at its start, the last of several that they do not
/// tell apart first, so sought figures are in order of importance. The standard errors take a held
/// figure to be off by as much as it is; one is determined that is known to half of itself, or to a
/// quarter of its start.
[[nodiscard]] FiguresFit fit_figures(const FiguresModel& model,
                                     const std::vector<SoughtFigure>& sought,
                                     const std::vector<double>& measured, int rounds = few_rounds);

}  // namespace stepcast
