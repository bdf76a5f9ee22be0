// What an engine returns: when each rank did what.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/units.hpp"

namespace stepcast {

struct Interval {
  Seconds begin;
  Seconds end;
  [[nodiscard]] Seconds length() const { return end - begin; }
};

/// How long an interval overlaps others, which are disjoint and in order.
[[nodiscard]] inline Seconds overlap(const Interval& with, const std::vector<Interval>& others) {
  auto next =
      std::lower_bound(others.begin(), others.end(), with.begin,
                       [](const Interval& interval, Seconds time) { return interval.end <= time; });
  Seconds sum;
  for (; next != others.end() && next->begin < with.end; ++next)
    sum += std::min(with.end, next->end) - std::max(with.begin, next->begin);
  return sum;
}

/// Times count from the start of the step. A segment that repeats is simulated once: its tasks and
/// collectives carry the times of the first pass, later segments start after the last one.
///
/// Ranks that do the same at the same times are a class, and times are by class.
struct Timeline {
  int ranks = 0;
  std::vector<std::size_t> class_of_rank;  ///< empty: each rank is a class of its own
  std::size_t tasks = 0;                   ///< of all segments together
  std::vector<Interval> task_times;        ///< [class * tasks + task]

  /// For each collective: when each rank handed it over, when the last one had, when each was done.
  struct CollectiveTimes {
    std::vector<Seconds> ready;  ///< by class
    Seconds start;
    std::vector<Seconds> end;  ///< by class
    [[nodiscard]] Seconds last_end() const { return *std::max_element(end.begin(), end.end()); }
  };
  std::vector<CollectiveTimes> collectives;

  /// For each segment, when each rank had done its first pass, and the time from one pass to the
  /// next.
  struct SegmentTimes {
    std::vector<Seconds> first_end;  ///< by class
    Seconds period;
  };
  std::vector<SegmentTimes> segments;

  [[nodiscard]] std::size_t class_of(int rank) const {
    const auto index = static_cast<std::size_t>(rank);
    return class_of_rank.empty() ? index : class_of_rank[index];
  }
  /// When the last rank is done with the step.
  [[nodiscard]] Seconds end() const {
    const std::vector<Seconds>& last = segments.back().first_end;
    return *std::max_element(last.begin(), last.end());
  }
  /// How many ranks each class has.
  [[nodiscard]] std::vector<int> class_sizes() const;
  [[nodiscard]] const Interval& task(std::size_t rank_class, std::size_t task) const {
    return task_times[rank_class * tasks + task];
  }
};

/// Mean over ranks, from what each class has and how many ranks are in it. It adds each different
/// value times its number of ranks, by rising value, so that to the last bit it does not matter how
/// many classes the ranks are put into.
[[nodiscard]] double mean_over_ranks(const std::vector<double>& of_class,
                                     const std::vector<int>& sizes);

}  // namespace stepcast
