#include "cli/validate_steps.hpp"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>

#include <fmt/format.h>

#include "base/error.hpp"
#include "base/text.hpp"
#include "engine/engine.hpp"
#include "engine/isolate.hpp"
#include "engine/point_job.hpp"
#include "fit/figures.hpp"
#include "input/importer.hpp"

namespace stepcast {
namespace {

constexpr int rounds = 6;  // of derivatives: an overlap makes step times anything but linear

/// In a child: SimGrid answers once in a process.
std::string predict(const ValidationFile& file, const MeasuredCase& one,
                    const std::vector<double>& figures) {
  const Point point = point_of(file, one, figures);
  Job job = job_of(point);
  if (point.scenario.imperfections.straggler)
    throw InputError(fmt::format("{}: case \"{}\"", file.path, one.id),
                     "a periodic straggler makes two kinds of steps; a case measures one");
  Timeline timeline = simulate(job).timeline;
  wait_for_data(point, job, timeline);
  const StepResult result = summarize(point, job, timeline);
  const Basis basis =
      std::max(result.compute_basis, result.communication_basis.value_or(Basis::measured));
  const Split& split = result.split;
  const Band& band = result.band;
  std::string text;
  for (const Seconds time :
       {result.step_time, split.compute, split.exposed_comm, split.host, split.wait,
        split.optimizer, result.overlapped, band.trace.below, band.trace.above,
        band.calibration.below, band.calibration.above, band.computation.below,
        band.computation.above, band.communication.below, band.communication.above})
    text += format_number(time.value()) + ' ';
  return text + to_string(basis);
}

PredictedStep read_prediction(const std::string& text) {
  const std::vector<std::string> words = split(text, ' ');
  const auto time = [&](std::size_t i) { return Seconds{std::stod(words[i])}; };
  const auto margin = [&](std::size_t i) { return Margin{time(i), time(i + 1)}; };
  return {time(0),
          {margin(7), margin(9), margin(11), margin(13)},
          {time(1), time(2), time(3), time(4), time(5)},
          time(6),
          words.back()};
}

std::vector<PredictedStep> predict_all(const ValidationFile& file,
                                       const std::vector<const MeasuredCase*>& cases,
                                       const std::vector<double>& figures, int jobs) {
  const std::vector<Outcome> outcomes = run_isolated(
      cases.size(), jobs, [&](std::size_t i) { return predict(file, *cases[i], figures); });
  std::vector<PredictedStep> steps;
  for (std::size_t i = 0; i < outcomes.size(); ++i) {
    if (outcomes[i].kind == Outcome::Kind::input_error) throw InputError(outcomes[i].text);
    if (outcomes[i].kind == Outcome::Kind::failed)
      throw SimulationError(
          fmt::format("{}: case \"{}\": {}", file.path, cases[i]->id, outcomes[i].text));
    steps.push_back(read_prediction(outcomes[i].text));
  }
  return steps;
}

/// Times are linear in the inverse of a rate, so that is what is fitted.
bool is_rate(const std::string& key) { return key.ends_with("_Bps"); }

double swapped(const FittedKey& key, double value) {
  return is_rate(key.key) ? 1.0 / value : value;
}

/// Sees the cases for fitting and no other.
std::vector<FittedFigure> fit(const ValidationFile& file,
                              const std::vector<const MeasuredCase*>& cases, int jobs) {
  std::vector<SoughtFigure> sought;
  for (const FittedKey& key : file.fit) {
    const auto [least, most] = std::minmax({swapped(key, key.low), swapped(key, key.high)});
    sought.push_back({swapped(key, key.start), least, most});
  }
  std::vector<double> measured;
  for (const MeasuredCase* one : cases) measured.push_back(one->step_time.value());
  // Most derivatives concern the cases of one scenario: none is predicted twice with the same
  // figures.
  std::map<std::pair<const MeasuredCase*, std::vector<double>>, double> known;
  const FiguresModel model = [&](const std::vector<double>& values) {
    std::vector<double> figures;
    for (std::size_t i = 0; i < values.size(); ++i)
      figures.push_back(swapped(file.fit[i], values[i]));
    const auto its_figures = [&](const MeasuredCase* one) {
      std::vector<double> its;
      for (std::size_t i = 0; i < figures.size(); ++i)
        if (concerns(file.fit[i], *one)) its.push_back(figures[i]);
      return std::pair(one, its);
    };
    std::vector<const MeasuredCase*> unknown;
    for (const MeasuredCase* one : cases)
      if (!known.contains(its_figures(one))) unknown.push_back(one);
    const std::vector<PredictedStep> steps = predict_all(file, unknown, figures, jobs);
    for (std::size_t i = 0; i < steps.size(); ++i)
      known[its_figures(unknown[i])] = steps[i].time.value();
    std::vector<double> times;
    for (const MeasuredCase* one : cases) times.push_back(known.at(its_figures(one)));
    return times;
  };
  const FiguresFit found = fit_figures(model, sought, measured, rounds);
  std::vector<FittedFigure> fitted;
  for (std::size_t i = 0; i < sought.size(); ++i) {
    const FittedValue& value = found.figures[i].fitted;
    const double figure = swapped(file.fit[i], value.value);
    // d(1/x) = dx / x^2
    const double error =
        is_rate(file.fit[i].key) ? value.standard_error * figure * figure : value.standard_error;
    const std::string name =
        file.fit[i].key + (file.fit[i].scenario ? " of " + *file.fit[i].scenario : "");
    fitted.push_back({name, figure, error, found.figures[i].held});
  }
  return fitted;
}

constexpr const char* path_setting = "parameters";  // of an importer: FILE or FILE#NAME

/// What an imported model is made of, relative to the validation file.
std::vector<std::string> files_of(const ImportedModel& model) {
  std::vector<std::string> files = model.files;
  if (const auto table = model.settings.find(path_setting); table != model.settings.end())
    files.push_back(table->second.substr(0, table->second.find('#')));
  return files;
}

/// The file's imports as step traces in a folder of their own, while this lives.
class ImportedModels {
 public:
  explicit ImportedModels(ValidationFile& file) {
    if (file.imports.empty()) return;
    std::string name = (std::filesystem::temp_directory_path() / "stepcast.XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr)
      throw SimulationError(fmt::format("cannot make a folder: {}", std::strerror(errno)));
    folder_ = name;
    const std::filesystem::path beside = std::filesystem::path(file.path).parent_path();
    for (const ImportedModel& model : file.imports) {
      ImportRequest request;
      for (const std::string& path : model.files) request.files.push_back(beside / path);
      request.options = model.settings;
      if (const auto table = request.options.find(path_setting); table != request.options.end())
        table->second = (beside / table->second).string();
      const std::filesystem::path trace = folder_ / fmt::format("{}.json", count_++);
      std::ofstream(trace) << (**importers().find(model.format))(request, [](double) {}).trace_json;
      for (auto& [key, scenario] : file.scenarios)
        if (scenario.root().at("model").string() == model.name)
          scenario.set({"model"}, quote_json(trace.string()), "model " + model.name);
    }
  }
  ImportedModels(const ImportedModels&) = delete;
  ImportedModels& operator=(const ImportedModels&) = delete;
  ~ImportedModels() {
    std::error_code error;
    if (!folder_.empty()) std::filesystem::remove_all(folder_, error);
  }

 private:
  std::filesystem::path folder_;
  int count_ = 0;
};

}  // namespace

FileResult validate_steps(const ValidationFile& given, int jobs) {
  ValidationFile file = given;
  FileResult result;
  result.suite = file.suite;
  result.name = file.name;
  result.source = file.source;
  result.machine = file.machine;
  result.derived = file.derived;
  result.peers = file.peers;
  result.bars = file.bars;
  const std::filesystem::path beside = std::filesystem::path(file.path).parent_path();
  for (const ImportedModel& model : file.imports)
    for (const std::string& name : files_of(model))
      if (!std::filesystem::exists(beside / name)) {
        result.skipped = fmt::format("no such file: {}", (beside / name).string());
        return result;
      }
  const ImportedModels imported(file);
  std::vector<const MeasuredCase*> all, for_fit;
  for (const MeasuredCase& one : file.cases) {
    all.push_back(&one);
    if (one.is_fitted) for_fit.push_back(&one);
  }
  if (!file.fit.empty()) result.fitted = fit(file, for_fit, jobs);
  std::vector<double> figures;
  for (const FittedFigure& figure : result.fitted) figures.push_back(figure.value);
  const std::vector<PredictedStep> steps = predict_all(file, all, figures, jobs);
  for (std::size_t i = 0; i < steps.size(); ++i) {
    const MeasuredCase& one = file.cases[i];
    result.cases.push_back({one.id, one.is_fitted, one.step_time, one.noise, steps[i]});
  }
  for (const std::vector<std::size_t>& order : file.orders) {
    std::vector<const CaseResult*> ordered;
    for (const std::size_t place : order) ordered.push_back(&result.cases[place]);
    ++result.orders;
    if (is_order_right(ordered)) ++result.orders_right;
  }
  return result;
}

}  // namespace stepcast
