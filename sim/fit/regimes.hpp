// A curve as a few stretches of alpha + S / B: where the library changes algorithm, protocol or
// channels, a new one begins. For people, and to tell good measurements from bad ones.
#pragma once

#include <vector>

#include "base/units.hpp"
#include "fit/curve.hpp"

namespace stepcast {

struct FittedValue {
  double value = 0.0;
  double standard_error = 0.0;
};

/// Time = overhead + size * time per byte, from one size to another.
struct Regime {
  Bytes from, to;
  FittedValue overhead_s;
  FittedValue s_per_byte;
  int points = 0;
};

struct CurveFit {
  std::vector<Regime> regimes;  ///< by rising size; none with less than three points
  double median_abs = 0.0;      ///< of |fitted / measured - 1|
  double max_abs = 0.0;
  double held_out_median_abs = 0.0;  ///< of every second point, with the regimes of the others
  std::vector<Bytes> outliers;       ///< points far from their regime
};

/// Breaks are found, not assumed: for each number of regimes the breaks with the least robust loss
/// (dynamic programming), and of these numbers the smallest that predicts held-out points about as
/// well as the best. Each regime is a weighted least squares over relative errors with Huber's
/// weights (Huber, Ann. Math. Stat. 35(1), 1964), neither value below zero.
[[nodiscard]] CurveFit fit_regimes(const Curve& curve);

}  // namespace stepcast
