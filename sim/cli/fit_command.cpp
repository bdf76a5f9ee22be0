// stepcast fit: nccl-tests logs become a report and a calibration.
#include <algorithm>

#include <fmt/format.h>

#include "base/error.hpp"
#include "base/text.hpp"
#include "cli/commands.hpp"
#include "cli/fit_mechanism.hpp"
#include "cli/log_files.hpp"
#include "cli/output_file.hpp"
#include "fit/curve.hpp"
#include "fit/regimes.hpp"
#include "input/calibration.hpp"
#include "input/platform.hpp"
#include "report/report.hpp"

namespace stepcast {
namespace {

constexpr double good_residual = 0.05;  // median; above it the report calls a fit bad
constexpr std::size_t named_outliers = 6;

std::string regime_text(const Regime& regime) {
  const double rate = regime.s_per_byte.value > 0.0 ? 1e-9 / regime.s_per_byte.value : 0.0;
  return fmt::format("{}-{}: {:.1f} us{}", format_bytes(regime.from.value()),
                     format_bytes(regime.to.value()), regime.overhead_s.value * 1e6,
                     rate > 0.0 ? fmt::format(" + S / {:.4g} GB/s", rate) : "");
}

void print_head() {
  fmt::print("{:<40}  {:<14}  {:>5}  {:>5}  {:<18}  {:<8}  {:>4}  {:>8}  {:>8}  {:>8}  {}\n", "log",
             "collective", "ranks", "nodes", "algorithm", "protocol", "rows", "median", "worst",
             "held out", "overhead + size / rate");
}

void print_curves(const std::string& log, const std::vector<CollectiveSample>& samples) {
  for (const Curve& curve : curves_of(samples)) {
    const CurveKey& key = curve.key();
    const CurveFit fit = fit_regimes(curve);
    fmt::print("{:<40}  {:<14}  {:>5}  {:>5}  {:<18}  {:<8}  {:>4}  ", log,
               to_string(key.operation), key.ranks, key.nodes,
               key.algorithm.empty() ? "auto" : key.algorithm,
               key.protocol.empty() ? "auto" : key.protocol, curve.points().size());
    if (fit.regimes.empty()) {
      fmt::print("too few sizes to fit\n");
      continue;
    }
    std::vector<std::string> regimes;
    for (const Regime& regime : fit.regimes) regimes.push_back(regime_text(regime));
    fmt::print("{:>6.1f} %  {:>6.1f} %  {:>6.1f} %  {}\n", 100 * fit.median_abs, 100 * fit.max_abs,
               100 * fit.held_out_median_abs, fmt::join(regimes, "; "));
    if (fit.held_out_median_abs > good_residual)
      fmt::print("{:<40}  a bad fit: sizes left out are {:.0f} % off\n", "",
                 100 * fit.held_out_median_abs);
    if (!fit.outliers.empty()) {
      std::vector<std::string> sizes;
      for (const Bytes bytes : fit.outliers)
        if (sizes.size() < named_outliers) sizes.push_back(format_bytes(bytes.value()));
      const std::size_t more = fit.outliers.size() - sizes.size();
      fmt::print("{:<40}  outliers: {}{}\n", "", fmt::join(sizes, ", "),
                 more > 0 ? fmt::format(" and {} more", more) : "");
    }
  }
}

std::string figure_text(const FoundFigure& found, double unit, const char* unit_name) {
  const double value = found.fitted.value * unit;
  if (found.held) return fmt::format("{:.4g}{} (not determined)", value, unit_name);
  return fmt::format("{:.4g} +- {:.2g}{}", value, found.fitted.standard_error * unit, unit_name);
}

void print_overheads(const std::vector<OverheadFit>& overheads) {
  for (const OverheadFit& fit : overheads) {
    if (!fit.is_determined()) {
      fmt::print("{}: overheads not determined: {}\n", fit.figures.name, fit.why_not);
      continue;
    }
    fmt::print(
        "{}: launch {}, hop between nodes {}, hop inside a node {}, work per byte {}; {} sizes, "
        "median {:.1f} %, worst {:.1f} %\n",
        fit.figures.name, figure_text(fit.launch, 1e6, " us"),
        figure_text(fit.hop_between_nodes, 1e6, " us"),
        figure_text(fit.hop_inside_node, 1e6, " us"), figure_text(fit.work_per_byte, 1.0, ""),
        fit.samples, 100 * fit.median_abs, 100 * fit.max_abs);
    if (!fit.outliers.empty())
      fmt::print("    outliers: {}\n",
                 fmt::join(fit.outliers.begin(),
                           fit.outliers.begin() + static_cast<std::ptrdiff_t>(std::min(
                                                      fit.outliers.size(), named_outliers)),
                           ", "));
  }
}

CalibrationText calibration_of(const FitOptions& options, const std::vector<LogContents>& logs,
                               const JsonDocument& platform_file) {
  CalibrationText text;
  const Platform machine = read_platform(platform_file.root());
  text.platform = machine.name;
  text.machine = platform_file.root().dump();
  text.name = options.name.empty() ? text.platform + ", nccl-tests" : options.name;
  text.nccl_version = options.nccl_version;
  std::vector<std::string> names;
  std::vector<CollectiveSample> samples;
  for (const LogContents& log : logs) {
    names.push_back(log.name);
    if (text.nccl_version.empty()) text.nccl_version = log.nccl_version;
    if (!log.calibration.empty()) text.calibrations.push_back(log.calibration);
    for (const auto& [sample, source, json] : log.samples) {
      samples.push_back(sample);
      text.samples.push_back({sample, source, json});
    }
  }
  text.source = options.source.empty() ? fmt::format("{}", fmt::join(names, ", ")) : options.source;
  text.command = fmt::format("stepcast fit {}", fmt::join(names, " "));
  const std::vector<Curve> curves = curves_of(samples);
  for (const Curve& curve : curves) text.curves.emplace_back(curve.key(), fit_regimes(curve));
  const MechanismFit fit = fit_mechanism(machine, text.nccl_version, curves);
  text.intra_node = fit.intra_node;
  text.inter_node = fit.inter_node;
  text.overheads = fit.overheads;
  return text;
}

}  // namespace

std::string calibration_from(const FitOptions& options, const std::vector<LogContents>& logs,
                             const JsonDocument& platform) {
  return calibration_json(calibration_of(options, logs, platform));
}

int fit_command(const FitOptions& options) {
  std::optional<JsonDocument> platform;
  std::vector<std::string> inputs;
  if (options.platform) {
    platform = JsonDocument::read_file(*options.platform);
    static_cast<void>(read_platform(platform->root()));
    inputs.push_back(*options.platform);
  }
  for (const LogOptions& log : options.logs) inputs.push_back(log.path);
  std::optional<OutputFile> output;
  if (options.output) output.emplace("-o", *options.output, inputs);

  const bool report = options.report && !(output && output->is_stdout());
  std::vector<LogContents> logs;
  std::vector<std::string> refused;
  for (const LogOptions& log : options.logs) {
    try {
      logs.push_back(read_log(log, options.platform.has_value()));
    } catch (const InputError& error) {
      refused.emplace_back(error.what());
      continue;
    }
    if (report) {
      if (logs.size() == 1) print_head();
      print_curves(logs.back().name, samples_of(logs.back()));
    }
  }
  for (const LogContents& log : logs)
    for (const std::string& complaint : log.complaints)
      fmt::print(stderr, "stepcast: warning: {}\n", complaint);
  // A calibration from half of what was named would not be what was asked for.
  if (logs.empty() || (options.output && !refused.empty())) throw InputError(refused.front());
  for (const std::string& reason : refused) fmt::print(stderr, "stepcast: refused: {}\n", reason);
  if (report)
    fmt::print("\n{} of {} logs read, {} refused\n", logs.size(), options.logs.size(),
               refused.size());
  if (!platform) return 0;
  const CalibrationText calibration = calibration_of(options, logs, *platform);
  if (report) print_overheads(calibration.overheads);
  if (output) output->write(calibration_json(calibration));
  return 0;
}

}  // namespace stepcast
