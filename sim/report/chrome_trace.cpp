// The Trace Event Format, which Perfetto and chrome://tracing read. `ts` and `dur` are
// microseconds: the only place where seconds are converted.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "report/report.hpp"

namespace stepcast {
namespace {

constexpr int compute_track = 0;
constexpr int communication_track = 1;

class Events {
 public:
  explicit Events(std::size_t process) : process_(process) {}

  void name_process(const std::string& name) {
    texts.push_back(
        fmt::format(R"({{"ph":"M","name":"process_name","pid":{},"args":{{"name":{}}}}})", process_,
                    quote_json(name)));
  }
  void name_track(int track, std::string_view name) {
    texts.push_back(
        fmt::format(R"({{"ph":"M","name":"thread_name","pid":{},"tid":{},"args":{{"name":"{}"}}}})",
                    process_, track, name));
  }
  void span(int track, std::string_view category, const std::string& name, const Interval& interval,
            const std::string& args) {
    texts.push_back(fmt::format(
        R"({{"ph":"X","cat":"{}","name":{},"pid":{},"tid":{},"ts":{},"dur":{},"args":{{{}}}}})",
        category, quote_json(name), process_, track, interval.begin.value() * 1e6,
        interval.length().value() * 1e6, args));
  }

  std::vector<std::string> texts;

 private:
  std::size_t process_;
};

void add_compute_track(Events& events, const Job& job, const Timeline& timeline, int rank) {
  std::size_t index = 0;
  for (std::size_t s = 0; s < job.program.segments.size(); ++s) {
    const Segment& segment = job.program.segments[s];
    for (const Task& task : segment.tasks) {
      const Interval& interval = timeline.task(timeline.class_of(rank), index++);
      if (const auto* compute = std::get_if<Compute>(&task)) {
        events.span(compute_track, to_string(compute->phase), compute->name, interval, "");
      } else if (const auto* wait = std::get_if<Wait>(&task);
                 wait != nullptr && interval.end > interval.begin) {
        events.span(compute_track, "wait", fmt::format("wait for all_reduce {}", wait->collective),
                    interval, "");
      }
    }
    if (segment.repeat == 1) continue;
    const Timeline::SegmentTimes& times = timeline.segments[s];
    const Seconds first_end = times.first_end[timeline.class_of(rank)];
    const auto further = static_cast<double>(segment.repeat - 1);
    events.span(compute_track, "repeat",
                fmt::format("{} more equal micro-steps", segment.repeat - 1),
                {first_end, first_end + further * times.period}, "");
  }
}

void add_communication_track(Events& events, const Job& job, const Timeline& timeline, int rank) {
  for (std::size_t c = 0; c < timeline.collectives.size(); ++c) {
    const LoweredCollective& lowered = job.collective(c);
    const Timeline::CollectiveTimes& times = timeline.collectives[c];
    events.span(
        communication_track, to_string(lowered.operation),
        fmt::format("{} {}", to_string(lowered.operation), c),
        {times.start, times.end[timeline.class_of(rank)]},
        fmt::format(R"("bytes":{},"algorithm":"{}","protocol":"{}","channels":{},"ready_us":{})",
                    job.program.collectives[c].bytes, lowered.algorithm, lowered.protocol,
                    lowered.channels, times.ready[timeline.class_of(rank)].value() * 1e6));
  }
}

}  // namespace

std::vector<std::string> chrome_trace_events(const Job& job, const Timeline& timeline,
                                             std::size_t point_index, std::string_view point_name,
                                             int ranks) {
  std::vector<std::string> texts;
  for (int rank = 0; rank < std::min(ranks, timeline.ranks); ++rank) {
    Events events(point_index * 1'000'000 + static_cast<std::size_t>(rank) + 1);
    events.name_process(fmt::format("{}: rank {} of {}", point_name, rank, timeline.ranks));
    events.name_track(compute_track, "compute");
    events.name_track(communication_track, "communication");
    add_compute_track(events, job, timeline, rank);
    add_communication_track(events, job, timeline, rank);
    texts.insert(texts.end(), events.texts.begin(), events.texts.end());
  }
  return texts;
}

std::string chrome_trace_begin() { return "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n"; }
std::string chrome_trace_end() { return "\n]}\n"; }

std::string chrome_trace(const std::vector<std::string>& events) {
  return fmt::format("{}{}{}", chrome_trace_begin(), fmt::join(events, ",\n"), chrome_trace_end());
}

std::string point_name(const Point& point) {
  if (point.settings.empty()) return "the scenario";
  std::vector<std::string> parts;
  for (const auto& [key, value] : point.settings)
    parts.push_back(fmt::format("{} = {}", key, value));
  return fmt::format("{}", fmt::join(parts, ", "));
}

}  // namespace stepcast
