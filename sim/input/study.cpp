#include "input/study.hpp"

#include <algorithm>
#include <array>
#include <set>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/error.hpp"
#include "base/text.hpp"

namespace stepcast {
namespace {

constexpr std::size_t most_points = 1'000'000;
/// Scenario keys whose value is a file; `platform.nodes` is then a key of that file.
constexpr std::array<const char*, 3> file_keys = {"model", "platform", "calibration"};

struct Axis {
  std::string key;
  std::vector<std::string> values;  ///< JSON text
  std::string where;
};

/// `vary.cluster.gpus` is the key `cluster.gpus` of the object `vary`; all else splits at each dot.
std::vector<std::string> key_path(const Assignment& assignment) {
  const std::string& key = assignment.key;
  std::vector<std::string> path = split(key, '.');
  if (key.starts_with("vary.") && key.size() > 5) path = {"vary", key.substr(5)};
  if (std::any_of(path.begin(), path.end(), [](const std::string& step) { return step.empty(); }))
    throw InputError(assignment.origin,
                     "a key is words joined by dots, such as training.micro_batch");
  return path;
}

/// The scenario and the files it names. Values go wherever their key belongs.
class Documents {
 public:
  Documents(std::filesystem::path path, JsonDocument scenario)
      : scenario_path_(std::move(path)), scenario_(std::move(scenario)) {}

  /// Scenario keys first: they may name the files that the other keys belong to. What was assigned
  /// to a file's keys earlier holds for another file under the same name as well.
  void assign(const std::vector<Assignment>& assignments) {
    for (const Assignment& assignment : assignments) {
      if (is_file_key(assignment.key))
        of_files_.push_back(assignment);
      else
        scenario_.set(key_path(assignment), assignment.value, assignment.origin);
    }
    open_files(read_scenario(scenario_.root()));
    for (const Assignment& assignment : assignments)
      if (is_file_key(assignment.key)) set_in_file(assignment);
  }

  [[nodiscard]] const JsonDocument& scenario() const { return scenario_; }
  [[nodiscard]] const std::map<std::string, InputFile>& files() const { return files_; }
  [[nodiscard]] const JsonDocument* file(const std::string& key) const {
    const auto found = files_.find(key);
    return found == files_.end() ? nullptr : &found->second.document;
  }
  /// Files whose content is another than at the last call of forget_changes().
  [[nodiscard]] bool changed(const std::string& key) const { return changed_.contains(key); }
  void forget_changes() { changed_.clear(); }

 private:
  static bool is_file_key(const std::string& key) {
    return std::any_of(file_keys.begin(), file_keys.end(),
                       [&](const std::string& file) { return key.starts_with(file + "."); });
  }

  void set_in_file(const Assignment& assignment) {
    std::vector<std::string> path = key_path(assignment);
    const auto file = files_.find(path.front());
    if (file == files_.end())
      throw InputError(assignment.origin,
                       fmt::format("the scenario names no {} file", path.front()));
    changed_.insert(path.front());
    path.erase(path.begin());
    file->second.document.set(path, assignment.value, assignment.origin);
  }

  void open_files(const Scenario& scenario) {
    open("model", scenario.model);
    open("platform", scenario.platform);
    open("calibration", scenario.calibration);
  }

  void open(const std::string& key, const std::optional<std::string>& name) {
    const auto known = files_.find(key);
    if (!name) {
      if (known != files_.end()) changed_.insert(key);
      files_.erase(key);
      return;
    }
    const std::filesystem::path path = (scenario_path_.parent_path() / *name).lexically_normal();
    if (known != files_.end() && known->second.path == path.string()) return;
    if (name->empty() || !std::filesystem::exists(path))
      scenario_.root().at(key).fail(
          fmt::format("no such file: \"{}\"", name->empty() ? "" : path.string()));
    changed_.insert(key);
    files_.insert_or_assign(key, InputFile{path.string(), JsonDocument::read_file(path)});
    if (known == files_.end()) return;
    for (const Assignment& assignment : of_files_)
      if (assignment.key.starts_with(key + ".")) set_in_file(assignment);
  }

  std::filesystem::path scenario_path_;
  JsonDocument scenario_;
  std::map<std::string, InputFile> files_;
  std::vector<Assignment> of_files_;
  std::set<std::string> changed_;
};

std::vector<Axis> read_axes(const JsonDocument& scenario, const std::set<std::string>& fixed_keys) {
  std::vector<Axis> axes;
  const auto vary = scenario.root().find("vary");
  if (!vary) return axes;
  std::size_t points = 1;
  for (const auto& [key, values] : vary->members()) {
    if (fixed_keys.contains(key)) continue;
    for (const char* fixed : {"format", "question", "vary"})
      if (key == fixed || key.starts_with(std::string(fixed) + "."))
        values.fail(fmt::format("\"{}\" cannot be varied", fixed));
    Axis axis{key, {}, values.where()};
    for (const JsonView& value : values.elements()) axis.values.push_back(value.dump());
    if (axis.values.empty()) values.fail("must list at least one value");
    if (axis.values.size() > most_points / points)
      vary->fail(fmt::format("gives more than {} points", most_points));
    points *= axis.values.size();
    axes.push_back(std::move(axis));
  }
  return axes;
}

/// A calibration has its own alphas: one of the platform would be set without any effect.
void refuse_idle_alphas(const std::vector<Assignment>& assignments, const Documents& documents) {
  if (documents.file("calibration") == nullptr) return;
  for (const Assignment& assignment : assignments)
    if (assignment.key.starts_with("platform.") && assignment.key.ends_with(".alpha_s"))
      throw InputError(assignment.origin,
                       "has no effect beside a calibration, which has alphas of its own; set "
                       "calibration=null, or one of calibration.protocols");
}

void check_cross_references(const Point& point, const Documents& documents) {
  const JsonView root = documents.scenario().root();
  if (point.scenario.gpus > point.platform->total_gpus())
    root.at("cluster").at("gpus").fail(fmt::format(
        "must be a whole number in [1, {}] ({} nodes of {} GPUs in {}), got {}",
        point.platform->total_gpus(), point.platform->nodes, point.platform->gpus_per_node,
        documents.files().at("platform").path, point.scenario.gpus));
  std::vector<std::int64_t> measured;
  for (const MeasuredStep& step : point.model->measured) measured.push_back(step.micro_batch);
  const std::string known = fmt::format("{}", fmt::join(measured, ", "));
  const std::string& model = documents.files().at("model").path;
  const auto& wanted = point.scenario.training.micro_batch;
  const auto [smallest, largest] = point.model->micro_batches();
  if (wanted && (*wanted < smallest || *wanted > largest))
    root.at("training")
        .at("micro_batch")
        .fail(fmt::format("must be a whole number in [{}, {}], not too far from what {} was "
                          "measured at ({}), got {}",
                          smallest, largest, model, known, *wanted));
  if (point.scenario.training.synchronized_batch_norm && point.model->batch_norms.empty())
    root.at("training")
        .at("synchronized_batch_norm")
        .fail(fmt::format("needs batch_norms in {}: the spans that have a BatchNorm", model));
  if (!wanted && measured.size() > 1)
    root.fail(fmt::format(
        "training.micro_batch must be given: {} was measured at several; known: {}", model, known));
}

}  // namespace

Study load_study(const std::filesystem::path& path, const std::vector<std::string>& sets) {
  std::vector<Assignment> assignments;
  for (const std::string& text : sets) {
    const std::size_t equals = text.find('=');
    if (equals == 0 || equals == std::string::npos)
      throw InputError("--set " + text, "must be key=value, such as training.accumulation_steps=8");
    const std::string key = text.substr(0, equals);
    assignments.push_back({key, text.substr(equals + 1), "--set " + key});
  }
  return load_study(path, JsonDocument::read_file(path), assignments);
}

Study load_study(const std::filesystem::path& path, JsonDocument scenario,
                 const std::vector<Assignment>& sets) {
  std::vector<Assignment> assignments = sets;
  std::set<std::string> fixed_keys;
  for (const Assignment& assignment : sets) fixed_keys.insert(assignment.key);
  Documents base(path, std::move(scenario));
  base.assign(assignments);
  refuse_idle_alphas(assignments, base);
  const std::vector<Axis> axes = read_axes(base.scenario(), fixed_keys);

  const auto model = std::make_shared<const StepTrace>(read_step_trace(base.file("model")->root()));
  const auto platform =
      std::make_shared<const Platform>(read_platform(base.file("platform")->root()));
  const JsonDocument* calibration_file = base.file("calibration");
  const auto calibration =
      calibration_file
          ? std::make_shared<const Calibration>(read_calibration(calibration_file->root()))
          : nullptr;
  base.forget_changes();

  Study study{{path.string(), base.scenario()}, base.files(), {}, {}};
  for (const Axis& axis : axes) study.vary.emplace_back(axis.key, axis.values);
  std::vector<std::size_t> choice(axes.size(), 0);
  while (true) {
    Documents documents = base;
    Point point;
    assignments.clear();
    for (std::size_t i = 0; i < axes.size(); ++i) {
      const std::string& value = axes[i].values[choice[i]];
      assignments.push_back({axes[i].key, value, fmt::format("{}/{}", axes[i].where, choice[i])});
      point.settings.emplace_back(axes[i].key, value);
    }
    documents.assign(assignments);
    refuse_idle_alphas(assignments, documents);
    point.scenario = read_scenario(documents.scenario().root());
    point.model =
        documents.changed("model")
            ? std::make_shared<const StepTrace>(read_step_trace(documents.file("model")->root()))
            : model;
    point.platform =
        documents.changed("platform")
            ? std::make_shared<const Platform>(read_platform(documents.file("platform")->root()))
            : platform;
    point.calibration = calibration;
    if (documents.changed("calibration")) {
      const JsonDocument* file = documents.file("calibration");
      point.calibration =
          file ? std::make_shared<const Calibration>(read_calibration(file->root())) : nullptr;
    }
    check_cross_references(point, documents);
    study.points.push_back(std::move(point));

    std::size_t axis = axes.size();  // the last axis turns fastest
    while (axis > 0 && ++choice[axis - 1] == axes[axis - 1].values.size()) choice[--axis] = 0;
    if (axis == 0) return study;
  }
}

}  // namespace stepcast
