#include "cli/fit_mechanism.hpp"

#include <cmath>
#include <map>
#include <tuple>

#include "collective/protocols.hpp"
#include "engine/measured.hpp"
#include "fit/regimes.hpp"

namespace stepcast {
namespace {

constexpr double near_enough = 0.05;  // of the time that was measured
constexpr double most_of_nominal = 1.1;
constexpr Bytes large_message{8.0 * (1 << 20)};  // its time is mostly bytes

/// The curve that says most about a kind of link: many ranks, large messages, the library's choice
/// before a forced one. Null when none has large messages.
const Curve* curve_for_links(const std::vector<Curve>& curves, bool inter_node) {
  const Curve* best = nullptr;
  const auto worth = [](const Curve& curve) {
    const bool forced = !curve.key().algorithm.empty() || !curve.key().protocol.empty();
    return std::tuple(!forced, curve.key().protocol == "Simple", curve.key().ranks);
  };
  for (const Curve& curve : curves)
    if (curve.key().operation == Operation::all_reduce && curve.largest() >= large_message &&
        (curve.key().nodes > 1) == inter_node && (best == nullptr || worth(curve) > worth(*best)))
      best = &curve;
  return best;
}

/// The rate with which the mechanism takes as long for the largest message as was measured. Empty
/// where that link is not what sets the time, or the mechanism not what ran.
std::optional<CalibrationText::Rate> fit_link(const Curve& curve, const Calibration& calibration,
                                              std::optional<double> Calibration::*share) {
  Calibration fitted = calibration;
  const CurveKey& key = curve.key();
  const bool inter_node = key.nodes > 1;
  const Platform& machine = *calibration.machine;
  const BytesPerSecond nominal =
      inter_node ? machine.nics->figures.bandwidth : machine.intra_node.bandwidth;
  double off = 0.0;
  for (int iteration = 0; iteration < 4; ++iteration) {
    const Cluster cluster = cluster_of(key, fitted);
    const BytesPerSecond rate =
        inter_node ? cluster.inter_node_bandwidth() : cluster.intra_node_bandwidth();
    off = mechanism_time(key.operation, curve.largest(), settings_of(key), cluster) /
          curve.at(curve.largest());
    fitted.*share = rate / nominal * off;
  }
  // A link that would have to carry more than its data sheet says is not what was slow.
  if (std::abs(off - 1.0) > near_enough || *(fitted.*share) > most_of_nominal) return std::nullopt;
  const double value = (fitted.*share).value() * nominal.value();
  const CurveFit fit = fit_regimes(curve);
  double relative_error = 0.0;
  if (!fit.regimes.empty() && fit.regimes.back().s_per_byte.value > 0.0) {
    const FittedValue& slope = fit.regimes.back().s_per_byte;
    relative_error = slope.standard_error / slope.value;
  }
  return CalibrationText::Rate{value, value * relative_error, nominal.value()};
}

void fit_links(MechanismFit& fit, const std::vector<Curve>& curves) {
  Calibration& calibration = fit.calibration;
  if (const Curve* curve = curve_for_links(curves, false)) {
    fit.intra_node = fit_link(*curve, calibration, &Calibration::intra_node_share);
    if (fit.intra_node)
      calibration.intra_node_share = fit.intra_node->value_Bps / fit.intra_node->nominal_Bps;
  }
  if (const Curve* curve = curve_for_links(curves, true)) {
    fit.inter_node = fit_link(*curve, calibration, &Calibration::inter_node_share);
    if (fit.inter_node)
      calibration.inter_node_share = fit.inter_node->value_Bps / fit.inter_node->nominal_Bps;
  }
}

}  // namespace

/// Rates from the largest messages, overheads from the small ones with these rates, and the rates
/// again with these overheads.
MechanismFit fit_mechanism(const Platform& machine, const std::string& nccl_version,
                           const std::vector<Curve>& curves) {
  MechanismFit fit;
  fit.calibration.platform = machine.name;
  fit.calibration.nccl_version = nccl_version;
  fit.calibration.machine = machine;
  // RCCL's protocols are NCCL's: where they were forced, NCCL's constants are where to start.
  std::map<std::string, ProtocolFigures> forced;
  for (const Curve& curve : curves)
    if (const std::string& name = curve.key().protocol; !name.empty())
      forced.emplace(name, nominal_protocol(name, machine));
  const auto take = [&](const std::map<std::string, ProtocolFigures>& figures) {
    fit.calibration.protocols.clear();
    for (const auto& [name, of_protocol] : figures)
      fit.calibration.protocols.push_back(of_protocol);
  };
  take(forced);
  fit_links(fit, curves);
  fit.overheads = fit_overheads(curves, fit.calibration);
  std::map<std::string, ProtocolFigures> determined;
  for (const OverheadFit& overhead : fit.overheads)
    if (overhead.is_determined()) determined.emplace(overhead.figures.name, overhead.figures);
  if (!determined.empty()) {
    std::map<std::string, ProtocolFigures> known = determined;
    known.insert(forced.begin(), forced.end());
    take(known);
    fit_links(fit, curves);
  }
  take(determined);
  return fit;
}

}  // namespace stepcast
