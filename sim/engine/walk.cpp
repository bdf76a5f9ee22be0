#include "engine/walk.hpp"

#include <algorithm>
#include <map>
#include <utility>

#include <fmt/format.h>

#include "base/error.hpp"
#include "engine/interference.hpp"
#include "workload/replay.hpp"

namespace stepcast {
namespace {

/// Ranks of one pace that are done with each collective at the same time: all that the walk knows
/// of a rank.
struct RankClasses {
  std::vector<std::size_t> of_rank;
  std::vector<std::size_t> first_rank;  ///< by class

  explicit RankClasses(std::size_t ranks) : of_rank(ranks, 0), first_rank(1, 0) {}

  /// Parts ranks that have different values.
  template <class ValueOf>
  void part(ValueOf value_of) {
    const std::size_t ranks = of_rank.size();
    std::size_t rank = 0;
    while (rank < ranks && value_of(rank) == value_of(first_rank[of_rank[rank]])) ++rank;
    if (rank == ranks) return;
    std::map<std::pair<std::size_t, double>, std::size_t> classes;
    std::vector<std::size_t> first;
    for (rank = 0; rank < ranks; ++rank) {
      const auto [known, is_new] =
          classes.try_emplace({of_rank[rank], value_of(rank)}, first.size());
      if (is_new) first.push_back(rank);
      of_rank[rank] = known->second;
    }
    first_rank = std::move(first);
  }
};

RankClasses classes_of(const Job& job, const std::vector<std::vector<Seconds>>& done_after_start) {
  RankClasses classes(static_cast<std::size_t>(job.cluster.ranks()));
  if (!job.fold) {
    classes.part([](std::size_t rank) { return static_cast<double>(rank); });
    return classes;
  }
  classes.part([&](std::size_t rank) { return job.pace_of(rank); });
  for (const std::vector<Seconds>& done : done_after_start)
    classes.part([&](std::size_t rank) { return done[rank].value(); });
  return classes;
}

/// Walks all classes of ranks through the program side by side.
class Walk {
 public:
  Walk(const Job& job, const std::vector<std::vector<Seconds>>& done_after_start)
      : job_(job),
        done_after_start_(done_after_start),
        classes_(classes_of(job, done_after_start)),
        ranks_(classes_.first_rank.size()),
        slowed_(slowed_at_first(job)),
        compute_(ranks_),
        communication_(ranks_),
        host_(ranks_),
        has_host_(job.program.issue() > Seconds{}) {
    for (const Segment& segment : job.program.segments) timeline_.tasks += segment.tasks.size();
    timeline_.ranks = job.cluster.ranks();
    timeline_.class_of_rank = classes_.of_rank;
    timeline_.task_times.resize(ranks_ * timeline_.tasks);
    timeline_.collectives.resize(job.program.collectives.size());
  }

  Timeline run() {
    pass();
    for (int i = 0; i < job_.warm_ups(); ++i) {
      slowed_ = slowed_as_in(job_, timeline_);
      // The next step begins on all ranks when the last has ended this one; hosts are ahead.
      const Seconds begin = latest(compute_);
      compute_.assign(ranks_, Seconds{});
      communication_.assign(ranks_, Seconds{});
      for (Seconds& clock : host_) clock -= begin;
      under_way_.clear();
      timeline_.segments.clear();
      for (Timeline::CollectiveTimes& times : timeline_.collectives) times = {};
      pass();
    }
    return std::move(timeline_);
  }

 private:
  /// A collective that slows computation.
  struct UnderWay {
    std::size_t collective;
    double computation;
  };

  void pass() {
    std::size_t task = 0;
    for (const Segment& segment : job_.program.segments) {
      const Seconds begin = latest(compute_);
      for (const Task& step : segment.tasks) take(step, task++);
      Seconds period = latest(compute_) - begin;
      // All later passes start when the slowest rank has arrived, as this one did.
      Seconds skipped = static_cast<double>(segment.repeat - 1) * period;
      std::vector<Seconds> lead;
      if (segment.repeat > 1 && segment.is_local() && has_host_) {
        Seconds end;
        for (std::size_t rank = 0; rank < ranks_; ++rank) {
          const Clocks clocks = after_passes(segment, segment.repeat - 1, pace_of(rank),
                                             {compute_[rank], host_[rank]});
          lead.push_back(clocks.compute - clocks.host);
          end = std::max(end, clocks.compute);
        }
        skipped = end - latest(compute_);
        period = skipped / static_cast<double>(segment.repeat - 1);
      }
      timeline_.segments.push_back({compute_, period});
      for (std::size_t rank = 0; rank < ranks_; ++rank) {
        compute_[rank] += skipped;
        communication_[rank] += skipped;
        host_[rank] = lead.empty() ? host_[rank] + skipped : compute_[rank] - lead[rank];
      }
    }
  }

  [[nodiscard]] double pace_of(std::size_t rank) const {
    return job_.pace_of(classes_.first_rank[rank]);
  }

  static Seconds latest(const std::vector<Seconds>& clocks) {
    return *std::max_element(clocks.begin(), clocks.end());
  }

  void take(const Task& step, std::size_t task) {
    std::vector<Seconds> begin = compute_;
    if (const auto* compute = std::get_if<Compute>(&step)) {
      for (std::size_t rank = 0; rank < ranks_; ++rank) {
        if (compute->phase != Phase::host) begin[rank] = std::max(compute_[rank], host_[rank]);
        compute_[rank] = end_of(*compute, rank, begin[rank]);
        host_[rank] += compute->host;
        if (compute->host_waits) host_[rank] = std::max(host_[rank], compute_[rank]);
      }
    } else if (const auto* launch = std::get_if<Launch>(&step)) {
      for (std::size_t rank = 0; rank < ranks_; ++rank)
        compute_[rank] = std::max(compute_[rank], host_[rank]);
      start(static_cast<std::size_t>(launch->collective));
    } else {
      const Timeline::CollectiveTimes& times =
          timeline_.collectives[static_cast<std::size_t>(std::get<Wait>(step).collective)];
      if (times.end.empty())
        throw SimulationError(
            fmt::format("deadlock: all ranks wait for collective {}, which none has launched",
                        std::get<Wait>(step).collective));
      for (std::size_t rank = 0; rank < ranks_; ++rank)
        compute_[rank] = std::max(compute_[rank], times.end[rank]);
    }
    for (std::size_t rank = 0; rank < ranks_; ++rank)
      timeline_.task_times[rank * timeline_.tasks + task] = {begin[rank], compute_[rank]};
  }

  [[nodiscard]] Seconds end_of(const Compute& compute, std::size_t rank, Seconds begin) const {
    if (compute.phase == Phase::host) return begin + compute.duration;
    Seconds left = pace_of(rank) * compute.duration;
    Seconds now = begin;
    for (const UnderWay& slow : under_way_) {
      const Timeline::CollectiveTimes& times = timeline_.collectives[slow.collective];
      if (times.end[rank] <= now) continue;
      const Seconds alone = std::max(Seconds{}, times.start - now);
      if (left <= alone) return now + left;
      now += alone;
      left -= alone;
      const Seconds beside = times.end[rank] - now;
      if (slow.computation * left <= beside) return now + slow.computation * left;
      now += beside;
      left -= beside / slow.computation;
    }
    return now + left;
  }

  void start(std::size_t index) {
    Timeline::CollectiveTimes& times = timeline_.collectives[index];
    times.ready = compute_;
    for (std::size_t rank = 0; rank < ranks_; ++rank)
      times.start = std::max({times.start, compute_[rank], communication_[rank]});
    const std::vector<Seconds>& done = done_after_start_[job_.lowered_of[index]];
    for (const std::size_t rank : classes_.first_rank)
      times.end.push_back(times.start + slowed_[index].communication * done[rank]);
    communication_ = times.end;
    const double computation = slowed_[index].computation;
    // Those that have ended everywhere are of no interest any more.
    while (!under_way_.empty() && first_of(compute_) >= end_of(under_way_.front()))
      under_way_.erase(under_way_.begin());
    if (computation > 1.0) under_way_.push_back({index, computation});
  }

  static Seconds first_of(const std::vector<Seconds>& clocks) {
    return *std::min_element(clocks.begin(), clocks.end());
  }
  [[nodiscard]] Seconds end_of(const UnderWay& slow) const {
    return timeline_.collectives[slow.collective].last_end();
  }

  const Job& job_;
  const std::vector<std::vector<Seconds>>& done_after_start_;  ///< by lowered collective, by rank
  RankClasses classes_;
  std::size_t ranks_;                 ///< one of each class
  std::vector<Interference> slowed_;  ///< by collective
  std::vector<UnderWay> under_way_;   ///< in the order of their start
  std::vector<Seconds> compute_;      ///< by rank: when its compute stream is free
  std::vector<Seconds> communication_;
  std::vector<Seconds> host_;  ///< by rank: when the host comes to the next task
  bool has_host_ = false;
  Timeline timeline_;
};

}  // namespace

Timeline walk(const Job& job, const std::vector<std::vector<Seconds>>& done_after_start) {
  return Walk(job, done_after_start).run();
}

}  // namespace stepcast
