#include "base/text.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <numeric>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace stepcast {
namespace {

struct ByteUnit {
  std::string_view name;
  double bytes;
};
constexpr std::array<ByteUnit, 9> byte_units = {{{"TiB", 1024.0 * 1024 * 1024 * 1024},
                                                 {"GiB", 1024.0 * 1024 * 1024},
                                                 {"MiB", 1024.0 * 1024},
                                                 {"KiB", 1024.0},
                                                 {"TB", 1e12},
                                                 {"GB", 1e9},
                                                 {"MB", 1e6},
                                                 {"kB", 1e3},
                                                 {"B", 1.0}}};

/// Edit distance where a swap of neighbours counts once (optimal string alignment).
std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::vector<std::size_t>> d(a.size() + 1, std::vector<std::size_t>(b.size() + 1));
  for (std::size_t i = 0; i <= a.size(); ++i) d[i][0] = i;
  for (std::size_t j = 0; j <= b.size(); ++j) d[0][j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t substitution = d[i - 1][j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      d[i][j] = std::min({d[i - 1][j] + 1, d[i][j - 1] + 1, substitution});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        d[i][j] = std::min(d[i][j], d[i - 2][j - 2] + 1);
    }
  }
  return d[a.size()][b.size()];
}

}  // namespace

std::optional<std::int64_t> parse_bytes(std::string_view text) {
  double number = 0.0;
  const char* end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, number, std::chars_format::general);
  if (error != std::errc{}) return std::nullopt;
  std::string_view unit(rest, static_cast<std::size_t>(end - rest));
  while (!unit.empty() && unit.front() == ' ') unit.remove_prefix(1);
  double bytes = -1.0;
  if (unit.empty()) bytes = number;
  for (const ByteUnit& known : byte_units)
    if (unit == known.name) bytes = number * known.bytes;
  constexpr double largest = 9007199254740992.0;  // 2^53: above, a double no longer counts bytes
  if (bytes < 0.0 || bytes > largest || bytes != std::floor(bytes)) return std::nullopt;
  return static_cast<std::int64_t>(bytes);
}

std::string format_bytes(double bytes) {
  for (const ByteUnit& unit : byte_units)
    if (unit.name.size() == 3 && bytes >= unit.bytes)
      return fmt::format("{:.4g} {}", bytes / unit.bytes, unit.name);
  return fmt::format("{:.4g} B", bytes);
}

std::string format_number(double value) { return fmt::format("{}", value); }

std::string suggest(std::string_view unknown, const std::vector<std::string>& known) {
  std::vector<std::string> near;
  for (const std::string& name : known) {
    if (unknown.empty()) break;
    const std::size_t tolerance =
        std::max<std::size_t>(2, std::min(unknown.size(), name.size()) / 3);
    const bool contains = unknown.size() >= 3 && name.find(unknown) != std::string::npos;
    if (edit_distance(unknown, name) <= tolerance || contains) near.push_back(name);
  }
  std::sort(near.begin(), near.end(), [&](const std::string& a, const std::string& b) {
    return edit_distance(unknown, a) < edit_distance(unknown, b);
  });
  std::string text;
  if (!near.empty()) text += fmt::format("; did you mean \"{}\"?", fmt::join(near, "\", \""));
  return text + fmt::format("{} known: {}", near.empty() ? ";" : "", fmt::join(known, ", "));
}

std::vector<std::string> split(std::string_view text, char separator) {
  std::vector<std::string> parts;
  std::size_t begin = 0;
  while (true) {
    const std::size_t end = text.find(separator, begin);
    parts.emplace_back(text.substr(begin, end - begin));
    if (end == std::string_view::npos) return parts;
    begin = end + 1;
  }
}

}  // namespace stepcast
