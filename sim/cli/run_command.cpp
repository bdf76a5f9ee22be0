// stepcast run: each point of a scenario simulated in a process of its own, then one result.
#include <cstdint>
#include <cstring>
#include <functional>
#include <set>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/error.hpp"
#include "cli/commands.hpp"
#include "cli/output_file.hpp"
#include "engine/engine.hpp"
#include "engine/isolate.hpp"
#include "report/report.hpp"
#include "result/metrics.hpp"

namespace stepcast {
namespace {

struct Outputs {
  std::optional<OutputFile> json, csv, trace;
  [[nodiscard]] bool use_stdout() const {
    for (const auto* file : {&json, &csv, &trace})
      if (*file && (*file)->is_stdout()) return true;
    return false;
  }
};

Outputs open_outputs(const RunOptions& options, const Study& study) {
  std::vector<std::string> inputs = {study.scenario.path};
  for (const auto& [key, file] : study.files) inputs.push_back(file.path);
  Outputs outputs;
  if (options.json) outputs.json.emplace("-o", *options.json, inputs);
  if (options.csv) outputs.csv.emplace("--csv", *options.csv, inputs);
  if (options.trace) outputs.trace.emplace("--trace", *options.trace, inputs);
  return outputs;
}

MeanTimes isolated_times(const std::function<MeanTimes()>& work) {
  const Outcome outcome =
      run_isolated(1, 1, [&](std::size_t) {
        const MeanTimes times = work();
        return std::string(reinterpret_cast<const char*>(times.data()), sizeof times);
      }).front();
  if (outcome.kind != Outcome::Kind::done) throw SimulationError(outcome.text);
  MeanTimes times;
  std::memcpy(times.data(), outcome.text.data(), sizeof times);
  return times;
}

/// In the child: the point's JSON on the first line, then its trace events, one a line.
std::string simulate_point(const Study& study, std::size_t index, const RunOptions& options) {
  const Point& point = study.points[index];
  Job job = job_of(point);
  bool used_simgrid = options.engine == EngineKind::simgrid;
  const auto timeline_of = [&](const Job& what) {
    if (options.engine == EngineKind::simgrid) return simulate_with_simgrid(what);
    if (options.engine == EngineKind::analytic) return simulate_analytically(what);
    Simulation simulation = simulate(what);
    used_simgrid = simulation.used_simgrid;
    return std::move(simulation.timeline);
  };
  std::optional<MeanTimes> late_times;
  if (auto late = late_job_of(point, job))  // in a process of its own, for SimGrid's sake
    late_times = isolated_times([&] {
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
  if (options.trace)
    for (const std::string& event :
         chrome_trace_events(job, timeline, index, point_name(point), options.trace_ranks))
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

void run_scenario(const std::string& path, const RunOptions& options) {
  const Study study = load_study(path, options.sets);
  const Outputs outputs = open_outputs(options, study);
  const std::vector<Outcome> outcomes =
      run_isolated(study.points.size(), options.jobs,
                   [&](std::size_t index) { return simulate_point(study, index, options); });

  std::vector<std::string> points;
  std::vector<std::string> events;
  for (std::size_t i = 0; i < outcomes.size(); ++i) {
    const Outcome& outcome = outcomes[i];
    if (outcome.kind == Outcome::Kind::input_error) throw InputError(outcome.text);
    if (outcome.kind == Outcome::Kind::failed)
      throw SimulationError(
          fmt::format("{}: {}: {}", path, point_name(study.points[i]), outcome.text));
    std::size_t begin = 0;
    for (std::size_t end = 0; end != std::string::npos; begin = end + 1) {
      end = outcome.text.find('\n', begin);
      (begin == 0 ? points : events).push_back(outcome.text.substr(begin, end - begin));
    }
  }

  warn_of_foreign_inputs(study);
  std::vector<JsonDocument> documents;
  for (const std::string& point : points) documents.push_back(JsonDocument::parse(point, "point"));
  if (outputs.json) outputs.json->write(result_json(study, points));
  if (outputs.csv) outputs.csv->write(result_csv(documents));
  if (outputs.trace) outputs.trace->write(chrome_trace(events));
  if (!outputs.use_stdout()) {
    const auto name_of = [&](const char* file) {
      return study.files.at(file).document.root().at("name").string();
    };
    fmt::print("{}\n{} on {}, {}\n\n{}\n{}", study.scenario.document.root().at("question").string(),
               name_of("model"), name_of("platform"),
               study.files.contains("calibration") ? "calibrated with " + name_of("calibration")
                                                   : "not calibrated",
               result_table(documents), result_notes(documents));
  }
}

}  // namespace

int run_command(const RunOptions& options) {
  for (const std::string& scenario : options.scenarios) {
    if (&scenario != &options.scenarios.front()) fmt::print("\n");
    run_scenario(scenario, options);
  }
  return 0;
}

}  // namespace stepcast
