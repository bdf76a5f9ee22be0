// How far off a step may be: docs/model.md §5.
#pragma once

#include <algorithm>

#include "base/units.hpp"

namespace stepcast {

/// Of the steps that bands were made of.
constexpr int most_validated_gpus = 32;

/// What a step may be shorter and longer by.
struct Margin {
  Seconds below, above;
};

/// Eight of ten measured steps lie between low() and high().
struct Band {
  Margin trace;          ///< measured steps vary, and another micro-batch is estimated
  Margin calibration;    ///< measured collectives vary, and other sizes and ranks are estimated
  Margin computation;    ///< what the model leaves out while a GPU computes
  Margin communication;  ///< and while it communicates

  /// All of them at once, as they are independent.
  [[nodiscard]] Margin all() const;
  [[nodiscard]] Seconds low(Seconds step) const { return std::max(Seconds{}, step - all().below); }
  [[nodiscard]] Seconds high(Seconds step) const { return step + all().above; }
};

/// What the model leaves out of a step on several ranks, which computes, waits for communication
/// and for others, and hides communication for so long.
void add_model_error(Band& band, Seconds on_gpu, Seconds exposed, Seconds hidden);

}  // namespace stepcast
