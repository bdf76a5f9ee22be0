// Results as people and programs read them. A point is rendered to JSON once; the table and the CSV
// are read off that JSON, so that all three say the same.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/json_view.hpp"
#include "engine/overheads.hpp"
#include "fit/regimes.hpp"
#include "input/study.hpp"
#include "result/metrics.hpp"
#include "result/validation.hpp"

namespace stepcast {

/// One point of stepcast.result/1 as JSON text.
[[nodiscard]] std::string point_json(const Point& point, const StepResult& result,
                                     std::string_view engine);

/// A point that could not be simulated, as JSON text.
[[nodiscard]] std::string failed_point_json(const Point& point, const std::string& error);

/// The whole of stepcast.result/1. `points` are texts of point_json() or failed_point_json().
[[nodiscard]] std::string result_json(const Study& study, const std::vector<std::string>& points);
/// The same in parts: this, then each point, then the end.
[[nodiscard]] std::string result_json_begin(const Study& study);
[[nodiscard]] std::string result_json_point(const std::string& point, bool is_first);
[[nodiscard]] std::string result_json_end();

/// One row of `stepcast collective`.
struct CollectiveRow {
  std::int64_t bytes = 0;
  int ranks = 0;
  std::string algorithm;
  std::string protocol;
  int channels = 0;
  double chunk_bytes = 0.0;
  double time_s = 0.0;
  double algbw_Bps = 0.0;
  double busbw_Bps = 0.0;
  double sent_bytes_per_rank = 0.0;
  double relative_error = 0.0;  ///< standard error of the time; 0: not known
  std::string basis;
  std::string chooser;  ///< empty when nobody asked
  std::vector<ConsideredChoice> considered;
};
[[nodiscard]] std::string collective_row_json(const CollectiveRow& row);
/// The whole of stepcast.collective/1. `rows` are texts of collective_row_json().
[[nodiscard]] std::string collective_json(std::string_view platform, std::string_view operation,
                                          std::string_view engine,
                                          const std::vector<std::string>& rows);

/// The whole of stepcast.calibration/1 from measured samples. `machine` is the text of the platform
/// file.
struct CalibrationText {
  std::string name, source, platform, machine, command, nccl_version;
  struct Sample {
    CollectiveSample sample;
    std::string source;
    std::string json;  ///< the sample itself, where a calibration has it already
  };
  std::vector<Sample> samples;
  std::vector<std::pair<CurveKey, CurveFit>> curves;
  struct Rate {
    double value_Bps = 0.0, stderr_Bps = 0.0, nominal_Bps = 0.0;
  };
  /// Whole calibrations whose other measurements go along.
  std::vector<std::string> calibrations;
  std::optional<Rate> intra_node, inter_node;  ///< of one link, of one NIC
  std::vector<OverheadFit> overheads;          ///< those that are determined are written
};
[[nodiscard]] std::string calibration_json(const CalibrationText& calibration);

/// What would be simulated, one line a point of at most `most`.
[[nodiscard]] std::string points_table(const Study& study, std::size_t most);
/// Step time and its split, one line a point.
[[nodiscard]] std::string result_table(const std::vector<JsonDocument>& points);
/// What the table has no room for: learning rate for the larger batch, memory.
[[nodiscard]] std::string result_notes(const std::vector<JsonDocument>& all);
/// Two points of results that were read: which settings differ, what changes, and why.
[[nodiscard]] std::string comparison(const JsonView& result_a, const JsonView& a,
                                     const JsonView& result_b, const JsonView& b);
/// As nccl-tests prints it, with what was chosen.
[[nodiscard]] std::string collective_table(const std::vector<JsonDocument>& documents);
/// For each size, what else was considered and why it was not taken.
[[nodiscard]] std::string collective_explanation(const std::vector<JsonDocument>& documents);

/// One line a point, the varied keys first, then every figure under its JSON name.
[[nodiscard]] std::string result_csv(const std::vector<JsonDocument>& points);
/// The same in parts: the names of all points are gathered, then each point gives a line.
void add_csv_names(const JsonDocument& point, std::vector<std::string>& names);
[[nodiscard]] std::string csv_heads(const std::vector<std::string>& names);
[[nodiscard]] std::string csv_line(const JsonDocument& point,
                                   const std::vector<std::string>& names);

/// What `stepcast validate` found of one file: a line a case, then the errors of all.
[[nodiscard]] std::string validation_table(const FileResult& result);
/// The errors of all and whether the bar is met.
[[nodiscard]] std::string validation_summary(const FileResult& result);
/// Each suite in one line, one for all, and what peers reached beside what was reached here.
[[nodiscard]] std::string validation_totals(const std::vector<FileResult>& results);
/// The whole of stepcast.validate/1.
[[nodiscard]] std::string validate_json(const std::vector<FileResult>& results);
/// The same as a page that needs nothing else.
[[nodiscard]] std::string validate_html(const std::vector<FileResult>& results);

/// Events of one point for Perfetto and chrome://tracing, as JSON texts: a process for each of the
/// first `ranks` ranks with a track for computation and one for communication.
[[nodiscard]] std::vector<std::string> chrome_trace_events(const Job& job, const Timeline& timeline,
                                                           std::size_t point_index,
                                                           std::string_view point_name, int ranks);
[[nodiscard]] std::string chrome_trace(const std::vector<std::string>& events);
/// The same in parts: this, then the events with ",\n" between them, then the end.
[[nodiscard]] std::string chrome_trace_begin();
[[nodiscard]] std::string chrome_trace_end();

/// `cluster.gpus = 8, ...`, or "the scenario" when nothing varies.
[[nodiscard]] std::string point_name(const Point& point);

}  // namespace stepcast
