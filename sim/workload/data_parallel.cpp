#include "workload/data_parallel.hpp"

#include <limits>

#include "workload/buckets.hpp"

namespace stepcast {
namespace {

constexpr std::int64_t no_limit = std::numeric_limits<std::int64_t>::max();

void append(std::vector<Task>& tasks, Phase phase, const Span& span) {
  if (span.gap > Seconds{0.0})
    tasks.emplace_back(Compute{Phase::host, "gap before " + span.name, span.gap});
  tasks.emplace_back(Compute{phase, span.name, span.duration});
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

/// The collectives of one synchronised micro-step.
std::vector<Collective> collectives_of(const MeasuredStep& measured,
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

/// The kernel that divides reduced gradients by the number of ranks: it reads and writes each once.
Compute division(const Collective& collective, const Gpu& gpu) {
  Seconds duration = gpu.kernel_floor;
  if (gpu.memory_bandwidth)
    duration += Bytes{2.0 * static_cast<double>(collective.bytes)} / *gpu.memory_bandwidth;
  return {Phase::finalize, "divide by world size", duration};
}

std::vector<Task> unsynchronised_micro_step(const MeasuredStep& measured) {
  std::vector<Task> tasks;
  append(tasks, Phase::forward, measured.forward);
  append(tasks, Phase::backward, measured.backward);
  return tasks;
}

/// DDP: each bucket is launched when all its gradients are there and all earlier buckets are
/// launched; after backward the compute stream waits for all of them, then copies them out.
std::vector<Task> ddp_micro_step(const MeasuredStep& measured,
                                 const std::vector<Collective>& buckets,
                                 std::size_t parameter_count, int first) {
  std::vector<Task> tasks;
  append(tasks, Phase::forward, measured.forward);

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
  return tasks;
}

/// The loop people write by hand: after backward, one blocking AllReduce after the other, each
/// followed by its division.
std::vector<Task> blocking_micro_step(const MeasuredStep& measured,
                                      const std::vector<Collective>& collectives, const Gpu& gpu,
                                      int first) {
  std::vector<Task> tasks = unsynchronised_micro_step(measured);
  for (std::size_t i = 0; i < collectives.size(); ++i) {
    tasks.emplace_back(Launch{first + static_cast<int>(i)});
    tasks.emplace_back(Wait{first + static_cast<int>(i)});
    tasks.emplace_back(division(collectives[i], gpu));
  }
  return tasks;
}

}  // namespace

Program data_parallel_step(const MeasuredStep& measured, const std::vector<Parameter>& parameters,
                           const TrainingSettings& training, const Gpu& gpu, int world_size) {
  const std::vector<Collective> collectives =
      collectives_of(measured, parameters, training, world_size);
  Program program;
  const auto synchronised_micro_step = [&] {
    const int first = static_cast<int>(program.collectives.size());
    program.collectives.insert(program.collectives.end(), collectives.begin(), collectives.end());
    return training.sync == SyncMode::ddp
               ? ddp_micro_step(measured, collectives, parameters.size(), first)
               : blocking_micro_step(measured, collectives, gpu, first);
  };
  if (const std::int64_t earlier = training.accumulation_steps - 1; earlier > 0) {
    const bool sync_all = training.accumulation == AccumulationMode::sync_every_micro_step;
    program.segments.push_back(
        {earlier, sync_all ? synchronised_micro_step() : unsynchronised_micro_step(measured)});
  }
  Segment last{1, synchronised_micro_step()};
  append(last.tasks, Phase::optimizer, measured.optimizer);
  program.segments.push_back(std::move(last));
  return program;
}

}  // namespace stepcast
