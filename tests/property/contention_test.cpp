// Whole schedules on links that they share unevenly: SimGrid against an independent simulation of
// docs/model.md §2, and what more bandwidth or less alpha must do.
#include <algorithm>
#include <limits>

#include "collective/algorithms.hpp"
#include "jobs.hpp"
#include "max_min.hpp"
#include "simulate.hpp"

namespace stepcast {
namespace {

/// Walks a collective from event to event: each connection serves its transfers in order, spends
/// alpha, then sends at its max-min fair rate. Returns when each rank has its last transfer.
class FluidReference {
 public:
  FluidReference(const LoweredCollective& collective, const Cluster& cluster)
      : collective_(collective),
        schedule_(collective.schedule),
        end_(schedule_.transfers.size(), never),
        connections_(schedule_.connections.size()) {
    for (const BytesPerSecond bandwidth : cluster.bandwidths())
      bandwidths_.push_back(bandwidth.value());
    for (std::size_t c = 0; c < connections_.size(); ++c) {
      connections_[c].links = collective.routes[c].links;
      if (std::isinf(collective.channel_rate.value())) continue;
      connections_[c].links.push_back(static_cast<int>(bandwidths_.size()));
      bandwidths_.push_back(collective.channel_rate.value());
    }
    for (std::size_t i = 0; i < schedule_.transfers.size(); ++i)
      connections_[static_cast<std::size_t>(schedule_.transfers[i].connection)].queue.push_back(i);
  }

  std::vector<double> run() {
    now_ = collective_.launch.value();
    while (true) {
      start_what_may_start();
      std::vector<std::size_t> sending;
      std::vector<std::vector<int>> routes;
      double step = never;
      for (std::size_t c = 0; c < connections_.size(); ++c) {
        const OnConnection& connection = connections_[c];
        if (connection.state == State::sending) {
          sending.push_back(c);
          routes.push_back(connection.links);
        } else if (connection.state == State::overhead) {
          step = std::min(step, connection.sends_at - now_);
        }
      }
      const std::vector<double> rates = max_min_rates(routes, bandwidths_);
      for (std::size_t k = 0; k < sending.size(); ++k)
        step = std::min(step, connections_[sending[k]].left / rates[k]);
      if (step == never) return done_by_rank();
      step = std::max(step, 0.0);
      now_ += step;
      for (std::size_t k = 0; k < sending.size(); ++k) {
        OnConnection& connection = connections_[sending[k]];
        connection.left -= rates[k] * step;
        // What is left takes less than a tick of the clock.
        if (connection.left / rates[k] > 1e-15 * now_) continue;
        end_[connection.queue[connection.next++]] = now_;
        connection.state = State::idle;
      }
    }
  }

 private:
  static constexpr double never = std::numeric_limits<double>::infinity();
  enum class State { idle, overhead, sending };
  struct OnConnection {
    std::vector<int> links;
    std::vector<std::size_t> queue;
    std::size_t next = 0;
    State state = State::idle;
    double sends_at = 0.0;
    double left = 0.0;
  };

  void start_what_may_start() {
    for (std::size_t c = 0; c < connections_.size(); ++c) {
      OnConnection& connection = connections_[c];
      if (connection.state == State::idle && connection.next < connection.queue.size()) {
        const std::size_t i = connection.queue[connection.next];
        double start = now_;
        for (const int before : schedule_.dependencies_of(i))
          start = std::max(start, known_to_sender(static_cast<std::size_t>(before), i));
        if (start == never) continue;
        connection.state = State::overhead;
        connection.sends_at = start + collective_.alpha[c].value();
        connection.left =
            schedule_.bytes_of(schedule_.transfers[i]).value() * collective_.work_per_byte;
      }
      if (connection.state == State::overhead && connection.sends_at <= now_ * (1 + 1e-15))
        connection.state = State::sending;
    }
  }

  double latency_of(std::size_t transfer) const {
    return collective_.latency[static_cast<std::size_t>(schedule_.transfers[transfer].connection)]
        .value();
  }

  double known_to_sender(std::size_t before, std::size_t i) const {
    const Connection& one = schedule_.connection_of(before);
    const Connection& other = schedule_.connection_of(i);
    if (one.src == other.src) return end_[before];
    if (one.dst == other.src) return end_[before] + latency_of(before);
    EXPECT_EQ(one.src, other.dst) << "the sender never hears of it";
    return end_[before] + latency_of(i);
  }

  std::vector<double> done_by_rank() const {
    std::vector<double> done(static_cast<std::size_t>(schedule_.ends()),
                             collective_.launch.value());
    for (std::size_t i = 0; i < end_.size(); ++i) {
      const Connection& ends = schedule_.connection_of(i);
      double& sent = done[static_cast<std::size_t>(ends.src)];
      double& arrived = done[static_cast<std::size_t>(ends.dst)];
      sent = std::max(sent, end_[i]);
      arrived = std::max(arrived, end_[i] + latency_of(i));
    }
    done.resize(static_cast<std::size_t>(schedule_.ranks));
    return done;
  }

  const LoweredCollective& collective_;
  const Schedule& schedule_;
  double now_ = 0.0;
  std::vector<double> end_;  ///< by transfer
  std::vector<OnConnection> connections_;
  std::vector<double> bandwidths_;
};

bool is_contended(const Job& job) {
  try {
    static_cast<void>(simulate_analytically(job));
    return false;
  } catch (const SimulationError&) {
    return true;
  }
}

/// Nodes of 4 GPUs in two PCIe switches on two sockets, with one NIC, on a fabric with a
/// bottleneck.
Platform pcie_platform(Random& random) {
  const std::vector<std::string> fabrics = {
      R"({"kind": "fat_tree", "levels": [{"nodes_per_group": 2, "oversubscription": 3}]})",
      R"({"kind": "rail", "nodes_per_group": 2, "oversubscription": 2})",
      R"({"kind": "fat_tree", "load_balancing": "ecmp_qp", "levels": [
           {"nodes_per_group": 2, "oversubscription": 1, "uplinks": 2}]})",
      R"({"kind": "rail", "load_balancing": "ecmp", "nodes_per_group": 2, "oversubscription": 1,
          "uplinks": 2})"};
  const std::string& fabric = fabrics[static_cast<std::size_t>(random.whole(0, 3))];
  return platform_from(fmt::format(
      R"({{"format": "stepcast.platform/1", "name": "PCIe", "source": "test",
           "gpu": {{"name": "g", "compute_capability": 7.5}},
           "node": {{"gpus": 4, "interconnect": {{
             "kind": "pcie_tree", "bandwidth_Bps": {}, "alpha_s": {}, "latency_s": {},
             "switches": [[0, 1], [2, 3]], "sockets": [[0], [1]], "socket_link_Bps": {},
             "peer_to_peer": {}, "host_memory_Bps": {}}},
             "nics": {{"count": 1, "bandwidth_Bps": {}, "alpha_s": {}, "latency_s": {},
                       "near_gpus": [[0, 1]]}}}},
           "fabric": {}, "nodes": 16}})",
      random.magnitude(4e9, 3e10), random.magnitude(1e-7, 1e-5), random.magnitude(1e-7, 1e-5),
      random.magnitude(4e9, 3e10), random.whole(0, 1) == 1, random.magnitude(1e10, 6e10),
      random.magnitude(1e9, 3e10), random.magnitude(1e-7, 2e-5), random.magnitude(1e-7, 1e-5),
      fabric));
}

Platform any_platform(Random& random) {
  static const std::vector<std::string> shipped = {"dgx1v",    "abci_v100",     "dgx_a100",
                                                   "dgx_h100", "g4dn_12xlarge", "pcie_8gpu"};
  const auto which = static_cast<std::size_t>(random.whole(0, 9));
  if (which < shipped.size()) return repository_platform(shipped[which]);
  return pcie_platform(random);
}

/// An AllReduce by an algorithm that can run on the platform, in NCCL's chunks or the textbook's.
Job any_job(Random& random, const std::string& algorithm) {
  while (true) {
    const Platform platform = any_platform(random);
    const auto most = std::min<std::int64_t>(24, platform.total_gpus());
    CollectiveSettings settings;
    settings.algorithm = {algorithm, "test"};
    settings.fold = false;  // the reference knows the ranks that are in the schedule
    settings.channels = {static_cast<int>(random.whole(1, 4)), "test"};
    if (random.whole(0, 1) == 1)
      settings.chunk_bytes = {static_cast<std::int64_t>(random.magnitude(2e4, 1e7)), "test"};
    if (random.whole(0, 1) == 1) settings.chunking = {Chunking::plain, "test"};
    try {
      Job job = all_reduce_job(platform, static_cast<int>(random.whole(2, most)),
                               static_cast<std::int64_t>(random.magnitude(1.0, 2e7)), settings);
      Schedule& schedule = job.lowered.front().schedule;
      schedule = listed(schedule);
      if (schedule.transfers.size() <= 2000) return job;
    } catch (const InputError&) {
      // Not on this platform.
    }
  }
}

class EveryContendedAllReduce : public testing::TestWithParam<std::string> {};

TEST_P(EveryContendedAllReduce, TakesWhatMaxMinSharingTakes) {
  Random random(3);
  int contended = 0;
  for (int trial = 0; trial < 12; ++trial) {
    const Job job = any_job(random, GetParam());
    if (is_contended(job)) ++contended;
    const LoweredCollective& lowered = job.lowered.front();
    const std::vector<double> expected = FluidReference(lowered, job.cluster).run();
    const std::vector<double> found = isolated_numbers([&] {
      const Timeline timeline = simulate_with_simgrid(job);
      std::vector<double> ends;
      for (const Seconds end : timeline.collectives.front().end) ends.push_back(end.value());
      return ends;
    });
    EXPECT_LE(worst_difference(expected, found), 1e-9)
        << "trial " << trial << ": " << job.cluster.ranks() << " ranks on "
        << job.cluster.platform().name << ", " << lowered.bytes.value() << " B in chunks of "
        << lowered.chunk.value() << " B on " << lowered.channels << " channels";
  }
  EXPECT_GT(contended, 0) << "proves nothing new";
}

// Without contention the time is a longest path, which only grows with what is on it. With it, a
// flow that is held up leaves its links to others, which may be the ones that matter (as Graham's
// anomalies of schedules, SIAM J. Appl. Math. 17(2), 1969): seen up to 0.1 %.
TEST_P(EveryContendedAllReduce, IsNeverSlowerWithMoreBandwidthNorFasterWithMoreOverhead) {
  Random random(11);
  for (int trial = 0; trial < 12; ++trial) {
    const Job job = any_job(random, GetParam());
    const auto time = [&](double faster, double more_alpha, double more_latency) {
      Job changed = job;
      LoweredCollective& lowered = changed.lowered.front();
      lowered.work_per_byte /= faster;  // as if every link and thread block were
      for (Seconds& alpha : lowered.alpha) alpha = more_alpha * alpha;
      for (Seconds& latency : lowered.latency) latency = more_latency * latency;
      return simgrid_duration(changed);
    };
    const double base = time(1, 1, 1);
    const std::string what = fmt::format("trial {}: {} ranks on {}", trial, job.cluster.ranks(),
                                         job.cluster.platform().name);
    const double tolerance = is_contended(job) ? 2e-3 : 1e-9;
    EXPECT_LE(time(1.5, 1, 1), base * (1 + tolerance)) << what;
    EXPECT_GE(time(1, 1.5, 1), base * (1 - tolerance)) << what;
    EXPECT_GE(time(1, 1, 1.5), base * (1 - tolerance)) << what;
  }
}

TEST_P(EveryContendedAllReduce, ChangesItsTimeWithRanksAndMachine) {
  // Two machines whose switches can reduce; NVLSTree is for several nodes of them.
  const int few = GetParam() == "nvls_tree" ? 16 : 4;
  std::vector<double> times;
  for (const char* machine : {"dgx_h100", "dgx_b200"})
    for (const int ranks : {few, 2 * few}) {
      CollectiveSettings settings;
      settings.algorithm = {GetParam(), "test"};
      settings.chunking = {Chunking::plain, "test"};
      settings.protocol = {"Simple", "test"};
      times.push_back(simgrid_duration(
          all_reduce_job(repository_platform(machine), ranks, 64 << 20, settings)));
    }
  std::sort(times.begin(), times.end());
  for (std::size_t i = 1; i < times.size(); ++i) EXPECT_GT(times[i] / times[i - 1], 1.001);
}

INSTANTIATE_TEST_SUITE_P(Registered, EveryContendedAllReduce,
                         testing::ValuesIn(collective_algorithms(Operation::all_reduce).names()),
                         [](const auto& test) { return test.param; });

}  // namespace
}  // namespace stepcast
