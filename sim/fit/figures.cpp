#include "fit/figures.hpp"

#include <algorithm>
#include <cmath>
#include <optional>

#include <Eigen/Dense>

namespace stepcast {
namespace {

constexpr double small_residual = 0.03;  // repeats of nccl-tests differ by this much
constexpr double least_spread = 0.01;    // no fit is trusted to less than this
constexpr double known_to_itself = 0.5;
constexpr double known_to_start = 0.25;
constexpr int iterations = 8;
constexpr double step = 1e-3;  // of a figure's start, for derivatives and to stop

using Eigen::MatrixXd;
using Eigen::VectorXd;

/// Derivatives and residuals are per relative error and in units of each figure's start.
class Fit {
 public:
  Fit(const FiguresModel& model, const std::vector<SoughtFigure>& sought,
      const std::vector<double>& measured, int rounds)
      : model_(model),
        sought_(sought),
        measured_(measured),
        rounds_(rounds),
        held_(sought.size(), false),
        weights_(VectorXd::Ones(static_cast<Eigen::Index>(measured.size()))) {}

  FiguresFit run() {
    for (const SoughtFigure& figure : sought_) values_.push_back(figure.start);
    differentiate();
    solve();
    for (std::optional<std::size_t> last = untold(); last; last = untold()) {
      hold(*last);
      solve();
    }
    FiguresFit fit;
    const VectorXd errors = standard_errors(true);
    for (std::size_t j = 0; j < sought_.size(); ++j) {
      FoundFigure& figure = fit.figures.emplace_back();
      figure.fitted = {values_[j], errors[at(j)] * sought_[j].start};
      figure.held = held_[j];
      figure.determined = !held_[j] && is_known(j, errors[at(j)]);
    }
    fit.residuals.assign(residuals_.begin(), residuals_.end());
    return fit;
  }

 private:
  static Eigen::Index at(std::size_t i) { return static_cast<Eigen::Index>(i); }

  [[nodiscard]] VectorXd residuals_with(const std::vector<double>& values) const {
    const std::vector<double> times = model_(values);
    VectorXd residuals(at(times.size()));
    for (std::size_t i = 0; i < times.size(); ++i) residuals[at(i)] = times[i] / measured_[i] - 1.0;
    return residuals;
  }

  void hold(std::size_t j) {
    held_[j] = true;
    const double start = sought_[j].start;
    residuals_ += derivatives_.col(at(j)) * ((start - values_[j]) / start);
    values_[j] = start;
  }

  void solve() {
    for (int round = 0; round < rounds_; ++round) {
      const std::vector<double> before = values_;
      solve_linearly();
      differentiate();
      double largest = 0.0;
      for (std::size_t j = 0; j < sought_.size(); ++j)
        largest = std::max(largest, std::abs(values_[j] - before[j]) / sought_[j].start);
      if (largest < step) return;
    }
  }

  /// With the derivatives as they are; the model is linear but where another path becomes longest.
  void solve_linearly() {
    const std::vector<double> from = values_;
    const VectorXd residuals = residuals_;
    const MatrixXd design = free_columns();
    if (design.cols() == 0) return;
    weights_.setOnes();
    for (int iteration = 0; iteration < iterations; ++iteration) {
      const VectorXd root = weights_.cwiseSqrt();
      const VectorXd change = (root.asDiagonal() * design)
                                  .completeOrthogonalDecomposition()
                                  .solve(-root.cwiseProduct(residuals));
      residuals_ = residuals;
      Eigen::Index column = 0;
      for (std::size_t j = 0; j < sought_.size(); ++j) {
        if (held_[j]) continue;
        values_[j] = std::clamp(from[j] + change[column++] * sought_[j].start, sought_[j].least,
                                sought_[j].most);
        residuals_ += derivatives_.col(at(j)) * ((values_[j] - from[j]) / sought_[j].start);
      }
      for (Eigen::Index i = 0; i < weights_.size(); ++i) {
        const double size = std::abs(residuals_[i]);
        weights_[i] = size <= small_residual ? 1.0 : small_residual / size;
      }
    }
  }

  void differentiate() {
    residuals_ = residuals_with(values_);
    derivatives_.conservativeResize(residuals_.size(), at(sought_.size()));
    for (std::size_t j = 0; j < sought_.size(); ++j) {
      if (held_[j]) continue;  // what it was will do
      std::vector<double> moved = values_;
      moved[j] += step * sought_[j].start;
      derivatives_.col(at(j)) = (residuals_with(moved) - residuals_) / step;
    }
  }

  [[nodiscard]] MatrixXd free_columns() const {
    MatrixXd free(derivatives_.rows(), std::count(held_.begin(), held_.end(), false));
    Eigen::Index column = 0;
    for (std::size_t j = 0; j < sought_.size(); ++j)
      if (!held_[j]) free.col(column++) = derivatives_.col(at(j));
    return free;
  }

  /// In units of each figure's start; with what the held ones may do to the others.
  [[nodiscard]] VectorXd standard_errors(bool with_held) const {
    constexpr double singular = 1e-6;  // of the strongest; what is weaker is not told
    VectorXd errors = VectorXd::Zero(at(sought_.size()));
    for (std::size_t j = 0; j < sought_.size(); ++j)
      if (held_[j]) errors[at(j)] = 1.0;
    const MatrixXd free = free_columns();
    if (free.cols() == 0) return errors;
    const VectorXd root = weights_.cwiseSqrt();
    const MatrixXd weighted = root.asDiagonal() * free;
    const Eigen::JacobiSVD<MatrixXd> svd(weighted, Eigen::ComputeThinU | Eigen::ComputeThinV);
    const VectorXd strengths =
        svd.singularValues().cwiseMax(std::max(singular * svd.singularValues()[0], singular));
    const MatrixXd spread = svd.matrixV() * strengths.cwiseInverse().asDiagonal();
    const MatrixXd covariance = spread * spread.transpose();
    const double freedom = std::max(1.0, static_cast<double>(free.rows() - free.cols()));
    const double variance =
        std::max(residuals_.cwiseAbs2().dot(weights_) / freedom, least_spread * least_spread);
    const MatrixXd pull =
        covariance * weighted.transpose() * root.asDiagonal();  // of a residual on each
    Eigen::Index column = 0;
    for (std::size_t j = 0; j < sought_.size(); ++j) {
      if (held_[j]) continue;
      double square = variance * covariance(column, column);
      if (with_held)
        for (std::size_t other = 0; other < sought_.size(); ++other)
          if (held_[other])
            square += std::pow(pull.row(column).dot(derivatives_.col(at(other))), 2);
      errors[at(j)] = std::sqrt(square);
      ++column;
    }
    return errors;
  }

  [[nodiscard]] bool is_known(std::size_t j, double error) const {
    return error <= std::max(known_to_itself * values_[j] / sought_[j].start, known_to_start);
  }

  /// The last figure that is free and that the times do not tell.
  [[nodiscard]] std::optional<std::size_t> untold() const {
    const VectorXd errors = standard_errors(false);
    for (std::size_t j = sought_.size(); j-- > 0;)
      if (!held_[j] && !is_known(j, errors[at(j)])) return j;
    return std::nullopt;
  }

  const FiguresModel& model_;
  const std::vector<SoughtFigure>& sought_;
  const std::vector<double>& measured_;
  int rounds_;
  std::vector<bool> held_;
  std::vector<double> values_;
  VectorXd weights_, residuals_;
  MatrixXd derivatives_;
};

}  // namespace

FiguresFit fit_figures(const FiguresModel& model, const std::vector<SoughtFigure>& sought,
                       const std::vector<double>& measured, int rounds) {
  return Fit(model, sought, measured, rounds).run();
}

}  // namespace stepcast
