// stepcast run --answer: what a sweep says, in words.
#pragma once

#include <functional>
#include <string>

#include "base/json_view.hpp"
#include "input/study.hpp"

namespace stepcast {

struct AnswerOptions {
  double threshold = 0.75;  ///< efficiency that is asked for
  int jobs = 1;
  /// Simulates a point in this process and gives its JSON; called in children only.
  std::function<std::string(const Point&)> simulate;
};

/// Where the efficiency falls under the threshold, what keeps it down there, and what changes of
/// the setting would do, each simulated. `result_of` gives the JSON of a point of the study.
[[nodiscard]] std::string answer(const Study& study,
                                 const std::function<std::string(std::size_t)>& result_of,
                                 const AnswerOptions& options);

}  // namespace stepcast
