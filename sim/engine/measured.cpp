#include "engine/measured.hpp"

#include <algorithm>
#include <cmath>

#include "engine/engine.hpp"

namespace stepcast {
namespace {

// What eight of ten AllReduces are off by, beside what their curves say, where `stepcast validate
// collectives` leaves such curves out (docs/model.md §3.3).
constexpr double other_ranks_in_node = 0.15;
constexpr double other_nodes = 0.05;   // another number of them
constexpr double other_choice = 0.45;  // another algorithm or protocol than was measured

bool asks_for_nothing(const CollectiveSettings& settings) {
  return !settings.channels.value && !settings.chunk_bytes.value && !settings.chunking.value &&
         !settings.nccl_version.value && settings.min_channels == 1 &&
         settings.max_channels == most_channels && settings.nvls &&
         settings.allowed_algorithms.empty() && settings.allowed_protocols.empty();
}

bool are_alike(const LinkFigures& a, const LinkFigures& b) {
  return a.bandwidth == b.bandwidth && a.alpha == b.alpha && a.latency == b.latency;
}

bool are_alike(const FabricLevel& a, const FabricLevel& b) {
  return a.nodes_per_group == b.nodes_per_group && a.oversubscription == b.oversubscription &&
         a.uplinks == b.uplinks;
}

bool are_alike(const Fabric& a, const Fabric& b) {
  return a.rails == b.rails && a.hashes_queue_pairs == b.hashes_queue_pairs &&
         a.ecmp_seed == b.ecmp_seed && a.node_pair == b.node_pair &&
         std::equal(a.levels.begin(), a.levels.end(), b.levels.begin(), b.levels.end(),
                    [](const auto& one, const auto& other) { return are_alike(one, other); });
}

bool are_alike(const Platform& a, const Platform& b) {
  if (a.nics.has_value() != b.nics.has_value()) return false;
  if (a.nics && (a.nics->count != b.nics->count || !are_alike(a.nics->figures, b.nics->figures)))
    return false;
  return a.gpus_per_node == b.gpus_per_node && are_alike(a.intra_node, b.intra_node) &&
         a.node_graph.lanes == b.node_graph.lanes && are_alike(a.fabric, b.fabric);
}

/// From the start to the end on the last rank.
double time_of(const LoweredCollective& collective, const Cluster& cluster) {
  const std::vector<Seconds> done = done_times({&collective}, cluster).by_collective.front();
  return std::max_element(done.begin(), done.end())->value();
}

/// What the mechanism makes of one collective, on a network that may be slower than it is.
class Mechanism {
 public:
  Mechanism(Operation operation, Bytes bytes, const CollectiveSettings& settings,
            const Cluster& cluster, const std::vector<Ring>& rings)
      : cluster_(cluster),
        collective_(lower(operation, bytes, settings, cluster, rings)),
        alpha_(collective_.alpha),
        latency_(collective_.latency) {}

  [[nodiscard]] const std::string& algorithm() const { return collective_.algorithm; }

  /// s, on the network as it is.
  [[nodiscard]] double time() {
    if (!as_it_is_) as_it_is_ = time(1.0);
    return *as_it_is_;
  }
  /// s, where each overhead, latency and byte between nodes takes so many times as long.
  [[nodiscard]] double time(double slowness) {
    for (std::size_t i = 0; i < alpha_.size(); ++i) {
      const double factor = collective_.routes[i].inter_node ? slowness : 1.0;
      collective_.alpha[i] = factor * alpha_[i];
      collective_.latency[i] = factor * latency_[i];
    }
    return time_of(collective_, cluster_.with_network_rate(1.0 / slowness));
  }

 private:
  Cluster cluster_;
  LoweredCollective collective_;
  std::vector<Seconds> alpha_, latency_;  ///< as they were
  std::optional<double> as_it_is_;
};

/// How slow the network must be for the mechanism to take so long. The time is convex in it (the
/// longest of many paths, each linear), which brackets the answer. Empty where no network, however
/// fast or slow, explains the time.
std::optional<double> slowness_for(Mechanism& mechanism, double time) {
  constexpr double fastest = 1e-3;
  constexpr double slowest = 1e3;
  constexpr double close = 1e-3;
  const double as_it_is = mechanism.time();
  const auto off_by = [&](double slowness) { return mechanism.time(slowness) - time; };
  double low = 1.0, low_off = as_it_is - time;
  double high = 1.0, high_off = low_off;
  if (low_off > 0.0) {
    low = fastest;
    low_off = off_by(low);
    if (low_off > 0.0) return std::nullopt;
  } else {
    high = time / as_it_is;
    high_off = off_by(high);
    while (high_off < -close * time) {
      const double slope = (high_off - low_off) / (high - low);
      low = high;
      low_off = high_off;
      high = std::min(slope > 0.0 ? high - high_off / slope : slowest, slowest);
      high_off = off_by(high);
      if (high >= slowest && high_off < 0.0) return std::nullopt;
    }
  }
  // Regula falsi, Illinois: the end that stays counts half.
  for (int side = 0, iteration = 0; iteration < 30; ++iteration) {
    if (std::abs(high_off) <= close * time) return high;
    if (std::abs(low_off) <= close * time) return low;
    const double next = low - low_off * (high - low) / (high_off - low_off);
    const double off = off_by(next);
    if (std::abs(off) <= close * time) return next;
    if (off > 0.0) {
      high = next;
      high_off = off;
      if (side == 1) low_off /= 2.0;
      side = 1;
    } else {
      low = next;
      low_off = off;
      if (side == -1) high_off /= 2.0;
      side = -1;
    }
  }
  return high;
}

class Levels {
 public:
  Levels(Operation operation, Bytes bytes, const CollectiveSettings& settings,
         const Cluster& cluster, const std::vector<Ring>& rings, Measurements& measurements)
      : operation_(operation),
        bytes_(bytes),
        settings_(settings),
        cluster_(cluster),
        rings_(rings),
        measurements_(measurements) {
    for (const Curve& curve : measurements.curves())
      if (curve.key().operation == operation) curves_.push_back(&curve);
  }

  [[nodiscard]] std::optional<Level> find() const {
    const std::string algorithm = settings_.algorithm.value.value_or("");
    const std::string protocol = settings_.protocol.value.value_or("");
    if (curves_.empty()) return std::nullopt;
    std::vector<const Curve*> near = curves_with(algorithm, protocol);
    double apart = 0.0;
    if (near.empty()) {
      near = curves_with("", "");
      apart = other_choice;
    }
    if (near.empty()) return Level{1.0, Basis::extrapolated, apart};
    const auto same = std::find_if(near.begin(), near.end(), [&](const Curve* curve) {
      return curve->key().ranks == cluster_.ranks() && curve->key().nodes == cluster_.nodes();
    });
    Level level = same != near.end() ? level_on_same_ranks(**same) : level_from_others(near);
    if (same == near.end())
      apart = std::hypot(apart, cluster_.nodes() > 1 ? other_nodes : other_ranks_in_node);
    level.relative_error = std::hypot(level.relative_error, apart);
    return level;
  }

 private:
  /// On one node, or on several, as this collective is.
  [[nodiscard]] std::vector<const Curve*> curves_with(const std::string& algorithm,
                                                      const std::string& protocol) const {
    std::vector<const Curve*> found;
    for (const Curve* curve : curves_)
      if (curve->key().algorithm == algorithm && curve->key().protocol == protocol &&
          (curve->key().nodes > 1) == (cluster_.nodes() > 1))
        found.push_back(curve);
    return found;
  }

  /// Of what the curve is of.
  [[nodiscard]] Mechanism mechanism_of(const Curve& curve, Bytes size) const {
    const Measurements::Machine& machine = measurements_.machine_of(curve.key());
    return {operation_, size, settings_of(curve.key()), machine.cluster, machine.rings};
  }

  /// Measured / mechanism, for the nearest size that was measured.
  [[nodiscard]] double ratio_of(const Curve& curve) const {
    const Bytes size = curve.nearest(bytes_);
    return curve.at(size) / Seconds{mechanism_of(curve, size).time()};
  }

  /// What was measured is what is asked about, but for its ranks and size.
  [[nodiscard]] bool is_same_case(const Curve& curve) const {
    return asks_for_nothing(settings_) &&
           settings_.algorithm.value.value_or("") == curve.key().algorithm &&
           settings_.protocol.value.value_or("") == curve.key().protocol &&
           are_alike(cluster_.platform(), *cluster_.calibration()->machine);
  }

  [[nodiscard]] Level level_on_same_ranks(const Curve& curve) const {
    Level level{ratio_of(curve), Basis::extrapolated, curve.relative_error()};
    if (curve.holds(bytes_) && is_same_case(curve))
      level.basis = curve.has_point(bytes_) ? Basis::measured : Basis::interpolated;
    return level;
  }

  /// The size of which this curve's ranks exchange messages as large as the collective's: a ring's
  /// are an n-th of the buffer, a tree's do not depend on n.
  [[nodiscard]] Bytes size_of_like_messages(const Curve& curve, const Mechanism& target) const {
    if (curve.key().nodes == 1 || target.algorithm() != "ring") return curve.nearest(bytes_);
    return curve.nearest(bytes_ * (static_cast<double>(curve.key().ranks) / cluster_.ranks()));
  }

  /// Measured / mechanism of one node of those that the curve is of; 1 where that is not known.
  [[nodiscard]] double ratio_inside_node(const Curve& of) const {
    const CurveKey& key = of.key();
    for (const Curve* curve : curves_)
      if (curve->key().nodes == 1 && curve->key().ranks * key.nodes == key.ranks &&
          curve->key().algorithm == key.algorithm && curve->key().protocol == key.protocol)
        return ratio_of(*curve);
    return 1.0;
  }

  /// Measured / mechanism, as this curve of other ranks tells it: docs/model.md §3.3.
  [[nodiscard]] double ratio_from(const Curve& curve, Mechanism& target) const {
    const CurveKey& key = curve.key();
    const Bytes size = size_of_like_messages(curve, target);
    const double measured = curve.at(size).value();
    Mechanism source = mechanism_of(curve, size);
    const double whole = measured / source.time();
    if (key.nodes == 1) return whole;
    if (source.algorithm() != target.algorithm())
      return 1.0 + std::max(0.0, measured - source.time()) / target.time();
    const double inside = ratio_inside_node(curve);
    const std::optional<double> slowness = slowness_for(source, measured / inside);
    return slowness ? inside * target.time(*slowness) / target.time() : whole;
  }

  /// From the nearest number of ranks below and the nearest above, by the logarithm; from one of
  /// them beyond what was measured.
  [[nodiscard]] Level level_from_others(const std::vector<const Curve*>& curves) const {
    const double ranks = cluster_.ranks();
    const Curve* below = nullptr;
    const Curve* above = nullptr;
    for (const Curve* curve : curves) {
      const double n = curve->key().ranks;
      if (n <= ranks && (below == nullptr || n > below->key().ranks)) below = curve;
      if (n >= ranks && (above == nullptr || n < above->key().ranks)) above = curve;
    }
    Mechanism target(operation_, bytes_, settings_, cluster_, rings_);
    if (below == nullptr || above == nullptr)
      return level_beyond(*(below ? below : above), curves, target);
    const double low = std::log(ratio_from(*below, target));
    const double high = std::log(ratio_from(*above, target));
    const double share =
        std::log(ranks / below->key().ranks) /
        std::max(1e-9, std::log(static_cast<double>(above->key().ranks) / below->key().ranks));
    Level level{std::exp(low + share * (high - low)), Basis::extrapolated,
                std::max({below->relative_error(), above->relative_error(), std::abs(high - low)})};
    if (below->holds(bytes_) && above->holds(bytes_) && is_same_case(*below))
      level.basis = Basis::interpolated;
    return level;
  }

  /// Off by as much as the two nearest that were measured disagree, or by as much as the mechanism
  /// was off at the only one.
  [[nodiscard]] Level level_beyond(const Curve& nearest, const std::vector<const Curve*>& curves,
                                   Mechanism& target) const {
    const double ratio = std::log(ratio_from(nearest, target));
    const Curve* next = nullptr;
    const auto distance = [&](const Curve& curve) {
      return std::abs(std::log(static_cast<double>(curve.key().ranks) / nearest.key().ranks));
    };
    for (const Curve* curve : curves)
      if (curve != &nearest && (next == nullptr || distance(*curve) < distance(*next)))
        next = curve;
    const double change = next != nullptr ? ratio - std::log(ratio_from(*next, target)) : ratio;
    return {std::exp(ratio), Basis::extrapolated,
            std::max(nearest.relative_error(), std::abs(change))};
  }

  Operation operation_;
  Bytes bytes_;
  const CollectiveSettings& settings_;
  const Cluster& cluster_;
  const std::vector<Ring>& rings_;
  Measurements& measurements_;
  std::vector<const Curve*> curves_;  ///< of the operation
};

}  // namespace

CollectiveSettings settings_of(const CurveKey& key) {
  CollectiveSettings settings;
  if (!key.algorithm.empty()) settings.algorithm = {key.algorithm, "calibration"};
  if (!key.protocol.empty()) settings.protocol = {key.protocol, "calibration"};
  return settings;
}

Cluster cluster_of(const CurveKey& key, const Calibration& calibration) {
  Placement placement;
  placement.gpus_per_node = (key.ranks + key.nodes - 1) / key.nodes;
  return {*calibration.machine, &calibration, key.ranks, "calibration", placement};
}

Seconds mechanism_time(Operation operation, Bytes bytes, const CollectiveSettings& settings,
                       const Cluster& cluster) {
  return mechanism_time(operation, bytes, settings, cluster, find_rings(cluster));
}

Seconds mechanism_time(Operation operation, Bytes bytes, const CollectiveSettings& settings,
                       const Cluster& cluster, const std::vector<Ring>& rings) {
  return Seconds{Mechanism(operation, bytes, settings, cluster, rings).time()};
}

Measurements::Measurements(const Cluster& cluster) {
  const Calibration* calibration = cluster.calibration();
  if (calibration == nullptr || !calibration->machine || cluster.ranks() < 2 ||
      calibration->platform != cluster.platform().name)
    return;
  calibration_ = calibration;
  curves_ = curves_of(calibration->samples);
}

const Measurements::Machine& Measurements::machine_of(const CurveKey& key) {
  const std::pair ranks_and_nodes{key.ranks, key.nodes};
  const auto known = machines_.find(ranks_and_nodes);
  if (known != machines_.end()) return known->second;
  const Cluster cluster = cluster_of(key, *calibration_);
  return machines_.try_emplace(ranks_and_nodes, Machine{cluster, find_rings(cluster)})
      .first->second;
}

std::optional<Level> measured_level(Operation operation, Bytes bytes,
                                    const CollectiveSettings& settings, const Cluster& cluster,
                                    const std::vector<Ring>& rings, Measurements& measurements) {
  return Levels(operation, bytes, settings, cluster, rings, measurements).find();
}

void scale_time(LoweredCollective& collective, double factor) {
  collective.launch = factor * collective.launch;
  collective.work_per_byte *= factor;
  for (Seconds& alpha : collective.alpha) alpha = factor * alpha;
  for (Seconds& latency : collective.latency) latency = factor * latency;
}

}  // namespace stepcast
