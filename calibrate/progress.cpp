#include "progress.hpp"

#include <cstdio>

#include <fmt/format.h>

namespace stepcast::calibrate {

Progress::Progress(const std::vector<PlannedCase>& plan, const Accuracy& accuracy, bool enabled)
    : plan_(plan), left_s_(plan.size() + 1), enabled_(enabled) {
  for (std::size_t i = plan.size(); i-- > 0;)
    left_s_[i] = left_s_[i + 1] + estimated_s(plan[i].what, accuracy);
}

Progress::~Progress() {
  if (enabled_) fmt::print(stderr, "\r\033[K");
}

void Progress::show(std::size_t index) {
  if (!enabled_) return;
  if (begin_s_ < 0) {
    begin_s_ = steady_now();
    first_ = index;
  }
  // The estimate, corrected by how wrong it has been so far.
  const double estimated = left_s_[first_] - left_s_[index];
  const double factor = estimated > 5 ? (steady_now() - begin_s_) / estimated : 1;
  constexpr std::size_t width = 20;
  const std::size_t filled = width * index / plan_.size();
  fmt::print(stderr, "\r\033[K[{:#<{}}{:.<{}}] {}/{}, {} left: {:.60}", "", filled, "",
             width - filled, index, plan_.size(), duration_text(left_s_[index] * factor),
             name(plan_[index]));
  std::fflush(stderr);
}

std::string duration_text(double seconds) {
  const long whole = static_cast<long>(seconds + 0.5);
  if (whole < 60) return fmt::format("{} s", whole);
  if (whole < 3600) return fmt::format("{} min {} s", whole / 60, whole % 60);
  return fmt::format("{} h {} min", whole / 3600, whole / 60 % 60);
}

}  // namespace stepcast::calibrate
