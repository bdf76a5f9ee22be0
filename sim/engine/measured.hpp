// What was measured on the machine gives the level of a prediction, the mechanism its shape
// (docs/model.md §3.3).
#pragma once

#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "collective/lower.hpp"
#include "fit/curve.hpp"

namespace stepcast {

/// What a collective's time is multiplied by, and how far that can be trusted.
struct Level {
  double factor = 1.0;  ///< measured / mechanism
  Basis basis = Basis::extrapolated;
  double relative_error = 0.0;  ///< standard error of the product
};

/// What a calibration measured, made ready once for all collectives of a job.
class Measurements {
 public:
  /// None where the cluster's calibration is of another machine, or there is nobody to talk to. The
  /// calibration is that of the cluster, which must stay.
  explicit Measurements(const Cluster& cluster);

  [[nodiscard]] const std::vector<Curve>& curves() const { return curves_; }
  struct Machine {
    Cluster cluster;
    std::vector<Ring> rings;
  };
  /// Where a curve was measured. Its rings are not looked for twice.
  [[nodiscard]] const Machine& machine_of(const CurveKey& key);

 private:
  const Calibration* calibration_ = nullptr;
  std::vector<Curve> curves_;
  std::map<std::pair<int, int>, Machine> machines_;  ///< by ranks and nodes
};

/// Empty where nothing was measured that is near: another machine, another operation, or no run
/// over several nodes while this one is. `rings` are find_rings(cluster), the measurements those of
/// its calibration.
[[nodiscard]] std::optional<Level> measured_level(Operation operation, Bytes bytes,
                                                  const CollectiveSettings& settings,
                                                  const Cluster& cluster,
                                                  const std::vector<Ring>& rings,
                                                  Measurements& measurements);

/// What a curve was measured of: the force, and the ranks on the calibration's machine.
[[nodiscard]] CollectiveSettings settings_of(const CurveKey& key);
[[nodiscard]] Cluster cluster_of(const CurveKey& key, const Calibration& calibration);

/// From the arrival of all ranks to the end on the last, with nothing measured of this collective.
[[nodiscard]] Seconds mechanism_time(Operation operation, Bytes bytes,
                                     const CollectiveSettings& settings, const Cluster& cluster);
/// The same, with find_rings(cluster) from before.
[[nodiscard]] Seconds mechanism_time(Operation operation, Bytes bytes,
                                     const CollectiveSettings& settings, const Cluster& cluster,
                                     const std::vector<Ring>& rings);

/// Makes everything in a collective take so many times as long.
void scale_time(LoweredCollective& collective, double factor);

}  // namespace stepcast
