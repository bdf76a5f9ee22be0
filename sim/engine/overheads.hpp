// The overheads with which the mechanism takes as long as was measured: docs/model.md §3.3.
#pragma once

#include <string>
#include <vector>

#include "fit/curve.hpp"
#include "fit/figures.hpp"
#include "input/calibration.hpp"

namespace stepcast {

/// What the small and middle sizes of the curves say of one protocol.
struct OverheadFit {
  ProtocolFigures figures;  ///< fitted where it is determined, else as it was
  /// alpha of a hop; of LL, which keeps no sender busy, latency.
  FoundFigure hop_between_nodes, hop_inside_node;
  FoundFigure launch;
  FoundFigure work_per_byte;  ///< 1 / efficiency
  std::size_t samples = 0;
  double median_abs = 0.0;  ///< of |predicted / measured - 1|
  double max_abs = 0.0;
  std::vector<std::string> outliers;  ///< for people: `64 KiB on 8 ranks`
  std::string why_not;                ///< what is not determined, and so nothing is to be used

  [[nodiscard]] bool is_determined() const { return why_not.empty(); }
};

/// Of each protocol that ran, as forced or as NCCL's tuner has it. The calibration gives the
/// machine, the rates of its links and the figures to start from.
[[nodiscard]] std::vector<OverheadFit> fit_overheads(const std::vector<Curve>& curves,
                                                     const Calibration& calibration);

}  // namespace stepcast
