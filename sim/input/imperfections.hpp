// What keeps real machines from being all alike, and what kernels and collectives that run at the
// same time do to each other: the sections `imperfections` and `interference` of a scenario.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/json_view.hpp"

namespace stepcast {

struct Imperfections {
  /// Computation on the rank, or on all ranks of the node, takes so many times as long.
  struct Slow {
    int index = 0;  ///< of the rank or node
    double time_factor = 1.0;
    std::string origin;  ///< what errors about the index name
  };
  struct SlowNic {
    int node = 0;
    int nic = 0;
    double rate_factor = 1.0;
    std::string origin;
  };
  /// How much the ranks' computation differs from step to step.
  struct Jitter {
    double relative_sd = 0.0;  ///< of a lognormal factor with mean 1
    bool from_trace = false;   ///< as the trace's own steps differ; relative_sd is not used
    std::uint64_t seed = 1;    ///< which rank gets which part of it
  };

  /// A rank that is slow in one of so many steps, such as one that writes a checkpoint.
  struct Straggler {
    Slow slow;
    std::int64_t every_steps = 1;
  };

  std::vector<Slow> slow_ranks;
  std::vector<Slow> slow_nodes;
  std::vector<SlowNic> slow_nics;
  std::optional<Jitter> jitter;
  std::optional<Straggler> straggler;
};
[[nodiscard]] Imperfections read_imperfections(const JsonView& json);

/// What a computation and a collective at the same time take, in units of what they take alone;
/// empty: from the calibration, else by the model (docs/model.md §1.2).
struct InterferenceSettings {
  std::optional<double> computation_factor;
  std::optional<double> communication_factor;
};
[[nodiscard]] InterferenceSettings read_interference(const JsonView& json);

}  // namespace stepcast
