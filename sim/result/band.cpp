#include "result/band.hpp"

#include <cmath>

namespace stepcast {
namespace {

// Shares that eight of ten measured steps are within, made by tests/validation/make_band.py of what
// `stepcast validate` is off by (docs/model.md §5).
constexpr double computation_below = 0.007;
constexpr double computation_above = 0.089;
constexpr double communication_below = 0.214;
constexpr double communication_above = 0.262;

Seconds together(Seconds a, Seconds b, Seconds c, Seconds d) {
  return Seconds{std::hypot(std::hypot(a.value(), b.value()), std::hypot(c.value(), d.value()))};
}

}  // namespace

Margin Band::all() const {
  return {together(trace.below, calibration.below, computation.below, communication.below),
          together(trace.above, calibration.above, computation.above, communication.above)};
}

void add_model_error(Band& band, Seconds on_gpu, Seconds exposed, Seconds hidden) {
  band.computation = {computation_below * on_gpu, computation_above * on_gpu};
  // Hidden communication can only come out of hiding.
  band.communication = {communication_below * exposed, communication_above * (exposed + hidden)};
}

}  // namespace stepcast
