#include "input/calibration.hpp"

#include <fmt/format.h>

namespace stepcast {
namespace {

constexpr std::int64_t largest_bytes = std::int64_t{1} << 50;

Range read_range(const JsonView& json, std::int64_t max) {
  const auto ends = json.elements();
  if (ends.size() != 2) json.fail(fmt::format("must be [smallest, largest], got {}", json.dump()));
  Range range;
  range.min = ends[0].integer(0, max);
  range.max = ends[1].integer(range.min, max);
  return range;
}

/// A fitted value, with its standard error beside it where the fit gives one.
double read_fitted(const JsonView& json, double min, double max) {
  json.allow_only({"value", "stderr", "source"});
  if (const auto error = json.find("stderr")) static_cast<void>(error->number(0.0));
  if (const auto source = json.find("source")) static_cast<void>(source->string());
  return json.at("value").number(min, max);
}

/// A fitted rate against the rate that the platform file had when it was measured.
double read_share(const JsonView& json) {
  json.allow_only({"value", "stderr", "source", "nominal"});
  if (const auto error = json.find("stderr")) static_cast<void>(error->number(0.0));
  if (const auto source = json.find("source")) static_cast<void>(source->string());
  return json.at("value").number(1.0, 1e14) / json.at("nominal").number(1.0, 1e14);
}

ProtocolFigures read_protocol(const JsonView& json) {
  json.allow_only({"name", "efficiency", "launch_s", "alpha_intra_node_s", "alpha_inter_node_s",
                   "latency_intra_node_s", "latency_inter_node_s", "range", "residuals"});
  ProtocolFigures protocol;
  protocol.name = json.at("name").word({"LL", "LL128", "Simple"});
  protocol.efficiency = read_fitted(json.at("efficiency"), 1e-3, 1.0);
  protocol.launch = Seconds{read_fitted(json.at("launch_s"), 0.0, 1.0)};
  protocol.alpha_intra_node = Seconds{read_fitted(json.at("alpha_intra_node_s"), 0.0, 1.0)};
  protocol.alpha_inter_node = Seconds{read_fitted(json.at("alpha_inter_node_s"), 0.0, 1.0)};
  if (const auto latency = json.find("latency_intra_node_s"))
    protocol.latency_intra_node = Seconds{read_fitted(*latency, 0.0, 1.0)};
  if (const auto latency = json.find("latency_inter_node_s"))
    protocol.latency_inter_node = Seconds{read_fitted(*latency, 0.0, 1.0)};
  protocol.measured = false;
  if (const auto range = json.find("range")) {
    range->allow_only({"bytes", "ranks", "nodes"});
    protocol.bytes = read_range(range->at("bytes"), largest_bytes);
    protocol.ranks = read_range(range->at("ranks"), 1 << 20);
    protocol.nodes = read_range(range->at("nodes"), 1 << 20);
    protocol.measured = true;
  }
  const JsonView residuals = json.at("residuals");
  residuals.allow_only({"samples", "median_abs", "max_abs"});
  static_cast<void>(residuals.at("samples").integer(1, 1 << 24));
  static_cast<void>(residuals.at("median_abs").number(0.0));
  protocol.worst_residual = residuals.at("max_abs").number(0.0);
  return protocol;
}

}  // namespace

std::string foreign_platform(const Calibration& calibration, const Platform& platform) {
  if (calibration.platform == platform.name) return "";
  return fmt::format(
      "the calibration \"{}\" was measured on {}, not on {}: communication is extrapolated",
      calibration.name, calibration.platform, platform.name);
}

Calibration read_calibration(const JsonView& json) {
  json.expect_format("stepcast.calibration/1");
  json.allow_only({"format", "name", "source", "platform", "machine", "date", "command", "versions",
                   "links", "protocols", "curves", "samples", "compute", "interference", "skipped",
                   "warnings"});
  Calibration calibration;
  calibration.name = json.at("name").string();
  calibration.source = json.at("source").string();
  calibration.platform = json.at("platform").string();
  for (const char* key : {"date", "command"})
    if (const auto text = json.find(key)) static_cast<void>(text->string());
  if (const auto versions = json.find("versions"))
    for (const auto& [library, version] : versions->members())
      if (const std::string text = version.string(); library == "nccl")
        calibration.nccl_version = text;

  if (const auto machine = json.find("machine")) {
    calibration.machine = read_platform(*machine);
    if (calibration.machine->name != calibration.platform)
      machine->at("name").fail(
          fmt::format("must be \"{}\", the platform that was measured, got \"{}\"",
                      calibration.platform, calibration.machine->name));
  }
  if (const auto links = json.find("links")) {
    links->allow_only({"intra_node_Bps", "inter_node_Bps"});
    if (const auto rate = links->find("intra_node_Bps"))
      calibration.intra_node_share = read_share(*rate);
    if (const auto rate = links->find("inter_node_Bps"))
      calibration.inter_node_share = read_share(*rate);
  }
  if (const auto protocols = json.find("protocols"))
    for (const JsonView& entry : protocols->elements()) {
      calibration.protocols.push_back(read_protocol(entry));
      for (std::size_t i = 0; i + 1 < calibration.protocols.size(); ++i)
        if (calibration.protocols[i].name == calibration.protocols.back().name)
          entry.at("name").fail(
              fmt::format("the protocol {} stands twice", calibration.protocols.back().name));
    }
  if (const auto samples = json.find("samples"))
    for (const JsonView& sample : samples->elements())
      calibration.samples.push_back(read_collective_sample(sample));
  if (const auto curves = json.find("curves"))
    for (const JsonView& curve : curves->elements()) check_curve(curve);
  if (const auto compute = json.find("compute"))
    for (const JsonView& sample : compute->elements()) check_compute_sample(sample);
  if (const auto interference = json.find("interference"))
    for (const JsonView& sample : interference->elements())
      calibration.interference.push_back(read_interference_sample(sample));
  if (const auto skipped = json.find("skipped"))
    for (const JsonView& one : skipped->elements()) {
      one.allow_only({"case", "reason"});
      for (const char* key : {"case", "reason"}) static_cast<void>(one.at(key).string());
    }
  if (const auto warnings = json.find("warnings"))
    for (const JsonView& warning : warnings->elements()) static_cast<void>(warning.string());
  return calibration;
}

}  // namespace stepcast
