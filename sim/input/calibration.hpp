// What was measured on the machine (platforms/*.calibration.json, stepcast.calibration/1): it
// scales the platform's nominal rates and replaces its alphas.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/json_view.hpp"
#include "base/units.hpp"
#include "input/platform.hpp"
#include "input/samples.hpp"

namespace stepcast {

/// Closed range; inside it a prediction interpolates, outside it extrapolates.
struct Range {
  std::int64_t min = 0;
  std::int64_t max = 0;
  [[nodiscard]] bool holds(std::int64_t value) const { return min <= value && value <= max; }
};

/// What one NCCL protocol costs on this machine.
struct ProtocolFigures {
  std::string name;         ///< LL, LL128 or Simple
  double efficiency = 1.0;  ///< share of a link's rate that payload gets
  Seconds launch;           ///< from the arrival of the last rank to the first transfer
  bool measured = true;     ///< on a range; else NCCL's own constants, some of them replaced
  Seconds alpha_intra_node;
  Seconds alpha_inter_node;
  Seconds latency_intra_node;
  Seconds latency_inter_node;
  Range bytes, ranks, nodes;  ///< what it was fitted on
  [[nodiscard]] bool holds(Bytes size, int world, int machines) const {
    return bytes.holds(static_cast<std::int64_t>(size.value())) && ranks.holds(world) &&
           nodes.holds(machines);
  }
  double worst_residual = 0.0;  ///< largest |predicted / measured - 1| of the fit
};

struct Calibration {
  std::string name;
  std::string source;
  std::string nccl_version;  ///< empty when it is not known
  std::string platform;  ///< name of the platform it was measured on; on another it extrapolates
  /// Measured rate / the platform's rate of one link or NIC. It scales whatever platform is asked
  /// about, so that "what if the NICs were slower" has an answer.
  std::optional<double> intra_node_share;
  std::optional<double> inter_node_share;
  std::vector<ProtocolFigures> protocols;  ///< of those that are left out NCCL's own constants hold
  std::optional<Platform> machine;         ///< the platform as it was when it was measured
  std::vector<CollectiveSample> samples;
  std::vector<InterferenceSample> interference;
};

/// What to tell people who use it on another platform; empty on its own.
[[nodiscard]] std::string foreign_platform(const Calibration& calibration,
                                           const Platform& platform);

[[nodiscard]] Calibration read_calibration(const JsonView& json);

}  // namespace stepcast
