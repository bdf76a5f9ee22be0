#include "cli/validate_collectives.hpp"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <functional>
#include <numeric>
#include <set>

#include <fmt/format.h>

#include "base/error.hpp"
#include "base/text.hpp"
#include "cli/fit_mechanism.hpp"
#include "cli/log_files.hpp"
#include "engine/engine.hpp"
#include "engine/isolate.hpp"
#include "engine/measured.hpp"
#include "fit/curve.hpp"
#include "input/calibration.hpp"
#include "report/report.hpp"

namespace stepcast {
namespace {

constexpr int few_nodes = 4;  // larger runs are predicted from those on up to so many
constexpr std::size_t least_points = 8;
constexpr Bytes smallest_bucket{1.0 * (1 << 20)};
constexpr Bytes largest_bucket{64.0 * (1 << 20)};

struct MeasuredFile {
  std::string name;
  std::vector<CollectiveSample> samples;
  std::optional<Calibration> calibration;  ///< where it is one that describes its machine
};

MeasuredFile read_measured(const std::string& path) {
  const std::string name = std::filesystem::path(path).filename().string();
  if (path.ends_with(".json")) {
    Calibration calibration = read_calibration(JsonDocument::read_file(path).root());
    MeasuredFile file{name.substr(0, name.find('.')), calibration.samples, std::nullopt};
    if (calibration.machine) file.calibration = std::move(calibration);
    return file;
  }
  LogOptions log;
  log.path = path;
  const LogContents contents = read_log(log, false);
  return {contents.name, samples_of(contents), std::nullopt};
}

std::vector<MeasuredFile> read_all(const std::vector<std::string>& paths) {
  std::vector<MeasuredFile> files;
  for (const std::string& path : paths) {
    try {
      files.push_back(read_measured(path));
    } catch (const InputError& error) {
      if (path.ends_with(".json")) throw;
      fmt::print(stderr, "stepcast: refused: {}\n", error.what());
    }
  }
  return files;
}

std::string curve_name(const std::string& file, const CurveKey& key) {
  std::string name =
      fmt::format("{}: {}, {} ranks on {}", file, to_string(key.operation), key.ranks, key.nodes);
  for (const std::string& forced : {key.algorithm, key.protocol})
    if (!forced.empty()) name += ", " + forced;
  return name;
}

/// The relative standard deviation of a size that was measured several times.
std::optional<double> noise_of(const CurveKey& key, Bytes bytes,
                               const std::vector<CollectiveSample>& samples) {
  std::vector<double> times;
  for (const CollectiveSample& one : samples)
    if (one.is_plain() && one.operation == to_string(key.operation) && one.ranks == key.ranks &&
        one.nodes == key.nodes && one.algorithm == key.algorithm && one.protocol == key.protocol &&
        Bytes{static_cast<double>(one.bytes)} == bytes)
      times.push_back(one.time.value());
  if (times.size() < 2) return std::nullopt;
  const double count = static_cast<double>(times.size());
  const double mean = std::accumulate(times.begin(), times.end(), 0.0) / count;
  double squares = 0.0;
  for (const double time : times) squares += (time - mean) * (time - mean);
  return std::sqrt(squares / (count - 1.0)) / mean;
}

/// A collective alone is exposed communication, all of it.
PredictedStep predicted_step(Seconds time, double relative_error, const std::string& basis) {
  PredictedStep step;
  step.time = time;
  step.band.calibration = {relative_error * time, relative_error * time};
  step.split.exposed_comm = time;
  step.basis = basis;
  return step;
}

void add_case(PredictedCurve& curve, const CurveKey& key, const CurvePoint& point,
              const PredictedStep& predicted, const MeasuredFile& file) {
  curve.sizes.push_back(point.bytes);
  CaseResult one;
  one.id = fmt::format("{}, {}", curve.name, format_bytes(point.bytes.value()));
  one.measured = point.time;
  one.noise = noise_of(key, point.bytes, file.samples);
  one.predicted = predicted;
  curve.cases.push_back(std::move(one));
}

/// Every second size from the others.
std::vector<PredictedCurve> predict_sizes(const std::vector<MeasuredFile>& files) {
  std::vector<PredictedCurve> predicted;
  for (const MeasuredFile& file : files)
    for (const Curve& curve : curves_of(file.samples)) {
      if (curve.points().size() < least_points) continue;
      const Halves halves(curve.points());
      const Curve rest(curve.key(), halves.kept);
      PredictedCurve& one = predicted.emplace_back();
      one.name = curve_name(file.name, curve.key());
      for (const CurvePoint& point : halves.left_out)
        add_case(one, curve.key(), point,
                 predicted_step(rest.at(point.bytes), rest.relative_error(), "interpolated"), file);
    }
  return predicted;
}

/// Which ranks and which force are left out together.
using IsLeftOut = std::function<bool(const CurveKey&)>;

/// Several curves of one machine that are left out, and from where they are predicted.
struct Group {
  const MeasuredFile* file;
  std::vector<CollectiveSample> kept;
  std::vector<Curve> left_out;

  [[nodiscard]] std::vector<std::string> names() const {
    std::vector<std::string> names;
    for (const Curve& curve : left_out) names.push_back(curve_name(file->name, curve.key()));
    return names;
  }
};

bool is_of(const CollectiveSample& sample, const IsLeftOut& is_left_out) {
  CurveKey key;
  key.ranks = sample.ranks;
  key.nodes = sample.nodes;
  key.algorithm = sample.algorithm;
  key.protocol = sample.protocol;
  return is_left_out(key);
}

/// Something must be left of which a curve can be predicted: `tells(rest, curve)`.
using Tells = std::function<bool(const CurveKey&, const CurveKey&)>;

void add_group(std::vector<Group>& groups, const MeasuredFile& file, const IsLeftOut& is_left_out,
               const Tells& tells) {
  Group group{&file, {}, {}};
  for (const CollectiveSample& sample : file.samples)
    if (!is_of(sample, is_left_out)) group.kept.push_back(sample);
  const std::vector<Curve> rest = curves_of(group.kept);
  for (const Curve& curve : curves_of(file.samples))
    if (is_left_out(curve.key()) && std::any_of(rest.begin(), rest.end(), [&](const Curve& one) {
          return one.key().operation == curve.key().operation && tells(one.key(), curve.key());
        }))
      group.left_out.push_back(curve);
  if (!group.left_out.empty()) groups.push_back(std::move(group));
}

bool is_same_force(const CurveKey& a, const CurveKey& b) {
  return a.algorithm == b.algorithm && a.protocol == b.protocol;
}

int gpus_per_node(const CurveKey& key) { return (key.ranks + key.nodes - 1) / key.nodes; }

std::vector<Group> by_gpus_per_node(const MeasuredFile& file, const std::vector<Curve>& curves) {
  std::set<int> counts;
  for (const Curve& curve : curves) counts.insert(gpus_per_node(curve.key()));
  std::vector<Group> groups;
  for (const int count : counts)
    add_group(
        groups, file, [=](const CurveKey& key) { return gpus_per_node(key) == count; },
        [](const CurveKey& rest, const CurveKey& key) {
          return is_same_force(rest, key) && rest.nodes == key.nodes;
        });
  return groups;
}

bool tells_of_network(const CurveKey& rest, const CurveKey& key) {
  return is_same_force(rest, key) && rest.nodes > 1;
}

std::vector<Group> many_nodes(const MeasuredFile& file, const std::vector<Curve>& curves) {
  static_cast<void>(curves);
  std::vector<Group> groups;
  add_group(
      groups, file, [](const CurveKey& key) { return key.nodes > few_nodes; }, tells_of_network);
  return groups;
}

std::vector<Group> by_nodes(const MeasuredFile& file, const std::vector<Curve>& curves) {
  std::set<int> counts;
  for (const Curve& curve : curves)
    if (curve.key().nodes > 1) counts.insert(curve.key().nodes);
  std::vector<Group> groups;
  for (const int count : counts)
    add_group(
        groups, file, [=](const CurveKey& key) { return key.nodes == count; }, tells_of_network);
  return groups;
}

std::vector<Group> by_pair(const MeasuredFile& file, const std::vector<Curve>& curves) {
  std::set<std::pair<std::string, std::string>> pairs;
  for (const Curve& curve : curves) pairs.emplace(curve.key().algorithm, curve.key().protocol);
  std::vector<Group> groups;
  for (const auto& pair : pairs) {
    if (pair.first.empty() && pair.second.empty()) continue;
    add_group(
        groups, file,
        [=](const CurveKey& key) {
          return key.algorithm == pair.first && key.protocol == pair.second;
        },
        [](const CurveKey& rest, const CurveKey& key) {
          return (rest.nodes > 1) == (key.nodes > 1);
        });
  }
  return groups;
}

/// What `stepcast collective` says with this calibration.
std::vector<double> simulate_size(const CurveKey& key, Bytes bytes,
                                  const Calibration& calibration) {
  const Job job =
      make_job(single_collective(key.operation, static_cast<std::int64_t>(bytes.value())),
               settings_of(key), cluster_of(key, calibration));
  const Simulation simulation = simulate(job);
  const Timeline::CollectiveTimes& times = simulation.timeline.collectives.front();
  const LoweredCollective& lowered = job.collective(0);
  return {(times.last_end() - times.start).value(), lowered.relative_error,
          static_cast<double>(lowered.basis)};
}

/// A line for each curve: three numbers a size, or why it cannot be predicted.
constexpr char refused = '!';

/// Fits what is left, and predicts each size of what is not.
std::string predict_group(const Group& group) {
  const Calibration& whole = *group.file->calibration;
  Calibration rest =
      fit_mechanism(*whole.machine, whole.nccl_version, curves_of(group.kept)).calibration;
  rest.samples = group.kept;
  std::vector<std::string> lines;
  for (const Curve& curve : group.left_out) {
    std::string line;
    try {
      check_names(curve.key().operation, settings_of(curve.key()), cluster_of(curve.key(), rest));
      for (const CurvePoint& point : curve.points())
        for (const double number :
             isolated_numbers([&] { return simulate_size(curve.key(), point.bytes, rest); }))
          line += format_number(number) + ' ';
    } catch (const SimulationError& error) {
      line = refused + std::string(error.what());
    } catch (const InputError& error) {
      line = refused + std::string(error.what());
    }
    lines.push_back(line);
  }
  return fmt::format("{}", fmt::join(lines, "\n"));
}

/// Where another group leaves out the same, its prediction is taken.
std::vector<std::string> predict_groups(const std::vector<Group>& groups, int jobs) {
  std::vector<std::size_t> distinct, answered_by(groups.size());
  for (std::size_t i = 0; i < groups.size(); ++i) {
    const auto same = std::find_if(distinct.begin(), distinct.end(), [&](std::size_t other) {
      return groups[other].file == groups[i].file &&
             groups[other].kept.size() == groups[i].kept.size() &&
             groups[other].names() == groups[i].names();
    });
    answered_by[i] = static_cast<std::size_t>(same - distinct.begin());
    if (same == distinct.end()) distinct.push_back(i);
  }
  const std::vector<Outcome> outcomes = run_isolated(
      distinct.size(), jobs, [&](std::size_t i) { return predict_group(groups[distinct[i]]); });
  std::vector<std::string> texts;
  for (std::size_t i = 0; i < groups.size(); ++i) {
    const Outcome& outcome = outcomes[answered_by[i]];
    if (outcome.kind != Outcome::Kind::done)
      throw SimulationError(fmt::format("{}: {}", groups[i].file->name, outcome.text));
    texts.push_back(outcome.text);
  }
  return texts;
}

std::vector<PredictedCurve> curves_from(const Group& group, const std::string& text) {
  const std::vector<std::string> lines = split(text, '\n');
  std::vector<PredictedCurve> predicted;
  for (std::size_t i = 0; i < group.left_out.size(); ++i) {
    const Curve& curve = group.left_out[i];
    const std::string name = curve_name(group.file->name, curve.key());
    if (lines[i].front() == refused) {
      fmt::print(stderr, "stepcast: not predicted: {}: {}\n", name, lines[i].substr(1));
      continue;
    }
    const std::vector<std::string> words = split(lines[i], ' ');
    PredictedCurve& one = predicted.emplace_back();
    one.name = name;
    for (std::size_t k = 0; k < curve.points().size(); ++k)
      add_case(one, curve.key(), curve.points()[k],
               predicted_step(Seconds{std::stod(words[3 * k])}, std::stod(words[3 * k + 1]),
                              to_string(static_cast<Basis>(std::stoi(words[3 * k + 2])))),
               *group.file);
  }
  return predicted;
}

struct Experiment {
  const char* name;
  std::optional<double> most_median_error;
  std::vector<Group> (*groups)(const MeasuredFile&, const std::vector<Curve>&);
};

const std::vector<Experiment> experiments = {
    {"each number of GPUs in a node, from the others", {}, by_gpus_per_node},
    {"more than 4 nodes, from up to 4", 0.10, many_nodes},
    {"each number of nodes, from the others", 0.10, by_nodes},
    {"each algorithm and protocol that was forced, from the others", {}, by_pair},
};
constexpr double sizes_bar = 0.05;
// Recomputed from the constants that they ship, on all 14 sizes of this file.
constexpr const char* table_of_peers = "peers_8h100";
constexpr const char* of_peers =
    "SimuMax's line, fitted to 11 of these sizes; constants of ASTRA-sim, Calculon and SimAI: "
    "17.8, "
    "25.7 and 32.9 %";
constexpr double error_of_peers = 0.132;

CollectivesResult result_of(const char* name, std::optional<double> most_median_error,
                            std::vector<PredictedCurve> curves) {
  CollectivesResult result;
  result.curves = std::move(curves);
  result.result.suite = "collectives";
  result.result.name = name;
  result.result.source = "logs of nccl-tests and rccl-tests that the calibrations name";
  result.result.bars.median_abs_error = most_median_error;
  std::vector<std::string> files;
  for (const PredictedCurve& curve : result.curves) {
    const std::string file = curve.name.substr(0, curve.name.find(':'));
    if (files.empty() || files.back() != file) files.push_back(file);
    for (const CaseResult& one : curve.cases) result.result.cases.push_back(one);
  }
  result.result.machine = fmt::format("{}", fmt::join(files, ", "));
  if (result.curves.empty()) result.result.skipped = "nothing was measured that tells of another";
  return result;
}

std::string errors_line(const std::string& name, const std::vector<Bytes>& sizes,
                        const std::vector<CaseResult>& cases) {
  std::vector<const CaseResult*> all, buckets;
  for (std::size_t i = 0; i < cases.size(); ++i) {
    all.push_back(&cases[i]);
    if (smallest_bucket <= sizes[i] && sizes[i] <= largest_bucket) buckets.push_back(&cases[i]);
  }
  const ErrorSummary errors = summarize(all);
  std::string text =
      fmt::format("{:<64}  {:>5}  {:>6.1f} %  {:>6.1f} %  {:>6.1f} %", name, errors.cases,
                  100 * errors.median_abs, 100 * errors.p90_abs, 100 * errors.max_abs);
  if (!buckets.empty()) {
    const ErrorSummary of_buckets = summarize(buckets);
    text += fmt::format("  {:>6.1f} %  {:>6.1f} %", 100 * of_buckets.median_abs,
                        100 * of_buckets.p90_abs);
  }
  return text + "\n";
}

}  // namespace

std::vector<CollectivesResult> validate_collectives(const std::vector<std::string>& paths,
                                                    int jobs) {
  std::vector<MeasuredFile> files = read_all(paths);
  const auto compared =
      std::stable_partition(files.begin(), files.end(),
                            [](const MeasuredFile& file) { return file.name != table_of_peers; });
  const std::vector<MeasuredFile> tables(compared, files.end());
  files.erase(compared, files.end());
  std::vector<CollectivesResult> results;
  results.push_back(
      result_of("every second size, from the others", sizes_bar, predict_sizes(files)));
  results.push_back(
      result_of("every second size of 8 H100, from the others", sizes_bar, predict_sizes(tables)));
  results.back().result.peers = Peers{of_peers, error_of_peers};
  std::vector<Group> groups;
  std::vector<std::size_t> first;  // group of each experiment
  for (const Experiment& experiment : experiments) {
    first.push_back(groups.size());
    for (const MeasuredFile& file : files)
      if (file.calibration)
        for (Group& group : experiment.groups(file, curves_of(file.samples)))
          groups.push_back(std::move(group));
  }
  first.push_back(groups.size());
  const std::vector<std::string> texts = predict_groups(groups, jobs);
  for (std::size_t e = 0; e < experiments.size(); ++e) {
    std::vector<PredictedCurve> curves;
    for (std::size_t i = first[e]; i < first[e + 1]; ++i)
      for (PredictedCurve& curve : curves_from(groups[i], texts[i]))
        curves.push_back(std::move(curve));
    results.push_back(
        result_of(experiments[e].name, experiments[e].most_median_error, std::move(curves)));
  }
  std::erase_if(results, [&](const CollectivesResult& one) { return one.curves.empty(); });
  return results;
}

std::string collectives_table(const CollectivesResult& result) {
  std::string text =
      fmt::format("{:<64}  {:>5}  {:>8}  {:>8}  {:>8}  {:>8}  {:>8}\n", result.result.name, "sizes",
                  "median", "p90", "worst", "1-64 MiB", "p90");
  std::vector<Bytes> sizes;
  for (const PredictedCurve& curve : result.curves) {
    text += errors_line(curve.name, curve.sizes, curve.cases);
    sizes.insert(sizes.end(), curve.sizes.begin(), curve.sizes.end());
  }
  return text + errors_line("all of them", sizes, result.result.cases) +
         validation_summary(result.result);
}

}  // namespace stepcast
