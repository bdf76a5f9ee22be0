#include <fmt/format.h>
#include <fmt/ranges.h>

#include "report/report.hpp"

namespace stepcast {
namespace {

/// RFC 4180: text with a comma, a quote or a line break stands in quotes.
std::string quote(const std::string& text) {
  if (text.find_first_of(",\"\n\r") == std::string::npos) return text;
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"') quoted.push_back(c);
    quoted.push_back(c);
  }
  quoted.push_back('"');
  return quoted;
}

/// The figures of a point under their dotted JSON names; lists are left to the JSON.
void flatten(const JsonView& json, const std::string& name,
             std::vector<std::pair<std::string, std::string>>& cells) {
  if (json.is_array()) return;
  if (json.is_object()) {
    for (const auto& [key, value] : json.members())
      flatten(value, name.empty() ? key : name + "." + key, cells);
    return;
  }
  std::string text = json.is_null() ? "" : json.dump();
  if (text.size() >= 2 && text.front() == '"') text = json.string();
  cells.emplace_back(name, quote(text));
}

}  // namespace

std::string result_csv(const std::vector<JsonDocument>& points) {
  std::string text;
  for (const JsonDocument& point : points) {
    std::vector<std::pair<std::string, std::string>> cells;
    flatten(point.root(), "", cells);
    std::vector<std::string> heads;
    std::vector<std::string> values;
    for (auto& [head, value] : cells) {
      heads.push_back(quote(head));
      values.push_back(std::move(value));
    }
    if (text.empty()) text = fmt::format("{}\n", fmt::join(heads, ","));
    text += fmt::format("{}\n", fmt::join(values, ","));
  }
  return text;
}

}  // namespace stepcast
