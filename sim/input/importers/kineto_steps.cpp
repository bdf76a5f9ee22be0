#include "input/importers/kineto_steps.hpp"

#include <algorithm>
#include <array>
#include <limits>
#include <map>
#include <set>

#include <fmt/format.h>

#include "base/error.hpp"

namespace stepcast {
namespace {

constexpr std::int64_t undefined = -1;  // elements of a gradient that there is not
constexpr Nanoseconds never = std::numeric_limits<Nanoseconds>::max();
/// A stream takes about a thousand launches before the host has to wait for the GPU.
constexpr std::ptrdiff_t full_queue = 500;
constexpr Nanoseconds long_launch = 50'000;  // ns; a launch takes 4-6 us of the host
/// A copy from pageable memory up to this size is staged, and the host goes on before it is done
/// (CUDA Runtime API, API synchronization behavior).
constexpr std::int64_t staged_bytes = 64 << 10;

bool contains(const std::string& text, const char* part) {
  return text.find(part) != std::string::npos;
}

struct Interval {
  Nanoseconds start = 0, end = 0;
};

Nanoseconds median_of(std::vector<Nanoseconds> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

/// Sorted and joined where they overlap.
std::vector<Interval> united(std::vector<Interval> intervals) {
  std::sort(intervals.begin(), intervals.end(),
            [](const Interval& a, const Interval& b) { return a.start < b.start; });
  std::vector<Interval> joined;
  for (const Interval& one : intervals) {
    if (!joined.empty() && one.start <= joined.back().end)
      joined.back().end = std::max(joined.back().end, one.end);
    else
      joined.push_back(one);
  }
  return joined;
}

Nanoseconds length_of(const std::vector<Interval>& united_intervals) {
  Nanoseconds sum = 0;
  for (const Interval& one : united_intervals) sum += one.end - one.start;
  return sum;
}

/// Time of `a` in which `b` is idle; both united.
Nanoseconds length_outside(const std::vector<Interval>& a, const std::vector<Interval>& b) {
  Nanoseconds covered = 0;
  std::size_t next = 0;
  for (const Interval& one : a) {
    while (next < b.size() && b[next].end <= one.start) ++next;
    for (std::size_t i = next; i < b.size() && b[i].start < one.end; ++i)
      covered += std::min(one.end, b[i].end) - std::max(one.start, b[i].start);
  }
  return length_of(a) - covered;
}

/// Intervals of each thread that no other of them contains, to look up by time.
class ByThread {
 public:
  struct Entry {
    int thread = 0;
    Nanoseconds start = 0, end = 0;
    int index = 0;  ///< of the caller
  };
  /// `entries` by thread and start, an outer one before an inner one.
  explicit ByThread(const std::vector<Entry>& entries) {
    for (const Entry& entry : entries)
      if (kept_.empty() || kept_.back().thread != entry.thread || entry.start >= kept_.back().end)
        kept_.push_back(entry);
  }
  /// The caller's index of the interval that holds the time; -1 where there is none.
  [[nodiscard]] int at(int thread, Nanoseconds time) const {
    auto after = std::upper_bound(kept_.begin(), kept_.end(), std::pair(thread, time),
                                  [](const std::pair<int, Nanoseconds>& key, const Entry& entry) {
                                    return key.first != entry.thread ? key.first < entry.thread
                                                                     : key.second < entry.start;
                                  });
    if (after == kept_.begin()) return -1;
    --after;
    return after->thread == thread && time <= after->end ? after->index : -1;
  }

 private:
  std::vector<Entry> kept_;
};

void sort_by_thread(std::vector<ByThread::Entry>& entries) {
  std::sort(entries.begin(), entries.end(), [](const auto& a, const auto& b) {
    if (a.thread != b.thread) return a.thread < b.thread;
    return a.start != b.start ? a.start < b.start : a.end > b.end;
  });
}

/// Where a piece of GPU work comes from.
struct Origin {
  Nanoseconds start = never, end = never;  ///< of the call; never: it is not in the trace
  int thread = -1;
  int op = -1;    ///< the outermost operator around the call
  int call = -1;  ///< of a collective
};

std::string operation_of(std::string word) {
  if (word.starts_with("nccl:")) word = word.substr(5);
  std::string plain;
  for (const char c : word)
    if (c != '_' && c != ' ') plain += static_cast<char>(std::tolower(c));
  static const std::array<std::pair<const char*, const char*>, 9> table = {
      {{"allreduce", "all_reduce"},
       {"reducescatter", "reduce_scatter"},
       {"allgather", "all_gather"},
       {"alltoall", "all_to_all"},
       {"sendrecv", "all_to_all"},
       {"broadcast", "broadcast"},
       {"send", "send"},
       {"recv", "recv"},
       {"reduce", "reduce"}}};
  for (const auto& [part, operation] : table)
    if (plain.find(part) != std::string::npos) return operation;
  return word;
}

class Analysis {
 public:
  explicit Analysis(const KinetoTrace& trace) : trace_(trace) {}

  RankSteps run() {
    find_threads();
    find_collectives();
    find_origins();
    choose_compute_stream();
    find_launch_latency();
    find_waits();
    explain_gaps();
    find_steps();
    fill_steps();
    return std::move(result_);
  }

 private:
  [[nodiscard]] const std::string& name(int index) const { return trace_.names[index]; }
  [[nodiscard]] bool is_backward(const Origin& origin) const {
    if (origin.thread >= 0 && origin.thread != main_thread_ &&
        autograd_threads_.count(origin.thread) > 0)
      return true;
    return origin.op >= 0 && is_autograd_[static_cast<std::size_t>(op(origin.op).name)];
  }
  [[nodiscard]] const Op& op(int index) const {
    return trace_.ops[static_cast<std::size_t>(index)];
  }

  void find_threads() {
    is_autograd_.resize(static_cast<std::size_t>(trace_.names.size()));
    is_accumulate_.resize(is_autograd_.size());
    for (int i = 0; i < trace_.names.size(); ++i) {
      const auto at = static_cast<std::size_t>(i);
      is_accumulate_[at] = contains(name(i), "AccumulateGrad");
      is_autograd_[at] =
          is_accumulate_[at] || name(i).starts_with("autograd::engine::evaluate_function");
      result_.ddp = result_.ddp || contains(name(i), "ddp.reducer") ||
                    contains(name(i), "distributed::reducer") ||
                    name(i) == "DistributedDataParallel.forward";
    }
    for (const Op& one : trace_.ops)
      if (is_autograd_[static_cast<std::size_t>(one.name)]) autograd_threads_.insert(one.thread);
    for (const Op& one : trace_.annotations)
      if (name(one.name).starts_with("ProfilerStep#") || name(one.name).starts_with("Optimizer.")) {
        main_thread_ = one.thread;
        break;
      }
    std::vector<ByThread::Entry> optimizers, entries;
    for (const Op& one : trace_.annotations) {
      const std::string& text = name(one.name);
      if (!text.starts_with("Optimizer.step")) continue;
      optimizers.push_back({one.thread, one.start, one.end, 0});
      const std::size_t from = text.find('#');
      if (from != std::string::npos)
        result_.optimizer = text.substr(from + 1, text.find('.', from) - from - 1);
    }
    sort_by_thread(optimizers);
    optimizer_steps_.emplace(optimizers);
    for (std::size_t i = 0; i < trace_.ops.size(); ++i)
      entries.push_back(
          {trace_.ops[i].thread, trace_.ops[i].start, trace_.ops[i].end, static_cast<int>(i)});
    outermost_.emplace(entries);
  }

  void find_collectives() {
    collective_calls_ = trace_.collectives;
    for (const auto* list : {&trace_.annotations, &trace_.ops})
      for (const Op& one : *list) {
        const std::string& text = name(one.name);
        const bool annotation = text.starts_with("nccl:");
        // record_param_comms of older traces says nothing of its collective.
        if (!annotation && text != "record_param_comms") continue;
        collective_calls_.push_back({one.start, one.end, one.thread, annotation ? text : "",
                                     annotation ? one.elements : 0,
                                     one.type >= 0 ? name(one.type) : ""});
      }
    for (CollectiveCall& call : collective_calls_) call.dtype = dtype_of(call.dtype);
    // The outermost of those around one call, with what any of them says.
    std::sort(collective_calls_.begin(), collective_calls_.end(), [](const auto& a, const auto& b) {
      if (a.thread != b.thread) return a.thread < b.thread;
      return a.start != b.start ? a.start < b.start : a.end > b.end;
    });
    std::vector<CollectiveCall> joined;
    for (const CollectiveCall& call : collective_calls_) {
      if (joined.empty() || joined.back().thread != call.thread ||
          call.start >= joined.back().end) {
        joined.push_back(call);
        continue;
      }
      CollectiveCall& outer = joined.back();
      if (outer.operation.empty()) outer.operation = call.operation;
      if (outer.elements == 0) outer.elements = call.elements;
      if (outer.dtype.empty()) outer.dtype = call.dtype;
    }
    collective_calls_ = std::move(joined);
    std::vector<ByThread::Entry> entries;
    for (std::size_t i = 0; i < collective_calls_.size(); ++i)
      entries.push_back({collective_calls_[i].thread, collective_calls_[i].start,
                         collective_calls_[i].end, static_cast<int>(i)});
    calls_by_thread_.emplace(entries);
  }

  void find_origins() {
    std::vector<std::pair<std::int64_t, int>> calls;
    for (std::size_t i = 0; i < trace_.calls.size(); ++i)
      if (trace_.calls[i].correlation >= 0)
        calls.emplace_back(trace_.calls[i].correlation, static_cast<int>(i));
    std::sort(calls.begin(), calls.end());
    origins_.resize(trace_.activities.size());
    for (std::size_t i = 0; i < trace_.activities.size(); ++i) {
      const std::int64_t correlation = trace_.activities[i].correlation;
      const auto found = std::lower_bound(calls.begin(), calls.end(), std::pair(correlation, 0));
      if (found == calls.end() || found->first != correlation) continue;
      const Call& call = trace_.calls[static_cast<std::size_t>(found->second)];
      origins_[i] = {call.start, call.end, call.thread, outermost_->at(call.thread, call.start),
                     calls_by_thread_->at(call.thread, call.start)};
    }
  }

  void choose_compute_stream() {
    const auto streams = trace_.streams.size();
    std::vector<Nanoseconds> computing(streams, 0), communicating(streams, 0);
    communication_.resize(trace_.activities.size());
    for (std::size_t i = 0; i < trace_.activities.size(); ++i) {
      const Activity& activity = trace_.activities[i];
      communication_[i] = activity.communication || origins_[i].call >= 0;
      (communication_[i] ? communicating : computing)[static_cast<std::size_t>(activity.stream)] +=
          activity.end - activity.start;
    }
    compute_stream_ =
        static_cast<int>(std::max_element(computing.begin(), computing.end()) - computing.begin());
    // What else is on a stream of NCCL belongs to it.
    for (std::size_t i = 0; i < trace_.activities.size(); ++i) {
      const auto stream = static_cast<std::size_t>(trace_.activities[i].stream);
      if (trace_.activities[i].stream != compute_stream_ &&
          communicating[stream] > computing[stream])
        communication_[i] = true;
    }
    std::vector<Interval> communicate;
    Nanoseconds total = 0, beside = 0;
    for (std::size_t i = 0; i < trace_.activities.size(); ++i) {
      const Activity& activity = trace_.activities[i];
      if (communication_[i]) {
        communicate.push_back({activity.start, activity.end});
      } else {
        total += activity.end - activity.start;
        if (activity.stream == compute_stream_)
          compute_.push_back(static_cast<int>(i));
        else
          beside += activity.end - activity.start;
      }
    }
    communication_times_ = united(communicate);
    if (compute_.empty())
      throw InputError(trace_.file, "all kernels are collectives; there is no computation");
    result_.other_streams =
        total > 0 ? static_cast<double>(beside) / static_cast<double>(total) : 0.0;
    for (const int i : compute_)
      if (origins_[static_cast<std::size_t>(i)].start != never)
        launches_.push_back(origins_[static_cast<std::size_t>(i)].start);
    std::sort(launches_.begin(), launches_.end());
    Nanoseconds last = std::numeric_limits<Nanoseconds>::min();
    for (const int i : compute_) ends_.push_back(last = std::max(last, activity(i).end));
  }

  [[nodiscard]] const Activity& activity(int index) const {
    return trace_.activities[static_cast<std::size_t>(index)];
  }
  [[nodiscard]] const Origin& origin(int index) const {
    return origins_[static_cast<std::size_t>(index)];
  }

  /// From the call to the start of a kernel that found the stream idle.
  void find_launch_latency() {
    std::vector<Nanoseconds> latencies;
    for (std::size_t k = 1; k < compute_.size(); ++k) {
      const Origin& from = origin(compute_[k]);
      if (from.start != never && ends_[k - 1] <= from.start &&
          activity(compute_[k]).start >= from.start)
        latencies.push_back(activity(compute_[k]).start - from.start);
    }
    result_.launch_latency = median_of(std::move(latencies));
  }

  /// Work on the compute stream that was launched and had not ended.
  [[nodiscard]] std::ptrdiff_t pending(Nanoseconds time) const {
    const auto launched = std::lower_bound(launches_.begin(), launches_.end(), time);
    const auto ended = std::upper_bound(ends_.begin(), ends_.end(), time);
    // What was launched before the trace began has ended, too.
    const auto unknown = static_cast<std::ptrdiff_t>(ends_.size() - launches_.size());
    return (launched - launches_.begin()) -
           std::max<std::ptrdiff_t>(0, (ended - ends_.begin()) - unknown);
  }

  struct HostWait {
    Nanoseconds start = 0, end = 0;
    bool for_compute = false;  ///< the host goes on only when the compute stream has caught up
  };

  void find_waits() {
    std::map<std::int64_t, const Activity*> copies;
    for (const Activity& one : trace_.activities)
      if (one.kind == ActivityKind::copy && one.correlation >= 0) copies[one.correlation] = &one;
    std::vector<Nanoseconds> lengths;
    for (const Call& call : trace_.calls)
      if (contains(name(call.name), "Launch")) lengths.push_back(call.end - call.start);
    const Nanoseconds usual = median_of(std::move(lengths));
    for (const Call& call : trace_.calls) {
      const std::string& text = name(call.name);
      if (contains(text, "Synchronize")) {
        waits_.push_back({call.start, call.end, pending(call.start) > 0});
      } else if (const auto copy = copies.find(call.correlation);
                 copy != copies.end() && call.correlation >= 0) {
        const Activity& one = *copy->second;
        const std::string& kind = name(one.name);
        const bool to_host = contains(kind, "DtoH");
        const bool from_pageable = contains(kind, "HtoD") && one.bytes > staged_bytes;
        if ((to_host || from_pageable) && call.end + trace_.resolution >= one.end)
          waits_.push_back({call.start, call.end, one.stream == compute_stream_});
      } else if (call.end - call.start > long_launch && call.end - call.start > 4 * usual &&
                 pending(call.start) >= full_queue) {
        waits_.push_back({call.start, call.end - usual, false});
      }
    }
    std::sort(waits_.begin(), waits_.end(),
              [](const HostWait& a, const HostWait& b) { return a.start < b.start; });
  }

  /// Why the compute stream stood idle before each of its activities: the host had not launched it
  /// (that is in the host's clock), it waited for NCCL (cut out), or neither: a gap of the GPU.
  void explain_gaps() {
    gaps_.assign(compute_.size(), 0);
    busy_.assign(compute_.size(), 0);
    Nanoseconds total = 0, twice = 0;
    for (std::size_t k = 0; k < compute_.size(); ++k) {
      const Activity& one = activity(compute_[k]);
      const Nanoseconds before = k == 0 ? one.start : ends_[k - 1];
      busy_[k] = std::max<Nanoseconds>(0, one.end - std::max(one.start, before));
      total += one.end - one.start;
      if (one.start + trace_.resolution < before) twice += one.end - one.start - busy_[k];
      const Nanoseconds gap = one.start - before;
      if (gap <= 0) continue;
      const Origin& from = origin(compute_[k]);
      const bool host_late =
          from.start == never || std::max(from.end, from.start + result_.launch_latency) > before;
      if (!host_late && !communication_ended_in(before, one.start + trace_.resolution))
        gaps_[k] = gap;
    }
    result_.overlapped = total > 0 ? static_cast<double>(twice) / static_cast<double>(total) : 0.0;
  }

  [[nodiscard]] bool communication_ended_in(Nanoseconds from, Nanoseconds to) const {
    const auto after = std::upper_bound(
        communication_times_.begin(), communication_times_.end(), from,
        [](Nanoseconds time, const Interval& interval) { return time < interval.end; });
    return after != communication_times_.end() && after->end <= to;
  }

  void find_steps() {
    std::vector<StepSample>& steps = result_.steps;
    const auto add = [&](std::string step_name, Nanoseconds begin, Nanoseconds end) {
      steps.emplace_back();
      steps.back().name = std::move(step_name);
      steps.back().begin = begin;
      steps.back().end = end;
    };
    std::set<std::string> seen;
    for (const Op& one : trace_.annotations)
      if (name(one.name).starts_with("ProfilerStep#") && seen.insert(name(one.name)).second) {
        if (!steps.empty()) steps.back().end = one.start;
        add(name(one.name), one.start, one.end);
      }
    result_.steps_from = "ProfilerStep annotations";
    if (!steps.empty()) return;
    std::vector<Nanoseconds> boundaries;
    for (const Op& one : trace_.annotations)
      if (name(one.name).starts_with("Optimizer.step")) boundaries.push_back(one.end);
    result_.steps_from = "ends of Optimizer.step, as there is no ProfilerStep";
    if (boundaries.size() < 3) {
      boundaries = repetitions();
      result_.steps_from = "repetition of the sequence of kernels, as there is no ProfilerStep";
    }
    for (std::size_t i = 1; i < boundaries.size(); ++i)
      add(fmt::format("step {}", i), boundaries[i - 1], boundaries[i]);
    if (steps.size() < 2)
      throw InputError(
          trace_.file,
          "no steps: neither ProfilerStep annotations (call profiler.step() after each "
          "step), nor two Optimizer.step, nor a sequence of kernels that repeats three "
          "times");
  }

  /// Launch times at which the longest repeating sequence of kernel names begins anew: the period
  /// is one of the distances between two kernels of one name.
  [[nodiscard]] std::vector<Nanoseconds> repetitions() const {
    std::vector<int> names;
    for (const int i : compute_) names.push_back(activity(i).name);
    std::map<int, std::vector<std::size_t>> places;
    for (std::size_t k = 0; k < names.size(); ++k) places[names[k]].push_back(k);
    std::map<std::size_t, std::size_t> votes;
    for (const auto& [kernel, at] : places)
      for (std::size_t i = 1; i < at.size(); ++i) ++votes[at[i] - at[i - 1]];
    std::vector<std::pair<std::size_t, std::size_t>> candidates;
    for (const auto& [period, count] : votes) candidates.emplace_back(count * period, period);
    std::sort(candidates.rbegin(), candidates.rend());
    constexpr std::size_t tried = 16;
    std::size_t best_length = 0, best_period = 0, best_start = 0;
    for (std::size_t c = 0; c < std::min(tried, candidates.size()); ++c) {
      const std::size_t period = candidates[c].second;
      std::size_t run = 0;
      for (std::size_t k = period; k < names.size(); ++k) {
        run = names[k] == names[k - period] ? run + 1 : 0;
        const std::size_t length = run + period;
        if (run >= 2 * period && length > best_length) {
          best_length = length;
          best_period = period;
          best_start = k + 1 - length;
        }
      }
    }
    std::vector<Nanoseconds> boundaries;
    if (best_period == 0) return boundaries;
    // A step does not begin within backward.
    const std::size_t end = best_start + best_length;
    std::size_t start = best_start;
    while (start < best_start + best_period && is_backward(origin(compute_[start]))) ++start;
    for (std::size_t k = start; k < end; k += best_period)
      if (origin(compute_[k]).start != never) boundaries.push_back(origin(compute_[k]).start);
    return boundaries;
  }

  [[nodiscard]] std::size_t step_at(Nanoseconds time) const {
    const auto after = std::upper_bound(
        result_.steps.begin(), result_.steps.end(), time,
        [](Nanoseconds value, const StepSample& step) { return value < step.begin; });
    if (after == result_.steps.begin() || time >= (after - 1)->end) return result_.steps.size();
    return static_cast<std::size_t>(after - 1 - result_.steps.begin());
  }

  void fill_steps() {
    const std::size_t count = result_.steps.size();
    std::vector<std::vector<std::size_t>> of_step(count);  // places in compute_
    std::vector<std::vector<Interval>> computing(count), communicating(count);
    Nanoseconds total = 0, lost = 0;
    for (std::size_t k = 0; k < compute_.size(); ++k) {
      const Activity& one = activity(compute_[k]);
      const Origin& from = origin(compute_[k]);
      const std::size_t step = from.start == never ? count : step_at(from.start);
      total += busy_[k];
      if (step == count) {
        lost += busy_[k];
        continue;
      }
      of_step[step].push_back(k);
      computing[step].push_back({one.start, one.end});
    }
    result_.unclassified = total > 0 ? static_cast<double>(lost) / static_cast<double>(total) : 0.0;
    for (std::size_t i = 0; i < trace_.activities.size(); ++i) {
      if (!communication_[i] || origins_[i].start == never) continue;
      const std::size_t step = step_at(origins_[i].start);
      if (step == count) continue;
      const Activity& one = trace_.activities[i];
      communicating[step].push_back({one.start, one.end});
      if (one.kind == ActivityKind::kernel) add_collective(result_.steps[step], one, origins_[i]);
    }
    add_gradients_and_batches();
    add_calls();
    const std::vector<Interval> all_computing = united([&] {
      std::vector<Interval> all;
      for (const int i : compute_) all.push_back({activity(i).start, activity(i).end});
      return all;
    }());
    for (std::size_t step = 0; step < count; ++step) {
      StepSample& sample = result_.steps[step];
      sample.compute_busy = length_of(united(computing[step]));
      const std::vector<Interval> joined = united(communicating[step]);
      sample.communication_busy = length_of(joined);
      sample.exposed = length_outside(joined, all_computing);
      add_spans(sample, of_step[step], gradient_times_[step]);
    }
    add_host_times(of_step);
  }

  void add_collective(StepSample& sample, const Activity& one, const Origin& from) const {
    TracedCollective collective;
    collective.start = one.start;
    collective.end = one.end;
    if (from.call >= 0) {
      const CollectiveCall& call = collective_calls_[static_cast<std::size_t>(from.call)];
      collective.operation = operation_of(call.operation);
      collective.elements = call.elements;
      collective.dtype = call.dtype;
    }
    if (collective.operation.empty()) collective.operation = operation_of(name(one.name));
    sample.collectives.push_back(collective);
  }

  void add_calls() {
    for (const CollectiveCall& call : collective_calls_) {
      const std::size_t step = step_at(call.start);
      if (step < result_.steps.size() && call.elements > 0)
        result_.steps[step].called.push_back(
            {operation_of(call.operation), call.elements, call.dtype, call.start, call.end});
    }
    for (StepSample& sample : result_.steps)
      std::sort(sample.called.begin(), sample.called.end(),
                [](const auto& a, const auto& b) { return a.start < b.start; });
  }

  /// Gradients, and the batch: the first dimension of what the first convolution, or else the first
  /// linear layer takes.
  void add_gradients_and_batches() {
    std::vector<std::vector<std::pair<Nanoseconds, GradientSample>>> found(result_.steps.size());
    std::vector<std::array<const Op*, 2>> layers(result_.steps.size());
    Nanoseconds accumulating_until = 0;
    int thread = -1;
    for (const Op& one : trace_.ops) {
      if (one.thread != thread) accumulating_until = 0;
      thread = one.thread;
      const std::string& text = name(one.name);
      const bool accumulates = is_accumulate_[static_cast<std::size_t>(one.name)];
      const bool convolution = one.first_dim > 0 && text.starts_with("aten::conv");
      const bool linear = one.first_dim > 0 && text == "aten::linear";
      if (!accumulates && !convolution && !linear && one.start >= accumulating_until) continue;
      const std::size_t step = step_at(one.start);
      if (step == result_.steps.size()) continue;
      if (convolution || linear) {
        const Op*& first = layers[step][convolution ? 0 : 1];
        if (first == nullptr || one.start < first->start) first = &one;
      }
      if (accumulates && one.start >= accumulating_until) {
        accumulating_until = one.end;
        found[step].emplace_back(one.end, GradientSample{});
      }
      if (one.start >= accumulating_until || found[step].empty()) continue;
      GradientSample& gradient = found[step].back().second;
      // An input without a shape where shapes are recorded is a gradient that is not defined, as of
      // a parameter that the loss does not depend on; DDP calls its hook all the same.
      if (accumulates && one.shaped && one.elements == 0) gradient.elements = undefined;
      if (one.elements == 0) continue;
      if (gradient.elements == 0 && (accumulates || contains(text, "mul_out"))) {
        gradient.elements = one.elements;
        if (one.type >= 0) gradient.dtype = dtype_of(name(one.type));
      }
    }
    gradient_times_.resize(result_.steps.size());
    for (std::size_t step = 0; step < result_.steps.size(); ++step) {
      std::sort(found[step].begin(), found[step].end(),
                [](const auto& a, const auto& b) { return a.first < b.first; });
      for (const auto& [time, gradient] : found[step]) {
        if (gradient.elements == undefined) {
          ++result_.steps[step].without_gradient;
          continue;
        }
        result_.steps[step].gradients.push_back(gradient);
        gradient_times_[step].push_back(time);
      }
      for (const Op* one : layers[step])
        if (one != nullptr && result_.steps[step].batch == 0) {
          result_.steps[step].batch = one->first_dim;
          result_.steps[step].batch_from = name(one->name);
        }
    }
  }

  [[nodiscard]] StepPhase phase_of(const Origin& from, std::size_t place, std::size_t first,
                                   std::size_t last, bool behind_gradients) const {
    if (optimizer_steps_->at(from.thread, from.start) >= 0) return StepPhase::optimizer;
    if (place < first) return StepPhase::forward;
    if (place > last) return StepPhase::optimizer;
    if (behind_gradients && result_.ddp) return StepPhase::finalize;
    return StepPhase::backward;
  }

  /// A name that many operators in a row share in one phase makes one span.
  static bool joins(const SpanSample& span, StepPhase phase, const std::string& text) {
    if (span.phase != phase || span.name != text) return false;
    return phase == StepPhase::finalize || text == "aten::copy_" || text == "aten::zero_" ||
           text == "aten::fill_";
  }

  void add_spans(StepSample& sample, const std::vector<std::size_t>& places,
                 const std::vector<Nanoseconds>& gradient_times) {
    std::size_t first = places.size(), last = 0;
    for (std::size_t p = 0; p < places.size(); ++p)
      if (is_backward(origin(compute_[places[p]]))) {
        first = std::min(first, p);
        last = p;
      }
    std::size_t next_gradient = 0;
    std::size_t gradients_of_pass = 0;
    bool in_backward = false;
    int last_op = -1;
    std::map<std::string, Nanoseconds> named;  // time by operator in the backward span at hand
    const auto close_backward = [&] {
      if (named.empty() || sample.spans.empty()) return;
      const auto longest =
          std::max_element(named.begin(), named.end(),
                           [](const auto& a, const auto& b) { return a.second < b.second; });
      sample.spans.back().name = longest->first;
      named.clear();
    };
    for (std::size_t p = 0; p < places.size(); ++p) {
      const std::size_t k = places[p];
      const Activity& one = activity(compute_[k]);
      const Origin& from = origin(compute_[k]);
      // Gradients that were ready before the host launched this.
      int ready = 0;
      while (next_gradient < gradient_times.size() && gradient_times[next_gradient] <= from.start) {
        ++next_gradient;
        ++ready;
      }
      if (ready > 0 && !sample.spans.empty()) {
        sample.spans.back().gradients += ready;
        gradients_of_pass += static_cast<std::size_t>(ready);
      }
      if (const bool backward = is_backward(from); backward != in_backward) {
        if (!backward && gradients_of_pass > 0) ++sample.backward_passes;
        if (!backward) gradients_of_pass = 0;
        in_backward = backward;
      }
      const StepPhase phase = phase_of(
          from, p, first, last, next_gradient == gradient_times.size() && !gradient_times.empty());
      std::string text = from.op >= 0 ? name(op(from.op).name) : name(one.name);
      const std::string prefix = "autograd::engine::evaluate_function: ";
      if (text.starts_with(prefix)) text = text.substr(prefix.size());
      const bool accumulates =
          from.op >= 0 && is_accumulate_[static_cast<std::size_t>(op(from.op).name)];
      bool opens = sample.spans.empty() || sample.spans.back().phase != phase;
      if (!opens && phase == StepPhase::backward)
        opens = sample.spans.back().gradients > 0 && !accumulates;
      else if (!opens)
        opens = (from.op != last_op || from.op < 0) && !joins(sample.spans.back(), phase, text);
      last_op = from.op;
      if (opens) {
        close_backward();
        sample.spans.emplace_back();
        SpanSample& span = sample.spans.back();
        span.phase = phase;
        span.name = text;
        span.gap = gaps_[k];
        span.launch = from.start;
      } else {
        sample.spans.back().duration += gaps_[k];
        sample.spans.back().launch = std::min(sample.spans.back().launch, from.start);
      }
      if (phase == StepPhase::backward && !accumulates) named[text] += busy_[k];
      sample.spans.back().duration += busy_[k];
      if (phase == StepPhase::optimizer && result_.optimizer == "SGD" &&
          (text == "aten::_foreach_mul_" || text == "aten::mul_"))
        result_.momentum = true;
    }
    close_backward();
    if (next_gradient < gradient_times.size() && !sample.spans.empty()) {
      // The host needed no GPU work behind them.
      const auto rest = static_cast<int>(gradient_times.size() - next_gradient);
      sample.spans.back().gradients += rest;
      gradients_of_pass += static_cast<std::size_t>(rest);
    }
    if (in_backward && gradients_of_pass > 0) ++sample.backward_passes;
    take_sizes(sample, places);
    // Gradients belong to backward, wherever the host stood when they were counted.
    SpanSample* backward = nullptr;
    for (SpanSample& span : sample.spans) {
      if (span.phase == StepPhase::backward) {
        backward = &span;
      } else if (span.gradients > 0 && backward != nullptr) {
        backward->gradients += span.gradients;
        span.gradients = 0;
      }
    }
  }

  /// What copies and launch grids say of the gradients' sizes.
  void take_sizes(StepSample& sample, const std::vector<std::size_t>& places) const {
    std::vector<std::int64_t> copied;
    std::map<int, std::int64_t> grid_of;  // by operator
    for (const std::size_t k : places) {
      const Activity& one = activity(compute_[k]);
      const int from = origin(compute_[k]).op;
      if (from < 0) continue;
      const std::string& text = name(op(from).name);
      if (contains(text, "copy_bucket_to_grad") && one.bytes > 0) copied.push_back(one.bytes);
      if (!is_accumulate_[static_cast<std::size_t>(op(from).name)] || one.blocks == 0) continue;
      const std::string& kernel = name(one.name);
      // PyTorch's element-wise kernels: each thread does 4 elements, or as many as its vectors
      // have (aten/src/ATen/native/cuda/CUDALoops.cuh).
      const std::size_t vector = kernel.find("vectorized_elementwise_kernel<");
      if (vector == std::string::npos && !contains(kernel, "elementwise_kernel")) continue;
      const int width =
          vector == std::string::npos ? 4 : std::max(4, std::atoi(kernel.c_str() + vector + 30));
      grid_of[from] = std::int64_t{one.blocks} * one.threads * width;
    }
    if (copied.size() == sample.gradients.size())
      for (std::size_t i = 0; i < copied.size(); ++i) sample.gradients[i].bytes = copied[i];
    if (grid_of.size() != sample.gradients.size()) return;
    std::vector<std::pair<Nanoseconds, std::int64_t>> grids;
    for (const auto& [index, elements] : grid_of) grids.emplace_back(op(index).end, elements);
    std::sort(grids.begin(), grids.end());
    for (std::size_t i = 0; i < grids.size(); ++i)
      sample.gradients[i].elements_at_most = grids[i].second;
  }

  /// Host time between first launches, without the time in which the host waited for the GPU.
  void add_host_times(const std::vector<std::vector<std::size_t>>& of_step) {
    std::vector<StepSample>& steps = result_.steps;
    for (std::size_t s = 0; s < steps.size(); ++s) {
      std::vector<SpanSample>& spans = steps[s].spans;
      const bool has_next = s + 1 < steps.size() && !steps[s + 1].spans.empty();
      for (std::size_t i = 0; i < spans.size(); ++i) {
        const Nanoseconds from = spans[i].launch;
        const Nanoseconds to = i + 1 < spans.size() ? spans[i + 1].launch
                               : has_next           ? steps[s + 1].spans.front().launch
                                                    : std::max(from, steps[s].end);
        spans[i].host = std::max<Nanoseconds>(0, to - from);
        auto wait = std::lower_bound(
            waits_.begin(), waits_.end(), from,
            [](const HostWait& one, Nanoseconds time) { return one.start < time; });
        Nanoseconds waited_until = from;
        for (; wait != waits_.end() && wait->start < to; ++wait) {
          const Nanoseconds start = std::max(wait->start, waited_until);
          const Nanoseconds end = std::min(wait->end, to);
          if (end <= start) continue;
          spans[i].host -= end - start;
          waited_until = end;
          spans[i].host_waits = spans[i].host_waits || wait->for_compute;
        }
        spans[i].host = std::max<Nanoseconds>(0, spans[i].host);
      }
      steps[s].launches = of_step[s].size();
      if (s > 0 && !of_step[s].empty() && !of_step[s - 1].empty())
        steps[s].period = ends_[of_step[s].back()] - ends_[of_step[s - 1].back()];
    }
  }

  const KinetoTrace& trace_;
  RankSteps result_;
  std::vector<bool> is_autograd_, is_accumulate_;  // by name
  std::set<int> autograd_threads_;
  int main_thread_ = -1;
  std::optional<ByThread> outermost_, optimizer_steps_, calls_by_thread_;
  std::vector<CollectiveCall> collective_calls_;
  std::vector<Origin> origins_;      // by activity
  std::vector<bool> communication_;  // by activity
  int compute_stream_ = -1;
  std::vector<int> compute_;              // activities of the compute stream, by start
  std::vector<Nanoseconds> gaps_, busy_;  // by place in compute_
  std::vector<Nanoseconds> ends_;         // by place in compute_: all up to it have ended
  std::vector<Nanoseconds> launches_;     // of the compute stream, sorted
  std::vector<Interval> communication_times_;
  std::vector<HostWait> waits_;
  std::vector<std::vector<Nanoseconds>> gradient_times_;  // by step, sorted
};

}  // namespace

std::int64_t TracedCollective::bytes() const { return elements * bytes_of_dtype(dtype); }

std::string dtype_of(const std::string& word) {
  std::string plain = word.starts_with("c10::") ? word.substr(5) : word;
  for (char& c : plain) c = static_cast<char>(std::tolower(c));
  static const std::map<std::string, std::string> table = {
      {"float", "float32"},       {"float32", "float32"},   {"double", "float64"},
      {"half", "float16"},        {"bfloat16", "bfloat16"}, {"long", "int64"},
      {"long int", "int64"},      {"int", "int32"},         {"byte", "uint8"},
      {"unsigned char", "uint8"}, {"bool", "bool"}};
  const auto found = table.find(plain);
  return found == table.end() ? "" : found->second;
}

std::int64_t bytes_of_dtype(const std::string& dtype) {
  static const std::map<std::string, std::int64_t> table = {
      {"float64", 8}, {"int64", 8},    {"float32", 4}, {"int32", 4},
      {"float16", 2}, {"bfloat16", 2}, {"uint8", 1},   {"bool", 1}};
  const auto found = table.find(dtype);
  return found == table.end() ? 0 : found->second;
}

RankSteps steps_of(const KinetoTrace& trace) { return Analysis(trace).run(); }

}  // namespace stepcast
