#include "engine/interference.hpp"

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <optional>

#include "fit/median.hpp"

namespace stepcast {
namespace {

/// When the ranks of a class compute: disjoint, in order.
std::vector<Interval> computing(const Job& job, const Timeline& timeline, std::size_t rank_class) {
  std::vector<Interval> intervals;
  std::size_t task = 0;
  for (const Segment& segment : job.program.segments)
    for (const Task& step : segment.tasks) {
      const Interval& interval = timeline.task(rank_class, task++);
      const auto* compute = std::get_if<Compute>(&step);
      if (compute != nullptr && compute->phase != Phase::host && interval.length() > Seconds{})
        intervals.push_back(interval);
    }
  return intervals;
}

// Bytes that go through the GPU's memory for each byte that NCCL sends: "NCCL at X GB/s costs 2 to
// 3 X of memory bandwidth" (NVIDIA in NVIDIA/nccl#1428); the middle of it.
constexpr double memory_bytes_per_byte_sent = 2.5;

/// Of the samples with the nearest number of channels, the median over kernels: a step has some of
/// each kind.
std::optional<Interference> measured(const LoweredCollective& collective,
                                     const Calibration* calibration) {
  if (calibration == nullptr) return std::nullopt;
  const auto distance = [&](const InterferenceSample& sample) {
    return sample.channels == 0 ? 0 : std::abs(sample.channels - collective.channels);
  };
  int nearest = std::numeric_limits<int>::max();
  for (const InterferenceSample& sample : calibration->interference)
    if (sample.operation == to_string(collective.operation))
      nearest = std::min(nearest, distance(sample));
  std::vector<double> computation;
  std::vector<double> communication;
  for (const InterferenceSample& sample : calibration->interference)
    if (sample.operation == to_string(collective.operation) && distance(sample) == nearest) {
      computation.push_back(sample.computation_factor);
      communication.push_back(sample.communication_factor);
    }
  if (computation.empty()) return std::nullopt;
  return Interference{median(computation), median(communication), Interference::Basis::measured};
}

/// What a rank sends at most: all its connections move at the pace of the slowest.
BytesPerSecond sent_rate(const LoweredCollective& collective, const Cluster& cluster) {
  const std::vector<BytesPerSecond> rates = even_share_rates(collective, cluster.bandwidths());
  if (rates.empty()) return {};
  std::vector<int> connections(static_cast<std::size_t>(collective.schedule.ends()), 0);
  for (const Connection& connection : collective.schedule.connections)
    ++connections[static_cast<std::size_t>(connection.src)];
  return *std::max_element(connections.begin(), connections.end()) *
         *std::min_element(rates.begin(), rates.end());
}

/// What a collective takes on links that have no overhead: what is slowed is moving bytes.
Seconds moving_time(const LoweredCollective& collective, const Cluster& cluster) {
  const BytesPerSecond rate = sent_rate(collective, cluster);
  if (rate <= BytesPerSecond{}) return {};
  const std::vector<Bytes> sent = sent_bytes(collective.schedule);
  return collective.work_per_byte * *std::max_element(sent.begin(), sent.end()) / rate;
}

std::optional<Interference> modelled(const LoweredCollective& collective, const Cluster& cluster) {
  const Gpu& gpu = cluster.platform().gpu;
  if (!gpu.multiprocessors || !gpu.memory_bandwidth) return std::nullopt;
  const double all = *gpu.multiprocessors;
  const double left = std::max(1.0, all - collective.channels);  // each channel is a thread block
  const double memory =
      memory_bytes_per_byte_sent * (sent_rate(collective, cluster) / *gpu.memory_bandwidth);
  return Interference{std::max(all / left, 1.0 + memory), 1.0 + memory,
                      Interference::Basis::modelled, all / left};
}

/// How much longer a collective takes whose part inside the node takes `factor` times as long.
/// Rates of concurrent stages: where the network is slower than that part, it has time to spare.
double slowed_inside(double factor, const LoweredCollective& collective, const Cluster& cluster) {
  constexpr double no_network = 1e6;  // so many times as fast holds nothing up
  if (cluster.nodes() < 2 || cluster.platform().gpus_per_node < 2) return factor;
  const BytesPerSecond rate = sent_rate(collective, cluster);
  const BytesPerSecond inside = sent_rate(collective, cluster.with_network_rate(no_network));
  if (inside <= BytesPerSecond{}) return factor;
  return std::max(1.0, factor * (rate / inside));
}

}  // namespace

std::vector<Interference> interference_of(const Job& job, const InterferenceSettings& settings) {
  std::vector<Interference> all;
  for (const LoweredCollective& collective : job.lowered) {
    const std::optional<Interference> seen = measured(collective, job.cluster.calibration());
    Interference its = seen.value_or(modelled(collective, job.cluster).value_or(Interference{}));
    if (settings.computation_factor || settings.communication_factor)
      its.basis = Interference::Basis::set;
    if (settings.computation_factor) its.computation = its.waiting = *settings.computation_factor;
    its.communication = settings.communication_factor.value_or(its.communication);
    // What the model gives is of the collective's own rate already.
    if (seen || settings.communication_factor)
      its.communication = slowed_inside(its.communication, collective, job.cluster);
    all.push_back(its);
  }
  return all;
}

std::vector<Interference> slowed_at_first(const Job& job) {
  std::vector<Interference> slowed;
  for (std::size_t c = 0; c < job.program.collectives.size(); ++c) {
    slowed.push_back(job.interference_of(c));
    slowed.back().communication = 1.0;
  }
  return slowed;
}

std::vector<Interference> slowed_as_in(const Job& job, const Timeline& timeline) {
  std::vector<Interference> slowed;
  if (job.interference.empty()) return std::vector<Interference>(timeline.collectives.size());
  std::vector<Seconds> moving;
  for (const LoweredCollective& lowered : job.lowered)
    moving.push_back(moving_time(lowered, job.cluster));
  const std::vector<int> sizes = timeline.class_sizes();
  const std::size_t count = timeline.collectives.size();
  std::vector<std::vector<double>> moves(count, std::vector<double>(sizes.size(), 0.0));
  std::vector<std::vector<double>> beside = moves;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    const std::vector<Interval> busy = computing(job, timeline, i);
    for (std::size_t c = 0; c < count; ++c) {
      const Timeline::CollectiveTimes& times = timeline.collectives[c];
      const Interval under_way{times.start, times.end[i]};
      if (under_way.length() <= Seconds{}) continue;
      moves[c][i] = std::min(1.0, moving[job.lowered_of[c]] / under_way.length());
      beside[c][i] = overlap(under_way, busy) / under_way.length() * moves[c][i];
    }
  }
  for (std::size_t c = 0; c < count; ++c) {
    Interference its = job.interference_of(c);
    its.computation =
        std::max(its.waiting, 1.0 + (its.computation - 1.0) * mean_over_ranks(moves[c], sizes));
    its.communication = 1.0 + (its.communication - 1.0) * mean_over_ranks(beside[c], sizes);
    slowed.push_back(its);
  }
  return slowed;
}

}  // namespace stepcast
