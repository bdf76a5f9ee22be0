#include "engine/overheads.hpp"

#include <algorithm>
#include <cmath>
#include <memory>
#include <utility>

#include <fmt/format.h>

#include "base/error.hpp"
#include "base/text.hpp"
#include "collective/lower.hpp"
#include "collective/protocols.hpp"
#include "collective/rings.hpp"
#include "engine/measured.hpp"
#include "fit/median.hpp"

namespace stepcast {
namespace {

constexpr double mostly_overhead = 2.0;  // times what the smallest size of a protocol takes
constexpr double large_residual = 0.15;  // an outlier
constexpr double good_fit = 0.10;        // median residual; beyond it another mechanism was at work
constexpr std::size_t least_samples = 4;
constexpr std::size_t most_of_curve = 6;  // sizes; each is simulated some 30 times
constexpr double least_start_s = 1e-7;

struct Sample {
  CurveKey key;
  Bytes bytes;
  double time_s = 0.0;
  CollectiveSettings settings;  ///< as it ran
  std::shared_ptr<const std::vector<Ring>> rings;
};

/// A library may have been made to do what NCCL, as far as is known of it here, cannot.
bool runs_here(const Curve& curve, const Calibration& calibration) {
  const CurveKey& key = curve.key();
  const Cluster cluster = cluster_of(key, calibration);
  try {
    static_cast<void>(
        lower(key.operation, curve.smallest(), settings_of(key), cluster, find_rings(cluster)));
  } catch (const InputError&) {
    return false;
  }
  return true;
}

/// A few of the sizes that ran so, up to where bytes take half of the time. nccl-tests does not
/// wait between broadcasts, which overlap, so these tell no overheads.
std::vector<Sample> samples_of(const std::vector<Curve>& curves, const std::string& protocol,
                               const Calibration& calibration) {
  std::vector<Sample> samples;
  for (const Curve& curve : curves) {
    const CurveKey& key = curve.key();
    if (key.operation == Operation::broadcast || key.ranks < 2 || !runs_here(curve, calibration))
      continue;
    const Cluster cluster = cluster_of(key, calibration);
    const auto rings = std::make_shared<const std::vector<Ring>>(find_rings(cluster));
    std::vector<Sample> of_curve;
    for (const CurvePoint& point : curve.points()) {
      const LoweredCollective ran =
          lower(key.operation, point.bytes, settings_of(key), cluster, *rings);
      if (ran.protocol != protocol) continue;
      Sample sample{key, point.bytes, point.time.value(), settings_of(key), rings};
      sample.settings.algorithm = {ran.algorithm, "calibration"};
      sample.settings.protocol = {ran.protocol, "calibration"};
      if (!of_curve.empty() && sample.time_s > mostly_overhead * of_curve.front().time_s) break;
      of_curve.push_back(std::move(sample));
    }
    const std::size_t every = (of_curve.size() + most_of_curve - 1) / most_of_curve;
    for (std::size_t i = 0; i < of_curve.size(); i += every) samples.push_back(of_curve[i]);
  }
  return samples;
}

// LL's flags travel with its data, so a hop of it takes time on the way only.
using Hop = Seconds ProtocolFigures::*;
Hop hop_between_nodes(const ProtocolFigures& of) {
  return of.name == "LL" ? &ProtocolFigures::latency_inter_node
                         : &ProtocolFigures::alpha_inter_node;
}
Hop hop_inside_node(const ProtocolFigures& of) {
  return of.name == "LL" ? &ProtocolFigures::latency_intra_node
                         : &ProtocolFigures::alpha_intra_node;
}

/// By importance: what is held first comes last.
std::vector<SoughtFigure> sought_from(const ProtocolFigures& start) {
  const double work = 1.0 / start.efficiency;
  std::vector<SoughtFigure> sought;
  for (const Seconds from :
       {start.*hop_between_nodes(start), start.launch, start.*hop_inside_node(start)})
    sought.push_back({std::max(from.value(), least_start_s), 0.0});
  sought.push_back({work, work});
  return sought;
}

ProtocolFigures with(ProtocolFigures figures, const std::vector<double>& values) {
  figures.*hop_between_nodes(figures) = Seconds{values[0]};
  figures.launch = Seconds{values[1]};
  figures.*hop_inside_node(figures) = Seconds{values[2]};
  // The rate of a link is that of Simple.
  if (figures.name != "Simple") figures.efficiency = 1.0 / values[3];
  return figures;
}

std::string why_not(const OverheadFit& fit) {
  if (fit.median_abs > good_fit)
    return fmt::format("half of the sizes are more than {:.0f} % off", 100 * fit.median_abs);
  const auto is_loose = [](const FoundFigure& hop) { return !hop.held && !hop.determined; };
  const bool any = fit.hop_between_nodes.determined || fit.hop_inside_node.determined;
  if (!any || is_loose(fit.hop_between_nodes) || is_loose(fit.hop_inside_node))
    return "launch and hops cannot be told apart; more numbers of ranks or nodes would";
  return "";
}

OverheadFit fit_protocol(const ProtocolFigures& start, const std::vector<Curve>& curves,
                         Calibration calibration) {
  const std::vector<Sample> samples = samples_of(curves, start.name, calibration);
  OverheadFit fit;
  fit.figures = start;
  fit.samples = samples.size();
  if (fit.samples < least_samples) {
    fit.why_not = fmt::format("only {} sizes are mostly overhead", fit.samples);
    return fit;
  }
  std::vector<double> measured;
  for (const Sample& sample : samples) measured.push_back(sample.time_s);
  std::erase_if(calibration.protocols,
                [&](const ProtocolFigures& one) { return one.name == start.name; });
  calibration.protocols.push_back(start);
  const FiguresFit found = fit_figures(
      [&](const std::vector<double>& values) {
        calibration.protocols.back() = with(start, values);
        std::vector<double> times;
        for (const Sample& sample : samples)
          times.push_back(mechanism_time(sample.key.operation, sample.bytes, sample.settings,
                                         cluster_of(sample.key, calibration), *sample.rings)
                              .value());
        return times;
      },
      sought_from(start), measured);

  std::vector<double> sizes;
  for (std::size_t i = 0; i < samples.size(); ++i) {
    sizes.push_back(std::abs(found.residuals[i]));
    if (sizes.back() > large_residual)
      fit.outliers.push_back(
          fmt::format("{} of {} on {} ranks", to_string(samples[i].key.operation),
                      format_bytes(samples[i].bytes.value()), samples[i].key.ranks));
  }
  fit.max_abs = *std::max_element(sizes.begin(), sizes.end());
  fit.median_abs = median(std::move(sizes));
  fit.hop_between_nodes = found.figures[0];
  fit.launch = found.figures[1];
  fit.hop_inside_node = found.figures[2];
  fit.work_per_byte = found.figures[3];
  fit.why_not = why_not(fit);
  if (!fit.is_determined()) return fit;
  std::vector<double> values = {(start.*hop_between_nodes(start)).value(), start.launch.value(),
                                (start.*hop_inside_node(start)).value(), 1.0 / start.efficiency};
  for (std::size_t i = 0; i < values.size(); ++i)
    if (!found.figures[i].held) values[i] = found.figures[i].fitted.value;
  fit.figures = with(start, values);
  fit.figures.worst_residual = fit.max_abs;
  return fit;
}

}  // namespace

std::vector<OverheadFit> fit_overheads(const std::vector<Curve>& curves,
                                       const Calibration& calibration) {
  std::vector<OverheadFit> fits;
  if (curves.empty()) return fits;
  Calibration bare = calibration;
  bare.samples.clear();
  for (const ProtocolFigures& start : protocols_of(cluster_of(curves.front().key(), calibration))) {
    OverheadFit fit = fit_protocol(start, curves, bare);
    if (fit.samples > 0) fits.push_back(std::move(fit));
  }
  return fits;
}

}  // namespace stepcast
