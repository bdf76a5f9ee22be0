#include "input/validation.hpp"

#include <algorithm>
#include <set>

#include <fmt/format.h>

#include "base/text.hpp"
#include "input/importer.hpp"

namespace stepcast {
namespace {

constexpr const char* format_name = "stepcast.validation/1";
constexpr double longest_step_s = 1e5;

MeasuredCase read_case(const JsonView& json, const std::vector<std::string>& scenarios) {
  json.allow_only({"id", "scenario", "split", "set", "measured"});
  MeasuredCase one;
  one.id = json.at("id").string();
  one.scenario = json.at("scenario").word(scenarios);
  one.is_fitted = json.at("split").word({"fit", "test"}) == "fit";
  if (const auto sets = json.find("set"))
    for (const auto& [key, value] : sets->members())
      one.sets.push_back({key, value.dump(), value.where()});
  const JsonView measured = json.at("measured");
  measured.allow_only({"step_time_s", "noise_relative"});
  one.step_time = Seconds{measured.at("step_time_s").number(1e-9, longest_step_s)};
  if (const auto noise = measured.find("noise_relative"); noise && !noise->is_null())
    one.noise = noise->number(0.0, 1.0);
  return one;
}

ImportedModel read_import(const std::string& name, const JsonView& json) {
  json.allow_only({"importer", "files", "set"});
  ImportedModel model;
  model.name = name;
  model.format = json.at("importer").word(importers().names());
  for (const JsonView& file : json.at("files").elements()) model.files.push_back(file.string());
  if (model.files.empty()) json.at("files").fail("must list at least one file");
  if (const auto settings = json.find("set"))
    for (const auto& [key, value] : settings->members()) model.settings[key] = value.string();
  return model;
}

FittedKey read_key(const JsonView& json, const std::vector<std::string>& scenarios) {
  json.allow_only({"key", "scenario", "start", "low", "high"});
  FittedKey key;
  if (const auto scenario = json.find("scenario")) key.scenario = scenario->word(scenarios);
  key.key = json.at("key").string();
  key.low = json.at("low").number(0.0, 1e18);
  key.high = json.at("high").number(key.low, 1e18);
  key.start = json.at("start").number(key.low, key.high);
  if (key.start <= 0.0) json.at("start").fail("must be above 0");
  return key;
}

std::optional<double> read_share(const JsonView& json, const char* key) {
  const auto found = json.find(key);
  return found ? std::optional(found->number(0.0, 1.0)) : std::nullopt;
}

std::vector<std::size_t> read_order(const JsonView& json, const ValidationFile& file) {
  std::vector<std::size_t> places;
  for (const JsonView& id : json.elements()) {
    const std::string name = id.string();
    const auto found = std::find_if(file.cases.begin(), file.cases.end(),
                                    [&](const MeasuredCase& one) { return one.id == name; });
    if (found == file.cases.end()) id.fail(fmt::format("no case has the id \"{}\"", name));
    places.push_back(static_cast<std::size_t>(found - file.cases.begin()));
  }
  if (places.size() < 2) json.fail("must list at least two cases");
  return places;
}

}  // namespace

bool is_validation(const JsonView& json) {
  if (!json.is_object()) return false;
  const auto format = json.find("format");
  return format && format->dump() == quote_json(format_name);
}

ValidationFile read_validation(const std::filesystem::path& path, const JsonView& json) {
  json.expect_format(format_name);
  json.allow_only({"format", "suite", "name", "source", "machine", "derived", "peers", "imports",
                   "scenarios", "fit", "bars", "cases", "orders"});
  ValidationFile file;
  file.path = path.string();
  file.suite = json.at("suite").string();
  file.name = json.at("name").string();
  file.source = json.at("source").string();
  file.machine = json.at("machine").string();
  if (const auto derived = json.find("derived")) file.derived = derived->boolean();
  if (const auto peers = json.find("peers")) {
    peers->allow_only({"text", "mean_error"});
    file.peers = {peers->at("text").string(), peers->at("mean_error").number(0.0, 100.0)};
  }
  if (const auto imports = json.find("imports"))
    for (const auto& [name, model] : imports->members())
      file.imports.push_back(read_import(name, model));
  std::vector<std::string> names;
  for (const auto& [name, scenario] : json.at("scenarios").members()) {
    if (scenario.is_object())
      for (const char* several : {"vary", "cases", "constraints", "base"})
        if (const auto key = scenario.find(several))
          key->fail("a case is one point, which stands here whole");
    file.scenarios.emplace(name, JsonDocument::part(scenario));
    names.push_back(name);
  }
  if (const auto fit = json.find("fit"))
    for (const JsonView& key : fit->elements()) file.fit.push_back(read_key(key, names));
  if (const auto bars = json.find("bars")) {
    bars->allow_only({"mean_abs_error", "median_abs_error", "order_right"});
    file.bars = {read_share(*bars, "mean_abs_error"), read_share(*bars, "median_abs_error"),
                 read_share(*bars, "order_right")};
  }
  std::set<std::string> ids;
  for (const JsonView& one : json.at("cases").elements()) {
    file.cases.push_back(read_case(one, names));
    if (!ids.insert(file.cases.back().id).second) one.at("id").fail("another case has this id");
  }
  if (file.cases.empty()) json.at("cases").fail("must list at least one case");
  const bool has_fitted = std::any_of(file.cases.begin(), file.cases.end(),
                                      [](const MeasuredCase& one) { return one.is_fitted; });
  if (!file.fit.empty() && !has_fitted)
    json.at("fit").fail("no case has the split \"fit\": there is nothing to fit on");
  if (const auto orders = json.find("orders"))
    for (const JsonView& order : orders->elements()) file.orders.push_back(read_order(order, file));
  return file;
}

bool concerns(const FittedKey& key, const MeasuredCase& one) {
  return !key.scenario || *key.scenario == one.scenario;
}

Point point_of(const ValidationFile& file, const MeasuredCase& one,
               const std::vector<double>& figures) {
  std::vector<Assignment> sets;
  for (std::size_t i = 0; i < file.fit.size(); ++i)
    if (concerns(file.fit[i], one))
      sets.push_back({file.fit[i].key, format_number(figures[i]),
                      fmt::format("{}:/fit/{}/key", file.path, i)});
  sets.insert(sets.end(), one.sets.begin(), one.sets.end());
  return load_study(file.path, file.scenarios.at(one.scenario), sets).points[0];
}

}  // namespace stepcast
