// stepcast trace: what is in a step trace, and whether a file can be read.
#include <algorithm>
#include <fstream>

#include <fmt/format.h>

#include "base/error.hpp"
#include "base/text.hpp"
#include "cli/commands.hpp"
#include "input/importers/kineto_events.hpp"
#include "input/importers/kineto_steps.hpp"
#include "workload/buckets.hpp"
#include "workload/replay.hpp"

namespace stepcast {
namespace {

constexpr std::size_t line_width = 72;
// DDP's defaults (torch/csrc/distributed/c10d/reducer.hpp).
constexpr std::int64_t first_bucket_bytes = 1 << 20;
constexpr std::int64_t bucket_cap_bytes = 25 << 20;

struct PhaseOfStep {
  const char* name;
  const std::vector<Span>* spans;
};

std::vector<PhaseOfStep> phases_of(const MeasuredStep& step) {
  return {{"forward", &step.forward},
          {"backward", &step.backward},
          {"finalize", &step.finalize},
          {"optimizer", &step.optimizer}};
}

double milliseconds(Seconds time) { return time.value() * 1e3; }

std::string shortened(std::string text, std::size_t most) {
  if (text.size() > most) text = text.substr(0, most - 3) + "...";
  return text;
}

void print_phases(const MeasuredStep& step) {
  fmt::print("{:<10}  {:>5}  {:>10}  {:>8}  {:>10}  {:>9}\n", "phase", "spans", "GPU ms", "gaps ms",
             "host ms", "gradients");
  for (const auto& [name, spans] : phases_of(step)) {
    Seconds duration, gap, host;
    std::size_t gradients = 0;
    for (const Span& span : *spans) {
      duration += span.duration;
      gap += span.gap;
      host += span.host;
      gradients += span.gradients.size();
    }
    fmt::print("{:<10}  {:>5}  {:>10.3f}  {:>8.3f}  {:>10.3f}  {:>9}\n", name, spans->size(),
               milliseconds(duration), milliseconds(gap), milliseconds(host), gradients);
  }
}

/// Spans of one name in a row on one line.
void print_spans(const StepTrace& trace, const MeasuredStep& step) {
  fmt::print("\n{:<10}  {:<44}  {:>5}  {:>10}  {:>8}  {:>10}  {}\n", "phase", "span", "times",
             "GPU ms", "gaps ms", "host ms", "gradients");
  for (const auto& of_phase : phases_of(step)) {
    const auto& phase = of_phase.name;
    const std::vector<Span>* const spans = of_phase.spans;
    for (std::size_t i = 0; i < spans->size();) {
      std::size_t end = i;
      Seconds duration, gap, host;
      bool waits = false;
      std::string gradients;
      const auto mergeable = [&](const Span& span) {
        return span.name == (*spans)[i].name && span.gradients.empty();
      };
      do {
        const Span& span = (*spans)[end];
        duration += span.duration;
        gap += span.gap;
        host += span.host;
        waits = waits || span.host_waits;
        for (const int parameter : span.gradients)
          gradients += (gradients.empty() ? "" : " ") +
                       trace.parameters[static_cast<std::size_t>(parameter)].name;
        ++end;
      } while (end < spans->size() && mergeable((*spans)[i]) && mergeable((*spans)[end]));
      fmt::print("{:<10}  {:<44}  {:>5}  {:>10.3f}  {:>8.3f}  {:>10.3f}  {}{}\n", phase,
                 shortened((*spans)[i].name, 44), end - i, milliseconds(duration),
                 milliseconds(gap), milliseconds(host), shortened(gradients, 60),
                 waits ? "  (the host waits)" : "");
      i = end;
    }
  }
}

/// A line of the step on one GPU, and below it where DDP would hand over its buckets.
void print_time_line(const StepTrace& trace, const MeasuredStep& step) {
  std::vector<int> order;
  std::vector<Seconds> ready(trace.parameters.size());
  std::vector<std::pair<char, Seconds>> ends;
  Seconds host, gpu;
  for (const auto& [name, spans] : phases_of(step))
    for (const Span& span : *spans) {
      const Seconds start = std::max(gpu + span.gap, host);
      if (start > gpu) ends.emplace_back('.', start);
      gpu = start + span.duration;
      host += span.host;
      if (span.host_waits) host = std::max(host, gpu);
      // f, b, c (copies out of the buckets), o
      ends.emplace_back(spans == &step.finalize ? 'c' : name[0], gpu);
      for (const int parameter : span.gradients) {
        order.push_back(parameter);
        ready[static_cast<std::size_t>(parameter)] = gpu;
      }
    }
  std::string line;
  std::size_t next = 0;
  for (std::size_t column = 0; column < line_width; ++column) {
    const Seconds middle = gpu * ((static_cast<double>(column) + 0.5) / line_width);
    while (next + 1 < ends.size() && ends[next].second <= middle) ++next;
    line += ends[next].first;
  }
  fmt::print(
      "\none step, {:.3f} ms: f forward, b backward, c copies out of DDP's buckets, "
      "o optimizer, . idle\n{}\n",
      milliseconds(gpu), line);
  const std::vector<Collective> buckets =
      ddp_buckets(trace.parameters, order, first_bucket_bytes, bucket_cap_bytes);
  Seconds launched;
  std::size_t number = 0;
  for (const Collective& bucket : buckets) {
    for (const int parameter : bucket.parameters)
      launched = std::max(launched, ready[static_cast<std::size_t>(parameter)]);
    const auto column = std::min(
        line_width - 1, static_cast<std::size_t>(launched / gpu * static_cast<double>(line_width)));
    fmt::print("{}^ bucket {}: {} of {} gradients at {:.3f} ms\n", std::string(column, ' '),
               number++, format_bytes(static_cast<double>(bucket.bytes)), bucket.parameters.size(),
               milliseconds(launched));
  }
}

void show(const StepTrace& trace) {
  fmt::print("{}, {} on {}\n{}\n", trace.name, trace.precision, trace.gpu, trace.source);
  fmt::print("{} parameters, {} elements, {} of gradients; {}\n", trace.parameters.size(),
             trace.elements(), format_bytes(static_cast<double>(trace.gradient_bytes())),
             trace.optimizer);
  for (const MeasuredStep& step : trace.measured) {
    fmt::print(
        "\nmicro-batch {}: {:.3f} ms (median of {} steps, {:.3f} to {:.3f}); alone on one "
        "GPU {:.3f} ms\n",
        step.micro_batch, milliseconds(step.median), step.steps, milliseconds(step.fastest),
        milliseconds(step.slowest), milliseconds(replay_alone(step)));
    print_phases(step);
    print_spans(trace, step);
    print_time_line(trace, step);
  }
}

/// Whether the file says near its beginning that it is one of ours.
bool is_step_trace(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::string head(4096, '\0');
  file.read(head.data(), static_cast<std::streamsize>(head.size()));
  head.resize(static_cast<std::size_t>(file.gcount()));
  return head.find("\"stepcast.") != std::string::npos;
}

void check_kineto(const std::string& path) {
  const KinetoTrace trace = read_kineto(path, nullptr);
  const RankSteps steps = steps_of(trace);
  fmt::print("{}: a trace of torch.profiler on {}\n", path,
             trace.gpu.empty() ? "a GPU that it does not name" : trace.gpu);
  if (trace.world_size > 0) fmt::print("rank {} of {}\n", trace.rank, trace.world_size);
  fmt::print("{} events: {} on {} streams of the GPU, {} operators\n", trace.events,
             trace.activities.size(), trace.streams.size(), trace.ops.size());
  fmt::print("{} steps by {}; {:.2f} % of the compute stream's time belongs to none\n",
             steps.steps.size(), steps.steps_from, 100 * steps.unclassified);
  for (const StepSample& step : steps.steps)
    fmt::print(
        "{:<18}  {:>9.3f} ms  {:>9.3f} ms computing  {:>9.3f} ms NCCL  {:>9.3f} ms exposed  "
        "{:>5} spans  {:>5} gradients\n",
        step.name, static_cast<double>(step.period) * 1e-6,
        static_cast<double>(step.compute_busy) * 1e-6,
        static_cast<double>(step.communication_busy) * 1e-6,
        static_cast<double>(step.exposed) * 1e-6, step.spans.size(), step.gradients.size());
}

}  // namespace

int trace_command(const TraceOptions& options) {
  const bool ours = is_step_trace(options.file);
  if (options.action == "check" && !ours) {
    check_kineto(options.file);
    return 0;
  }
  const JsonDocument document = JsonDocument::read_file(options.file);
  const StepTrace trace = read_step_trace(document.root());
  if (options.action == "show")
    show(trace);
  else
    fmt::print("{}: {}, {} parameters, {} measured micro-batches\n", options.file, trace.name,
               trace.parameters.size(), trace.measured.size());
  return 0;
}

}  // namespace stepcast
