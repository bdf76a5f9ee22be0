// What was measured on the machine gives the level of a prediction, the mechanism its shape
// (docs/model.md §3.3).
#pragma once

#include <optional>
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

/// Empty where the calibration measured nothing that is near: another machine, another operation,
/// or no run over several nodes while this one is.
[[nodiscard]] std::optional<Level> measured_level(Operation operation, Bytes bytes,
                                                  const CollectiveSettings& settings,
                                                  const Cluster& cluster);

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
