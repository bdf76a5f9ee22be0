// What an engine returns: when each rank did what.
#pragma once

#include <algorithm>
#include <cstddef>
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
struct Timeline {
  int ranks = 0;
  std::size_t tasks = 0;             ///< of all segments together
  std::vector<Interval> task_times;  ///< [rank * tasks + task]

  /// For each collective: when each rank handed it over, when the last one had, when each was done.
  struct CollectiveTimes {
    std::vector<Seconds> ready;  ///< by rank
    Seconds start;
    std::vector<Seconds> end;  ///< by rank
    [[nodiscard]] Seconds last_end() const { return *std::max_element(end.begin(), end.end()); }
  };
  std::vector<CollectiveTimes> collectives;

  /// For each segment, when each rank had done its first pass, and the time from one pass to the
  /// next.
  struct SegmentTimes {
    std::vector<Seconds> first_end;  ///< by rank
    Seconds period;
  };
  std::vector<SegmentTimes> segments;

  [[nodiscard]] const Interval& task(int rank, std::size_t task) const {
    return task_times[static_cast<std::size_t>(rank) * tasks + task];
  }
};

}  // namespace stepcast
