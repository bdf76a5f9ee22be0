#include "fit/log_cells.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <utility>

namespace stepcast {
namespace {

using Names = std::vector<std::pair<std::string_view, double>>;

const Names& time_units() {
  static const Names names = {{"us", 1e-6},   {"\xc2\xb5s", 1e-6}, {"\xce\xbcs", 1e-6},
                              {"usec", 1e-6}, {"ms", 1e-3},        {"msec", 1e-3},
                              {"ns", 1e-9},   {"s", 1.0},          {"sec", 1.0}};
  return names;
}

/// Gb is a bit, GB a byte, so upper and lower case differ.
const Names& bandwidth_units() {
  static const Names names = {
      {"GB/s", 1e9},     {"GBps", 1e9},           {"GBPS", 1e9},       {"GB/sec", 1e9},
      {"gB/s", 1e9},     {"MB/s", 1e6},           {"MBps", 1e6},       {"TB/s", 1e12},
      {"TBps", 1e12},    {"KB/s", 1e3},           {"kB/s", 1e3},       {"Gb/s", 0.125e9},
      {"Gbps", 0.125e9}, {"gbps", 0.125e9},       {"Gbit/s", 0.125e9}, {"Mb/s", 0.125e6},
      {"Mbps", 0.125e6}, {"GiB/s", 1073741824.0}, {"MiB/s", 1048576.0}};
  return names;
}

struct SizeUnit {
  std::string_view name;
  double binary, decimal;
};
constexpr double kibi = 1024.0;
constexpr std::array<SizeUnit, 14> size_units = {
    {{"b", 1.0, 1.0},
     {"bytes", 1.0, 1.0},
     {"k", kibi, 1e3},
     {"kb", kibi, 1e3},
     {"kib", kibi, kibi},
     {"m", kibi* kibi, 1e6},
     {"mb", kibi* kibi, 1e6},
     {"mib", kibi* kibi, kibi* kibi},
     {"g", kibi* kibi* kibi, 1e9},
     {"gb", kibi* kibi* kibi, 1e9},
     {"gib", kibi* kibi* kibi, kibi* kibi* kibi},
     {"t", kibi* kibi* kibi* kibi, 1e12},
     {"tb", kibi* kibi* kibi* kibi, 1e12},
     {"tib", kibi* kibi* kibi* kibi, kibi* kibi* kibi* kibi}}};

const SizeUnit* size_unit(std::string_view name) {
  const std::string lower = lower_case(name);
  const auto* const found = std::find_if(size_units.begin(), size_units.end(),
                                         [&](const SizeUnit& unit) { return unit.name == lower; });
  return found == size_units.end() ? nullptr : found;
}

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

/// Takes the number off the front of `text`.
std::optional<Printed> take_number(std::string_view& text) {
  text = trim(text);
  std::string digits;
  std::size_t used = 0;
  for (; used < text.size() && used < 40; ++used) {
    const char c = text[used];
    const bool exponent_sign = (c == '+' || c == '-') && !digits.empty() && digits.back() == 'e';
    const bool exponent =
        (c == 'e' || c == 'E') && !digits.empty() && used + 1 < text.size() &&
        (is_digit(text[used + 1]) || text[used + 1] == '+' || text[used + 1] == '-');
    if (c == '_' && !digits.empty()) continue;
    if (!is_digit(c) && c != '.' && !exponent_sign && !exponent && !(c == '-' && digits.empty()))
      break;
    digits += exponent ? 'e' : c;
  }
  Printed number;
  const auto [end, error] =
      std::from_chars(digits.data(), digits.data() + digits.size(), number.value);
  if (error != std::errc{} || end != digits.data() + digits.size()) return std::nullopt;
  const std::size_t e = digits.find('e');
  const std::size_t point = digits.find('.');
  int last_digit = e == std::string::npos ? 0 : std::atoi(digits.c_str() + e + 1);
  if (point != std::string::npos)
    last_digit -= static_cast<int>(std::min(e, digits.size()) - point - 1);
  number.half_digit = 0.5 * std::pow(10.0, last_digit);
  text.remove_prefix(used);
  return number;
}

/// The letters that follow a number: `us`, `GB/s`, and the two bytes of a µ.
std::string_view unit_at_front(std::string_view text) {
  text = trim(text);
  std::size_t length = 0;
  while (length < text.size() && (is_letter(text[length]) || text[length] == '/' ||
                                  static_cast<unsigned char>(text[length]) >= 0x80))
    ++length;
  return text.substr(0, length);
}

std::optional<double> unit_among(const Names& units, std::string_view name) {
  for (const auto& [known, value] : units)
    if (known == name) return value;
  return std::nullopt;
}

std::optional<Printed> cell_in(const Names& units, std::string_view text, double unit) {
  auto number = take_number(text);
  if (!number) return std::nullopt;
  const std::string_view name = unit_at_front(text);
  if (!name.empty()) {
    const auto known = unit_among(units, name);
    if (!known) return std::nullopt;
    unit = *known;
  }
  number->value *= unit;
  number->half_digit *= unit;
  return number;
}

/// Letters and digits only, in lower case: `All-Reduce` -> `allreduce`.
std::string bare(std::string_view name) {
  std::string result;
  for (const char c : name)
    if (is_letter(c) || is_digit(c) || static_cast<unsigned char>(c) >= 0x80) result += c;
  return lower_case(result);
}

bool contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

bool one_of(std::string_view name, std::initializer_list<std::string_view> names) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

/// `time (us)`, `time_us`, `size[KB]`: the unit in a column's name.
std::string_view unit_in_name(std::string_view name) {
  const std::size_t open = name.find_first_of("([");
  if (open != std::string_view::npos) {
    const std::size_t close = name.find_first_of(")]", open);
    return trim(name.substr(open + 1, close == std::string_view::npos ? close : close - open - 1));
  }
  const std::size_t last = name.find_last_of("_ ");
  return last == std::string_view::npos ? std::string_view{} : name.substr(last + 1);
}

std::string without_unit(std::string_view name) {
  const std::size_t open = name.find_first_of("([");
  return std::string(trim(name.substr(0, open)));
}

std::string remove_words(std::string name, std::initializer_list<std::string_view> words) {
  for (const std::string_view word : words) {
    const std::size_t at = name.find(word);
    if (at != std::string::npos) name.erase(at, word.size());
  }
  return name;
}

enum class Quantity { none, time, algbw, busbw };

Quantity quantity_named(const std::string& lower) {
  if (contains(lower, "busbw") || contains(lower, "bus bandwidth") ||
      contains(lower, "bus_bandwidth") || contains(lower, "bus bw"))
    return Quantity::busbw;
  if (contains(lower, "algbw") || contains(lower, "algobw") ||
      contains(lower, "algorithm bandwidth") || contains(lower, "alg bw"))
    return Quantity::algbw;
  if ((contains(lower, "time") && !contains(lower, "timestamp") && !contains(lower, "times")) ||
      contains(lower, "latency"))
    return Quantity::time;
  return Quantity::none;
}

/// What is left of a measure's name when all that is understood is taken away.
std::string label_of(const std::string& lower) {
  std::string rest = remove_words(without_unit(lower), {"busbw",
                                                        "bus bandwidth",
                                                        "bus_bandwidth",
                                                        "bus bw",
                                                        "algbw",
                                                        "algobw",
                                                        "algorithm bandwidth",
                                                        "alg bw",
                                                        "latency",
                                                        "time",
                                                        "out-of-place",
                                                        "out_of_place",
                                                        "out of place",
                                                        "in-place",
                                                        "in_place",
                                                        "in place",
                                                        "gbps",
                                                        "usec",
                                                        "avg",
                                                        "average"});
  for (const std::string_view unit : {"_us", "_ms", "_s"})
    if (rest.size() >= unit.size() && rest.substr(rest.size() - unit.size()) == unit)
      rest.resize(rest.size() - unit.size());
  const std::size_t begin = rest.find_first_not_of(" ,:-_/");
  if (begin == std::string::npos) return {};
  return rest.substr(begin, rest.find_last_not_of(" ,:-_/") - begin + 1);
}

/// A column of times that is headed by what was timed: `Ring`, `LL`, `Ring/LL`, `all-reduce`.
bool name_what_is_timed(std::string_view name, Measure& measure) {
  const std::string plain = without_unit(name);
  measure.operation = operation_named(plain);
  if (measure.operation) return true;
  const std::size_t slash = plain.find('/');
  const std::string first = plain.substr(0, slash);
  measure.algorithm = algorithm_named(first);
  measure.protocol = protocol_named(first);
  if (slash != std::string::npos) measure.protocol = protocol_named(plain.substr(slash + 1));
  return measure.algorithm || measure.protocol;
}

Measure& measure_for(Columns& columns, Measure wanted, int Measure::*column) {
  for (Measure& measure : columns.measures)
    if (measure.label == wanted.label && measure.in_place == wanted.in_place &&
        measure.*column == -1)
      return measure;
  // nccl-tests repeats its columns for in-place without saying so in that line.
  const bool repeated =
      std::any_of(columns.measures.begin(), columns.measures.end(), [&](const Measure& measure) {
        return measure.label == wanted.label && measure.in_place == wanted.in_place;
      });
  if (repeated) wanted.in_place = true;
  if (repeated)
    for (Measure& measure : columns.measures)
      if (measure.label == wanted.label && measure.in_place && measure.*column == -1)
        return measure;
  columns.measures.push_back(std::move(wanted));
  return columns.measures.back();
}

bool add_measure(Columns& columns, std::string_view name, int index) {
  const std::string lower = lower_case(name);
  Measure wanted;
  const Quantity quantity = quantity_named(lower);
  if (quantity == Quantity::none && !name_what_is_timed(name, wanted)) return false;
  wanted.label = label_of(lower);
  wanted.in_place = contains(lower, "in-place") || contains(lower, "in_place") ||
                    contains(lower, "inplace") || contains(lower, "in place");
  const std::string_view unit = unit_in_name(name);
  const auto as_time = unit_among(time_units(), unit);
  const auto as_bandwidth = unit_among(bandwidth_units(), unit);
  if (quantity == Quantity::algbw) {
    Measure& measure = measure_for(columns, wanted, &Measure::algbw);
    measure.algbw = index;
    measure.algbw_unit = as_bandwidth.value_or(1e9);
  } else if (quantity == Quantity::busbw) {
    Measure& measure = measure_for(columns, wanted, &Measure::busbw);
    measure.busbw = index;
    measure.busbw_unit = as_bandwidth.value_or(1e9);
  } else {
    Measure& measure = measure_for(columns, wanted, &Measure::time);
    measure.time = index;
    measure.time_unit = as_time.value_or(1e-6);
  }
  return true;
}

bool add_fact(Columns& columns, std::string_view name, int index) {
  const std::string plain = bare(without_unit(name));
  const auto is = [&](std::initializer_list<std::string_view> names) {
    return one_of(plain, names);
  };
  if (is({"size", "bytes", "payload", "message", "msgsize", "messagesize", "sizebytes", "sizeb",
          "sizekb", "sizemb", "datasize", "buffersize", "数据大小"})) {
    columns.size = index;
    const SizeUnit* unit = size_unit(unit_in_name(name));
    columns.size_unit = unit == nullptr ? 1.0 : unit->binary;
  } else if (is({"count", "elements"})) {
    columns.count = index;
  } else if (is({"type", "dtype", "datatype"})) {
    columns.type = index;
  } else if (is({"redop", "reduction"})) {
    columns.redop = index;
  } else if (is({"root"})) {
    columns.root = index;
  } else if (is({"inplace"})) {
    columns.in_place = index;
  } else if (is({"ranks", "nranks", "gpus", "ngpus", "worldsize"})) {
    columns.ranks = index;
  } else if (is({"collective", "operation", "op"})) {
    columns.operation = index;
  } else if (is({"algo", "algorithm", "ncclalgo"})) {
    columns.algorithm = index;
  } else if (is({"proto", "protocol", "ncclproto"})) {
    columns.protocol = index;
  } else if (is({"wrong", "error", "errors"})) {
    if (!columns.measures.empty()) columns.measures.back().wrong = index;
  } else {
    return false;
  }
  return true;
}

}  // namespace

std::optional<Printed> time_cell(std::string_view text, double unit) {
  return cell_in(time_units(), text, unit);
}

std::optional<Printed> bandwidth_cell(std::string_view text, double unit) {
  return cell_in(bandwidth_units(), text, unit);
}

std::optional<Printed> number_cell(std::string_view text) {
  auto number = take_number(text);
  return number && trim(text).empty() ? number : std::nullopt;
}

std::optional<SizeCell> size_cell(std::string_view text, double unit) {
  const auto number = take_number(text);
  constexpr double largest = 9007199254740992.0;  // 2^53: above, a double no longer counts bytes
  if (!number || number->value < 0.0) return std::nullopt;
  double binary = unit;
  double decimal = unit;
  if (const std::string_view name = unit_at_front(text); !name.empty()) {
    const SizeUnit* known = size_unit(name);
    if (known == nullptr) return std::nullopt;
    binary = known->binary;
    decimal = known->decimal;
  }
  if (number->value * binary > largest) return std::nullopt;
  return SizeCell{static_cast<std::int64_t>(std::llround(number->value * binary)),
                  static_cast<std::int64_t>(std::llround(number->value * decimal))};
}

std::optional<std::int64_t> whole_number(std::string_view text) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return value;
}

int dtype_bytes_in_log(std::string_view name) {
  static const std::vector<std::pair<std::string_view, int>> names = {
      {"float", 4},      {"float32", 4},  {"double", 8},   {"float64", 8},  {"half", 2},
      {"float16", 2},    {"bfloat16", 2}, {"int8", 1},     {"uint8", 1},    {"char", 1},
      {"int32", 4},      {"int", 4},      {"uint32", 4},   {"int64", 8},    {"uint64", 8},
      {"f8e4m3", 1},     {"f8e5m2", 1},   {"fp8_e4m3", 1}, {"fp8_e5m2", 1}, {"float8_e4m3", 1},
      {"float8_e5m2", 1}};
  for (const auto& [known, bytes] : names)
    if (known == name) return bytes;
  return 0;
}

bool is_reduction_name(std::string_view name) {
  return one_of(name, {"sum", "prod", "max", "min", "avg", "mulsum", "none", "all"});
}

std::optional<NamedOperation> operation_named(std::string_view name) {
  const std::string plain = bare(name);
  if (plain == "allreduce") return NamedOperation{Operation::all_reduce, ""};
  if (plain == "reducescatter") return NamedOperation{Operation::reduce_scatter, ""};
  if (plain == "allgather") return NamedOperation{Operation::all_gather, ""};
  if (plain == "broadcast" || plain == "bcast") return NamedOperation{Operation::broadcast, ""};
  if (one_of(plain,
             {"alltoall", "alltoallv", "sendrecv", "reduce", "scatter", "gather", "hypercube"}))
    return NamedOperation{std::nullopt, plain};
  return std::nullopt;
}

std::optional<std::string> algorithm_named(std::string_view name) {
  const std::string plain = bare(name);
  if (plain == "ring" || plain == "nvls") return plain;
  if (plain == "tree") return "double_binary_tree";
  if (plain == "nvlstree") return "nvls_tree";
  return std::nullopt;
}

std::optional<std::string> protocol_named(std::string_view name) {
  const std::string plain = bare(name);
  if (plain == "ll") return "LL";
  if (plain == "ll128") return "LL128";
  if (plain == "simple") return "Simple";
  return std::nullopt;
}

bool Columns::has_measure() const {
  return std::any_of(measures.begin(), measures.end(), [](const Measure& measure) {
    return measure.time != -1 || measure.algbw != -1;
  });
}

Columns columns_named(const std::vector<std::string_view>& names) {
  Columns columns;
  columns.count_of_columns = static_cast<int>(names.size());
  for (std::size_t i = 0; i < names.size(); ++i) {
    const int index = static_cast<int>(i);
    if (!add_fact(columns, names[i], index) && !add_measure(columns, names[i], index))
      ++columns.unknown;
  }
  return columns;
}

std::string lower_case(std::string_view text) {
  std::string lower(text);
  for (char& c : lower)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return lower;
}

std::string_view trim(std::string_view text) {
  constexpr std::string_view blank = " \t\r\"`*";
  const std::size_t begin = text.find_first_not_of(blank);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(blank) - begin + 1);
}

}  // namespace stepcast
