#include "cli/log_files.hpp"

#include <filesystem>
#include <fstream>
#include <sstream>

#include <fmt/format.h>

#include "base/error.hpp"
#include "fit/nccl_tests_log.hpp"
#include "input/calibration.hpp"

namespace stepcast {
namespace {

std::string text_of_file(const std::string& path) {
  if (std::filesystem::is_directory(path)) throw InputError(path, "is a folder");
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  if (!file) throw InputError(path, "cannot be read");
  return text.str();
}

/// Why a table cannot be used; empty when it can.
std::string flaw_of(const LogRun& run, const CollectiveSample& sample, const LogOptions& log,
                    bool needs_nodes) {
  const auto not_told = [&](const char* what, const char* key) {
    return fmt::format("{}:{}: does not tell {}; give {}@{}=...", run.file, run.line, what,
                       log.path, key);
  };
  if (!run.other_operation.empty() && !log.operation)
    return fmt::format("{}:{}: {} is not simulated", run.file, run.line, run.other_operation);
  if (sample.operation.empty()) return not_told("the collective", "op");
  if (sample.ranks == 0) return not_told("the number of ranks", "ranks");
  if (sample.nodes == 0 && needs_nodes) return not_told("the number of nodes", "nodes");
  if (sample.nodes > sample.ranks)
    return fmt::format("{}:{}: has {} nodes and {} ranks", run.file, run.line, sample.nodes,
                       sample.ranks);
  return "";
}

LogContents read_calibrated(const std::string& path) {
  const JsonDocument document = JsonDocument::read_file(path);
  const Calibration calibration = read_calibration(document.root());
  LogContents contents;
  contents.name = std::filesystem::path(path).filename().string();
  contents.nccl_version = calibration.nccl_version;
  contents.calibration = document.root().dump();
  if (const auto samples = document.root().find("samples"))
    for (const JsonView& sample : samples->elements())
      contents.samples.push_back(
          {read_collective_sample(sample), sample.at("source").string(), sample.dump()});
  if (contents.samples.empty()) throw InputError(path, "holds no samples");
  return contents;
}

}  // namespace

std::vector<CollectiveSample> samples_of(const LogContents& contents) {
  std::vector<CollectiveSample> samples;
  for (const LogSample& one : contents.samples) samples.push_back(one.sample);
  return samples;
}

LogContents read_log(const LogOptions& log, bool needs_nodes) {
  if (log.path.ends_with(".json")) return read_calibrated(log.path);
  LogContents contents;
  contents.name = std::filesystem::path(log.path).filename().string();
  for (const LogRun& run : read_nccl_tests_log(text_of_file(log.path), contents.name)) {
    contents.complaints.insert(contents.complaints.end(), run.complaints.begin(),
                               run.complaints.end());
    if (!run.nccl_version.empty()) contents.nccl_version = run.nccl_version;
    CollectiveSample sample;
    if (const auto operation = log.operation ? log.operation : run.operation)
      sample.operation = to_string(*operation);
    sample.ranks = log.ranks.value_or(run.ranks);
    sample.nodes = log.nodes.value_or(run.nodes);
    sample.algorithm = log.algorithm ? *log.algorithm : run.algorithm.value_or("");
    sample.protocol = log.protocol ? *log.protocol : run.protocol.value_or("");
    if (const std::string flaw = flaw_of(run, sample, log, needs_nodes); !flaw.empty()) {
      contents.complaints.push_back(flaw);
      continue;
    }
    sample.nodes = std::max(1, sample.nodes);
    for (const LogRow& row : run.rows) {
      sample.bytes = row.bytes;
      sample.time = row.out_of_place;
      contents.samples.push_back({sample, fmt::format("{}:{}", contents.name, row.line), ""});
    }
  }
  if (contents.samples.empty())
    throw InputError(contents.complaints.empty() ? contents.name + ": holds nothing to fit"
                                                 : contents.complaints.back());
  return contents;
}

}  // namespace stepcast
