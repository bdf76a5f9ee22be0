// stepcast import: foreign formats become step traces.
#include <filesystem>
#include <optional>

#include <fmt/format.h>

#include "base/error.hpp"
#include "base/text.hpp"
#include "cli/commands.hpp"
#include "cli/log_files.hpp"
#include "cli/output_file.hpp"
#include "cli/progress.hpp"
#include "input/importer.hpp"
#include "input/platform.hpp"
#include "input/step_trace.hpp"
#include "workload/replay.hpp"

namespace stepcast {
namespace {

constexpr double replay_is_off = 0.1;  // of the measured step; above it the user is warned

Imported import_files(const ImportOptions& options) {
  const Importer* importer = importers().find(options.format);
  if (importer == nullptr)
    throw InputError("stepcast import", fmt::format("unknown format \"{}\"{}", options.format,
                                                    suggest(options.format, importers().names())));
  ImportRequest request;
  for (const std::string& file : options.files) request.files.emplace_back(file);
  request.options = options.settings;
  Progress progress(0, 100, "%");
  return (*importer)(request, [&](double fraction) {
    progress.advance_to(static_cast<std::size_t>(100.0 * fraction));
  });
}

void compare_with_measured(const MeasuredStep& step) {
  const Seconds replayed = replay_alone(step);
  const double off = replayed / step.median - 1.0;
  fmt::print(stderr, "stepcast: micro-batch {}: {:.3f} ms alone on one GPU, measured {:.3f} ms\n",
             step.micro_batch, replayed.value() * 1e3, step.median.value() * 1e3);
  if (off > replay_is_off)
    fmt::print(stderr,
               "stepcast: warning: the spans add up to {:.0f} % more than the measured step\n",
               100 * off);
}

/// What the collectives of the trace say of the machine that it was recorded on.
std::string calibration_of(const Imported& imported, const ImportOptions& options,
                           const JsonDocument& platform) {
  if (imported.collectives.empty())
    throw InputError("--calibration",
                     "needs the traces of all ranks, two at least, and collectives whose size they "
                     "tell: only then can a transfer be told from waiting for others");
  const int gpus_per_node = read_platform(platform.root()).gpus_per_node;
  FitOptions fit;
  fit.name = platform.root().at("name").string() + ", from a profiler trace";
  fit.nccl_version = imported.nccl_version;
  fit.source = fmt::format("{}: {} of {} ranks, from the last arrival to the last end",
                           options.files.front(), options.format, imported.collectives[0].ranks);
  LogContents log;
  log.name = std::filesystem::path(options.files.front()).filename().string();
  for (CollectiveSample sample : imported.collectives) {
    sample.nodes = (sample.ranks + gpus_per_node - 1) / gpus_per_node;
    log.samples.push_back({sample, log.name, {}});
  }
  return calibration_from(fit, {log}, platform);
}

}  // namespace

int import_command(const ImportOptions& options) {
  std::vector<std::string> inputs = options.files;
  std::optional<JsonDocument> platform;
  std::optional<OutputFile> calibration;
  if (options.calibration) {
    if (!options.platform)
      throw InputError("--calibration", "needs --platform: the machine that was recorded");
    inputs.push_back(*options.platform);
    platform = JsonDocument::read_file(*options.platform);
    static_cast<void>(read_platform(platform->root()));
    calibration.emplace("--calibration", *options.calibration, inputs);
  }
  const OutputFile output("-o", options.output, inputs);
  const Imported imported = import_files(options);
  for (const std::string& note : imported.notes) fmt::print(stderr, "stepcast: {}\n", note);
  for (const std::string& warning : imported.warnings)
    fmt::print(stderr, "stepcast: warning: {}\n", warning);
  // What was written must be what can be read.
  const JsonDocument document = JsonDocument::parse(imported.trace_json, options.output);
  for (const MeasuredStep& step : read_step_trace(document.root()).measured)
    compare_with_measured(step);
  if (calibration) calibration->write(calibration_of(imported, options, *platform));
  output.write(imported.trace_json);
  return 0;
}

}  // namespace stepcast
