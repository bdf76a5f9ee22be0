// The rates of the links and the overheads of the protocols, from what was measured of collectives.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "engine/overheads.hpp"
#include "fit/curve.hpp"
#include "input/calibration.hpp"
#include "report/report.hpp"

namespace stepcast {

struct MechanismFit {
  std::optional<CalibrationText::Rate> intra_node, inter_node;
  std::vector<OverheadFit> overheads;  ///< those that are determined are in the calibration
  Calibration calibration;             ///< what was found, without samples
};

/// docs/model.md §3.3. Sees these curves and no other.
[[nodiscard]] MechanismFit fit_mechanism(const Platform& machine, const std::string& nccl_version,
                                         const std::vector<Curve>& curves);

}  // namespace stepcast
