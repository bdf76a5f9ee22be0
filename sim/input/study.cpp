#include "input/study.hpp"

#include <algorithm>
#include <array>
#include <glob.h>
#include <set>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/error.hpp"
#include "base/text.hpp"
#include "input/constraint.hpp"

namespace stepcast {
namespace {

constexpr std::size_t most_points = 1'000'000;
/// Scenario keys whose value is a file; `platform.nodes` is then a key of that file.
constexpr std::array<const char*, 3> file_keys = {"model", "platform", "calibration"};

struct Axis {
  std::string key;
  std::vector<std::string> values;  ///< JSON text
  std::vector<std::string> where;   ///< what errors about each value name
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

/// What the files say, each read once.
using Files = std::map<std::string, std::shared_ptr<const InputFile>>;

/// The scenario and the files it names. Values go wherever their key belongs. Copies share the
/// files until one sets a key of them.
class Documents {
 public:
  Documents(std::filesystem::path folder, JsonDocument scenario, std::shared_ptr<Files> known)
      : folder_(std::move(folder)), scenario_(std::move(scenario)), known_(std::move(known)) {}

  /// Scenario keys first: they may name the files that the other keys belong to. What was assigned
  /// to a file's keys earlier holds for another file under the same name as well. Returns the
  /// scenario with all of it in place.
  Scenario assign(const std::vector<Assignment>& assignments) {
    for (const Assignment& assignment : assignments) {
      if (is_file_key(assignment.key))
        of_files_.push_back(assignment);
      else
        scenario_.set(key_path(assignment), assignment.value, assignment.origin);
    }
    Scenario scenario = read_scenario(scenario_.root());
    open("model", scenario.model);
    open("platform", scenario.platform);
    open("calibration", scenario.calibration);
    for (const Assignment& assignment : assignments)
      if (is_file_key(assignment.key)) set_in_file(assignment);
    return scenario;
  }

  [[nodiscard]] const JsonDocument& scenario() const { return scenario_; }
  /// Keys that no point needs: a long list would be copied for each.
  void forget(const std::string& key) { scenario_.remove(key); }
  /// Null when the scenario names none.
  [[nodiscard]] const InputFile* file(const std::string& key) const {
    const auto found = files_.find(key);
    return found == files_.end() ? nullptr : found->second.get();
  }
  /// Two documents are equal when the signatures are.
  [[nodiscard]] std::string signature(const std::string& key) const {
    std::string text = files_.at(key)->path;
    for (const Assignment& assignment : of_files_)
      if (assignment.key.starts_with(key + "."))
        text += "\n" + assignment.key + "=" + assignment.value;
    return text;
  }

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
    path.erase(path.begin());
    auto changed = std::make_shared<InputFile>(*file->second);
    changed->document.set(path, assignment.value, assignment.origin);
    file->second = std::move(changed);
  }

  void open(const std::string& key, const std::optional<std::string>& name) {
    const auto opened = files_.find(key);
    if (!name) {
      files_.erase(key);
      return;
    }
    const std::filesystem::path path = (folder_ / *name).lexically_normal();
    if (opened != files_.end() && opened->second->path == path.string()) return;
    const bool is_new = opened == files_.end();
    std::shared_ptr<const InputFile>& file = (*known_)[path.string()];
    if (file == nullptr) {
      if (name->empty() || !std::filesystem::exists(path))
        scenario_.root().at(key).fail(
            fmt::format("no such file: \"{}\"", name->empty() ? "" : path.string()));
      file = std::make_shared<const InputFile>(
          InputFile{path.string(), JsonDocument::read_file(path)});
    }
    files_.insert_or_assign(key, file);
    if (is_new) return;
    for (const Assignment& assignment : of_files_)
      if (assignment.key.starts_with(key + ".")) set_in_file(assignment);
  }

  std::filesystem::path folder_;
  JsonDocument scenario_;
  std::shared_ptr<Files> known_;
  Files files_;  // by key
  std::vector<Assignment> of_files_;
};

// A scenario and its bases ------------------------------------------------------------------------

/// Calls `change(path, view)` for each value of a scenario that is the name of a file.
template <class Change>
void for_each_file_name(const JsonDocument& document, const Change& change) {
  const auto visit = [&](const std::vector<std::string>& path, const JsonView& value) {
    if (value.is_string()) change(path, value);
  };
  const auto visit_axis = [&](std::vector<std::string> path, const JsonView& value) {
    if (value.is_object()) {
      path.emplace_back("glob");
      if (const auto pattern = value.find("glob")) visit(path, *pattern);
    } else {
      visit(path, value);
    }
  };
  const JsonView root = document.root();
  for (const std::string key : file_keys) {
    if (const auto name = root.find(key)) visit({key}, *name);
    const auto vary = root.find("vary");
    const auto axis = vary && vary->is_object() ? vary->find(key) : std::nullopt;
    if (axis && axis->is_array()) {
      const auto values = axis->elements();
      for (std::size_t i = 0; i < values.size(); ++i)
        visit_axis({"vary", key, std::to_string(i)}, values[i]);
    } else if (axis) {
      visit_axis({"vary", key}, *axis);
    }
    const auto cases = root.find("cases");
    if (!cases || !cases->is_array()) continue;
    const auto all = cases->elements();
    for (std::size_t i = 0; i < all.size(); ++i) {
      const auto set = all[i].is_object() ? all[i].find("set") : std::nullopt;
      const auto name = set && set->is_object() ? set->find(key) : std::nullopt;
      if (name) visit({"cases", std::to_string(i), "set", key}, *name);
    }
  }
}

/// Reads a scenario and what it inherits by `base`. File names of a base count from its own folder.
JsonDocument read_with_bases(const std::filesystem::path& path,
                             std::vector<std::filesystem::path>& chain) {
  JsonDocument document = JsonDocument::read_file(path);
  const JsonView root = document.root();
  root.expect_format("stepcast.scenario/1");
  const auto base = root.find("base");
  if (!base) return document;
  const std::filesystem::path base_path = (path.parent_path() / base->string()).lexically_normal();
  if (base->string().empty() || !std::filesystem::exists(base_path))
    base->fail(
        fmt::format("no such file: \"{}\"", base->string().empty() ? "" : base_path.string()));
  chain.push_back(std::filesystem::canonical(path));
  if (std::find(chain.begin(), chain.end(), std::filesystem::canonical(base_path)) != chain.end())
    base->fail(fmt::format("{} inherits from itself", base_path.string()));
  JsonDocument inherited = read_with_bases(base_path, chain);
  if (base_path.parent_path() != path.parent_path().lexically_normal()) {
    std::vector<std::pair<std::vector<std::string>, JsonView>> names;
    for_each_file_name(inherited, [&](const std::vector<std::string>& at, const JsonView& name) {
      names.emplace_back(at, name);
    });
    std::vector<Assignment> moved;
    const std::filesystem::path folder =
        std::filesystem::absolute(base_path).parent_path().lexically_proximate(
            std::filesystem::absolute(path).parent_path());
    for (const auto& [at, name] : names)
      moved.push_back(
          {"", quote_json((folder / name.string()).lexically_normal().string()), name.where()});
    for (std::size_t i = 0; i < names.size(); ++i)
      inherited.set(names[i].first, moved[i].value, moved[i].origin);
  }
  document.remove("base");
  document.inherit(inherited);
  return document;
}

JsonDocument read_with_bases(const std::filesystem::path& path) {
  std::vector<std::filesystem::path> chain;
  return read_with_bases(path, chain);
}

// What varies -------------------------------------------------------------------------------------

void refuse_fixed(const std::string& key, const JsonView& value) {
  for (const char* fixed : {"format", "question", "base", "vary", "cases", "constraints", "case"})
    if (key == fixed || key.starts_with(std::string(fixed) + "."))
      value.fail(fmt::format("\"{}\" cannot be varied", fixed));
}

/// The files that fit the pattern in `{"glob": "../models/*.json"}`, by name, as JSON texts.
std::vector<std::string> matching_files(const std::filesystem::path& folder, const std::string& key,
                                        const JsonView& value) {
  if (std::find(file_keys.begin(), file_keys.end(), key) == file_keys.end())
    value.fail(fmt::format("only the files {} can be given by a glob", fmt::join(file_keys, ", ")));
  value.allow_only({"glob"});
  const JsonView pattern = value.at("glob");
  const std::string wanted = pattern.string();
  std::string prefix;  // what counts as it is written
  const std::string folder_name = folder.string();
  if (!folder.empty() && !std::filesystem::path(wanted).is_absolute())
    prefix = folder_name + (folder_name.ends_with('/') ? "" : "/");
  std::string escaped;
  for (const char c : prefix) {
    if (std::string_view("*?[\\").find(c) != std::string_view::npos) escaped += '\\';
    escaped += c;
  }
  glob_t found{};
  const int problem = ::glob((escaped + wanted).c_str(), GLOB_ERR, nullptr, &found);
  std::vector<std::string> names;
  for (std::size_t i = 0; problem == 0 && i < found.gl_pathc; ++i)
    names.push_back(quote_json(std::string(found.gl_pathv[i]).substr(prefix.size())));
  ::globfree(&found);
  if (names.empty()) pattern.fail(fmt::format("no file is named like \"{}\"", wanted));
  return names;
}

std::vector<Axis> read_axes(const JsonDocument& scenario, const std::filesystem::path& folder,
                            const std::set<std::string>& fixed_keys, std::size_t points) {
  std::vector<Axis> axes;
  const auto vary = scenario.root().find("vary");
  if (!vary) return axes;
  for (const auto& [key, values] : vary->members()) {
    if (fixed_keys.contains(key)) continue;
    refuse_fixed(key, values);
    Axis axis{key, {}, {}};
    const auto add = [&](const std::string& text, const std::string& where) {
      axis.values.push_back(text);
      axis.where.push_back(where);
    };
    const auto add_files = [&, name = key](const JsonView& pattern) {
      for (const std::string& file : matching_files(folder, name, pattern))
        add(file, pattern.where());
    };
    std::size_t place = 0;
    if (values.is_object())
      add_files(values);
    else
      for (const JsonView& value : values.elements()) {
        const std::string where = fmt::format("{}/{}", values.where(), place++);
        if (value.is_object() && value.find("glob"))
          add_files(value);
        else
          add(value.dump(), where);
      }
    if (axis.values.empty()) values.fail("must list at least one value");
    if (axis.values.size() > most_points / points)
      vary->fail(fmt::format("gives more than {} points", most_points));
    points *= axis.values.size();
    axes.push_back(std::move(axis));
  }
  return axes;
}

struct ReadCase {
  Case shown;
  std::vector<Assignment> assignments;
};

std::vector<ReadCase> read_cases(const JsonDocument& scenario,
                                 const std::set<std::string>& fixed_keys) {
  std::vector<ReadCase> cases;
  const auto list = scenario.root().find("cases");
  if (!list) return cases;
  const auto vary = scenario.root().find("vary");
  for (const JsonView& entry : list->elements()) {
    entry.allow_only({"name", "set"});
    ReadCase one;
    one.shown.name = entry.at("name").string();
    for (const ReadCase& other : cases)
      if (other.shown.name == one.shown.name)
        entry.at("name").fail(fmt::format("\"{}\" stands twice", one.shown.name));
    for (const auto& [key, value] : entry.at("set").members()) {
      refuse_fixed(key, value);
      one.shown.set.emplace_back(key, value.dump());
      if (fixed_keys.contains(key)) continue;
      if (vary && vary->find(key)) value.fail("is varied by \"vary\" as well");
      one.assignments.push_back({key, value.dump(), value.where()});
    }
    cases.push_back(std::move(one));
  }
  return cases;
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
        documents.file("platform")->path, point.scenario.gpus));
  std::vector<std::int64_t> measured;
  for (const MeasuredStep& step : point.model->measured) measured.push_back(step.micro_batch);
  const std::string known = fmt::format("{}", fmt::join(measured, ", "));
  const std::string& model = documents.file("model")->path;
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

/// What was read from a file, for each content that it had; a few of them are kept.
template <class T>
class Parsed {
 public:
  template <class Read>
  std::shared_ptr<const T> get(const Documents& documents, const std::string& key,
                               const Read& read) {
    constexpr std::size_t most_kept = 64;
    const InputFile* file = documents.file(key);
    if (file == nullptr) return nullptr;
    std::string signature = documents.signature(key);
    const auto known = kept_.find(signature);
    if (known != kept_.end()) return known->second;
    if (kept_.size() >= most_kept) kept_.clear();
    return kept_[std::move(signature)] = std::make_shared<const T>(read(file->document.root()));
  }

 private:
  std::map<std::string, std::shared_ptr<const T>> kept_;
};

/// Value of a key for constraints. Those that have a default have it here too.
std::optional<ConstraintValue> value_of(const std::string& key, const Point& point,
                                        const Documents& documents, const std::string& case_name) {
  const TrainingSettings& training = point.scenario.training;
  const auto whole = [](std::int64_t value) { return static_cast<double>(value); };
  if (key == "case") return case_name;
  if (key == "training.micro_batch")
    return whole(training.micro_batch.value_or(point.model->measured.front().micro_batch));
  if (key == "training.accumulation_steps") return whole(training.accumulation_steps);
  if (key == "training.sync") return to_string(training.sync);
  if (key == "training.accumulation") return to_string(training.accumulation);
  if (key == "training.bucket_cap_bytes") return whole(training.bucket_cap_bytes);
  if (key == "training.first_bucket_bytes") return whole(training.first_bucket_bytes);
  if (key == "training.broadcast_buffers") return training.broadcast_buffers;
  if (key == "collective.algorithm")
    return point.scenario.collective.algorithm.value.value_or("auto");
  if (key == "collective.protocol")
    return point.scenario.collective.protocol.value.value_or("auto");

  std::vector<std::string> path = split(key, '.');
  std::optional<JsonView> value = documents.scenario().root();
  const InputFile* file = path.size() > 1 ? documents.file(path.front()) : nullptr;
  if (file != nullptr) {
    value = file->document.root();
    path.erase(path.begin());
  }
  for (const std::string& step : path) {
    if (value->is_array()) {
      const auto elements = value->elements();
      const bool is_place = !step.empty() && step.size() < 9 &&
                            step.find_first_not_of("0123456789") == std::string::npos;
      if (!is_place || std::stoul(step) >= elements.size()) return std::nullopt;
      value = elements[std::stoul(step)];
    } else if (value->is_object()) {
      value = value->find(step);
      if (!value) return std::nullopt;
    } else {
      return std::nullopt;
    }
  }
  if (value->is_string()) return value->string();
  if (value->is_number()) return value->number();
  if (value->is_boolean()) return value->boolean();
  return std::nullopt;
}

}  // namespace

struct Points::Maker {
  Documents base;
  std::vector<ReadCase> cases;
  std::vector<Axis> axes;
  std::vector<std::pair<std::string, std::string>> constraints;  ///< expression, where it stands
  std::vector<std::uint32_t> kept;                               ///< those that meet them
  Parsed<StepTrace> models;
  Parsed<Platform> platforms;
  Parsed<Calibration> calibrations;

  [[nodiscard]] std::size_t combinations() const {
    std::size_t count = std::max<std::size_t>(1, cases.size());
    for (const Axis& axis : axes) count *= axis.values.size();
    return count;
  }

  /// One of all combinations; empty when a constraint drops it.
  std::optional<Point> make(std::size_t combination) {
    Point point;
    std::vector<Assignment> assignments;
    for (std::size_t i = axes.size(); i-- > 0;) {  // the last axis turns fastest
      const Axis& axis = axes[i];
      const std::size_t choice = combination % axis.values.size();
      combination /= axis.values.size();
      assignments.push_back({axis.key, axis.values[choice], axis.where[choice]});
      point.settings.emplace_back(axis.key, axis.values[choice]);
    }
    std::string case_name;
    if (!cases.empty()) {
      const ReadCase& one = cases[combination];
      case_name = one.shown.name;
      assignments.insert(assignments.end(), one.assignments.rbegin(), one.assignments.rend());
      point.settings.emplace_back("case", quote_json(case_name));
    }
    std::reverse(assignments.begin(), assignments.end());
    std::reverse(point.settings.begin(), point.settings.end());

    Documents documents = base;
    point.scenario = documents.assign(assignments);
    refuse_idle_alphas(assignments, documents);
    point.model = models.get(documents, "model", read_step_trace);
    point.platform = platforms.get(documents, "platform", read_platform);
    point.calibration = calibrations.get(documents, "calibration", read_calibration);
    for (const auto& [expression, where] : constraints)
      if (!constraint_holds(
              expression,
              [&](const std::string& key) { return value_of(key, point, documents, case_name); },
              where))
        return std::nullopt;
    check_cross_references(point, documents);
    return point;
  }
};

std::size_t Points::size() const { return maker_->kept.size(); }

Point Points::operator[](std::size_t index) const { return *maker_->make(maker_->kept.at(index)); }

std::uint64_t fingerprint_of(const std::string& text, std::uint64_t hash) {
  constexpr std::uint64_t prime = 0x100000001b3;  // of FNV-1a, 64 bits
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * prime;
  return (hash ^ 0xff) * prime;  // no character of a text
}

Study load_study(const std::filesystem::path& path, const std::vector<std::string>& sets) {
  std::vector<Assignment> assignments;
  for (const std::string& text : sets) {
    const std::size_t equals = text.find('=');
    if (equals == 0 || equals == std::string::npos)
      throw InputError("--set " + text, "must be key=value, such as training.accumulation_steps=8");
    const std::string key = text.substr(0, equals);
    if (key == "base") throw InputError("--set base", "can only be given in the file");
    assignments.push_back({key, text.substr(equals + 1), "--set " + key});
  }
  return load_study(path, read_with_bases(path), assignments);
}

Study load_study(const std::filesystem::path& path, JsonDocument whole,
                 const std::vector<Assignment>& assignments) {
  std::set<std::string> fixed_keys;
  for (const Assignment& assignment : assignments) fixed_keys.insert(assignment.key);
  const auto known = std::make_shared<Files>();
  Documents base(path.parent_path(), std::move(whole), known);
  base.assign(assignments);
  refuse_idle_alphas(assignments, base);

  const JsonView root = base.scenario().root();
  std::vector<ReadCase> cases = read_cases(base.scenario(), fixed_keys);
  std::vector<Axis> axes = read_axes(base.scenario(), path.parent_path(), fixed_keys,
                                     std::max<std::size_t>(1, cases.size()));
  std::vector<std::pair<std::string, std::string>> constraints;
  if (const auto list = root.find("constraints"))
    for (const JsonView& one : list->elements())
      constraints.emplace_back(one.string(), one.where());
  const auto maker = std::make_shared<Points::Maker>(Points::Maker{
      std::move(base), std::move(cases), std::move(axes), std::move(constraints), {}, {}, {}, {}});

  const JsonDocument scenario = maker->base.scenario();
  for (const char* key : {"vary", "cases"}) maker->base.forget(key);
  Study study{{path.string(), scenario}, {}, {}, {}, {}, Points(maker), 0};
  for (const char* key : file_keys)
    if (const InputFile* file = maker->base.file(key)) study.files.emplace(key, *file);
  for (const Axis& axis : maker->axes) study.vary.emplace_back(axis.key, axis.values);
  for (const ReadCase& one : maker->cases) study.cases.push_back(one.shown);
  for (const auto& [expression, where] : maker->constraints)
    study.constraints.push_back(expression);

  // All of them are checked before any is simulated.
  const std::size_t combinations = maker->combinations();
  for (std::size_t i = 0; i < combinations; ++i)
    if (maker->make(i)) maker->kept.push_back(static_cast<std::uint32_t>(i));
  if (maker->kept.empty()) scenario.root().at("constraints").fail("no point meets all of them");

  study.fingerprint = fingerprint_of(scenario.root().dump());
  for (const Assignment& one : assignments)
    study.fingerprint = fingerprint_of(one.key + "=" + one.value, study.fingerprint);
  for (const auto& [name, file] : *known)
    study.fingerprint =
        fingerprint_of(file->document.root().dump(), fingerprint_of(name, study.fingerprint));
  for (const Axis& axis : maker->axes)  // what a glob found
    for (const std::string& value : axis.values)
      study.fingerprint = fingerprint_of(value, study.fingerprint);
  return study;
}

}  // namespace stepcast
