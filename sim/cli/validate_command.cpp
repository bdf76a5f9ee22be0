// stepcast validate: predicts what was measured, from scenarios or from the rest of what was
// measured.
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <set>

#include <fmt/format.h>

#include "base/error.hpp"
#include "base/text.hpp"
#include "cli/commands.hpp"
#include "cli/log_files.hpp"
#include "cli/output_file.hpp"
#include "cli/validate_steps.hpp"
#include "engine/engine.hpp"
#include "engine/isolate.hpp"
#include "engine/measured.hpp"
#include "engine/overheads.hpp"
#include "fit/curve.hpp"
#include "fit/median.hpp"
#include "input/calibration.hpp"
#include "input/validation.hpp"
#include "report/report.hpp"

namespace stepcast {
namespace {

constexpr int few_nodes = 4;  // larger runs are predicted from those on up to so many
constexpr std::size_t least_points = 8;
constexpr Bytes smallest_bucket{1.0 * (1 << 20)};
constexpr Bytes largest_bucket{64.0 * (1 << 20)};

struct Prediction {
  Bytes bytes;
  double error = 0.0;  ///< predicted / measured - 1
};

double quantile(std::vector<double> values, double share) {
  std::sort(values.begin(), values.end());
  return values[static_cast<std::size_t>(
      std::lround(share * static_cast<double>(values.size() - 1)))];
}

std::vector<double> sizes_of(const std::vector<Prediction>& predictions) {
  std::vector<double> sizes;
  for (const Prediction& one : predictions) sizes.push_back(std::abs(one.error));
  return sizes;
}

void print_errors(const std::string& what, const std::vector<Prediction>& predictions) {
  if (predictions.empty()) return;
  std::vector<Prediction> buckets;
  for (const Prediction& one : predictions)
    if (smallest_bucket <= one.bytes && one.bytes <= largest_bucket) buckets.push_back(one);
  const std::vector<double> all = sizes_of(predictions);
  fmt::print("{:<64}  {:>5}  {:>6.1f} %  {:>6.1f} %  {:>6.1f} %", what, all.size(),
             100 * median(all), 100 * quantile(all, 0.9), 100 * quantile(all, 1.0));
  if (!buckets.empty()) {
    const std::vector<double> of_buckets = sizes_of(buckets);
    fmt::print("  {:>6.1f} %  {:>6.1f} %", 100 * median(of_buckets),
               100 * quantile(of_buckets, 0.9));
  }
  fmt::print("\n");
}

std::string curve_name(const std::string& file, const CurveKey& key) {
  std::string name =
      fmt::format("{}: {}, {} ranks on {}", file, to_string(key.operation), key.ranks, key.nodes);
  for (const std::string& forced : {key.algorithm, key.protocol})
    if (!forced.empty()) name += ", " + forced;
  return name;
}

/// Every second size from the others.
std::vector<Prediction> predict_sizes(const Curve& curve) {
  const Halves halves(curve.points());
  const Curve rest(curve.key(), halves.kept);
  std::vector<Prediction> predictions;
  for (const CurvePoint& point : halves.left_out)
    predictions.push_back({point.bytes, rest.at(point.bytes) / point.time - 1.0});
  return predictions;
}

/// The samples of a calibration without those that are to be predicted, and the overheads without
/// what these told.
Calibration without_large_runs(const Calibration& whole) {
  Calibration rest = whole;
  std::erase_if(rest.samples, [](const CollectiveSample& one) { return one.nodes > few_nodes; });
  if (std::erase_if(rest.protocols, [](const ProtocolFigures& one) { return !one.measured; }) > 0)
    for (const OverheadFit& fit : fit_overheads(curves_of(rest.samples), rest))
      if (fit.is_determined()) rest.protocols.push_back(fit.figures);
  return rest;
}

/// Whether something is known of smaller runs over several nodes.
bool has_smaller(const Calibration& rest, const CurveKey& key) {
  return std::any_of(rest.samples.begin(), rest.samples.end(), [&](const CollectiveSample& one) {
    return one.nodes > 1 && one.operation == to_string(key.operation) &&
           one.algorithm == key.algorithm && one.protocol == key.protocol;
  });
}

Seconds simulate(const CurveKey& key, Bytes bytes, const Calibration& calibration) {
  const Job job =
      make_job(single_collective(key.operation, static_cast<std::int64_t>(bytes.value())),
               settings_of(key), cluster_of(key, calibration));
  return simulate_with_simgrid(job).collectives.front().last_end();
}

std::vector<Prediction> predict_nodes(const Curve& curve, const Calibration& rest, int jobs) {
  const std::vector<CurvePoint>& points = curve.points();
  const std::vector<Outcome> outcomes = run_isolated(points.size(), jobs, [&](std::size_t i) {
    return fmt::format("{}", simulate(curve.key(), points[i].bytes, rest).value());
  });
  std::vector<Prediction> predictions;
  for (std::size_t i = 0; i < points.size(); ++i) {
    if (outcomes[i].kind != Outcome::Kind::done) throw SimulationError(outcomes[i].text);
    predictions.push_back(
        {points[i].bytes, Seconds{std::stod(outcomes[i].text)} / points[i].time - 1.0});
  }
  return predictions;
}

struct MeasuredFile {
  std::string name;
  std::vector<Curve> curves;
  std::optional<Calibration> calibration;
};

MeasuredFile read_measured(const std::string& path) {
  if (path.ends_with(".json")) {
    MeasuredFile file{path, {}, read_calibration(JsonDocument::read_file(path).root())};
    file.curves = curves_of(file.calibration->samples);
    return file;
  }
  LogOptions log;
  log.path = path;
  const LogContents contents = read_log(log, false);
  return {contents.name, curves_of(samples_of(contents)), std::nullopt};
}

void print_head(const char* what) {
  fmt::print("{:<64}  {:>5}  {:>8}  {:>8}  {:>8}  {:>8}  {:>8}\n", what, "sizes", "median", "p90",
             "worst", "1-64 MiB", "p90");
}

void validate_collectives(const std::vector<std::string>& paths, int jobs) {
  std::vector<MeasuredFile> files;
  for (const std::string& path : paths) {
    try {
      files.push_back(read_measured(path));
    } catch (const InputError& error) {
      if (path.ends_with(".json")) throw;
      fmt::print(stderr, "stepcast: refused: {}\n", error.what());
    }
  }
  print_head("every second size, from the others");
  std::vector<Prediction> all;
  for (const MeasuredFile& file : files)
    for (const Curve& curve : file.curves) {
      if (curve.points().size() < least_points) continue;
      const std::vector<Prediction> predictions = predict_sizes(curve);
      print_errors(curve_name(file.name, curve.key()), predictions);
      all.insert(all.end(), predictions.begin(), predictions.end());
    }
  print_errors("all of them", all);

  std::vector<Prediction> all_nodes;
  for (const MeasuredFile& file : files) {
    if (!file.calibration || !file.calibration->machine) continue;
    const Calibration rest = without_large_runs(*file.calibration);
    for (const Curve& curve : file.curves) {
      if (curve.key().nodes <= few_nodes || !has_smaller(rest, curve.key())) continue;
      if (all_nodes.empty()) {
        fmt::print("\n");
        print_head(fmt::format("more than {0} nodes, from up to {0}", few_nodes).c_str());
      }
      const std::vector<Prediction> predictions = predict_nodes(curve, rest, jobs);
      print_errors(curve_name(file.name, curve.key()), predictions);
      all_nodes.insert(all_nodes.end(), predictions.begin(), predictions.end());
    }
  }
  print_errors("all of them", all_nodes);
}

constexpr int bar_missed = 4;  // exit code
constexpr const char* collectives = "collectives";

/// The JSON files of a folder below the current one, by name.
std::vector<std::string> json_files(const std::filesystem::path& folder) {
  std::vector<std::string> files;
  if (std::filesystem::is_directory(folder))
    for (const auto& entry : std::filesystem::directory_iterator(folder))
      if (entry.path().extension() == ".json") files.push_back(entry.path().string());
  std::sort(files.begin(), files.end());
  return files;
}

std::vector<std::string> shipped_calibrations() {
  std::vector<std::string> files = json_files("platforms");
  std::erase_if(files,
                [](const std::string& path) { return !path.ends_with(".calibration.json"); });
  if (files.empty())
    throw InputError("stepcast validate",
                     "no platforms/*.calibration.json below the current folder; name calibrations");
  return files;
}

struct Suites {
  std::vector<ValidationFile> files;
  bool collectives = false;
};

/// What the words name: suites of the current folder, or files. Without any, all suites.
Suites find_suites(const std::vector<std::string>& words) {
  Suites found;
  std::vector<ValidationFile> shipped;
  std::set<std::string> known = {collectives};
  for (const std::string& path : json_files("tests/validation")) {
    const JsonDocument document = JsonDocument::read_file(path);
    if (!is_validation(document.root())) continue;
    shipped.push_back(read_validation(path, document.root()));
    known.insert(shipped.back().suite);
  }
  if (words.empty()) return {shipped, true};
  for (const std::string& word : words) {
    if (word.ends_with(".json")) {
      const JsonDocument document = JsonDocument::read_file(word);
      found.files.push_back(read_validation(word, document.root()));
      continue;
    }
    if (!known.contains(word))
      throw InputError(
          "stepcast validate",
          fmt::format("unknown \"{}\"{}", word, suggest(word, {known.begin(), known.end()})));
    if (word == collectives) found.collectives = true;
    for (const ValidationFile& file : shipped)
      if (file.suite == word) found.files.push_back(file);
  }
  return found;
}

}  // namespace

int validate_command(const ValidateOptions& options) {
  if (!options.files.empty()) {
    validate_collectives(options.files, options.jobs);
    return 0;
  }
  const Suites suites = find_suites(options.suites);
  std::vector<std::string> inputs;
  for (const ValidationFile& file : suites.files) inputs.push_back(file.path);
  std::optional<OutputFile> json, html;
  if (options.json) json.emplace("--json", *options.json, inputs);
  if (options.html) html.emplace("--html", *options.html, inputs);
  const bool prints = !(json && json->is_stdout()) && !(html && html->is_stdout());

  std::vector<FileResult> results;
  bool all_met = true;
  for (const ValidationFile& file : suites.files) {
    results.push_back(validate_steps(file, options.jobs));
    all_met = all_met && results.back().missed().empty();
    if (prints)
      fmt::print("{}{}", results.size() > 1 ? "\n" : "", validation_table(results.back()));
  }
  if (json) json->write(validate_json(results));
  if (html) html->write(validate_html(results));
  if (suites.collectives && prints) {
    if (!results.empty()) fmt::print("\n");
    validate_collectives(shipped_calibrations(), options.jobs);
  }
  return all_met ? 0 : bar_missed;
}

}  // namespace stepcast
