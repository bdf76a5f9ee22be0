#include "result/metrics.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "engine/engine.hpp"
#include "engine/interference.hpp"
#include "engine/pace.hpp"
#include "workload/data_parallel.hpp"

namespace stepcast {
namespace {

// Buffers of one NCCL connection: LL 512 KiB, LL128 4 915 200 B, Simple 4 MiB (NCCL v2.28.9
// src/transport/p2p.cc:370-455 and src/init.cc:697-735); a ring has one per channel and GPU, a tree
// up to three: two children and a parent.
constexpr std::int64_t nccl_connection_bytes =
    (std::int64_t{512} << 10) + 4'915'200 + (std::int64_t{4} << 20);

constexpr std::int64_t tree_connections = 3;
// NVLS, per channel and head: reduce and broadcast, each 8 slots of 128 KiB (nvlsChunkSize and
// NCCL_STEPS of src/transport/nvls.cc): 256 MiB for 16 channels and 8 heads.
constexpr std::int64_t nvls_head_bytes = std::int64_t{2} * 8 * (std::int64_t{128} << 10);
constexpr std::size_t most_nvls_heads = 8;

// A CUDA context with the libraries' kernels takes 0.3 to 0.6 GiB; not confirmed at a source.
constexpr std::int64_t cuda_context_bytes = std::int64_t{512} << 20;
constexpr std::int64_t float32_bytes = 4;
constexpr std::int64_t half_precision_bytes = 2;

// Goyal et al., arXiv 1706.02677, section 2.2: from the old rate, linearly.
constexpr std::int64_t warm_up_epochs = 5;

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

/// Buffers of all algorithms that are used; each has as many channels as its largest collective.
std::int64_t nccl_bytes_of(const Job& job) {
  std::map<std::string, std::int64_t> channels;
  for (const LoweredCollective& lowered : job.lowered) {
    std::int64_t& most = channels[lowered.algorithm];
    most = std::max(most, std::int64_t{lowered.channels});
  }
  const auto heads =
      static_cast<std::int64_t>(std::min(job.cluster.ranks_of(0).size(), most_nvls_heads));
  std::int64_t bytes = 0;
  for (const auto& [algorithm, count] : channels) {
    const bool tree = algorithm == "double_binary_tree" || algorithm == "nvls_tree";
    const bool nvls = algorithm == "nvls" || algorithm == "nvls_tree";
    if (nvls) bytes += count * heads * nvls_head_bytes;
    if (tree || !nvls) bytes += count * (tree ? tree_connections : 1) * nccl_connection_bytes;
  }
  return bytes;
}

/// Flat copies of gradients.
std::int64_t bucket_bytes_of(const StepTrace& model, const TrainingSettings& training) {
  switch (training.sync) {
    case SyncMode::ddp: return training.gradient_as_bucket_view ? 0 : model.gradient_bytes();
    case SyncMode::flat:
    case SyncMode::merged: return model.gradient_bytes();
    case SyncMode::horovod: return training.fusion_bytes;
    case SyncMode::per_tensor:
    case SyncMode::overlapped_per_tensor: break;
  }
  return 0;
}

/// The cast buckets of a communication hook.
std::int64_t hook_bytes_of(const StepTrace& model, const TrainingSettings& training) {
  const CommunicationHook hook = training.communication_hook;
  if (training.sync != SyncMode::ddp || hook == CommunicationHook::none) return 0;
  const char* same = hook == CommunicationHook::fp16 ? "float16" : "bfloat16";
  std::int64_t bytes = 0;
  for (const Parameter& parameter : model.parameters)
    if (parameter.dtype != same) bytes += half_precision_bytes * parameter.elements;
  return bytes;
}

MemoryResult memory_of(const Point& point, const Job& job, const MeasuredStep& step) {
  MemoryResult memory;
  const StepTrace& model = *point.model;
  memory.gradients_bytes = model.gradient_bytes();
  memory.parameters_bytes =
      model.gradient_bytes();  // the trace holds gradients in the parameters' dtype
  if (model.master_weights)
    for (const Parameter& parameter : model.parameters)
      if (parameter.bytes() == half_precision_bytes * parameter.elements)
        memory.master_bytes += float32_bytes * parameter.elements;
  memory.optimizer_bytes =
      std::llround(static_cast<double>(model.elements()) * model.optimizer_state_bytes_per_element);
  if (!job.program.collectives.empty()) {
    memory.bucket_bytes = bucket_bytes_of(model, point.scenario.training);
    memory.hook_bytes = hook_bytes_of(model, point.scenario.training);
    memory.nccl_bytes = nccl_bytes_of(job);
  }
  memory.framework_bytes = cuda_context_bytes;
  memory.activation_bytes = step.activation_bytes;
  memory.gpu_bytes = point.platform->gpu.memory_bytes;
  return memory;
}

bool contains_any(const std::string& text, const std::vector<std::string>& words) {
  return std::any_of(words.begin(), words.end(),
                     [&](const std::string& word) { return text.find(word) != std::string::npos; });
}

LearningRateAdvice learning_rate_advice(const Point& point, const StepResult& result) {
  const StepTrace& model = *point.model;
  LearningRateAdvice advice;
  // Linear for SGD (Goyal et al.), the square root where steps are normalised (LAMB's default,
  // arXiv 1904.00962).
  if (contains_any(model.optimizer, {"Adam", "LAMB"}))
    advice.rule = "square_root";
  else if (contains_any(model.optimizer, {"SGD"}))
    advice.rule = "linear";
  if (result.linear_lr_factor > 1.0) advice.warm_up_epochs = warm_up_epochs;
  const bool has_statistics =
      std::any_of(model.buffers.begin(), model.buffers.end(),
                  [](const Buffers& buffers) { return buffers.dtype.find("float") == 0; });
  if (!model.batch_norms.empty() || has_statistics)
    advice.batch_norm_samples =
        result.micro_batch *
        (point.scenario.training.synchronized_batch_norm ? result.world_size : 1);
  return advice;
}

/// What the loader of one rank takes for the samples of a step.
Seconds loading_time(const Point& point) {
  const TrainingSettings& training = point.scenario.training;
  if (!training.data_loader) return {};
  const auto samples =
      static_cast<double>(training.micro_batch.value_or(point.model->measured.front().micro_batch) *
                          training.accumulation_steps);
  return samples / static_cast<double>(training.data_loader->workers) *
         training.data_loader->time_per_sample;
}

Seconds end_of(const Timeline& timeline) {
  const std::vector<Seconds>& last = timeline.segments.back().first_end;
  return *std::max_element(last.begin(), last.end());
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
  return std::max(end_of(timeline), loading_time(point));
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
  return parameters_bytes + master_bytes + gradients_bytes + optimizer_bytes + bucket_bytes +
         hook_bytes + nccl_bytes + framework_bytes + activation_bytes.value_or(0);
}

std::optional<bool> MemoryResult::fits() const {
  if (!gpu_bytes) return std::nullopt;
  if (known_bytes() > *gpu_bytes) return false;
  return activation_bytes ? std::optional(true) : std::nullopt;
}

std::optional<MicroSteps> largest_that_fits(const MemoryResult& memory, std::int64_t micro_batch,
                                            std::int64_t accumulation_steps) {
  if (!memory.gpu_bytes || !memory.activation_bytes || *memory.activation_bytes == 0)
    return std::nullopt;
  const std::int64_t left = *memory.gpu_bytes - (memory.known_bytes() - *memory.activation_bytes);
  if (left <= 0) return std::nullopt;
  const std::int64_t samples = micro_batch * accumulation_steps;
  const double fit = std::floor(static_cast<double>(left) * static_cast<double>(micro_batch) /
                                static_cast<double>(*memory.activation_bytes));
  const std::int64_t most =
      fit < static_cast<double>(micro_batch) ? static_cast<std::int64_t>(fit) : micro_batch;
  for (std::int64_t size = most; size >= 1; --size)
    if (samples % size == 0) return MicroSteps{size, samples / size};
  return std::nullopt;
}

StepEstimate step_of(const Point& point) {
  return step_at(
      *point.model,
      point.scenario.training.micro_batch.value_or(point.model->measured.front().micro_batch),
      point.platform->gpu.kernel_floor);
}

Job job_of(const Point& point) {
  const Scenario& scenario = point.scenario;
  const MeasuredStep measured = step_of(point).step;
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

std::optional<Job> late_job_of(const Point& point, const Job& job) {
  const auto& straggler = point.scenario.imperfections.straggler;
  if (!straggler) return std::nullopt;
  Job late = job;
  late.pace = paces_when_late(*straggler, job.pace, static_cast<std::size_t>(job.cluster.ranks()));
  return late;
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

void wait_for_data(const Point& point, Job& job, Timeline& timeline) {
  const Seconds late = loading_time(point) - end_of(timeline);
  if (late <= Seconds{}) return;
  for (Interval& task : timeline.task_times) task = {task.begin + late, task.end + late};
  for (Timeline::CollectiveTimes& times : timeline.collectives) {
    times.start += late;
    for (Seconds& ready : times.ready) ready += late;
    for (Seconds& end : times.end) end += late;
  }
  for (Timeline::SegmentTimes& times : timeline.segments)
    for (Seconds& end : times.first_end) end += late;

  const std::size_t classes = timeline.class_sizes().size();
  std::vector<Segment>& segments = job.program.segments;
  segments.insert(segments.begin(), {1, {Compute{Phase::host, "data loader", late}}});
  timeline.segments.insert(timeline.segments.begin(), {std::vector<Seconds>(classes, late), late});
  std::vector<Interval> tasks;
  for (std::size_t i = 0; i < classes; ++i) {
    tasks.push_back({Seconds{}, late});
    for (std::size_t task = 0; task < timeline.tasks; ++task)
      tasks.push_back(timeline.task(i, task));
  }
  timeline.task_times = std::move(tasks);
  ++timeline.tasks;
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

  result.step_time = end_of(timeline);
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
  result.learning_rate = learning_rate_advice(point, result);
  return result;
}

}  // namespace stepcast
