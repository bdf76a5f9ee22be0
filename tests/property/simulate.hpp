// Runs SimGrid from tests: each simulation in a process of its own, answers as numbers.
#pragma once

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "engine/engine.hpp"
#include "engine/isolate.hpp"

namespace stepcast {

/// All times of a timeline, of each rank in a fixed order.
inline std::vector<double> numbers_of(const Timeline& timeline) {
  std::vector<double> numbers;
  const auto add = [&](Seconds time) { numbers.push_back(time.value()); };
  for (const auto& collective : timeline.collectives) add(collective.start);
  for (const auto& segment : timeline.segments) add(segment.period);
  for (int rank = 0; rank < timeline.ranks; ++rank) {
    const std::size_t index = timeline.class_of(rank);
    for (std::size_t task = 0; task < timeline.tasks; ++task) {
      add(timeline.task(index, task).begin);
      add(timeline.task(index, task).end);
    }
    for (const auto& collective : timeline.collectives) {
      add(collective.ready[index]);
      add(collective.end[index]);
    }
    for (const auto& segment : timeline.segments) add(segment.first_end[index]);
  }
  return numbers;
}

inline std::vector<double> simgrid_numbers(const Job& job) {
  return isolated_numbers([&] { return numbers_of(simulate_with_simgrid(job)); });
}

/// Of a job that starts with its only collective.
inline double simgrid_duration(const Job& job) {
  const std::vector<double> numbers = simgrid_numbers(job);
  return numbers.empty() ? 0.0 : *std::max_element(numbers.begin(), numbers.end());
}

/// How SimGrid ends a job that cannot finish.
inline Outcome simgrid_outcome(const Job& job) {
  return run_isolated(1, 1,
                      [&](std::size_t) {
                        static_cast<void>(simulate_with_simgrid(job));
                        return std::string("it finished");
                      })
      .front();
}

/// The largest difference, relative to the largest number.
inline double worst_difference(const std::vector<double>& a, const std::vector<double>& b) {
  EXPECT_EQ(a.size(), b.size());
  double largest = 0.0;
  double difference = 0.0;
  for (std::size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    largest = std::max({largest, std::abs(a[i]), std::abs(b[i])});
    difference = std::max(difference, std::abs(a[i] - b[i]));
  }
  return largest > 0.0 ? difference / largest : 0.0;
}

}  // namespace stepcast
