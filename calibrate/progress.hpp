// One line on a terminal that says how far the plan is and how long it will still take.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "plan.hpp"

namespace stepcast::calibrate {

class Progress {
 public:
  /// Prints nothing unless `enabled`.
  Progress(const std::vector<PlannedCase>& plan, const Accuracy& accuracy, bool enabled);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  /// Before the case at that place of the plan.
  void show(std::size_t index);

 private:
  const std::vector<PlannedCase>& plan_;
  std::vector<double> left_s_;  ///< estimated before each case
  bool enabled_;
  double begin_s_ = -1;  ///< of the first case that was not done before
  std::size_t first_ = 0;
};

/// 75 -> "1 min 15 s"
[[nodiscard]] std::string duration_text(double seconds);

}  // namespace stepcast::calibrate
