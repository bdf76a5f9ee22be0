#include "result/learning_rate.hpp"

#include <algorithm>
#include <vector>

namespace stepcast {
namespace {

// Goyal et al., arXiv 1706.02677, section 2.2: from the old rate, linearly.
constexpr std::int64_t warm_up_epochs = 5;

bool contains_any(const std::string& text, const std::vector<std::string>& words) {
  return std::any_of(words.begin(), words.end(),
                     [&](const std::string& word) { return text.find(word) != std::string::npos; });
}

}  // namespace

LearningRateAdvice learning_rate_advice(const Point& point, double growth,
                                        std::int64_t micro_batch) {
  const StepTrace& model = *point.model;
  LearningRateAdvice advice;
  // Linear for SGD (Goyal et al.), the square root where steps are normalised (LAMB's default,
  // arXiv 1904.00962).
  if (contains_any(model.optimizer, {"Adam", "LAMB"}))
    advice.rule = "square_root";
  else if (contains_any(model.optimizer, {"SGD"}))
    advice.rule = "linear";
  if (growth > 1.0) advice.warm_up_epochs = warm_up_epochs;
  const bool has_statistics =
      std::any_of(model.buffers.begin(), model.buffers.end(),
                  [](const Buffers& buffers) { return buffers.dtype.find("float") == 0; });
  if (!model.batch_norms.empty() || has_statistics)
    advice.batch_norm_samples =
        micro_batch * (point.scenario.training.synchronized_batch_norm ? point.scenario.gpus : 1);
  return advice;
}

}  // namespace stepcast
