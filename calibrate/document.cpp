#include "document.hpp"

#include <cmath>
#include <fstream>
#include <stdexcept>
#include <utility>

#include <fmt/format.h>

namespace stepcast::calibrate {
namespace {

using CasesByProblem = std::vector<std::pair<std::string, std::vector<std::string>>>;

void add(CasesByProblem& warnings, const std::string& problem, const std::string& name) {
  for (auto& [known, cases] : warnings)
    if (known == problem) return cases.push_back(name);
  warnings.push_back({problem, {name}});
}

/// Empty when there is nothing to compare with.
const Outcome* find(const std::vector<Outcome>& outcomes, const std::string& name) {
  for (const Outcome& outcome : outcomes)
    if (outcome.name == name && outcome.entry.contains("time_s")) return &outcome;
  return nullptr;
}

/// One line a problem, however many cases have it.
Json warnings_of(const std::vector<Outcome>& outcomes) {
  CasesByProblem warnings;
  for (const Outcome& outcome : outcomes) {
    for (const std::string& problem : outcome.problems) add(warnings, problem, outcome.name);
    if (outcome.array != "repeats" || !outcome.entry.contains("time_s")) continue;
    const Outcome* first = find(outcomes, outcome.entry.at("first"));
    if (!first) continue;
    const double ratio =
        outcome.entry.at("time_s").get<double>() / first->entry.at("time_s").get<double>();
    if (std::abs(ratio - 1) > largest_drift)
      add(warnings,
          fmt::format("differed by more than {:g} % when repeated at the end", 100 * largest_drift),
          fmt::format("{} ({:+.0f} %)", first->name, 100 * (ratio - 1)));
  }
  Json texts = Json::array();
  for (const auto& [problem, cases] : warnings)
    texts.push_back(cases.size() == 1 ? fmt::format("{} {}", cases[0], problem)
                                      : fmt::format("{} cases {}, the first of them: {}",
                                                    cases.size(), problem, cases[0]));
  return texts;
}

}  // namespace

Machine read_machine(const std::string& path) {
  std::ifstream file(path);
  if (!file) throw std::runtime_error(path + ": cannot be read");
  const Json document = Json::parse(file, nullptr, /*allow_exceptions=*/false);
  if (!document.is_object() || document.value("format", Json()) != "stepcast.platform/1" ||
      !document.value("name", Json()).is_string())
    throw std::runtime_error(path + ": is no stepcast.platform/1 file with a name");
  return {document.at("name").get<std::string>(), document};
}

std::string document(const Heading& heading, const std::vector<Outcome>& outcomes) {
  Json file{{"format", "stepcast.calibration/1"},
            {"name", fmt::format("{}, measured on {}", heading.machine.name, heading.date)},
            {"source", heading.source},
            {"platform", heading.machine.name},
            {"machine", heading.machine.document},
            {"date", heading.date},
            {"command", heading.command},
            {"versions", heading.versions}};
  for (const char* array : {"samples", "compute", "interference", "skipped"}) {
    file[array] = Json::array();
    for (const Outcome& outcome : outcomes)
      if (outcome.array == array) file[array].push_back(outcome.entry);
  }
  file["warnings"] = warnings_of(outcomes);

  // Each key on a line of its own, and each member of an array.
  std::string text = "{";
  for (const auto& [key, value] : file.items()) {
    text += fmt::format("{}\n  {}: ", text.size() > 1 ? "," : "", Json(key).dump());
    if (!value.is_array() || value.empty()) {
      text += value.dump();
      continue;
    }
    for (std::size_t i = 0; i < value.size(); ++i)
      text += (i == 0 ? "[\n    " : ",\n    ") + value[i].dump();
    text += "\n  ]";
  }
  return text + "\n}\n";
}

}  // namespace stepcast::calibrate
