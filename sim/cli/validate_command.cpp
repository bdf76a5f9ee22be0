// stepcast validate: predicts what was measured, from scenarios or from the rest of what was
// measured.
#include <algorithm>
#include <filesystem>
#include <set>

#include <fmt/format.h>

#include "base/error.hpp"
#include "base/text.hpp"
#include "cli/commands.hpp"
#include "cli/output_file.hpp"
#include "cli/source_tree.hpp"
#include "cli/validate_collectives.hpp"
#include "cli/validate_steps.hpp"
#include "input/validation.hpp"
#include "report/report.hpp"

namespace stepcast {
namespace {

constexpr int bar_missed = 4;  // exit code
constexpr const char* collectives = "collectives";

namespace fs = std::filesystem;

/// Files of a folder whose names end so, by name.
std::vector<std::string> files_of(const fs::path& folder, std::string_view ending) {
  std::vector<std::string> files;
  if (fs::is_directory(folder))
    for (const auto& entry : fs::directory_iterator(folder))
      if (entry.path().string().ends_with(ending)) files.push_back(entry.path().string());
  std::sort(files.begin(), files.end());
  return files;
}

/// In the current folder, else in the source tree.
std::vector<std::string> shipped(const char* folder, std::string_view ending) {
  std::vector<std::string> files = files_of(folder, ending);
  if (files.empty()) files = files_of(source_tree() / folder, ending);
  if (files.empty())
    throw InputError("stepcast validate",
                     fmt::format("there is no {0}/*{1} here or in {2}: go to the source tree of "
                                 "stepcast or set STEPCAST_HOME to it",
                                 folder, ending, source_tree().string()));
  return files;
}

struct Suites {
  std::vector<ValidationFile> files;
  std::vector<std::string> collectives;  ///< calibrations and logs
};

Suites shipped_suites() {
  Suites found;
  for (const std::string& path : shipped("tests/validation", ".json")) {
    const JsonDocument document = JsonDocument::read_file(path);
    if (is_validation(document.root()))
      found.files.push_back(read_validation(path, document.root()));
  }
  found.collectives = shipped("platforms", ".calibration.json");
  for (const std::string& path : shipped("tests/validation", ".calibration.json"))
    found.collectives.push_back(path);
  return found;
}

/// What the words name: suites that come with stepcast, or files. Without any, all suites.
Suites find_suites(const ValidateOptions& options) {
  if (!options.files.empty()) return {{}, options.files};
  if (options.suites.empty()) return shipped_suites();
  Suites found;
  std::optional<Suites> all;
  for (const std::string& word : options.suites) {
    if (word.ends_with(".json")) {
      const JsonDocument document = JsonDocument::read_file(word);
      found.files.push_back(read_validation(word, document.root()));
      continue;
    }
    if (!all) all = shipped_suites();
    std::set<std::string> known = {collectives};
    for (const ValidationFile& file : all->files) known.insert(file.suite);
    if (!known.contains(word))
      throw InputError(
          "stepcast validate",
          fmt::format("unknown \"{}\"{}", word, suggest(word, {known.begin(), known.end()})));
    if (word == collectives) found.collectives = all->collectives;
    for (const ValidationFile& file : all->files)
      if (file.suite == word) found.files.push_back(file);
  }
  return found;
}

}  // namespace

int validate_command(const ValidateOptions& options) {
  const Suites suites = find_suites(options);
  std::vector<std::string> inputs = suites.collectives;
  for (const ValidationFile& file : suites.files) inputs.push_back(file.path);
  std::optional<OutputFile> json, html;
  if (options.json) json.emplace("--json", *options.json, inputs);
  if (options.html) html.emplace("--html", *options.html, inputs);
  const bool prints = !(json && json->is_stdout()) && !(html && html->is_stdout());

  std::vector<FileResult> results;
  const auto add = [&](const FileResult& result, const std::string& table) {
    if (prints) fmt::print("{}{}", results.empty() ? "" : "\n", table);
    results.push_back(result);
  };
  for (const ValidationFile& file : suites.files) {
    const FileResult result = validate_steps(file, options.jobs);
    add(result, validation_table(result));
  }
  if (!suites.collectives.empty())
    for (const CollectivesResult& one : validate_collectives(suites.collectives, options.jobs))
      add(one.result, collectives_table(one));
  if (prints && results.size() > 1) fmt::print("\n{}", validation_totals(results));
  if (json) json->write(validate_json(results));
  if (html) html->write(validate_html(results));
  const bool all_met = std::all_of(results.begin(), results.end(),
                                   [](const FileResult& one) { return one.missed().empty(); });
  return all_met ? 0 : bar_missed;
}

}  // namespace stepcast
