#include "workload/data_parallel.hpp"

#include <cstddef>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "workload/buckets.hpp"

namespace stepcast {
namespace {

constexpr std::int64_t no_limit = std::numeric_limits<std::int64_t>::max();
constexpr std::int64_t half_precision_bytes = 2;  // of an element
constexpr std::int64_t int32_bytes = 4;
constexpr std::int64_t float32_bytes = 4;
/// What the call of an AllReduce takes of the host, in kernels that it issues: c10d::allreduce_
/// over reducer::mul_out in four traces of DDP is 3.7, 4.4, 8.6 and 11.7 (docs/model.md §1); the
/// middle.
constexpr double kernels_per_all_reduce = 6.5;

void append(std::vector<Task>& tasks, Phase phase, const std::vector<Span>& spans) {
  for (const Span& span : spans) append_span(tasks, phase, span);
}

/// The order in which the gradients become ready during backward.
std::vector<int> ready_order(const MeasuredStep& measured) {
  std::vector<int> order;
  for (const Span& span : measured.backward)
    order.insert(order.end(), span.gradients.begin(), span.gradients.end());
  return order;
}

/// When each gradient becomes ready, by the times of the trace.
std::vector<ReadyGradient> ready_gradients(const MeasuredStep& measured) {
  std::vector<ReadyGradient> ready;
  Seconds now;
  for (const Span& span : measured.backward) {
    now += span.gap;
    now += span.duration;
    for (const int parameter : span.gradients) ready.push_back({parameter, now});
  }
  return ready;
}

/// An element-wise kernel that reads and writes so many bytes.
Compute memory_kernel(std::string name, Bytes traffic, const Gpu& gpu) {
  Seconds duration = gpu.kernel_floor;
  if (gpu.memory_bandwidth) duration += traffic / *gpu.memory_bandwidth;
  return {Phase::finalize, std::move(name), duration};
}

Bytes as_bytes(std::int64_t bytes) { return Bytes{static_cast<double>(bytes)}; }

/// DDP's copies into its buckets, where it divides as well, and out of them: a kernel for each
/// gradient, which reads and writes it once.
class Copies {
 public:
  Copies(const StepTrace& model, const TrainingSettings& training, const Gpu& gpu)
      : model_(model),
        gpu_(gpu),
        host_per_kernel_(training.host_per_kernel.value_or(model.host_per_kernel)) {}

  /// With what the host takes to launch so many AllReduces behind them. Empty where neither GPU nor
  /// host takes time.
  [[nodiscard]] std::optional<Compute> of(std::string name, const std::vector<int>& gradients,
                                          std::size_t launches_behind) const {
    Bytes bytes;
    for (const int gradient : gradients)
      bytes += as_bytes(model_.parameters[static_cast<std::size_t>(gradient)].bytes());
    const auto kernels = static_cast<double>(gradients.size());
    Compute copies = memory_kernel(std::move(name), 2.0 * bytes, gpu_);
    copies.duration += (kernels - 1.0) * gpu_.kernel_floor;
    copies.host = (kernels + kernels_per_all_reduce * static_cast<double>(launches_behind)) *
                  host_per_kernel_;
    if (copies.duration <= Seconds{} && copies.host <= Seconds{}) return std::nullopt;
    return copies;
  }

 private:
  const StepTrace& model_;
  const Gpu& gpu_;
  Seconds host_per_kernel_;
};

/// A collective of gradients with its kernels on the compute stream.
struct Reduction {
  Collective collective;
  std::vector<Compute> before = {};  ///< its launch
  std::vector<Compute> after = {};   ///< its end
};

/// The kernel that divides gradients by the number of ranks: it reads and writes each once.
Compute division(const Collective& collective, const Gpu& gpu) {
  return memory_kernel("divide by world size", 2.0 * as_bytes(collective.bytes), gpu);
}

/// What fp16_compress_hook and bf16_compress_hook of PyTorch do with a bucket
/// (torch/distributed/algorithms/ddp_comm_hooks/default_hooks.py @00aef22): cast it, divide it,
/// AllReduce it, cast it back. A bucket that has the dtype already is not cast.
Reduction compressed(Collective bucket, const std::vector<Parameter>& parameters,
                     CommunicationHook hook, const Gpu& gpu) {
  const std::string& dtype = parameters[static_cast<std::size_t>(bucket.parameters[0])].dtype;
  if (dtype == (hook == CommunicationHook::fp16 ? "float16" : "bfloat16"))
    return {bucket, {division(bucket, gpu)}};
  const Bytes whole = as_bytes(bucket.bytes);
  bucket.bytes = 0;
  for (const int parameter : bucket.parameters)
    bucket.bytes += half_precision_bytes * parameters[static_cast<std::size_t>(parameter)].elements;
  const Bytes half = as_bytes(bucket.bytes);
  return {bucket,
          {memory_kernel("cast bucket", whole + half, gpu), division(bucket, gpu)},
          {memory_kernel("cast bucket back", half + whole, gpu)}};
}

/// DDP's buckets, in the order of their launch.
std::vector<Collective> buckets_of(const MeasuredStep& measured,
                                   const std::vector<Parameter>& parameters,
                                   const TrainingSettings& training) {
  // With find_unused_parameters they are never rebuilt; without, the first iteration has no limit.
  if (training.find_unused_parameters)
    return initial_ddp_buckets(parameters, training.first_bucket_bytes, training.bucket_cap_bytes);
  if (training.iteration == Iteration::first)
    return initial_ddp_buckets(parameters, no_limit, no_limit);
  return ddp_buckets(parameters, ready_order(measured), training.first_bucket_bytes,
                     training.bucket_cap_bytes);
}

/// The AllReduces of one synchronised micro-step in the order of their launch; Horovod's have
/// times.
std::vector<Reduction> reductions_of(const MeasuredStep& measured,
                                     const std::vector<Parameter>& parameters,
                                     const TrainingSettings& training, const Gpu& gpu,
                                     int world_size, const std::optional<Copies>& copies) {
  std::vector<Reduction> reductions;
  if (world_size == 1 || training.sync == SyncMode::horovod) return reductions;
  std::vector<Collective> collectives;
  switch (training.sync) {
    case SyncMode::ddp: collectives = buckets_of(measured, parameters, training); break;
    case SyncMode::flat:
      // A limit that is never reached: one collective for each dtype.
      collectives = ddp_buckets(parameters, ready_order(measured), no_limit, no_limit);
      break;
    case SyncMode::per_tensor:
      for (std::size_t i = 0; i < parameters.size(); ++i)
        collectives.push_back({parameters[i].bytes(), {static_cast<int>(i)}});
      break;
    case SyncMode::overlapped_per_tensor:
      for (const int i : ready_order(measured))
        collectives.push_back({parameters[static_cast<std::size_t>(i)].bytes(), {i}});
      break;
    case SyncMode::merged:
      collectives = merged_buckets(parameters, ready_gradients(measured), *training.merge_cost);
      break;
    case SyncMode::horovod: break;
  }
  for (Collective& collective : collectives) {
    const bool ddp = training.sync == SyncMode::ddp;
    if (ddp && training.communication_hook != CommunicationHook::none)
      reductions.push_back(
          compressed(std::move(collective), parameters, training.communication_hook, gpu));
    else if (ddp)  // its divisions are copies, or spans of the trace
      reductions.push_back({std::move(collective)});
    else
      reductions.push_back({collective, {}, {division(collective, gpu)}});
    // Gradients that live in the buckets need no copies out of them.
    if (!ddp || !copies || training.gradient_as_bucket_view) continue;
    Reduction& reduction = reductions.back();
    if (auto copy = copies->of("copy out of bucket", reduction.collective.parameters, 0))
      reduction.after.push_back(*std::move(copy));
  }
  return reductions;
}

/// What DDP sends from rank 0 to all before a forward.
std::vector<Collective> broadcasts_of(const StepTrace& model, const TrainingSettings& training,
                                      int world_size) {
  std::vector<Collective> broadcasts;
  if (world_size == 1 || training.sync != SyncMode::ddp || !training.broadcast_buffers)
    return broadcasts;
  for (const Buffers& buffers : model.buffers)
    broadcasts.push_back({buffers.bytes(), {}, Operation::broadcast, true});
  return broadcasts;
}

/// With find_unused_parameters DDP adds up which parameters each rank has used (an int32 each),
/// behind the last bucket.
std::optional<Collective> usage_bitmap_of(const StepTrace& model, const TrainingSettings& training,
                                          int world_size) {
  if (world_size == 1 || training.sync != SyncMode::ddp || !training.find_unused_parameters)
    return std::nullopt;
  const auto parameters = static_cast<std::int64_t>(model.parameters.size());
  return Collective{int32_bytes * parameters, {}, Operation::all_reduce, true};
}

/// What SyncBatchNorm sends for each layer (torch/nn/modules/_functions.py @016ec49): in forward it
/// gathers mean, inverse deviation and number of samples, in backward it adds up two sums. All
/// fp32.
using SynchronizedNorms = std::map<std::string, std::pair<Collective, Collective>>;  // by span
SynchronizedNorms synchronized_norms_of(const StepTrace& model, const TrainingSettings& training,
                                        int world_size) {
  SynchronizedNorms norms;
  if (world_size == 1 || !training.synchronized_batch_norm) return norms;
  for (const BatchNorm& norm : model.batch_norms) {
    const std::int64_t each = float32_bytes * (2 * norm.channels + 1);
    norms[norm.span] = {{world_size * each, {}, Operation::all_gather, true},
                        {float32_bytes * 2 * norm.channels, {}, Operation::all_reduce, true}};
  }
  return norms;
}

/// Adds one micro-step's tasks and collectives to the program.
class MicroStep {
 public:
  MicroStep(Program& program, const SynchronizedNorms& norms) : program_(program), norms_(norms) {}

  void launch(const Collective& collective) {
    tasks_.emplace_back(Launch{static_cast<int>(program_.collectives.size())});
    program_.collectives.push_back(collective);
    launched_.push_back(std::get<Launch>(tasks_.back()).collective);
  }
  void launch(const Reduction& reduction) {
    tasks_.insert(tasks_.end(), reduction.before.begin(), reduction.before.end());
    launch(reduction.collective);
  }
  /// For all that were launched since the last wait, in their order.
  void wait() {
    for (const int collective : std::exchange(launched_, {})) tasks_.emplace_back(Wait{collective});
  }
  /// For these alone, which were launched first, each with its kernels behind it.
  void wait_each(const std::vector<Reduction>& reductions) {
    for (std::size_t i = 0; i < reductions.size(); ++i) {
      tasks_.emplace_back(Wait{launched_[i]});
      tasks_.insert(tasks_.end(), reductions[i].after.begin(), reductions[i].after.end());
    }
    launched_.erase(launched_.begin(),
                    launched_.begin() + static_cast<std::ptrdiff_t>(reductions.size()));
  }
  void spans(Phase phase, const std::vector<Span>& spans) {
    for (const Span& span : spans) {
      synchronize_norm(phase, span);
      append_span(tasks_, phase, span);
    }
  }

  /// Each collective is launched when all its gradients are there, copied if need be, and all
  /// earlier ones are launched.
  void overlapped_backward(const MeasuredStep& measured, const std::vector<Reduction>& reductions,
                           std::size_t parameter_count, const std::optional<Copies>& copies) {
    std::vector<std::size_t> reduction_of(parameter_count);
    std::vector<std::size_t> missing;
    for (const Reduction& reduction : reductions) {
      for (const int parameter : reduction.collective.parameters)
        reduction_of[static_cast<std::size_t>(parameter)] = missing.size();
      missing.push_back(reduction.collective.parameters.size());
    }
    std::size_t next = 0;
    for (const Span& span : measured.backward) {
      synchronize_norm(Phase::backward, span);
      append_span(tasks_, Phase::backward, span);
      if (reductions.empty()) continue;
      for (const int parameter : span.gradients)
        --missing[reduction_of[static_cast<std::size_t>(parameter)]];
      std::size_t complete = next;
      while (complete < reductions.size() && missing[complete] == 0) ++complete;
      if (copies && !span.gradients.empty())
        if (auto copy = copies->of("copy into bucket", span.gradients, complete - next))
          tasks_.emplace_back(*std::move(copy));
      for (; next < complete; ++next) launch(reductions[next]);
    }
  }

  /// The loop people write by hand: after backward, one blocking AllReduce after the other, each
  /// followed by its division.
  void blocking_backward(const MeasuredStep& measured, const std::vector<Reduction>& reductions) {
    spans(Phase::backward, measured.backward);
    for (const Reduction& reduction : reductions) {
      launch(reduction);
      wait_each({reduction});
    }
  }

  /// Launches come at their times, in the middle of a span if need be; after backward the compute
  /// stream waits for the last of them.
  void timed_backward(const MeasuredStep& measured, const std::vector<TimedLaunch>& launches) {
    Seconds now;
    auto next = launches.begin();
    for (const Span& span : measured.backward) {
      synchronize_norm(Phase::backward, span);
      std::vector<Task> tasks;
      append_span(tasks, Phase::backward, span);
      for (const Task& task : tasks) {
        auto work = std::get<Compute>(task);
        const Seconds end = now + work.duration;
        for (; next != launches.end() && next->at < end; ++next) {
          if (next->at > now) {
            Compute part = work;
            part.duration = next->at - now;
            part.host_waits = false;
            tasks_.emplace_back(part);
            work.duration = end - next->at;
            work.host = {};  // it was issued as a whole
            now = next->at;
          }
          launch(next->collective);
        }
        tasks_.emplace_back(work);
        now = end;
      }
    }
    for (; next != launches.end(); ++next) {
      if (next->at > now)
        tasks_.emplace_back(Compute{Phase::host, "wait for Horovod's cycle", next->at - now});
      now = next->at;
      launch(next->collective);
    }
  }

  [[nodiscard]] std::vector<Task> take() { return std::move(tasks_); }

 private:
  /// The compute stream of a span with a synchronised BatchNorm waits for its statistics.
  void synchronize_norm(Phase phase, const Span& span) {
    if (norms_.empty() || (phase != Phase::forward && phase != Phase::backward)) return;
    const auto norm = norms_.find(span.name);
    if (norm == norms_.end()) return;
    const auto collective = static_cast<int>(program_.collectives.size());
    program_.collectives.push_back(phase == Phase::forward ? norm->second.first
                                                           : norm->second.second);
    tasks_.emplace_back(Launch{collective});
    tasks_.emplace_back(Wait{collective});
  }

  Program& program_;
  const SynchronizedNorms& norms_;
  std::vector<Task> tasks_;
  std::vector<int> launched_;
};

}  // namespace

void append_span(std::vector<Task>& tasks, Phase phase, const Span& span) {
  if (span.gap > Seconds{0.0})
    tasks.emplace_back(Compute{Phase::host, "gap before " + span.name, span.gap});
  tasks.emplace_back(Compute{phase, span.name, span.duration, span.host, span.host_waits});
}

Program data_parallel_step(const StepTrace& model, const MeasuredStep& measured,
                           const TrainingSettings& training, const Gpu& gpu, int world_size) {
  const std::vector<Collective> broadcasts = broadcasts_of(model, training, world_size);
  std::optional<Copies> copies;
  if (!model.in_ddp) copies.emplace(model, training, gpu);
  const std::vector<Reduction> reductions =
      reductions_of(measured, model.parameters, training, gpu, world_size, copies);
  const std::optional<Collective> bitmap = usage_bitmap_of(model, training, world_size);
  const SynchronizedNorms norms = synchronized_norms_of(model, training, world_size);
  Program program;
  const auto horovod_backward = [&](MicroStep& step) {
    std::vector<TimedLaunch> launches;
    if (world_size > 1)
      launches = horovod_launches(model.parameters, ready_gradients(measured),
                                  training.fusion_bytes, training.cycle_time);
    step.timed_backward(measured, launches);
    std::vector<Reduction> divided;
    for (const TimedLaunch& launch : launches)
      divided.push_back({launch.collective, {}, {division(launch.collective, gpu)}});
    step.wait_each(divided);
  };
  const auto reduced_backward = [&](MicroStep& step) {
    switch (training.sync) {
      case SyncMode::flat:
      case SyncMode::per_tensor: step.blocking_backward(measured, reductions); return;
      case SyncMode::horovod: horovod_backward(step); return;
      case SyncMode::overlapped_per_tensor:
      case SyncMode::merged:
        step.overlapped_backward(measured, reductions, model.parameters.size(), {});
        step.wait_each(reductions);
        return;
      case SyncMode::ddp: break;
    }
    step.overlapped_backward(measured, reductions, model.parameters.size(), copies);
    if (bitmap) step.launch(*bitmap);
    step.wait_each(reductions);
    if (!training.gradient_as_bucket_view) step.spans(Phase::finalize, measured.finalize);
    step.wait();
  };
  const auto micro_step = [&](bool broadcast, bool reduce) {
    MicroStep step(program, norms);
    if (broadcast) {
      for (const Collective& collective : broadcasts) step.launch(collective);
      step.wait();
    }
    step.spans(Phase::forward, measured.forward);
    if (reduce)
      reduced_backward(step);
    else
      step.spans(Phase::backward, measured.backward);
    return step.take();
  };
  const std::int64_t earlier = training.accumulation_steps - 1;
  const bool reduce_in_each = training.accumulation == AccumulationMode::sync_every_micro_step;
  // Under no_sync DDP broadcasts in the first forward behind a synchronised backward
  // (require_forward_param_sync of distributed.py): once in a step.
  const bool broadcast_once = !reduce_in_each && !broadcasts.empty();
  if (earlier > 0 && broadcast_once) program.segments.push_back({1, micro_step(true, false)});
  if (const std::int64_t equal = earlier - (broadcast_once ? 1 : 0); equal > 0)
    program.segments.push_back({equal, micro_step(!broadcast_once, reduce_in_each)});
  Segment last{1, micro_step(earlier == 0 || !broadcast_once, true)};
  append(last.tasks, Phase::optimizer, measured.optimizer);
  program.segments.push_back(std::move(last));
  settle_host(program);
  return program;
}

}  // namespace stepcast
