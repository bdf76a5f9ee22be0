#include "fit/regimes.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include <Eigen/Dense>

#include "fit/median.hpp"

namespace stepcast {
namespace {

constexpr std::size_t least_points = 3;  // two values and something to tell by
constexpr std::size_t most_regimes = 5;
constexpr double small_residual = 0.03;  // repeats of nccl-tests differ by this much
constexpr double large_residual = 0.15;

double huber_loss(double residual) {
  const double size = std::abs(residual);
  return size <= small_residual ? size * size / 2.0
                                : small_residual * (size - small_residual / 2.0);
}

struct Line {
  Eigen::Vector2d value = Eigen::Vector2d::Zero();  ///< overhead in s, s per byte
  Eigen::Vector2d standard_error = Eigen::Vector2d::Zero();

  [[nodiscard]] double residual(const CurvePoint& point) const {
    return (value[0] + value[1] * point.bytes.value()) / point.time.value() - 1.0;
  }
};

using Points = std::vector<CurvePoint>;

/// Weighted least squares of (overhead + s_per_byte * S) / T = 1 over points[first..last].
Line least_squares(const Points& points, std::size_t first, std::size_t last,
                   const Eigen::VectorXd& weights, bool with_overhead, bool with_rate) {
  const auto count = static_cast<Eigen::Index>(last - first + 1);
  Eigen::MatrixXd design(count, 2);
  for (Eigen::Index i = 0; i < count; ++i) {
    const CurvePoint& point = points[first + static_cast<std::size_t>(i)];
    design(i, 0) = with_overhead ? 1.0 / point.time.value() : 0.0;
    design(i, 1) = with_rate ? point.bytes.value() / point.time.value() : 0.0;
  }
  // Columns of like size, or the small one is lost.
  Eigen::Vector2d scale = design.colwise().norm();
  for (double& one : scale)
    if (one == 0.0) one = 1.0;
  const Eigen::MatrixXd scaled = design * scale.cwiseInverse().asDiagonal();
  const Eigen::MatrixXd weighted = weights.cwiseSqrt().asDiagonal() * scaled;
  const auto solver = weighted.completeOrthogonalDecomposition();
  const Eigen::Vector2d solution = solver.solve(Eigen::VectorXd(weights.cwiseSqrt()));
  Line line;
  line.value = scale.cwiseInverse().asDiagonal() * solution;
  const Eigen::VectorXd residuals = design * line.value - Eigen::VectorXd::Ones(count);
  const double freedom = std::max(1.0, static_cast<double>(count) - with_overhead - with_rate);
  const double variance = residuals.cwiseAbs2().dot(weights) / freedom;
  const Eigen::MatrixXd inverse = solver.pseudoInverse();
  const Eigen::Vector2d spread = (inverse * inverse.transpose()).diagonal();
  line.standard_error = scale.cwiseInverse().asDiagonal() * (variance * spread).cwiseSqrt();
  return line;
}

Line robust_line(const Points& points, std::size_t first, std::size_t last) {
  Eigen::VectorXd weights = Eigen::VectorXd::Ones(static_cast<Eigen::Index>(last - first + 1));
  Line line;
  for (int iteration = 0; iteration < 8; ++iteration) {
    line = least_squares(points, first, last, weights, true, true);
    if (line.value[0] < 0.0) line = least_squares(points, first, last, weights, false, true);
    if (line.value[1] < 0.0) line = least_squares(points, first, last, weights, true, false);
    for (Eigen::Index i = 0; i < weights.size(); ++i) {
      const double size = std::abs(line.residual(points[first + static_cast<std::size_t>(i)]));
      weights[i] = size <= small_residual ? 1.0 : small_residual / size;
    }
  }
  return line;
}

/// The last point of each regime, for every number of regimes, with the least loss.
std::vector<std::vector<std::size_t>> best_breaks(const Points& points) {
  const std::size_t count = points.size();
  constexpr double none = std::numeric_limits<double>::infinity();
  std::vector<std::vector<double>> loss(count, std::vector<double>(count, none));
  for (std::size_t first = 0; first < count; ++first)
    for (std::size_t last = first + least_points - 1; last < count; ++last) {
      const Line line = robust_line(points, first, last);
      loss[first][last] = 0.0;
      for (std::size_t i = first; i <= last; ++i)
        loss[first][last] += huber_loss(line.residual(points[i]));
    }
  std::vector<std::vector<std::size_t>> breaks;
  std::vector<std::vector<double>> best = {loss.front()};  // [regimes - 1][last]
  std::vector<std::vector<std::size_t>> previous = {std::vector<std::size_t>(count, 0)};
  const std::size_t most = std::min(most_regimes, count / least_points);
  for (std::size_t regimes = 1; regimes <= most; ++regimes) {
    if (regimes > 1) {
      best.emplace_back(count, none);
      previous.emplace_back(count, 0);
      for (std::size_t last = 0; last < count; ++last)
        for (std::size_t before = 0; before < last; ++before)
          if (const double sum = best[regimes - 2][before] + loss[before + 1][last];
              sum < best[regimes - 1][last]) {
            best[regimes - 1][last] = sum;
            previous[regimes - 1][last] = before;
          }
    }
    std::vector<std::size_t> ends = {count - 1};
    for (std::size_t k = regimes; k > 1; --k)
      ends.insert(ends.begin(), previous[k - 1][ends.front()]);
    breaks.push_back(std::move(ends));
  }
  return breaks;
}

std::vector<Line> lines_of(const Points& points, const std::vector<std::size_t>& ends) {
  std::vector<Line> lines;
  std::size_t first = 0;
  for (const std::size_t last : ends) {
    lines.push_back(robust_line(points, first, last));
    first = last + 1;
  }
  return lines;
}

/// How well the regimes of every second point predict the others, by number of regimes.
std::vector<double> held_out_errors(const Points& points) {
  const auto [kept, held] = Halves(points);
  std::vector<double> errors;
  if (kept.size() < least_points) return errors;
  for (const auto& ends : best_breaks(kept)) {
    const std::vector<Line> lines = lines_of(kept, ends);
    std::vector<double> sizes;
    for (const CurvePoint& point : held) {
      std::size_t regime = 0;
      while (regime + 1 < ends.size() && point.bytes > kept[ends[regime]].bytes) ++regime;
      sizes.push_back(std::abs(lines[regime].residual(point)));
    }
    errors.push_back(median(std::move(sizes)));
  }
  return errors;
}

}  // namespace

CurveFit fit_regimes(const Curve& curve) {
  const Points& points = curve.points();
  CurveFit fit;
  if (points.size() < least_points) return fit;
  const auto candidates = best_breaks(points);
  const std::vector<double> held_out = held_out_errors(points);
  std::size_t chosen = 0;
  if (!held_out.empty()) {
    const double least = *std::min_element(held_out.begin(), held_out.end());
    while (held_out[chosen] > 1.1 * least + 0.002) ++chosen;
    fit.held_out_median_abs = held_out[chosen];
  }
  const std::vector<std::size_t>& ends = candidates[chosen];
  const std::vector<Line> lines = lines_of(points, ends);
  std::vector<double> sizes;
  std::size_t first = 0;
  for (std::size_t regime = 0; regime < ends.size(); ++regime) {
    const Line& line = lines[regime];
    fit.regimes.push_back({points[first].bytes,
                           points[ends[regime]].bytes,
                           {line.value[0], line.standard_error[0]},
                           {line.value[1], line.standard_error[1]},
                           static_cast<int>(ends[regime] - first + 1)});
    for (; first <= ends[regime]; ++first) {
      sizes.push_back(std::abs(line.residual(points[first])));
      if (sizes.back() > large_residual) fit.outliers.push_back(points[first].bytes);
    }
  }
  fit.max_abs = *std::max_element(sizes.begin(), sizes.end());
  fit.median_abs = median(std::move(sizes));
  return fit;
}

}  // namespace stepcast
