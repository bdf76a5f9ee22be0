// Measured steps with the scenarios that should predict them (tests/validation/*.json,
// stepcast.validation/1).
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/json_view.hpp"
#include "base/units.hpp"
#include "input/study.hpp"

namespace stepcast {

/// A measured step.
struct MeasuredCase {
  std::string id;
  std::string scenario;
  bool is_fitted = false;  ///< figures may be fitted on it; else nothing ever sees its time
  std::vector<Assignment> sets;
  Seconds step_time;
  std::optional<double> noise;  ///< relative, of repeated measurements
};

/// A figure that is fitted on the cases that are for it.
struct FittedKey {
  std::string key;
  std::optional<std::string> scenario;  ///< that it is set in; empty: in each
  double start = 0.0, low = 0.0, high = 0.0;
};

/// The largest error of the test cases that is accepted.
struct Bars {
  std::optional<double> mean_abs_error, median_abs_error;
  std::optional<double> order_right;  ///< least share
};

struct Peers {
  std::string text;
  double mean_error = 0.0;
};

/// A model that is made when it is needed, of files that are not part of the project.
struct ImportedModel {
  std::string name;  ///< what scenarios call it
  std::string format;
  std::vector<std::string> files;  ///< relative to the validation file
  std::map<std::string, std::string> settings;
};

struct ValidationFile {
  std::string path;
  std::string suite, name, source, machine;
  bool derived = false;  ///< its times come from formulas or another simulator
  std::optional<Peers> peers;
  std::vector<ImportedModel> imports;
  std::map<std::string, JsonDocument> scenarios;
  std::vector<FittedKey> fit;
  Bars bars;
  std::vector<MeasuredCase> cases;
  /// Cases whose order by time is to be predicted, by place in `cases`.
  std::vector<std::vector<std::size_t>> orders;
};

[[nodiscard]] bool is_validation(const JsonView& json);
[[nodiscard]] ValidationFile read_validation(const std::filesystem::path& path,
                                             const JsonView& json);

/// Whether the figure is one of the case's scenario.
[[nodiscard]] bool concerns(const FittedKey& key, const MeasuredCase& one);

/// The case's scenario, with the figures in place of what the fit's keys had.
[[nodiscard]] Point point_of(const ValidationFile& file, const MeasuredCase& one,
                             const std::vector<double>& figures);

}  // namespace stepcast
