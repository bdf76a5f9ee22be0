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
      start = std::max(start, evaluation.on_wire[index].end +
                                  collective.time_to_know(schedule.transfers[index].connection,
                                                          transfer.connection));
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

/// The same for a ring without a list: what a step needs of the ones before is kept for each place.
/// Rows are padded with the neighbours across their ends, so that a step is one plain loop.
class RingEvaluation {
 public:
  RingEvaluation(const LoweredCollective& collective, const std::vector<BytesPerSecond>& rates)
      : collective_(collective),
        ring_(*collective.schedule.ring),
        places_(static_cast<std::size_t>(ring_.places)),
        rates_(rates),
        rows_(static_cast<std::size_t>(ring_.pieces + ring_.in_flight + 1),
              std::vector<double>(places_ + 2)),
        latency_(places_ + 2),
        alpha_(places_),
        wire_(static_cast<std::size_t>(ring_.pieces), std::vector<double>(places_)) {}

  std::vector<Seconds> run() {
    const std::vector<Connection>& connections = collective_.schedule.connections;
    std::vector<Seconds> done(static_cast<std::size_t>(collective_.schedule.ranks),
                              collective_.launch);
    for (std::size_t first = 0; first < connections.size(); first += places_) {
      const std::vector<double>& last = evaluate_channel(first);
      for (std::size_t place = 0; place < places_; ++place) {
        const Seconds end{last[place + 1]};
        Seconds& sent = done[static_cast<std::size_t>(connections[first + place].src)];
        sent = std::max(sent, end);
        Seconds& arrived = done[static_cast<std::size_t>(connections[first + place].dst)];
        arrived = std::max(arrived, end + collective_.latency[first + place]);
      }
    }
    return done;
  }

 private:
  static void pad(std::vector<double>& row) {
    row.front() = row[row.size() - 2];
    row.back() = row[1];
  }
  [[nodiscard]] std::vector<double>& row(std::int64_t transfer) {
    return rows_[static_cast<std::size_t>(transfer) % rows_.size()];
  }

  /// Ends of the last transfer of each place, from index 1 on.
  const std::vector<double>& evaluate_channel(std::size_t first_connection) {
    for (std::size_t place = 0; place < places_; ++place) {
      alpha_[place] = collective_.alpha[first_connection + place].value();
      latency_[place + 1] = collective_.latency[first_connection + place].value();
    }
    pad(latency_);
    std::vector<double>& launched = row(-1 + static_cast<std::int64_t>(rows_.size()));
    launched.assign(places_ + 2, collective_.launch.value());  // when connections are free at first
    const std::int64_t per_loop = std::int64_t{ring_.steps()} * ring_.pieces;
    // Transfers of a place are numbered from the number of rows on, so that none before is below 0.
    const auto base = static_cast<std::int64_t>(rows_.size());
    std::int64_t next = base;
    const auto channel = static_cast<int>(first_connection / places_);
    for (int loop = 0; loop < ring_.loops; ++loop) {
      const std::int64_t loop_begin = next;
      for (int step = ring_.first; step < ring_.last; ++step) {
        if (step == ring_.first || !blocks_are_alike(channel, loop))
          set_wire_times(first_connection, channel, loop, step);
        for (int piece = 0; piece < ring_.pieces; ++piece, ++next) {
          const std::int64_t from_before = step > ring_.first ? next - ring_.pieces
                                           : loop > 0         ? loop_begin - 1
                                                              : -1;
          std::int64_t makes_room = -1;
          if (const std::int64_t held = next - ring_.in_flight;
              ring_.in_flight > 0 && held >= base &&
              (held - base) % per_loop / ring_.pieces + 1 < ring_.steps())
            makes_room = held + ring_.pieces;
          take_step(next, from_before, makes_room, wire_[static_cast<std::size_t>(piece)]);
        }
      }
    }
    return row(next - 1);
  }

  void take_step(std::int64_t transfer, std::int64_t from_before, std::int64_t makes_room,
                 const std::vector<double>& wire) {
    std::vector<double>& end = row(transfer);
    const double* free = row(transfer - 1).data() + 1;
    // Where nothing is waited for, the connection's own end stands in.
    const double* before = from_before < 0 ? free : row(from_before).data();
    const double* before_latency = latency_.data();
    const double* room = makes_room < 0 ? free : row(makes_room).data() + 2;
    const double* own_latency = latency_.data() + 1;
    if (from_before < 0) before_latency = no_latency();
    if (makes_room < 0) own_latency = no_latency();
    double* out = end.data() + 1;
    for (std::size_t i = 0; i < places_; ++i) {
      const double heard = before[i] + before_latency[i];
      const double told = room[i] + own_latency[i];
      double start = free[i];
      start = start < heard ? heard : start;
      start = start < told ? told : start;
      out[i] = (start + alpha_[i]) + wire[i];
    }
    pad(end);
  }

  const double* no_latency() {
    none_.resize(places_ + 2);
    return none_.data();
  }

  [[nodiscard]] bool blocks_are_alike(int channel, int loop) {
    if (checked_ != std::pair{channel, loop}) {
      checked_ = {channel, loop};
      const auto size = collective_.schedule.chunk_bytes.begin() +
                        std::ptrdiff_t{channel * ring_.loops + loop} * ring_.blocks * ring_.pieces;
      const auto pieces = std::ptrdiff_t{ring_.pieces};
      alike_ = std::equal(size + pieces, size + ring_.blocks * pieces, size);
    }
    return alike_;
  }

  void set_wire_times(std::size_t first_connection, int channel, int loop, int step) {
    const Schedule& schedule = collective_.schedule;
    for (int place = 0; place < ring_.places; ++place) {
      const std::size_t chunk = schedule.first_chunk_of(channel, loop, step, place);
      const auto index = static_cast<std::size_t>(place);
      for (std::size_t piece = 0; piece < wire_.size(); ++piece)
        wire_[piece][index] = (schedule.chunk_bytes[chunk + piece] * collective_.work_per_byte /
                               rates_[first_connection + index])
                                  .value();
    }
  }

  const LoweredCollective& collective_;
  const RingSteps& ring_;
  std::size_t places_;
  const std::vector<BytesPerSecond>& rates_;
  std::vector<std::vector<double>> rows_;  ///< ends of the last transfers of each place
  std::vector<double> latency_;            ///< by place, padded
  std::vector<double> alpha_;              ///< by place
  std::vector<std::vector<double>> wire_;  ///< [piece][place], time on the links
  std::vector<double> none_;
  std::pair<int, int> checked_{-1, -1};
  bool alike_ = false;
};

/// Of each connection, where all may have what they could take alone: on no link is that more than
/// it has, however they meet there.
bool never_too_much(const LoweredCollective& collective, const std::vector<BytesPerSecond>& alone,
                    const std::vector<BytesPerSecond>& bandwidths) {
  std::vector<BytesPerSecond> wanted(bandwidths.size());
  for (std::size_t connection = 0; connection < collective.routes.size(); ++connection)
    for (const int link : collective.routes[connection].links)
      wanted[static_cast<std::size_t>(link)] += alone[connection];
  for (std::size_t link = 0; link < bandwidths.size(); ++link)
    if (wanted[link] > bandwidths[link] * (1.0 + 1e-12)) return false;
  return true;
}

/// The same of what is on a link at the same time.
bool never_too_much_at_once(const LoweredCollective& collective, const Evaluation& evaluation,
                            const std::vector<BytesPerSecond>& alone,
                            const std::vector<BytesPerSecond>& bandwidths,
                            const std::vector<int>& sharing) {
  struct Change {
    Seconds at;
    BytesPerSecond by;
  };
  std::vector<std::vector<Change>> changes(sharing.size());
  for (std::size_t i = 0; i < collective.schedule.transfers.size(); ++i) {
    const auto connection = static_cast<std::size_t>(collective.schedule.transfers[i].connection);
    const Interval& on_wire = evaluation.on_wire[i];
    for (const int link : collective.routes[connection].links)
      if (sharing[static_cast<std::size_t>(link)] > 1) {
        std::vector<Change>& of_link = changes[static_cast<std::size_t>(link)];
        of_link.push_back({on_wire.begin, alone[connection]});
        of_link.push_back({on_wire.end * (1.0 - 1e-12), -1.0 * alone[connection]});
      }
  }
  for (std::size_t link = 0; link < changes.size(); ++link) {
    std::vector<Change>& of_link = changes[link];
    std::sort(of_link.begin(), of_link.end(), [](const Change& a, const Change& b) {
      return a.at != b.at ? a.at < b.at : a.by < b.by;  // who ends makes room first
    });
    BytesPerSecond wanted;
    for (const Change& change : of_link) {
      wanted += change.by;
      if (wanted > bandwidths[link] * (1.0 + 1e-9)) return false;
    }
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

namespace {

std::vector<Seconds> done_of_schedule(const LoweredCollective& collective, const Cluster& cluster) {
  const std::vector<BytesPerSecond>& bandwidths = cluster.bandwidths();
  const std::vector<int> sharing = connections_per_link(collective, bandwidths.size());
  const std::vector<BytesPerSecond> alone =
      rates_when_shared(collective, bandwidths, std::vector<int>(sharing.size(), 1));
  const bool fits = never_too_much(collective, alone, bandwidths);
  if (collective.schedule.ring) {
    // Over two ranks the predecessor is the successor.
    if (fits && collective.schedule.ring->places > 2)
      return RingEvaluation(collective, alone).run();
    LoweredCollective in_full = collective;
    in_full.schedule = listed(collective.schedule);
    return done_of_schedule(in_full, cluster);
  }
  Evaluation at_full_rate = evaluate(collective, alone);
  if (fits || never_too_much_at_once(collective, at_full_rate, alone, bandwidths, sharing))
    return std::move(at_full_rate.done);
  const std::vector<BytesPerSecond> rates = even_share_rates(collective, bandwidths);
  Evaluation evaluation = evaluate(collective, rates);
  check_fairness(collective, evaluation, cluster, rates);
  return std::move(evaluation.done);
}

}  // namespace

std::vector<Seconds> done_analytically(const LoweredCollective& collective,
                                       const Cluster& cluster) {
  std::vector<Seconds> done = done_of_schedule(collective, cluster);
  if (collective.fold)
    for (int rank = 0; rank < cluster.ranks(); ++rank)
      done[static_cast<std::size_t>(rank)] =
          done[static_cast<std::size_t>(collective.representative(rank, cluster))];
  return done;
}

Timeline simulate_analytically(const Job& job) {
  std::vector<std::vector<Seconds>> done;
  for (const LoweredCollective& collective : job.lowered)
    done.push_back(done_analytically(collective, job.cluster));
  return walk(job, done);
}

}  // namespace stepcast
