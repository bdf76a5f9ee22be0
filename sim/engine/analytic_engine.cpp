// Longest-path evaluation of a job: the oracle of the tests and the fast answer where nothing
// contends.
#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "base/error.hpp"
#include "engine/engine.hpp"
#include "engine/walk.hpp"

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

}  // namespace

std::vector<Seconds> done_analytically(const LoweredCollective& collective,
                                       const Cluster& cluster) {
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

Timeline simulate_analytically(const Job& job) {
  std::vector<std::vector<Seconds>> done;
  for (const LoweredCollective& collective : job.lowered)
    done.push_back(done_analytically(collective, job.cluster));
  return walk(job, done);
}

}  // namespace stepcast
