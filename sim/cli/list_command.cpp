// stepcast list: what there is to choose from.
#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "base/error.hpp"
#include "base/text.hpp"
#include "cli/commands.hpp"
#include "collective/algorithms.hpp"
#include "input/calibration.hpp"
#include "input/importer.hpp"
#include "input/platform.hpp"
#include "input/step_trace.hpp"

namespace stepcast {

namespace {

/// Those in a folder below the current one, by name.
std::vector<std::filesystem::path> files_of(const std::filesystem::path& folder,
                                            const std::string& ending) {
  std::vector<std::filesystem::path> files;
  if (std::filesystem::is_directory(folder))
    for (const auto& entry : std::filesystem::directory_iterator(folder))
      if (entry.path().string().ends_with(ending)) files.push_back(entry.path());
  if (files.empty())
    throw InputError("stepcast list",
                     fmt::format("no {}/*{} below the current folder", folder.string(), ending));
  std::sort(files.begin(), files.end());
  return files;
}

void list_calibrations() {
  const std::vector<std::filesystem::path> files = files_of("platforms", ".calibration.json");
  fmt::print("{:<50}  {:<40}  {:>5}  {:>6}  {:>7}  {}\n", "calibration", "name", "nodes", "ranks",
             "samples", "collectives");
  for (const std::filesystem::path& path : files) {
    const Calibration calibration = read_calibration(JsonDocument::read_file(path).root());
    int nodes = 0;
    int ranks = 0;
    std::set<std::string> operations;
    for (const CollectiveSample& sample : calibration.samples) {
      nodes = std::max(nodes, sample.nodes);
      ranks = std::max(ranks, sample.ranks);
      operations.insert(sample.operation);
    }
    fmt::print("{:<50}  {:<40}  {:>5}  {:>6}  {:>7}  {}\n", path.string(), calibration.name, nodes,
               ranks, calibration.samples.size(), fmt::join(operations, ", "));
  }
}

void list_models() {
  const std::vector<std::filesystem::path> files = files_of("models", ".json");
  fmt::print("{:<40}  {:<26}  {:<24}  {:<9}  {:>14}  {}\n", "model", "name", "GPU", "precision",
             "parameters", "micro-batches");
  for (const std::filesystem::path& path : files) {
    const StepTrace trace = read_step_trace(JsonDocument::read_file(path).root());
    std::vector<std::int64_t> micro_batches;
    for (const MeasuredStep& step : trace.measured) micro_batches.push_back(step.micro_batch);
    fmt::print("{:<40}  {:<26}  {:<24}  {:<9}  {:>14}  {}{}\n", path.string(), trace.name,
               trace.gpu, trace.precision, trace.elements(), fmt::join(micro_batches, ", "),
               trace.modelled ? " (modelled)" : "");
  }
}

}  // namespace

int list_command(const ListOptions& options) {
  if (options.what == "algorithms") {
    for (const Operation operation : all_operations) {
      if (operation != Operation::all_reduce) fmt::print("\n");
      fmt::print("{:<26}  {:<23}  {:<17}  {:<45}  {}\n", to_string(operation),
                 "bytes sent per rank", "steps", "time on equal links", "when it wins");
      const auto& algorithms = collective_algorithms(operation);
      for (const std::string& name : algorithms.names()) {
        const CollectiveAlgorithm& algorithm = *algorithms.find(name);
        fmt::print("{:<26}  {:<23}  {:<17}  {:<45}  {}\n", name, algorithm.bytes_per_rank,
                   algorithm.steps_taken, algorithm.time, algorithm.when);
      }
    }
    return 0;
  }
  if (options.what == "topologies") {
    for (const std::string& name : topologies().names()) fmt::print("{}\n", name);
    return 0;
  }
  if (options.what == "importers") {
    for (const std::string& name : importers().names()) fmt::print("{}\n", name);
    return 0;
  }
  if (options.what == "calibrations") {
    list_calibrations();
    return 0;
  }
  if (options.what == "models") {
    list_models();
    return 0;
  }
  throw InputError("stepcast list",
                   fmt::format("unknown \"{}\"{}", options.what,
                               suggest(options.what, {"algorithms", "topologies", "importers",
                                                      "calibrations", "models"})));
}

}  // namespace stepcast
