// What is known about the learning rate of a step whose global batch has grown.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "input/study.hpp"

namespace stepcast {

/// What is known about scaling the learning rate of this step (docs/results.md).
struct LearningRateAdvice {
  std::string rule;  ///< linear or square_root, usual for the optimizer; empty: not known
  std::int64_t warm_up_epochs = 0;
  std::optional<std::int64_t> batch_norm_samples;  ///< behind one statistic; empty: no BatchNorm
};
/// `growth` is that of the global batch over the one that the rate was tuned for.
[[nodiscard]] LearningRateAdvice learning_rate_advice(const Point& point, double growth,
                                                      std::int64_t micro_batch);

}  // namespace stepcast
