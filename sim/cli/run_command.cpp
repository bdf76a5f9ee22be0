// stepcast run: each point of a scenario simulated in a process of its own, then one result.
#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/error.hpp"
#include "base/text.hpp"
#include "base/version.hpp"
#include "cli/answer.hpp"
#include "cli/commands.hpp"
#include "cli/distribute.hpp"
#include "cli/point_store.hpp"
#include "cli/progress.hpp"
#include "cli/ranks.hpp"
#include "cli/result_files.hpp"
#include "cli/shard.hpp"
#include "engine/engine.hpp"
#include "engine/isolate.hpp"
#include "engine/network.hpp"
#include "engine/point_job.hpp"
#include "report/report.hpp"
#include "result/metrics.hpp"

namespace stepcast {
namespace {

ResultFiles open_outputs(const RunOptions& options, const Study& study) {
  std::vector<std::string> inputs = {study.scenario.path};
  for (const auto& [key, file] : study.files) inputs.push_back(file.path);
  ResultFiles outputs;
  if (options.json) outputs.json.emplace("-o", *options.json, inputs);
  if (options.csv) outputs.csv.emplace("--csv", *options.csv, inputs);
  if (options.trace) outputs.trace.emplace("--trace", *options.trace, inputs);
  return outputs;
}

/// Control characters become spaces.
std::string one_line(std::string text) {
  std::replace_if(
      text.begin(), text.end(), [](char c) { return static_cast<unsigned char>(c) < ' '; }, ' ');
  return text;
}

/// In a child: the point's JSON on the first line, then its trace events, one a line.
std::string simulate_point(Point point, const RunOptions& options,
                           std::optional<std::size_t> traced_as) {
  point.scenario.collective.fold = options.fold;
  Job job = job_of(point);
  bool used_simgrid = options.engine == EngineKind::simgrid;
  const auto timeline_of = [&](const Job& what) {
    if (options.engine == EngineKind::simgrid) return simulate_with_simgrid(what);
    if (options.engine == EngineKind::analytic) return simulate_analytically(what);
    Simulation simulation = simulate(what);
    used_simgrid = simulation.used_simgrid;
    return std::move(simulation.timeline);
  };
  std::optional<std::vector<double>> late_times;
  if (auto late = late_job_of(point, job))  // in a process of its own, for SimGrid's sake
    late_times = isolated_numbers([&] {
      Timeline timeline = timeline_of(*late);
      wait_for_data(point, *late, timeline);
      return mean_times(summarize(point, *late, timeline));
    });
  Timeline timeline = timeline_of(job);
  wait_for_data(point, job, timeline);
  StepResult result = summarize(point, job, timeline);
  if (late_times)
    mix(result, *late_times,
        1.0 / static_cast<double>(point.scenario.imperfections.straggler->every_steps));
  std::string answer = point_json(point, result, used_simgrid ? "simgrid" : "analytic");
  if (traced_as)
    for (const std::string& event :
         chrome_trace_events(job, timeline, *traced_as, point_name(point), options.trace_ranks))
      answer += "\n" + event;
  return answer;
}

/// Says once what is replayed on other machines than it was measured on.
void warn_of_foreign_inputs(const Study& study) {
  std::set<std::string> warnings;
  for (const Point& point : study.points) {
    const Platform& platform = *point.platform;
    if (point.model->gpu != platform.gpu.name)
      warnings.insert(fmt::format(
          "the trace of {} was recorded on {}, not on {}: computation is replayed as it was",
          point.model->name, point.model->gpu, platform.gpu.name));
    std::vector<std::int64_t> measured;
    for (const MeasuredStep& step : point.model->measured) measured.push_back(step.micro_batch);
    const std::int64_t wanted = point.scenario.training.micro_batch.value_or(measured.front());
    if (wanted < measured.front() || wanted > measured.back())
      warnings.insert(
          fmt::format("the trace of {} was measured at a micro-batch of {}: outside computation is "
                      "extrapolated",
                      point.model->name, fmt::join(measured, ", ")));
    if (point.calibration != nullptr)
      if (const std::string warning = foreign_platform(*point.calibration, platform);
          !warning.empty())
        warnings.insert(warning);
  }
  for (const std::string& warning : warnings)
    fmt::print(stderr, "stepcast: warning: {}\n", warning);
}

/// What the points of a run depend on.
std::uint64_t fingerprint_of_run(const RunOptions& options, const Study& study) {
  std::uint64_t fingerprint = study.fingerprint;
  const std::string trace_ranks = options.trace ? std::to_string(options.trace_ranks) : "none";
  const std::string engine = std::to_string(static_cast<int>(options.engine));
  const std::string fold = options.fold ? "fold" : "no fold";
  for (const std::string& text :
       {std::string(version), std::string(revision), simgrid_version(), engine, trace_ranks, fold})
    fingerprint = fingerprint_of(text, fingerprint);
  return fingerprint;
}

/// Points that are done stand beside the result until it is written.
std::unique_ptr<PointStore> open_store(const RunOptions& options, const Study& study,
                                       const ResultFiles& outputs) {
  const std::size_t points = study.points.size();
  if (points == 1 || !outputs.json || !outputs.json->is_regular())
    return std::make_unique<PointStore>(points);
  std::uint64_t fingerprint = fingerprint_of_run(options, study);
  if (options.shard)
    fingerprint = fingerprint_of(fmt::format("{}/{}", options.shard->number, options.shard->count),
                                 fingerprint);
  std::filesystem::path path = outputs.json->path();
  path += ".part";
  return std::make_unique<PointStore>(path, fingerprint, points, options.resume);
}

/// Failures of a sweep, each on stderr as it comes. Until a point is done they may all be one
/// mistake in the input, and are held back.
class Failures {
 public:
  Failures(std::size_t points, bool any_done) : points_(points), any_done_(any_done) {}

  [[nodiscard]] std::size_t count() const { return count_; }
  void add(std::size_t index, const Outcome& outcome, const std::string& name, Progress& progress) {
    ++count_;
    const std::string line = fmt::format("{}: {}", name, outcome.text);
    if (outcome.kind != Outcome::Kind::input_error) only_input_ = false;
    if (index <= first_) {
      first_ = index;
      first_is_input_ = outcome.kind == Outcome::Kind::input_error;
      first_text_ = first_is_input_ ? outcome.text : line;
    }
    held_.push_back("stepcast: " + one_line(line));
    if (any_done_ || !only_input_) release(progress);
  }
  void point_done(Progress& progress) {
    any_done_ = true;
    release(progress);
  }
  /// Throws when the only point failed, or all did because the input is wrong.
  void end() const {
    if (count_ < points_ || (points_ > 1 && !only_input_)) return;
    if (first_is_input_) throw InputError(first_text_);
    throw SimulationError(first_text_);
  }

 private:
  void release(Progress& progress) {
    if (points_ > 1)
      for (const std::string& line : held_) progress.say(line);
    held_.clear();
  }

  std::size_t points_;
  bool any_done_;
  std::size_t count_ = 0;
  bool only_input_ = true;
  std::size_t first_ = std::numeric_limits<std::size_t>::max();
  bool first_is_input_ = false;
  std::string first_text_;
  std::vector<std::string> held_;
};

using Done = std::function<void(std::size_t, const Outcome&)>;
using Say = std::function<void(const std::string&)>;
/// Simulates points of a study, here or elsewhere.
using Runner =
    std::function<void(const Study&, const std::vector<std::size_t>&, const Done&, const Say&)>;

std::function<std::string(std::size_t)> simulator(const Study& study, const RunOptions& options) {
  return [&](std::size_t index) {
    return simulate_point(study.points[index], options,
                          options.trace ? std::optional(index) : std::nullopt);
  };
}

/// Simulates those of the points that are not in the store yet. Returns how many failed.
std::size_t simulate_all(const std::string& path, const Study& study, const RunOptions& options,
                         const std::vector<std::size_t>& points, const Runner& runner,
                         PointStore& store) {
  std::vector<std::size_t> missing;
  for (const std::size_t i : points)
    if (!store.has(i)) missing.push_back(i);
  if (missing.empty()) return 0;
  Progress progress(points.size() - missing.size(), points.size(), "points");
  // Other parts may be right: then there is a result, in which the failures of this one stand.
  Failures failures(points.size() + (options.shard ? 1 : 0),
                    options.shard || missing.size() < points.size());
  try {
    runner(
        study, missing,
        [&](std::size_t index, const Outcome& outcome) {
          if (outcome.kind == Outcome::Kind::done) {
            std::vector<std::string> lines = split(outcome.text, '\n');
            const std::string point = std::move(lines.front());
            lines.erase(lines.begin());
            store.add(index, point, lines);
            failures.point_done(progress);
          } else {
            const Point point = study.points[index];
            failures.add(index, outcome, fmt::format("{}: {}", path, point_name(point)), progress);
            store.add(index, failed_point_json(point, outcome.text), {});
          }
          progress.advance();
        },
        [&](const std::string& line) { progress.say("stepcast: " + one_line(line)); });
    failures.end();
  } catch (const InputError&) {  // there is nothing to go on with
    if (missing.size() == points.size()) store.remove();
    throw;
  } catch (const SimulationError&) {
    if (failures.count() == points.size()) store.remove();
    throw;
  }
  return failures.count();
}

/// The part of a sweep that stepcast merge reads.
void write_shard(const OutputFile& file, const Shard& shard, const RunOptions& options,
                 const Study& study, const std::vector<std::size_t>& points,
                 const PointStore& store) {
  std::size_t line = 0;
  file.write([&]() -> std::optional<std::string> {
    const std::size_t now = line++;
    if (now == 0)
      return shard_line({fingerprint_of_run(options, study), shard, study.points.size(),
                         result_json_begin(study)});
    if (now > points.size()) return std::nullopt;
    return shard_line(points[now - 1], store.point(points[now - 1]));
  });
}

constexpr std::size_t most_shown = 1000;  // lines of a table

void print_heading(const Study& study) {
  const auto name_of = [&](const char* file) {
    return study.files.at(file).document.root().at("name").string();
  };
  fmt::print("{}\n{} on {}, {}\n\n", study.scenario.document.root().at("question").string(),
             name_of("model"), name_of("platform"),
             study.files.contains("calibration") ? "calibrated with " + name_of("calibration")
                                                 : "not calibrated");
}

void print_rest(std::size_t points) {
  if (points > most_shown) fmt::print("... and {} more points\n", points - most_shown);
}

int run_scenario(const std::string& path, const RunOptions& options, const Runner& runner) {
  const Study study = load_study(path, options.sets);
  const std::size_t count = study.points.size();
  if (options.dry_run) {
    print_heading(study);
    fmt::print("{}", points_table(study, most_shown));
    print_rest(count);
    return 0;
  }
  const ResultFiles outputs = open_outputs(options, study);
  const std::unique_ptr<PointStore> store = open_store(options, study, outputs);
  const std::vector<std::size_t> points = points_of(options.shard.value_or(Shard{}), count);
  const std::size_t failed = simulate_all(path, study, options, points, runner, *store);
  warn_of_foreign_inputs(study);
  if (options.shard)
    write_shard(*outputs.json, *options.shard, options, study, points, *store);
  else
    write_results(outputs, result_json_begin(study), *store);
  store->remove();
  std::string words;
  if (options.answer)
    words = answer(study, [&](std::size_t index) { return store->point(index); },
                   {options.threshold, options.jobs, [&](const Point& point) {
                      return simulate_point(point, options, std::nullopt);
                    }});
  if (!outputs.use_stdout() && !points.empty()) {
    std::vector<JsonDocument> shown;
    for (const std::size_t i : points)
      if (shown.size() < most_shown) shown.push_back(JsonDocument::parse(store->point(i), "point"));
    print_heading(study);
    fmt::print("{}", result_table(shown));
    print_rest(points.size());
    fmt::print("\n{}", result_notes(shown));
  }
  if (!words.empty()) fmt::print(outputs.use_stdout() ? stderr : stdout, "\n{}", words);
  if (failed > 0) fmt::print(stderr, "stepcast: {} of {} points failed\n", failed, points.size());
  return failed > 0 ? 1 : 0;
}

RankWork work_of_rank(const Study& study, const RunOptions& options) {
  return {options.jobs, fmt::format("{:016x}", fingerprint_of_run(options, study)),
          simulator(study, options)};
}

/// Rank 0 of those that mpirun started: it has the files and the points, the others help.
int run_on_ranks(const RunOptions& options) {
  bool are_waiting = true;
  const auto dismiss = [&] {
    if (std::exchange(are_waiting, false)) dismiss_ranks();
  };
  try {
    const int code = run_scenario(options.scenarios.front(), options,
                                  [&](const Study& study, const std::vector<std::size_t>& indices,
                                      const Done& done, const Say& say) {
                                    are_waiting = false;
                                    distribute(indices, work_of_rank(study, options), done, say);
                                  });
    dismiss();
    return code;
  } catch (...) {
    dismiss();
    throw;
  }
}

/// Any other rank. Rank 0 says what is wrong, once.
int help_rank_0(const RunOptions& options) {
  std::optional<Study> study;
  try {
    study.emplace(load_study(options.scenarios.front(), options.sets));
  } catch (const std::exception& error) {
    return refuse_rank(error.what()) ? 0 : 1;
  }
  return serve_rank(work_of_rank(*study, options)) ? 0 : 1;
}

int run_with_mpi(const RunOptions& options) {
  const int rank = team().rank;
  if (!mpi_is_built) {
    if (rank == 0)
      fmt::print(stderr,
                 "stepcast: mpirun: this stepcast was built without MPI; cmake "
                 "-DSTEPCAST_MPI=ON builds it in\n");
    return 3;
  }
  if (options.scenarios.size() > 1) throw InputError("mpirun", "runs one scenario at a time");
  return rank == 0 ? run_on_ranks(options) : help_rank_0(options);
}

}  // namespace

int run_command(const RunOptions& options) {
  if (team().size > 1) return run_with_mpi(options);
  int code = 0;
  for (const std::string& scenario : options.scenarios) {
    if (&scenario != &options.scenarios.front()) fmt::print("\n");
    code = std::max(
        code, run_scenario(scenario, options,
                           [&](const Study& study, const std::vector<std::size_t>& indices,
                               const Done& done, const Say&) {
                             run_isolated(indices, options.jobs, simulator(study, options), done);
                           }));
  }
  return code;
}

}  // namespace stepcast
