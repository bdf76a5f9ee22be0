#include "result/metrics.hpp"

#include <algorithm>
#include <cmath>

#include "engine/engine.hpp"
#include "engine/interference.hpp"
#include "engine/pace.hpp"
#include "workload/data_parallel.hpp"

namespace stepcast {
namespace {

// Buffers of one NCCL connection: LL 512 KiB, LL128 4 915 200 B, Simple 4 MiB (NCCL v2.28.9
// src/transport/p2p.cc:370-455 and src/init.cc:697-735); a ring has one per channel and GPU.
constexpr std::int64_t nccl_connection_bytes =
    (std::int64_t{512} << 10) + 4'915'200 + (std::int64_t{4} << 20);

// A step is called host bound when the host issues for so much of it.
constexpr double host_bound_share = 0.95;

constexpr double seconds_per_hour = 3600.0;

/// How long [begin, end] overlaps the union of ordered, disjoint intervals.
Seconds overlap(const Interval& with, const std::vector<Interval>& intervals) {
  Seconds sum;
  for (const Interval& interval : intervals) {
    const Seconds begin = std::max(with.begin, interval.begin);
    const Seconds end = std::min(with.end, interval.end);
    if (end > begin) sum += end - begin;
  }
  return sum;
}

/// Adds up one rank's compute stream.
class RankSplit {
 public:
  RankSplit(const Job& job, const Timeline& timeline, int rank)
      : job_(job), timeline_(timeline), rank_(rank) {
    for (const Timeline::CollectiveTimes& times : timeline.collectives)
      under_way_.push_back({times.start, times.end[static_cast<std::size_t>(rank)]});
  }

  Split run(Seconds step_time) {
    Seconds begin;
    std::size_t task = 0;
    for (std::size_t s = 0; s < job_.program.segments.size(); ++s) {
      const Segment& segment = job_.program.segments[s];
      const Timeline::SegmentTimes& times = timeline_.segments[s];
      Seconds free = begin;
      for (const Task& step : segment.tasks) {
        const Interval& interval = timeline_.task(rank_, task++);
        const auto passes = static_cast<double>(segment.repeat);
        split_.host += passes * (interval.begin - free);  // the host comes late
        add(step, interval, passes);
        free = interval.end;
      }
      // Between two passes the rank waits for the slowest, or for its host.
      const Seconds first_end = times.first_end[static_cast<std::size_t>(rank_)];
      const auto further = static_cast<double>(segment.repeat - 1);
      const bool host = job_.program.issue() > Seconds{} && segment.is_local();
      (host ? split_.host : split_.wait) += further * (times.period - (first_end - begin));
      begin = first_end + further * times.period;
    }
    split_.wait += step_time - begin;
    return split_;
  }

 private:
  void add(const Task& task, const Interval& interval, double times) {
    const Seconds length = times * interval.length();
    if (const auto* compute = std::get_if<Compute>(&task)) {
      switch (compute->phase) {
        case Phase::forward:
        case Phase::backward:
        case Phase::finalize: split_.compute += length; break;
        case Phase::optimizer: split_.optimizer += length; break;
        case Phase::host: split_.host += length; break;
      }
    } else if (std::holds_alternative<Wait>(task)) {
      const Seconds exposed = times * overlap(interval, under_way_);
      split_.exposed_comm += exposed;
      split_.wait += length - exposed;
    } else {
      split_.host += length;
    }
  }

  const Job& job_;
  const Timeline& timeline_;
  int rank_;
  std::vector<Interval> under_way_;
  Split split_;
};

Split mean_split(const Job& job, const Timeline& timeline, Seconds step_time) {
  Split sum;
  for (int rank = 0; rank < timeline.ranks; ++rank) {
    const Split split = RankSplit(job, timeline, rank).run(step_time);
    sum.compute += split.compute;
    sum.exposed_comm += split.exposed_comm;
    sum.host += split.host;
    sum.wait += split.wait;
    sum.optimizer += split.optimizer;
  }
  const double ranks = timeline.ranks;
  return {sum.compute / ranks, sum.exposed_comm / ranks, sum.host / ranks, sum.wait / ranks,
          sum.optimizer / ranks};
}

std::vector<BucketResult> bucket_results(const Job& job, const Timeline& timeline) {
  const std::vector<std::int64_t> runs = runs_per_step(job.program);
  std::vector<BucketResult> buckets;
  for (std::size_t c = 0; c < job.program.collectives.size(); ++c) {
    const Timeline::CollectiveTimes& times = timeline.collectives[c];
    const LoweredCollective& lowered = job.collective(c);
    BucketResult bucket;
    bucket.operation = lowered.operation;
    bucket.bytes = job.program.collectives[c].bytes;
    bucket.parameters = job.program.collectives[c].parameters.size();
    bucket.algorithm = lowered.algorithm;
    bucket.protocol = lowered.protocol;
    bucket.channels = lowered.channels;
    bucket.chunk = lowered.chunk;
    bucket.ready = *std::max_element(times.ready.begin(), times.ready.end());
    bucket.start = times.start;
    bucket.end = times.last_end();
    bucket.algbw = lowered.bytes / (bucket.end - bucket.start);
    bucket.busbw = bucket.algbw * bus_factor(lowered.operation, timeline.ranks);
    bucket.relative_error = lowered.relative_error;
    bucket.basis = lowered.basis;
    bucket.runs_per_step = runs[c];
    buckets.push_back(std::move(bucket));
  }
  return buckets;
}

Seconds mean_communication(const Timeline& timeline, const std::vector<std::int64_t>& runs) {
  Seconds sum;
  for (std::size_t c = 0; c < timeline.collectives.size(); ++c)
    for (const Seconds end : timeline.collectives[c].end)
      sum += static_cast<double>(runs[c]) * (end - timeline.collectives[c].start);
  return sum / static_cast<double>(timeline.ranks);
}

std::vector<LinkResult> link_results(const Job& job, Seconds step_time) {
  const std::vector<Bytes> wire = wire_bytes_per_link(job);
  std::vector<LinkResult> results;
  for (const bool inter_node : {false, true}) {
    LinkResult result;
    result.kind = inter_node ? "inter_node" : "intra_node";
    for (std::size_t link = 0; link < wire.size(); ++link) {
      if (job.cluster.is_inter_node(static_cast<int>(link)) != inter_node ||
          wire[link] == Bytes{0.0})
        continue;
      ++result.links;
      result.total += wire[link];
      if (wire[link] <= result.busiest) continue;
      result.busiest = wire[link];
      result.busiest_link = job.cluster.link_name(static_cast<int>(link));
      result.busiest_utilisation = wire[link] / job.cluster.bandwidths()[link] / step_time;
    }
    if (result.links > 0) results.push_back(std::move(result));
  }
  return results;
}

MemoryResult memory_of(const Point& point, const Job& job) {
  MemoryResult memory;
  const StepTrace& model = *point.model;
  memory.gradients_bytes = model.gradient_bytes();
  memory.parameters_bytes =
      model.gradient_bytes();  // the trace holds gradients in the parameters' dtype
  memory.optimizer_bytes =
      std::llround(static_cast<double>(model.elements()) * model.optimizer_state_bytes_per_element);
  const bool communicates = !job.program.collectives.empty();
  // DDP and the flat loop copy all gradients into flat buffers (reducer.cpp, no
  // gradient_as_bucket_view).
  if (communicates && point.scenario.training.sync != SyncMode::per_tensor)
    memory.bucket_bytes = model.gradient_bytes();
  for (const LoweredCollective& lowered : job.lowered)
    memory.nccl_bytes = std::max(memory.nccl_bytes, lowered.channels * nccl_connection_bytes);
  memory.activation_bytes = measured_step(point).activation_bytes;
  memory.gpu_bytes = point.platform->gpu.memory_bytes;
  return memory;
}

/// Step time of one GPU that does the same micro-steps and has nobody to talk to.
Seconds time_alone(const Point& point) {
  Program alone = data_parallel_step(*point.model, measured_step(point), point.scenario.training,
                                     point.platform->gpu, 1);
  const Timeline timeline =
      simulate_analytically({Cluster(*point.platform, nullptr, 1, point.scenario.gpus_origin),
                             std::move(alone),
                             {},
                             {},
                             {},
                             {}});
  return timeline.segments.back().first_end.front();
}

}  // namespace

double bus_factor(Operation operation, int ranks) {
  const double others = (ranks - 1.0) / ranks;
  switch (operation) {
    case Operation::all_reduce: return 2.0 * others;
    case Operation::reduce_scatter:
    case Operation::all_gather: return others;
    case Operation::broadcast: return ranks > 1 ? 1.0 : 0.0;
  }
  return 0.0;
}

std::int64_t MemoryResult::known_bytes() const {
  return parameters_bytes + gradients_bytes + optimizer_bytes + bucket_bytes + nccl_bytes +
         activation_bytes.value_or(0);
}

std::optional<bool> MemoryResult::fits() const {
  if (!gpu_bytes) return std::nullopt;
  if (known_bytes() > *gpu_bytes) return false;
  return activation_bytes ? std::optional(true) : std::nullopt;
}

const MeasuredStep& measured_step(const Point& point) {
  const std::vector<MeasuredStep>& measured = point.model->measured;
  const auto& wanted = point.scenario.training.micro_batch;
  if (!wanted) return measured.front();
  return *std::find_if(measured.begin(), measured.end(),
                       [&](const MeasuredStep& step) { return step.micro_batch == *wanted; });
}

Job job_of(const Point& point) {
  const Scenario& scenario = point.scenario;
  const MeasuredStep& measured = measured_step(point);
  Cluster cluster(*point.platform, point.calibration.get(), scenario.gpus, scenario.gpus_origin,
                  scenario.placement);
  for (const Imperfections::SlowNic& nic : scenario.imperfections.slow_nics) cluster.slow_down(nic);
  Job job = make_job(data_parallel_step(*point.model, measured, scenario.training,
                                        point.platform->gpu, scenario.gpus),
                     scenario.collective, cluster);
  job.pace = paces(scenario.imperfections, cluster, measured);
  job.interference = interference_of(job, scenario.interference);
  return job;
}

StepResult summarize(const Point& point, const Job& job, const Timeline& timeline) {
  const MeasuredStep& measured = measured_step(point);
  const TrainingSettings& training = point.scenario.training;
  StepResult result;
  result.world_size = timeline.ranks;
  result.nodes = job.cluster.nodes();
  result.micro_batch = measured.micro_batch;
  result.global_batch = measured.micro_batch * training.accumulation_steps * timeline.ranks;

  const std::vector<Seconds>& last = timeline.segments.back().first_end;
  result.step_time = *std::max_element(last.begin(), last.end());
  result.split = mean_split(job, timeline, result.step_time);
  result.comm = mean_communication(timeline, runs_per_step(job.program));
  result.overlapped = std::max(Seconds{0.0}, result.comm - result.split.exposed_comm);  // rounding
  result.comm_fraction = result.split.exposed_comm / result.step_time;
  result.throughput_samples_per_s =
      static_cast<double>(result.global_batch) / result.step_time.value();
  result.scaling_efficiency = time_alone(point) / result.step_time;
  if (const auto& price = point.platform->price) {  // docs/results.md, Cost
    const double usd_per_s = result.nodes * price->usd_per_hour / seconds_per_hour;
    result.cost_per_step_usd = usd_per_s * result.step_time.value();
    result.cost_per_million_samples_usd = 1e6 * usd_per_s / result.throughput_samples_per_s;
  }

  result.buckets = bucket_results(job, timeline);
  double reduced_bytes = 0.0;
  Seconds busy;
  Seconds residual_time;
  for (std::size_t c = 0; c < result.buckets.size(); ++c) {
    const BucketResult& bucket = result.buckets[c];
    if (bucket.operation == Operation::all_reduce) {
      reduced_bytes +=
          static_cast<double>(bucket.bytes) * static_cast<double>(bucket.runs_per_step);
      result.communication_basis =
          std::max(result.communication_basis.value_or(bucket.basis), bucket.basis);
    }
    const Seconds time = static_cast<double>(bucket.runs_per_step) * (bucket.end - bucket.start);
    busy += time;
    residual_time += job.collective(c).relative_error * time;
  }
  result.all_reduce_bytes_per_sample =
      reduced_bytes / static_cast<double>(measured.micro_batch * training.accumulation_steps);
  const std::vector<Bytes> sent = sent_bytes_per_rank(job);
  result.sent_per_rank = *std::max_element(sent.begin(), sent.end());
  result.links = link_results(job, result.step_time);

  // What was seen to vary: the measured steps around their median, the fit's worst residuals, each
  // for the share of communication that it is behind.
  const Seconds on_gpu = result.split.compute + result.split.host + result.split.optimizer;
  const double residual = busy > Seconds{} ? residual_time / busy : 0.0;
  const Seconds comm_error = residual * result.split.exposed_comm;
  const auto spread = [&](Seconds extreme) {
    return measured.median > Seconds{0.0} ? (extreme - measured.median) / measured.median : 0.0;
  };
  result.step_time_low = result.step_time + on_gpu * spread(measured.fastest) - comm_error;
  result.step_time_high = result.step_time + on_gpu * spread(measured.slowest) + comm_error;

  result.host_bound = job.program.issue() >= host_bound_share * result.step_time;
  for (const Interference& its : job.interference)
    if (its.computation * its.communication >
        result.interference.computation * result.interference.communication)
      result.interference = its;
  if (point.model->gpu != point.platform->gpu.name) result.compute_basis = Basis::extrapolated;
  result.memory = memory_of(point, job);
  result.reference_global_batch = training.reference_global_batch.value_or(measured.micro_batch);
  const double growth =
      static_cast<double>(result.global_batch) / static_cast<double>(result.reference_global_batch);
  result.linear_lr_factor = growth;
  result.sqrt_lr_factor = std::sqrt(growth);
  return result;
}

}  // namespace stepcast
