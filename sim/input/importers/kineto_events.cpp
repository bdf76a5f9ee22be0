// The format: libkineto/src/output_json.cpp of pytorch/kineto @114171d. Categories were spelt
// Kernel, Memcpy, Operator, Runtime until 2021.
#include "input/importers/kineto_events.hpp"

#include <algorithm>
#include <charconv>
#include <cstdlib>

#include <fmt/format.h>

#include "base/error.hpp"
#include "base/json_events.hpp"
#include "input/importers/gzip_input.hpp"

namespace stepcast {
namespace {

constexpr std::int64_t longest_us = 4'000'000'000'000'000;  // the year 2096, and fits in ns

enum Field : std::size_t {
  ph,
  cat,
  name,
  ts,
  dur,
  pid,
  tid,
  stream,
  device,
  correlation,
  bytes,
  grid,
  block,
  input_dims,
  input_type,
  collective,
  nelems,
  dtype,
};
const std::vector<std::string> wanted = {"ph",
                                         "cat",
                                         "name",
                                         "ts",
                                         "dur",
                                         "pid",
                                         "tid",
                                         "args.stream",
                                         "args.device",
                                         "args.correlation",
                                         "args.bytes",
                                         "args.grid",
                                         "args.block",
                                         "args.Input Dims",
                                         "args.Input type",
                                         "args.Collective name",
                                         "args.In msg nelems",
                                         "args.dtype"};

enum class Category { other, kernel, copy, set, runtime, op, annotation };

Category category_of(const std::string& text) {
  static const std::unordered_map<std::string, Category> table = {
      {"kernel", Category::kernel},
      {"Kernel", Category::kernel},
      {"gpu_memcpy", Category::copy},
      {"Memcpy", Category::copy},
      {"gpu_memset", Category::set},
      {"Memset", Category::set},
      {"cuda_runtime", Category::runtime},
      {"cuda_driver", Category::runtime},
      {"hip_runtime", Category::runtime},
      {"Runtime", Category::runtime},
      {"cpu_op", Category::op},
      {"Operator", Category::op},
      {"user_annotation", Category::annotation}};
  const auto found = table.find(text);
  return found == table.end() ? Category::other : found->second;
}

/// Annotations are operators in older traces; they are no cause of GPU work.
bool is_annotation(const std::string& text) {
  for (const char* start : {"ProfilerStep#", "Optimizer.", "DistributedDataParallel.forward",
                            "enumerate(DataLoader)", "nccl:", "## "})
    if (text.starts_with(start)) return true;
  return false;
}

/// The calls that launch work or wait for it.
bool is_launch_or_wait(const std::string& text) {
  for (const char* part : {"Launch", "Memcpy", "Memset", "Synchronize", "memcpy", "memset"})
    if (text.find(part) != std::string::npos) return true;
  return false;
}

std::optional<Nanoseconds> time_of(const EventField& field) {
  if (field.kind == EventField::Kind::integer)
    return std::abs(field.integer) < longest_us ? std::optional(field.integer * 1000)
                                                : std::nullopt;
  if (field.kind == EventField::Kind::real || field.kind == EventField::Kind::text)
    return nanoseconds_of(field.text);
  return std::nullopt;
}

std::string text_of(const EventField& field) {
  if (field.kind == EventField::Kind::integer) return std::to_string(field.integer);
  return field.kind == EventField::Kind::absent ? "" : field.text;
}

std::int64_t whole_of(const EventField& field, std::int64_t missing) {
  if (field.kind == EventField::Kind::integer) return field.integer;
  if (field.kind == EventField::Kind::real) return static_cast<std::int64_t>(field.real);
  if (field.kind == EventField::Kind::text) {
    std::int64_t value = missing;
    std::from_chars(field.text.data(), field.text.data() + field.text.size(), value);
    return value;
  }
  return missing;
}

std::int64_t first_of(const EventField& field) {
  return field.kind == EventField::Kind::list && !field.list.empty() &&
                 field.list.front() != EventField::end_of_list
             ? field.list.front()
             : 0;
}

class Reader {
 public:
  Reader(KinetoTrace& trace, std::string file) : trace_(trace), file_(std::move(file)) {}

  void event(const std::vector<EventField>& fields) {
    ++trace_.events;
    if (fields[ph].text != "X" || fields[ph].kind != EventField::Kind::text) return;
    Category category = category_of(text_of(fields[cat]));
    if (category == Category::other) return;
    const std::string& event_name = fields[name].text;
    if (category == Category::runtime && !is_launch_or_wait(event_name)) return;
    if (category == Category::op && is_annotation(event_name)) category = Category::annotation;
    const auto start = time_of(fields[ts]);
    const auto duration = time_of(fields[dur]);
    const bool on_gpu =
        category == Category::kernel || category == Category::copy || category == Category::set;
    if (!start || !duration)
      throw InputError(file_, fmt::format("event {} (\"{}\") has no time or duration that is a "
                                          "number",
                                          trace_.events, event_name));
    if (*duration < 0) {
      if (on_gpu)
        throw InputError(
            file_, fmt::format("event {} (\"{}\") has a negative duration, {} us", trace_.events,
                               event_name, static_cast<double>(*duration) * 1e-3));
      ++trace_.backwards;
      return;
    }
    if (fields[ts].kind == EventField::Kind::real || fields[dur].kind == EventField::Kind::real)
      trace_.resolution = 1;
    const Nanoseconds end = *start + *duration;
    if (on_gpu)
      add_activity(category, fields, *start, end);
    else if (category == Category::runtime)
      trace_.calls.push_back({*start, end, whole_of(fields[correlation], -1),
                              trace_.names.add(event_name), thread_of(fields)});
    else
      add_op(category, fields, *start, end);
  }

  void value(const std::string& place, const std::string& text) {
    const auto number = [&] { return std::atoi(text.c_str()); };
    if (place == "/distributedInfo/rank") trace_.rank = number();
    if (place == "/distributedInfo/world_size") trace_.world_size = number();
    if (place == "/distributedInfo/nccl_version") trace_.nccl_version = text;
    if (place == "/deviceProperties/name" && trace_.gpu.empty()) trace_.gpu = text;
  }

 private:
  int number_of(std::unordered_map<std::string, int>& numbers, const std::string& key) {
    return numbers.emplace(key, static_cast<int>(numbers.size())).first->second;
  }
  int thread_of(const std::vector<EventField>& fields) {
    return number_of(threads_, text_of(fields[pid]) + "/" + text_of(fields[tid]));
  }

  void add_activity(Category category, const std::vector<EventField>& fields, Nanoseconds start,
                    Nanoseconds end) {
    Activity activity;
    activity.start = start;
    activity.end = end;
    activity.correlation = whole_of(fields[correlation], -1);
    activity.bytes = whole_of(fields[bytes], -1);
    activity.name = trace_.names.add(fields[name].text);
    // A device's streams; traces that do not name them have one for each line of the picture.
    const EventField& line =
        fields[stream].kind == EventField::Kind::absent ? fields[tid] : fields[stream];
    const EventField& gpu =
        fields[device].kind == EventField::Kind::absent ? fields[pid] : fields[device];
    const std::string stream_name = fmt::format("{}/{}", text_of(gpu), text_of(line));
    const auto known = streams_.size();
    activity.stream = number_of(streams_, stream_name);
    if (streams_.size() > known) trace_.streams.push_back(stream_name);
    activity.blocks = static_cast<std::int32_t>(first_of(fields[grid]));
    activity.threads = static_cast<std::int16_t>(first_of(fields[block]));
    activity.kind = category == Category::kernel ? ActivityKind::kernel
                    : category == Category::copy ? ActivityKind::copy
                                                 : ActivityKind::set;
    activity.communication =
        category == Category::kernel && (fields[collective].kind == EventField::Kind::text ||
                                         is_communication_kernel(fields[name].text));
    trace_.activities.push_back(activity);
  }

  void add_op(Category category, const std::vector<EventField>& fields, Nanoseconds start,
              Nanoseconds end) {
    Op op;
    op.start = start;
    op.end = end;
    op.name = trace_.names.add(fields[name].text);
    op.thread = thread_of(fields);
    if (const EventField& dims = fields[input_dims]; dims.kind == EventField::Kind::list) {
      op.shaped = true;
      for (const std::int64_t dim : dims.list) {
        if (dim == EventField::end_of_list) break;
        op.first_dim = op.elements == 0 ? dim : op.first_dim;
        op.elements = (op.elements == 0 ? 1 : op.elements) * dim;
      }
    }
    if (fields[input_type].kind == EventField::Kind::list && !fields[input_type].text.empty())
      op.type = trace_.names.add(fields[input_type].text);
    (category == Category::op ? trace_.ops : trace_.annotations).push_back(op);
    if (category == Category::op && fields[collective].kind == EventField::Kind::text)
      trace_.collectives.push_back({start, end, op.thread, fields[collective].text,
                                    whole_of(fields[nelems], 0), text_of(fields[dtype])});
  }

  KinetoTrace& trace_;
  std::string file_;
  std::unordered_map<std::string, int> threads_, streams_;
};

}  // namespace

int Names::add(const std::string& text) {
  const auto [entry, added] = index_.emplace(text, static_cast<int>(texts_.size()));
  if (added) texts_.push_back(&entry->first);
  return entry->second;
}

std::optional<Nanoseconds> nanoseconds_of(std::string_view text) {
  const char* end = text.data() + text.size();
  std::int64_t whole = 0;
  const bool negative = !text.empty() && text.front() == '-';
  const auto [rest, error] = std::from_chars(text.data(), end, whole);
  if (error != std::errc{} || std::abs(whole) >= longest_us) return std::nullopt;
  if (rest == end) return whole * 1000;
  if (*rest != '.') return std::nullopt;
  std::int64_t fraction = 0;
  int digits = 0;
  for (const char* digit = rest + 1; digit != end; ++digit, ++digits) {
    if (*digit < '0' || *digit > '9') return std::nullopt;
    if (digits < 3) fraction = 10 * fraction + (*digit - '0');
    if (digits == 3 && *digit >= '5') ++fraction;
  }
  for (; digits < 3; ++digits) fraction *= 10;
  return whole * 1000 + (negative ? -fraction : fraction);
}

bool is_communication_kernel(std::string_view name) {
  // ncclKernel_AllReduce_RING_LL_Sum_float (until 2.18), ncclDevKernel_AllReduce_Sum_f32_RING_LL,
  // ncclAllReduceRingLLKernel_sum_f32 (until 2.7), ncclSymkDevKernel_..., rcclGenericKernel.
  return name.starts_with("nccl") || name.starts_with("void nccl") || name.starts_with("rccl") ||
         name.starts_with("mscclKernel") || name.starts_with("void mscclKernel");
}

KinetoTrace read_kineto(const std::filesystem::path& path,
                        const std::function<void(double fraction)>& progress) {
  GzipInput input(path);
  KinetoTrace trace;
  trace.file = path.string();
  Reader reader(trace, trace.file);
  read_json_events(
      [&](char* buffer, std::size_t size) {
        if (progress) progress(input.fraction());
        return input.read(buffer, size);
      },
      trace.file, "traceEvents", wanted,
      {[&](const std::vector<EventField>& fields) { reader.event(fields); },
       [&](const std::string& place, const std::string& text) { reader.value(place, text); }});

  const auto by_start = [](const auto& a, const auto& b) {
    return a.start != b.start ? a.start < b.start : a.end > b.end;
  };
  std::sort(trace.activities.begin(), trace.activities.end(),
            [](const Activity& a, const Activity& b) {
              return a.start != b.start ? a.start < b.start : a.end < b.end;
            });
  std::sort(trace.calls.begin(), trace.calls.end(), by_start);
  std::sort(trace.annotations.begin(), trace.annotations.end(), by_start);
  std::sort(trace.ops.begin(), trace.ops.end(), [&](const Op& a, const Op& b) {
    return a.thread != b.thread ? a.thread < b.thread : by_start(a, b);
  });
  if (trace.activities.empty())
    throw InputError(trace.file,
                     trace.events == 0
                         ? "holds no traceEvents; is it a trace of torch.profiler?"
                         : "holds no kernels; profile with activities=[ProfilerActivity.CPU, "
                           "ProfilerActivity.CUDA]");
  return trace;
}

}  // namespace stepcast
