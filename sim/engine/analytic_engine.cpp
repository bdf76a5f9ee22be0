// Longest-path evaluation of a job: the oracle of the tests and the fast answer where nothing
// contends.
#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "base/error.hpp"
#include "engine/engine.hpp"
#include "engine/interference.hpp"
#include "workload/replay.hpp"

namespace stepcast {
namespace {

/// Start and end of each transfer on the wire, from the start of the collective.
struct Evaluation {
  std::vector<Interval> on_wire;
  std::vector<Seconds> done;  ///< by rank: its last transfer has left or arrived
};

Evaluation evaluate(const LoweredCollective& collective, const std::vector<BytesPerSecond>& rates) {
  const Schedule& schedule = collective.schedule;
  Evaluation evaluation;
  evaluation.on_wire.resize(schedule.transfers.size());
  evaluation.done.resize(static_cast<std::size_t>(schedule.ends()), collective.launch);
  std::vector<Seconds> free(schedule.connections.size(), collective.launch);
  for (std::size_t i = 0; i < schedule.transfers.size(); ++i) {
    const Transfer& transfer = schedule.transfers[i];
    const auto connection = static_cast<std::size_t>(transfer.connection);
    Seconds start = free[connection];
    for (const int before : schedule.dependencies_of(i)) {
      if (static_cast<std::size_t>(before) >= i)
        throw SimulationError(fmt::format(
            "deadlock: transfer {} of the {} schedule waits for transfer {}, which comes later", i,
            collective.algorithm, before));
      const auto index = static_cast<std::size_t>(before);
      start = std::max(start, evaluation.on_wire[index].end + collective.time_to_know(index, i));
    }
    const Seconds wire_begin = start + collective.alpha[connection];
    const Seconds end =
        wire_begin + schedule.bytes_of(transfer) * collective.work_per_byte / rates[connection];
    evaluation.on_wire[i] = {wire_begin, end};
    free[connection] = end;
    const Connection& ends = schedule.connections[connection];
    Seconds& sent = evaluation.done[static_cast<std::size_t>(ends.src)];
    sent = std::max(sent, end);
    Seconds& arrived = evaluation.done[static_cast<std::size_t>(ends.dst)];
    arrived = std::max(arrived, end + collective.latency[connection]);
  }
  evaluation.done.resize(static_cast<std::size_t>(schedule.ranks));
  return evaluation;
}

/// True when no two transfers are on a link at the same time, so that each may have it whole.
bool is_exclusive(const LoweredCollective& collective, const Evaluation& evaluation,
                  const std::vector<int>& sharing) {
  std::vector<std::vector<Interval>> busy(sharing.size());
  for (std::size_t i = 0; i < collective.schedule.transfers.size(); ++i) {
    const auto connection = static_cast<std::size_t>(collective.schedule.transfers[i].connection);
    for (const int link : collective.routes[connection].links)
      if (sharing[static_cast<std::size_t>(link)] > 1)
        busy[static_cast<std::size_t>(link)].push_back(evaluation.on_wire[i]);
  }
  for (std::vector<Interval>& intervals : busy) {
    std::sort(intervals.begin(), intervals.end(),
              [](const Interval& a, const Interval& b) { return a.begin < b.begin; });
    for (std::size_t i = 1; i < intervals.size(); ++i)
      if (intervals[i].begin < intervals[i - 1].end * (1.0 - 1e-12)) return false;
  }
  return true;
}

/// The even shares are max-min fair when each transfer has a link that is full as long as it lasts
/// and on which nobody gets more. A link of its own is one; a shared link is one when its
/// connections always send together. Anything else is refused.
void check_fairness(const LoweredCollective& collective, const Evaluation& evaluation,
                    const Cluster& cluster, const std::vector<BytesPerSecond>& rates) {
  const Schedule& schedule = collective.schedule;
  const std::vector<BytesPerSecond>& bandwidths = cluster.bandwidths();
  const std::vector<int> sharing = connections_per_link(collective, bandwidths.size());
  const auto share = [&](int link) {
    return bandwidths[static_cast<std::size_t>(link)] /
           static_cast<double>(sharing[static_cast<std::size_t>(link)]);
  };
  // For each connection, the link that shall be the full one; only a shared one needs a proof.
  std::vector<bool> to_prove(bandwidths.size(), false);
  for (std::size_t connection = 0; connection < collective.routes.size(); ++connection) {
    if (rates[connection] == collective.channel_rate) continue;  // as good as a link of its own
    const std::vector<int>& links = collective.routes[connection].links;
    const auto full = [&](int link) { return share(link) == rates[connection]; };
    const auto full_and_own = [&](int link) {
      return full(link) && sharing[static_cast<std::size_t>(link)] == 1;
    };
    if (std::none_of(links.begin(), links.end(), full_and_own))
      to_prove[static_cast<std::size_t>(*std::find_if(links.begin(), links.end(), full))] = true;
  }
  if (std::find(to_prove.begin(), to_prove.end(), true) == to_prove.end()) return;

  std::vector<std::vector<std::size_t>> by_link(bandwidths.size());
  std::vector<bool> even(bandwidths.size(), true);  // everybody on the link has the same rate
  for (std::size_t i = 0; i < schedule.transfers.size(); ++i) {
    const auto connection = static_cast<std::size_t>(schedule.transfers[i].connection);
    for (const int link : collective.routes[connection].links) {
      if (!to_prove[static_cast<std::size_t>(link)]) continue;
      by_link[static_cast<std::size_t>(link)].push_back(i);
      if (share(link) != rates[connection]) even[static_cast<std::size_t>(link)] = false;
    }
  }
  for (std::size_t link = 0; link < by_link.size(); ++link) {
    std::vector<std::size_t>& transfers = by_link[link];
    const auto begin = [&](std::size_t i) { return evaluation.on_wire[i].begin; };
    const auto end = [&](std::size_t i) { return evaluation.on_wire[i].end; };
    std::sort(transfers.begin(), transfers.end(), [&](std::size_t a, std::size_t b) {
      return begin(a) != begin(b) ? begin(a) < begin(b) : a < b;
    });
    const auto together = static_cast<std::size_t>(std::max(1, sharing[link]));
    const auto same = [&](Seconds a, Seconds b) {
      return std::abs((a - b).value()) <= 1e-12 * b.value();
    };
    bool fair = even[link] && (transfers.empty() || transfers.size() % together == 0);
    for (std::size_t first = 0; fair && first < transfers.size(); first += together) {
      const std::size_t leader = transfers[first];
      for (std::size_t i = first; i < first + together; ++i)
        fair &= same(begin(transfers[i]), begin(leader)) && same(end(transfers[i]), end(leader));
      fair &= first == 0 || begin(leader) >= end(transfers[first - 1]) ||
              same(begin(leader), end(transfers[first - 1]));
    }
    if (!fair)
      throw SimulationError(
          fmt::format("the analytic engine cannot answer: {} connections share {} at changing "
                      "rates; use --engine simgrid",
                      sharing[link], cluster.link_name(static_cast<int>(link))));
  }
}

/// When each rank is done, from the start of the collective.
std::vector<Seconds> evaluate_exactly(const LoweredCollective& collective, const Cluster& cluster) {
  const std::vector<BytesPerSecond>& bandwidths = cluster.bandwidths();
  const std::vector<int> sharing = connections_per_link(collective, bandwidths.size());
  if (std::any_of(sharing.begin(), sharing.end(),
                  [](int connections) { return connections > 1; })) {
    Evaluation alone = evaluate(
        collective, rates_when_shared(collective, bandwidths, std::vector<int>(sharing.size(), 1)));
    if (is_exclusive(collective, alone, sharing)) return std::move(alone.done);
  }
  const std::vector<BytesPerSecond> rates = even_share_rates(collective, bandwidths);
  Evaluation evaluation = evaluate(collective, rates);
  check_fairness(collective, evaluation, cluster, rates);
  return std::move(evaluation.done);
}

/// Walks all ranks through the program side by side.
class Walk {
 public:
  explicit Walk(const Job& job)
      : job_(job),
        ranks_(static_cast<std::size_t>(job.cluster.ranks())),
        time_factors_(job.program.collectives.size(), 1.0),
        compute_(ranks_),
        communication_(ranks_),
        host_(ranks_),
        has_host_(job.program.issue() > Seconds{}) {
    for (const LoweredCollective& collective : job.lowered)
      done_after_start_.push_back(evaluate_exactly(collective, job.cluster));
    for (const Segment& segment : job.program.segments) timeline_.tasks += segment.tasks.size();
    timeline_.ranks = job.cluster.ranks();
    timeline_.task_times.resize(ranks_ * timeline_.tasks);
    timeline_.collectives.resize(job.program.collectives.size());
  }

  Timeline run() {
    pass();
    for (int i = 0; i < job_.warm_ups(); ++i) {
      time_factors_ = time_factors(job_, timeline_);
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
          const Clocks clocks = after_passes(segment, segment.repeat - 1, job_.pace_of(rank),
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
    Seconds left = job_.pace_of(rank) * compute.duration;
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
    times.end = done_after_start_[job_.lowered_of[index]];
    for (Seconds& end : times.end) end = times.start + time_factors_[index] * end;
    communication_ = times.end;
    const double computation = job_.interference_of(index).computation;
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
  std::size_t ranks_;
  std::vector<std::vector<Seconds>> done_after_start_;  ///< by lowered collective, by rank
  std::vector<double> time_factors_;                    ///< by collective
  std::vector<UnderWay> under_way_;                     ///< in the order of their start
  std::vector<Seconds> compute_;  ///< by rank: when its compute stream is free
  std::vector<Seconds> communication_;
  std::vector<Seconds> host_;  ///< by rank: when the host comes to the next task
  bool has_host_ = false;
  Timeline timeline_;
};

}  // namespace

Timeline simulate_analytically(const Job& job) { return Walk(job).run(); }

}  // namespace stepcast
