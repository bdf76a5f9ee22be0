#include "workload/data_parallel.hpp"

#include <limits>

#include "workload/buckets.hpp"

namespace stepcast {
namespace {

constexpr std::int64_t no_limit = std::numeric_limits<std::int64_t>::max();

void append(std::vector<Task>& tasks, Phase phase, const Span& span) {
  if (span.gap > Seconds{0.0})
    tasks.emplace_back(Compute{Phase::host, "gap before " + span.name, span.gap});
  tasks.emplace_back(Compute{phase, span.name, span.duration, span.host, span.host_waits});
}

void append(std::vector<Task>& tasks, Phase phase, const std::vector<Span>& spans) {
  for (const Span& span : spans) append(tasks, phase, span);
}

/// The order in which the gradients become ready during backward.
std::vector<int> ready_order(const MeasuredStep& measured) {
  std::vector<int> order;
  for (const Span& span : measured.backward)
    order.insert(order.end(), span.gradients.begin(), span.gradients.end());
  return order;
}

/// The AllReduces of one synchronised micro-step.
std::vector<Collective> reductions_of(const MeasuredStep& measured,
                                      const std::vector<Parameter>& parameters,
                                      const TrainingSettings& training, int world_size) {
  if (world_size == 1) return {};
  switch (training.sync) {
    case SyncMode::ddp:
      return ddp_buckets(parameters, ready_order(measured), training.first_bucket_bytes,
                         training.bucket_cap_bytes);
    case SyncMode::flat:
      // A limit that is never reached: one collective for each dtype.
      return ddp_buckets(parameters, ready_order(measured), no_limit, no_limit);
    case SyncMode::per_tensor: break;
  }
  std::vector<Collective> one_each;
  for (std::size_t i = 0; i < parameters.size(); ++i)
    one_each.push_back({parameters[i].bytes(), {static_cast<int>(i)}});
  return one_each;
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

/// The kernel that divides reduced gradients by the number of ranks: it reads and writes each once.
Compute division(const Collective& collective, const Gpu& gpu) {
  Seconds duration = gpu.kernel_floor;
  if (gpu.memory_bandwidth)
    duration += Bytes{2.0 * static_cast<double>(collective.bytes)} / *gpu.memory_bandwidth;
  return {Phase::finalize, "divide by world size", duration};
}

/// DDP: each bucket is launched when all its gradients are there and all earlier buckets are
/// launched; after backward the compute stream waits for all of them, then copies them out.
void append_ddp_backward(std::vector<Task>& tasks, const MeasuredStep& measured,
                         const std::vector<Collective>& buckets, std::size_t parameter_count,
                         int first) {
  std::vector<std::size_t> bucket_of(parameter_count);
  std::vector<std::size_t> missing;
  for (const Collective& bucket : buckets) {
    for (const int parameter : bucket.parameters)
      bucket_of[static_cast<std::size_t>(parameter)] = missing.size();
    missing.push_back(bucket.parameters.size());
  }
  std::size_t next = 0;
  for (const Span& span : measured.backward) {
    append(tasks, Phase::backward, span);
    if (buckets.empty()) continue;
    for (const int parameter : span.gradients)
      --missing[bucket_of[static_cast<std::size_t>(parameter)]];
    for (; next < buckets.size() && missing[next] == 0; ++next)
      tasks.emplace_back(Launch{first + static_cast<int>(next)});
  }
  for (std::size_t i = 0; i < buckets.size(); ++i)
    tasks.emplace_back(Wait{first + static_cast<int>(i)});
  append(tasks, Phase::finalize, measured.finalize);
}

/// The loop people write by hand: after backward, one blocking AllReduce after the other, each
/// followed by its division.
void append_blocking_backward(std::vector<Task>& tasks, const MeasuredStep& measured,
                              const std::vector<Collective>& collectives, const Gpu& gpu,
                              int first) {
  append(tasks, Phase::backward, measured.backward);
  for (std::size_t i = 0; i < collectives.size(); ++i) {
    tasks.emplace_back(Launch{first + static_cast<int>(i)});
    tasks.emplace_back(Wait{first + static_cast<int>(i)});
    tasks.emplace_back(division(collectives[i], gpu));
  }
}

}  // namespace

Program data_parallel_step(const StepTrace& model, const MeasuredStep& measured,
                           const TrainingSettings& training, const Gpu& gpu, int world_size) {
  const std::vector<Collective> broadcasts = broadcasts_of(model, training, world_size);
  const std::vector<Collective> reductions =
      reductions_of(measured, model.parameters, training, world_size);
  Program program;
  const auto add = [&](const std::vector<Collective>& collectives) {
    const auto first = static_cast<int>(program.collectives.size());
    program.collectives.insert(program.collectives.end(), collectives.begin(), collectives.end());
    return first;
  };
  const auto micro_step = [&](bool broadcast, bool reduce) {
    std::vector<Task> tasks;
    if (broadcast) {
      const int first = add(broadcasts);
      const int last = first + static_cast<int>(broadcasts.size());
      for (int i = first; i < last; ++i) tasks.emplace_back(Launch{i});
      for (int i = first; i < last; ++i) tasks.emplace_back(Wait{i});
    }
    append(tasks, Phase::forward, measured.forward);
    if (!reduce)
      append(tasks, Phase::backward, measured.backward);
    else if (training.sync == SyncMode::ddp)
      append_ddp_backward(tasks, measured, reductions, model.parameters.size(), add(reductions));
    else
      append_blocking_backward(tasks, measured, reductions, gpu, add(reductions));
    return tasks;
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
