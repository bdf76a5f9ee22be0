#include <algorithm>
#include <map>

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

/// The figures of a point under their dotted JSON names, places of a list as 0, 1, ...; lists of
/// objects (buckets, links) are left to the JSON.
void flatten(const JsonView& json, const std::string& name,
             std::vector<std::pair<std::string, std::string>>& cells) {
  if (json.is_array()) {
    const auto elements = json.elements();
    if (std::any_of(elements.begin(), elements.end(),
                    [](const JsonView& e) { return e.is_object(); }))
      return;
    for (std::size_t i = 0; i < elements.size(); ++i)
      flatten(elements[i], fmt::format("{}.{}", name, i), cells);
    return;
  }
  if (json.is_object()) {
    for (const auto& [key, value] : json.members())
      flatten(value, name.empty() ? key : fmt::format("{}.{}", name, key), cells);
    return;
  }
  std::string text = json.is_null() ? "" : json.dump();
  if (text.size() >= 2 && text.front() == '"') text = json.string();
  cells.emplace_back(name, quote(text));
}

}  // namespace

void add_csv_names(const JsonDocument& point, std::vector<std::string>& names) {
  std::vector<std::pair<std::string, std::string>> cells;
  flatten(point.root(), "", cells);
  auto place = names.end();  // a new name stands before the next one that is known
  for (auto cell = cells.rbegin(); cell != cells.rend(); ++cell) {
    const auto known = std::find(names.begin(), names.end(), cell->first);
    place = known != names.end() ? known : names.insert(place, cell->first);
  }
}

std::string csv_heads(const std::vector<std::string>& names) {
  std::vector<std::string> line;
  for (const std::string& name : names) line.push_back(quote(name));
  return fmt::format("{}\n", fmt::join(line, ","));
}

std::string csv_line(const JsonDocument& point, const std::vector<std::string>& names) {
  std::vector<std::pair<std::string, std::string>> cells;
  flatten(point.root(), "", cells);
  std::map<std::string, std::string> row(cells.begin(), cells.end());
  std::vector<std::string> line;
  for (const std::string& name : names) line.push_back(row[name]);
  return fmt::format("{}\n", fmt::join(line, ","));
}

std::string result_csv(const std::vector<JsonDocument>& points) {
  std::vector<std::string> names;  // of all points: they may set different keys
  for (const JsonDocument& point : points) add_csv_names(point, names);
  std::string text = csv_heads(names);
  for (const JsonDocument& point : points) text += csv_line(point, names);
  return text;
}

}  // namespace stepcast
