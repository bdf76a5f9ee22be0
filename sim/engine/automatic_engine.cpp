// Each distinct collective on the longest path where that is exact, on SimGrid where links are
// shared unevenly; then all ranks walk through the program.
#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "base/error.hpp"
#include "engine/engine.hpp"
#include "engine/finished.hpp"
#include "engine/isolate.hpp"
#include "engine/walk.hpp"

namespace stepcast {
namespace {

/// The collective with nothing around it.
Job bare_job(const LoweredCollective& collective, const Cluster& cluster) {
  return {
      cluster,
      single_collective(collective.operation, static_cast<std::int64_t>(collective.bytes.value())),
      {collective},
      {0}};
}

/// In a child.
std::string simulate_one(const LoweredCollective& collective, const Cluster& cluster) {
  return text_of_values(
      simulate_with_simgrid(bare_job(collective, cluster)).collectives.front().end);
}

}  // namespace

std::vector<std::vector<Seconds>> done_on_simgrid(
    const std::vector<const LoweredCollective*>& collectives, const Cluster& cluster) {
  FinishedCollectives& finished = finished_collectives();
  std::vector<CollectiveKey> keys;
  std::map<CollectiveKey, std::vector<Seconds>> done;
  std::vector<std::size_t> missing;  // the first of each key
  for (std::size_t i = 0; i < collectives.size(); ++i) {
    keys.push_back(key_of(*collectives[i], cluster));
    if (done.try_emplace(keys[i]).second) missing.push_back(i);
  }
  const auto transfers = [&](std::size_t index) {
    const Schedule& schedule = collectives[index]->schedule;
    return schedule.ring ? schedule.ring->transfers()
                         : static_cast<double>(schedule.transfers.size());
  };
  // What takes longest first, so that cores are not left with nothing to do at the end.
  std::stable_sort(missing.begin(), missing.end(),
                   [&](std::size_t a, std::size_t b) { return transfers(a) > transfers(b); });
  std::string problem;
  std::size_t problem_of = collectives.size();
  // One that no other process simulates.
  const auto next = [&]() -> std::optional<std::size_t> {
    for (std::size_t place = 0; problem.empty() && place < missing.size();) {
      const std::size_t index = missing[place];
      const bool is_mine = finished.claim(keys[index], static_cast<std::size_t>(cluster.ranks()));
      if (auto found = finished.find(keys[index])) {
        if (is_mine) finished.release(keys[index]);
        done[keys[index]] = *std::move(found);
      } else if (!is_mine) {
        ++place;
        continue;
      }
      missing.erase(missing.begin() + static_cast<std::ptrdiff_t>(place));
      if (done[keys[index]].empty()) return index;
    }
    return std::nullopt;
  };
  const auto simulated = [&](std::size_t index, const Outcome& outcome) {
    if (outcome.kind == Outcome::Kind::done) {
      std::vector<Seconds>& times = done[keys[index]] = values_in<Seconds>(outcome.text);
      finished.add(keys[index], times);
    } else if (index < problem_of) {
      problem = outcome.text;
      problem_of = index;
    }
    finished.release(keys[index]);
  };
  while (problem.empty() && !missing.empty()) {
    run_isolated(
        next, {.count = 1, .borrow = true},
        [&](std::size_t index) { return simulate_one(*collectives[index], cluster); }, simulated);
    if (!missing.empty()) finished.wait_for(keys[missing.front()]);
  }
  if (problem_of < collectives.size()) throw SimulationError(problem);
  std::vector<std::vector<Seconds>> by_collective;
  for (const CollectiveKey& key : keys) by_collective.push_back(done[key]);
  return by_collective;
}

DoneTimes done_times(const std::vector<const LoweredCollective*>& collectives,
                     const Cluster& cluster) {
  std::vector<std::vector<Seconds>> done(collectives.size());
  std::vector<std::size_t> shared;
  std::vector<const LoweredCollective*> on_simgrid;
  for (std::size_t i = 0; i < collectives.size(); ++i) {
    try {
      done[i] = done_analytically(*collectives[i], cluster);
    } catch (const SimulationError&) {  // links are shared unevenly
      shared.push_back(i);
      on_simgrid.push_back(collectives[i]);
    }
  }
  std::vector<std::vector<Seconds>> found = done_on_simgrid(on_simgrid, cluster);
  for (std::size_t i = 0; i < shared.size(); ++i) done[shared[i]] = std::move(found[i]);
  return {std::move(done), !shared.empty()};
}

Simulation simulate(const Job& job) {
  std::vector<const LoweredCollective*> collectives;
  for (const LoweredCollective& lowered : job.lowered) collectives.push_back(&lowered);
  const DoneTimes done = done_times(collectives, job.cluster);
  return {walk(job, done.by_collective), done.used_simgrid};
}

}  // namespace stepcast
