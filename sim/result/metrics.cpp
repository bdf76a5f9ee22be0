#include "result/metrics.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "engine/engine.hpp"
#include "engine/point_job.hpp"
#include "workload/data_parallel.hpp"

namespace stepcast {
namespace {

// A step is called host bound when the host issues for so much of it.
constexpr double host_bound_share = 0.95;

constexpr double seconds_per_hour = 3600.0;

/// Adds up the compute stream of a class of ranks.
class RankSplit {
 public:
  RankSplit(const Job& job, const Timeline& timeline, std::size_t rank_class)
      : job_(job),
        timeline_(timeline),
        class_(rank_class),
        has_host_(job.program.issue() > Seconds{}) {
    for (const Timeline::CollectiveTimes& times : timeline.collectives)
      under_way_.push_back({times.start, times.end[class_]});
    // The communication stream is serial; collectives are numbered in another order.
    std::sort(under_way_.begin(), under_way_.end(),
              [](const Interval& a, const Interval& b) { return a.begin < b.begin; });
  }

  Split run(Seconds step_time) {
    Seconds begin;
    std::size_t task = 0;
    for (std::size_t s = 0; s < job_.program.segments.size(); ++s) {
      const Segment& segment = job_.program.segments[s];
      const Timeline::SegmentTimes& times = timeline_.segments[s];
      Seconds free = begin;
      for (const Task& step : segment.tasks) {
        const Interval& interval = timeline_.task(class_, task++);
        const auto passes = static_cast<double>(segment.repeat);
        split_.host += passes * (interval.begin - free);  // the host comes late
        add(step, interval, passes);
        free = interval.end;
      }
      // Between two passes the rank waits for the slowest, or for its host.
      const Seconds first_end = times.first_end[class_];
      const auto further = static_cast<double>(segment.repeat - 1);
      const bool host = has_host_ && segment.is_local();
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
  std::size_t class_;
  bool has_host_;
  std::vector<Interval> under_way_;
  Split split_;
};

Split mean_split(const Job& job, const Timeline& timeline, Seconds step_time) {
  const std::vector<int> sizes = timeline.class_sizes();
  std::vector<Split> splits;
  for (std::size_t i = 0; i < sizes.size(); ++i)
    splits.push_back(RankSplit(job, timeline, i).run(step_time));
  const auto mean = [&](Seconds Split::*part) {
    std::vector<double> values;
    for (const Split& split : splits) values.push_back((split.*part).value());
    return Seconds{mean_over_ranks(values, sizes)};
  };
  return {mean(&Split::compute), mean(&Split::exposed_comm), mean(&Split::host), mean(&Split::wait),
          mean(&Split::optimizer)};
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

FoldingResult folding_of(const Job& job, const Timeline& timeline) {
  FoldingResult folding{timeline.class_sizes().size(), {}};
  std::set<std::string> reasons;
  for (const LoweredCollective& lowered : job.lowered)
    if (!lowered.why_not_folded.empty()) reasons.insert(lowered.why_not_folded);
  if (const std::set<double> paces(job.pace.begin(), job.pace.end()); paces.size() > 1)
    reasons.insert(fmt::format("ranks compute at {} paces", paces.size()));
  folding.not_folded.assign(reasons.begin(), reasons.end());
  return folding;
}

Seconds mean_communication(const Timeline& timeline, const std::vector<std::int64_t>& runs) {
  const std::vector<int> sizes = timeline.class_sizes();
  std::vector<double> busy(sizes.size(), 0.0);
  for (std::size_t c = 0; c < timeline.collectives.size(); ++c)
    for (std::size_t i = 0; i < sizes.size(); ++i)
      busy[i] += static_cast<double>(runs[c]) *
                 (timeline.collectives[c].end[i] - timeline.collectives[c].start).value();
  return Seconds{mean_over_ranks(busy, sizes)};
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

/// Step time of one GPU that does the same micro-steps and has nobody to talk to.
Seconds time_alone(const Point& point, const MeasuredStep& step) {
  Program alone =
      data_parallel_step(*point.model, step, point.scenario.training, point.platform->gpu, 1);
  const Timeline timeline =
      simulate_analytically({Cluster(*point.platform, nullptr, 1, point.scenario.gpus_origin),
                             std::move(alone),
                             {},
                             {},
                             {},
                             {}});
  return std::max(timeline.end(), loading_time(point));
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

namespace {

std::vector<Seconds*> mean_times_of(StepResult& result) {
  Split& split = result.split;
  std::vector<Seconds*> times = {&result.step_time, &split.compute,    &split.exposed_comm,
                                 &split.host,       &split.wait,       &split.optimizer,
                                 &result.comm,      &result.overlapped};
  for (Margin* margin : {&result.band.trace, &result.band.calibration, &result.band.computation,
                         &result.band.communication}) {
    times.push_back(&margin->below);
    times.push_back(&margin->above);
  }
  return times;
}

}  // namespace

std::vector<double> mean_times(StepResult result) {
  std::vector<double> times;
  for (const Seconds* time : mean_times_of(result)) times.push_back(time->value());
  return times;
}

void mix(StepResult& result, const std::vector<double>& other_times, double share) {
  const double before = result.step_time.value();
  auto other = other_times.begin();
  for (Seconds* time : mean_times_of(result))
    *time = (1.0 - share) * *time + share * Seconds{*other++};
  const double growth = result.step_time.value() / before;
  result.comm_fraction = result.split.exposed_comm / result.step_time;
  result.throughput_samples_per_s /= growth;
  result.scaling_efficiency /= growth;
  for (auto* cost : {&result.cost_per_step_usd, &result.cost_per_million_samples_usd})
    if (*cost) **cost *= growth;
  for (LinkResult& link : result.links) link.busiest_utilisation /= growth;
}

StepResult summarize(const Point& point, const Job& job, const Timeline& timeline) {
  const StepEstimate estimate = step_of(point);
  const MeasuredStep& measured = estimate.step;
  const TrainingSettings& training = point.scenario.training;
  StepResult result;
  result.world_size = timeline.ranks;
  result.nodes = job.cluster.nodes();
  result.micro_batch = measured.micro_batch;
  result.global_batch = measured.micro_batch * training.accumulation_steps * timeline.ranks;

  result.step_time = timeline.end();
  result.split = mean_split(job, timeline, result.step_time);
  result.comm = mean_communication(timeline, runs_per_step(job.program));
  result.overlapped = std::max(Seconds{0.0}, result.comm - result.split.exposed_comm);  // rounding
  result.comm_fraction = result.split.exposed_comm / result.step_time;
  result.throughput_samples_per_s =
      static_cast<double>(result.global_batch) / result.step_time.value();
  result.scaling_efficiency = time_alone(point, measured) / result.step_time;
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
    const bool of_gradients = !job.program.collectives[c].as_library_chooses;
    if (of_gradients && bucket.operation == Operation::all_reduce) {
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
  result.folding = folding_of(job, timeline);

  // What was seen to vary: the measured steps around their median, how far a measured micro-batch
  // is from what the others make of it, and the fit's residuals, for the share of communication
  // that each is behind.
  const Seconds on_gpu = result.split.compute + result.split.host + result.split.optimizer;
  const double residual = busy > Seconds{} ? residual_time / busy : 0.0;
  const auto spread = [&](Seconds extreme) {
    return measured.median > Seconds{0.0} ? std::abs((extreme - measured.median) / measured.median)
                                          : 0.0;
  };
  result.band.trace = {on_gpu * (spread(measured.fastest) + estimate.relative_error),
                       on_gpu * (spread(measured.slowest) + estimate.relative_error)};
  result.band.calibration = {residual * result.split.exposed_comm,
                             residual * result.split.exposed_comm};
  if (result.world_size > 1)
    add_model_error(result.band, on_gpu, result.split.exposed_comm + result.split.wait,
                    result.overlapped);

  result.host_bound = job.program.issue() >= host_bound_share * result.step_time;
  for (const Interference& its : job.interference)
    if (its.computation * its.communication >
        result.interference.computation * result.interference.communication)
      result.interference = its;
  const bool foreign = point.model->gpu != point.platform->gpu.name;
  result.compute_basis = foreign ? Basis::extrapolated : estimate.basis;
  result.memory = memory_of(point, job, measured);
  if (result.memory.fits() == false)
    result.fitting =
        largest_that_fits(result.memory, result.micro_batch, training.accumulation_steps);
  result.reference_global_batch = training.reference_global_batch.value_or(measured.micro_batch);
  const double growth =
      static_cast<double>(result.global_batch) / static_cast<double>(result.reference_global_batch);
  result.linear_lr_factor = growth;
  result.sqrt_lr_factor = std::sqrt(growth);
  result.learning_rate = learning_rate_advice(point, growth, result.micro_batch);
  return result;
}

}  // namespace stepcast
