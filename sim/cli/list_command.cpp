// stepcast list: what there is to choose from.
#include <algorithm>
#include <filesystem>
#include <set>

#include <fmt/format.h>

#include "base/error.hpp"
#include "base/text.hpp"
#include "cli/commands.hpp"
#include "collective/algorithms.hpp"
#include "input/calibration.hpp"
#include "input/importer.hpp"
#include "input/platform.hpp"

namespace stepcast {

namespace {

/// Those beside the platforms of the current folder.
void list_calibrations() {
  std::vector<std::filesystem::path> files;
  const std::filesystem::path folder = "platforms";
  if (std::filesystem::is_directory(folder))
    for (const auto& entry : std::filesystem::directory_iterator(folder))
      if (entry.path().string().ends_with(".calibration.json")) files.push_back(entry.path());
  if (files.empty())
    throw InputError("stepcast list", "no platforms/*.calibration.json below the current folder");
  std::sort(files.begin(), files.end());
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
  throw InputError("stepcast list",
                   fmt::format("unknown \"{}\"{}", options.what,
                               suggest(options.what,
                                       {"algorithms", "topologies", "importers", "calibrations"})));
}

}  // namespace stepcast
