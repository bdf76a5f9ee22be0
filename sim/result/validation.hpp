// How well steps were predicted: what `stepcast validate` says of a suite.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "base/units.hpp"
#include "input/validation.hpp"
#include "result/metrics.hpp"

namespace stepcast {

/// What was predicted of a case.
struct PredictedStep {
  Seconds time;
  Band band;
  Split split;
  Seconds overlapped;  ///< communication behind computation
  std::string basis;   ///< the weakest of computation and communication

  [[nodiscard]] Seconds low() const { return band.low(time); }
  [[nodiscard]] Seconds high() const { return band.high(time); }
};

struct CaseResult {
  std::string id;
  bool is_fitted = false;
  Seconds measured;
  std::optional<double> noise;
  PredictedStep predicted;
  [[nodiscard]] double error() const { return predicted.time / measured - 1.0; }
  [[nodiscard]] bool is_inside() const {
    return predicted.low() <= measured && measured <= predicted.high();
  }
};

/// Of relative errors, predicted / measured - 1.
struct ErrorSummary {
  std::size_t cases = 0;
  double median_abs = 0.0, mean_abs = 0.0, p90_abs = 0.0, max_abs = 0.0;
  double bias = 0.0;    ///< mean with its sign
  double inside = 0.0;  ///< share of the measured times that lie in the predicted band
};
[[nodiscard]] ErrorSummary summarize(const std::vector<const CaseResult*>& cases);

struct FittedFigure {
  std::string key;
  double value = 0.0;
  double standard_error = 0.0;
  bool held = false;  ///< at its start: the cases do not tell it
};

struct FileResult {
  std::string suite, name, source, machine;
  bool derived = false;  ///< compared with formulas or another simulator, not with measured times
  std::optional<Peers> peers;
  Bars bars;
  std::string skipped;  ///< why no case was predicted; empty: all were
  std::vector<CaseResult> cases;
  std::vector<FittedFigure> fitted;
  std::size_t orders = 0, orders_right = 0;  ///< of the file's orders of test cases

  [[nodiscard]] ErrorSummary summary(bool of_fitted) const;
  /// What a bar says that is not met; empty when all are.
  [[nodiscard]] std::vector<std::string> missed() const;
};

/// The test cases of several files together. A case that stands in two of them, with the same
/// prediction, counts once.
struct PooledErrors {
  std::string suite;  ///< empty: all of them
  std::size_t files = 0;
  ErrorSummary test;
};
/// One for each suite, in order, then one for all that were measured. Of files that were not
/// skipped.
[[nodiscard]] std::vector<PooledErrors> pool(const std::vector<FileResult>& results);

/// Whether the predicted times do not stand in another order than the measured ones; times that
/// differ by less than repeats do have none, predicted or measured.
[[nodiscard]] bool is_order_right(const std::vector<const CaseResult*>& cases);

}  // namespace stepcast
