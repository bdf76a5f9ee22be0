// How far a figure can be trusted.
#pragma once

#include <string>

namespace stepcast {

/// Where a number comes from; of several, the later one is the weaker.
enum class Basis {
  measured,      ///< as it was measured, on this hardware
  mechanism,     ///< nominal figures of the platform, nothing measured
  interpolated,  ///< measured figures, inside the range they were fitted on
  extrapolated,  ///< measured figures, outside that range
};

[[nodiscard]] inline std::string to_string(Basis basis) {
  switch (basis) {
    case Basis::measured: return "measured";
    case Basis::mechanism: return "mechanism";
    case Basis::interpolated: return "interpolated";
    case Basis::extrapolated: return "extrapolated";
  }
  return {};
}

}  // namespace stepcast
