#include "cli/result_files.hpp"

#include <vector>

#include "report/report.hpp"

namespace stepcast {

bool ResultFiles::use_stdout() const {
  for (const auto* file : {&json, &csv, &trace})
    if (*file && (*file)->is_stdout()) return true;
  return false;
}

void write_results(const ResultFiles& files, const std::string& begin, const PointStore& store) {
  const std::size_t count = store.size();
  const auto parsed = [&](std::size_t i) { return JsonDocument::parse(store.point(i), "point"); };
  if (files.json) {
    std::size_t part = 0;  // the beginning, the points, the end
    files.json->write([&]() -> std::optional<std::string> {
      const std::size_t now = part++;
      if (now == 0) return begin;
      if (now <= count) return result_json_point(store.point(now - 1), now == 1);
      return now == count + 1 ? std::optional(result_json_end()) : std::nullopt;
    });
  }
  if (files.csv) {
    std::vector<std::string> names;
    for (std::size_t i = 0; i < count; ++i) add_csv_names(parsed(i), names);
    std::size_t part = 0;
    files.csv->write([&]() -> std::optional<std::string> {
      const std::size_t now = part++;
      if (now == 0) return csv_heads(names);
      return now <= count ? std::optional(csv_line(parsed(now - 1), names)) : std::nullopt;
    });
  }
  if (files.trace) {
    std::size_t part = 0;
    bool is_first = true;
    files.trace->write([&]() -> std::optional<std::string> {
      const std::size_t now = part++;
      if (now == 0) return chrome_trace_begin();
      if (now > count) return now == count + 1 ? std::optional(chrome_trace_end()) : std::nullopt;
      std::string text;
      for (const std::string& event : store.events(now - 1)) {
        text += (is_first ? "" : ",\n") + event;
        is_first = false;
      }
      return text;
    });
  }
}

}  // namespace stepcast
