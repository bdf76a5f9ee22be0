#include "input/importers/layer_tables.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <fstream>
#include <iterator>
#include <set>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "base/error.hpp"
#include "base/json_view.hpp"
#include "base/text.hpp"

namespace stepcast {
namespace {

constexpr double most_bytes = 1125899906842624.0;  // 2^50
constexpr double longest_s = 3600.0;

/// The columns and the largest figure that each may hold; the smallest is 0.
const std::map<std::string, double>& columns() {
  static const std::map<std::string, double> table = {
      {"parameters", most_bytes},       {"parameter_bytes", most_bytes},
      {"forward_s", longest_s},         {"forward_ms", longest_s * 1e3},
      {"backward_s", longest_s},        {"backward_ms", longest_s * 1e3},
      {"activation_bytes", most_bytes}, {"micro_batch", 1 << 24},
      {"macs_per_sample", 1e18},        {"flops_per_sample", 1e18},
      {"bytes_per_sample", most_bytes}, {"kernels", 1e6}};
  return table;
}

std::vector<std::string> known_columns() {
  std::vector<std::string> names = {"name"};
  for (const auto& [name, largest] : columns()) names.push_back(name);
  return names;
}

std::string at_line(const std::string& file, std::size_t line) {
  return fmt::format("{}:{}", file, line);
}

std::optional<double> parse_number(std::string_view text) {
  double value = 0.0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size() || !std::isfinite(value))
    return std::nullopt;
  return value;
}

double figure_in(const std::string& where, const std::string& column, const std::string& text) {
  const double largest = columns().at(column);
  const std::optional<double> value = parse_number(text);
  if (!value || *value < 0.0 || *value > largest)
    throw InputError(where, fmt::format("{} must be a number in [0, {}], got \"{}\"", column,
                                        format_number(largest), text));
  return *value;
}

std::string trimmed(std::string text) {
  const auto blank = [](char c) { return c == ' ' || c == '\t' || c == '\r'; };
  while (!text.empty() && blank(text.back())) text.pop_back();
  text.erase(text.begin(), std::find_if_not(text.begin(), text.end(), blank));
  return text;
}

// CSV ---------------------------------------------------------------------------------------------

/// Cells of a line; a cell in double quotes may hold commas, and "" for a quote.
std::vector<std::string> csv_cells(const std::string& where, const std::string& line) {
  std::vector<std::string> cells = {""};
  bool quoted = false;
  for (std::size_t i = 0; i < line.size(); ++i) {
    const char c = line[i];
    if (quoted && c == '"' && i + 1 < line.size() && line[i + 1] == '"')
      cells.back() += line[++i];
    else if (c == '"')
      quoted = !quoted;
    else if (c == ',' && !quoted)
      cells.emplace_back();
    else
      cells.back() += c;
  }
  if (quoted) throw InputError(where, "a quoted cell does not end on its line");
  for (std::string& cell : cells) cell = trimmed(std::move(cell));
  return cells;
}

LayerTable read_csv(const std::string& file, const std::vector<std::string>& lines) {
  LayerTable table;
  std::vector<std::string> header;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const std::string where = at_line(file, i + 1);
    if (trimmed(lines[i]).empty() || lines[i].starts_with('#')) continue;
    const std::vector<std::string> cells = csv_cells(where, lines[i]);
    if (header.empty()) {
      header = cells;
      const std::vector<std::string> known = known_columns();
      for (const std::string& column : header) {
        if (std::find(known.begin(), known.end(), column) == known.end())
          throw InputError(where,
                           fmt::format("unknown column \"{}\"{}", column, suggest(column, known)));
        if (std::count(header.begin(), header.end(), column) > 1)
          throw InputError(where, fmt::format("the column {} stands twice", column));
      }
      if (std::find(header.begin(), header.end(), "name") == header.end())
        throw InputError(where, "needs a column \"name\"");
      continue;
    }
    if (cells.size() != header.size())
      throw InputError(where, fmt::format("has {} cells, the line of column names has {}",
                                          cells.size(), header.size()));
    LayerRow row{where, "", {}};
    for (std::size_t c = 0; c < cells.size(); ++c) {
      if (header[c] == "name")
        row.name = cells[c];
      else if (!cells[c].empty())
        row.figures[header[c]] = figure_in(where, header[c], cells[c]);
    }
    table.rows.push_back(std::move(row));
  }
  return table;
}

// JSON --------------------------------------------------------------------------------------------

LayerTable read_json(const std::string& file, const std::string& text) {
  const JsonDocument document = JsonDocument::parse(text, file);
  JsonView list = document.root();
  if (list.is_object()) {
    list.allow_only({"layers"});
    list = list.at("layers");
  }
  LayerTable table;
  const std::vector<std::string> known = known_columns();
  for (const JsonView& entry : list.elements()) {
    LayerRow row{entry.where(), entry.at("name").string(), {}};
    for (const auto& [key, value] : entry.members()) {
      if (key == "name") continue;
      const auto column = columns().find(key);
      if (column == columns().end())
        value.fail(fmt::format("unknown column \"{}\"{}", key, suggest(key, known)));
      row.figures[key] = value.number(0.0, column->second);
    }
    table.rows.push_back(std::move(row));
  }
  return table;
}

// PipeDream's profiles
// ------------------------------------------------------------------------------

// `node13 -- Conv2d(64, 64, ...) -- forward_compute_time=3.852, backward_compute_time=9.775,
//  activation_size=205520896.000, parameter_size=147456.000`: ms, and bytes in FP32
// (msr-fiddle/pipedream, graph/graph.py and profiler/). Then one edge a line: `<tab>node1 --
// node2`.
const std::map<std::string, std::string>& pipedream_columns() {
  static const std::map<std::string, std::string> table = {{"forward_compute_time", "forward_ms"},
                                                           {"backward_compute_time", "backward_ms"},
                                                           {"activation_size", "activation_bytes"},
                                                           {"parameter_size", "parameter_bytes"}};
  return table;
}
constexpr std::string_view separator = " -- ";

int node_number(const std::string& where, const std::string& text) {
  int number = 0;
  const std::string_view digits =
      std::string_view(text).substr(std::min<std::size_t>(4, text.size()));
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
  if (!text.starts_with("node") || error != std::errc{} || end != digits.data() + digits.size())
    throw InputError(where, fmt::format("must name a node, such as node13, got \"{}\"", text));
  return number;
}

/// The whole number behind `key` in the text of a module, such as `out_features=1000`.
std::optional<std::int64_t> number_behind(std::string_view text, std::string_view key) {
  const std::size_t begin = text.find(key);
  if (begin == std::string_view::npos) return std::nullopt;
  const std::string_view rest = text.substr(begin + key.size());
  std::int64_t number = 0;
  if (std::from_chars(rest.data(), rest.data() + rest.size(), number).ec != std::errc{})
    return std::nullopt;
  return number;
}

class PipedreamProfile {
 public:
  PipedreamProfile(const std::string& file, const std::vector<std::string>& lines) : file_(file) {
    for (std::size_t i = 0; i < lines.size(); ++i) {
      const std::string where = at_line(file, i + 1);
      if (trimmed(lines[i]).empty()) continue;
      if (lines[i].starts_with('\t'))
        read_edge(where, trimmed(lines[i]));
      else
        read_node(where, lines[i]);
    }
  }

  [[nodiscard]] LayerTable table() {
    LayerTable table;
    std::set<std::int64_t> micro_batches;
    int inputs = 0;
    for (const int number : in_order()) {
      const Node& node = nodes_.at(number);
      if (node.module.starts_with("Input")) {
        ++inputs;
        continue;
      }
      if (const auto outputs = number_behind(node.module, "out_features=");
          outputs && *outputs > 0 && node.module.starts_with("Linear("))
        micro_batches.insert(std::llround(*node.row.figure("activation_bytes") / 4.0 /
                                          static_cast<double>(*outputs)));
      if (const auto channels = number_behind(node.module, "BatchNorm2d(")) {
        table.float_buffer_elements += 2 * *channels;  // running mean and variance
        ++table.counter_buffers;
      }
      const auto idle = [&](const char* column) { return *node.row.figure(column) == 0.0; };
      if (idle("forward_ms") && idle("backward_ms") && idle("parameter_bytes")) continue;
      table.rows.push_back(node.row);
    }
    if (micro_batches.size() == 1 && *micro_batches.begin() > 0) {
      for (LayerRow& row : table.rows)
        row.figures["micro_batch"] = static_cast<double>(*micro_batches.begin());
      table.notes.push_back(fmt::format(
          "{}: micro-batch {}: activation_size of its Linear layers / (4 B * out_features)", file_,
          *micro_batches.begin()));
    }
    if (inputs > 0)
      table.notes.push_back(fmt::format(
          "{}: left out {} input node(s), whose time is that of the data loader", file_, inputs));
    return table;
  }

 private:
  struct Node {
    LayerRow row;
    std::string module;
    std::vector<int> next;
    int missing = 0;  ///< nodes before it
  };

  void read_node(const std::string& where, const std::string& line) {
    const std::size_t first = line.find(separator);
    const std::size_t last = line.rfind(separator);
    if (first == last)
      throw InputError(where,
                       "must be \"nodeN -- module -- figures\" or a tab and \"nodeN -- nodeM\"");
    const std::string name = line.substr(0, first);
    const int number = node_number(where, name);
    Node node;
    node.module = line.substr(first + separator.size(), last - first - separator.size());
    node.row = {where, name + "." + node.module.substr(0, node.module.find('(')), {}};
    for (const std::string& pair : split(line.substr(last + separator.size()), ',')) {
      const std::string text = trimmed(pair);
      const std::size_t equals = std::min(text.find('='), text.size());
      const auto column = pipedream_columns().find(text.substr(0, equals));
      if (column != pipedream_columns().end())
        node.row.figures[column->second] =
            figure_in(where, column->second, text.substr(std::min(equals + 1, text.size())));
    }
    for (const auto& [key, column] : pipedream_columns())
      if (!node.row.figure(column)) throw InputError(where, fmt::format("lacks {}", key));
    if (!nodes_.emplace(number, std::move(node)).second)
      throw InputError(where, fmt::format("{} stands twice", name));
  }

  void read_edge(const std::string& where, const std::string& line) {
    const std::size_t middle = line.find(separator);
    if (middle == std::string::npos)
      throw InputError(where, "must be a tab and \"nodeN -- nodeM\"");
    edges_.push_back({where, node_number(where, line.substr(0, middle)),
                      node_number(where, line.substr(middle + separator.size()))});
  }

  /// Each node behind those that it needs; of several that could run, the lowest number.
  std::vector<int> in_order() {
    for (const Edge& edge : edges_) {
      for (const int end : {edge.from, edge.to})
        if (!nodes_.contains(end))
          throw InputError(edge.where, fmt::format("there is no node{}", end));
      nodes_.at(edge.from).next.push_back(edge.to);
      ++nodes_.at(edge.to).missing;
    }
    std::set<int> ready;
    for (const auto& [number, node] : nodes_)
      if (node.missing == 0) ready.insert(number);
    std::vector<int> order;
    while (!ready.empty()) {
      const int number = *ready.begin();
      ready.erase(ready.begin());
      order.push_back(number);
      for (const int next : nodes_.at(number).next)
        if (--nodes_.at(next).missing == 0) ready.insert(next);
    }
    if (order.size() != nodes_.size()) throw InputError(file_, "its edges run in a circle");
    return order;
  }

  struct Edge {
    std::string where;
    int from = 0, to = 0;
  };
  std::string file_;
  std::map<int, Node> nodes_;
  std::vector<Edge> edges_;
};

}  // namespace

std::optional<double> LayerRow::figure(const std::string& column) const {
  const auto found = figures.find(column);
  return found == figures.end() ? std::nullopt : std::optional(found->second);
}

LayerTable read_layer_table(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  if (!file) throw InputError(path.string(), "cannot be read");
  LayerTable table;
  const std::size_t first = text.find_first_not_of(" \t\r\n");
  if (first != std::string::npos && (text[first] == '{' || text[first] == '['))
    table = read_json(path.string(), text);
  else if (text.find("forward_compute_time=") != std::string::npos)
    table = PipedreamProfile(path.string(), split(text, '\n')).table();
  else
    table = read_csv(path.string(), split(text, '\n'));
  if (table.rows.empty()) throw InputError(path.string(), "holds no layer");
  return table;
}

}  // namespace stepcast
