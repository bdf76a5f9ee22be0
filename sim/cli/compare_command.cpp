// stepcast compare: what differs between two points, what it changes, and why.
#include <tuple>

#include <fmt/format.h>

#include "base/error.hpp"
#include "base/json_view.hpp"
#include "cli/commands.hpp"
#include "report/report.hpp"

namespace stepcast {
namespace {

/// A point that was simulated.
JsonView point_of(const JsonView& result, std::size_t index) {
  const auto points = result.at("points").elements();
  if (index >= points.size())
    throw InputError("--points", fmt::format("{} has points 0 to {}, not {}", result.where(),
                                             points.size() - 1, index));
  if (const auto error = points[index].find("error"))
    throw InputError("--points", fmt::format("point {} of {} failed: {}", index, result.where(),
                                             error->string()));
  return points[index];
}

std::string title_of(const JsonView& result, std::size_t index, const JsonView& point) {
  std::string text = fmt::format("{}, point {}", result.where(), index);
  for (const auto& [key, value] : point.at("settings").members())
    text += fmt::format(", {} = {}", key, value.is_string() ? value.string() : value.dump());
  return text;
}

}  // namespace

int compare_command(const CompareOptions& options) {
  std::vector<JsonDocument> documents;
  for (const std::string& file : options.files) {
    documents.push_back(JsonDocument::read_file(file));
    documents.back().root().expect_format("stepcast.result/1");
  }
  const JsonView a = documents.front().root();
  const JsonView b = documents.back().root();
  const auto last_of = [](const JsonView& result) {
    const std::size_t count = result.at("points").elements().size();
    if (count == 0) result.at("points").fail("must hold at least one point");
    return count - 1;
  };
  std::size_t i = documents.size() == 1 ? 0 : last_of(a);
  std::size_t j = last_of(b);
  if (options.points) std::tie(i, j) = *options.points;
  const JsonView one = point_of(a, i);
  const JsonView other = point_of(b, j);
  fmt::print("A: {}\nB: {}\n\n{}", title_of(a, i, one), title_of(b, j, other),
             comparison(a, one, b, other));
  return 0;
}

}  // namespace stepcast
