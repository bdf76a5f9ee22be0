#include "cli/shard.hpp"

#include <fmt/format.h>

#include "base/error.hpp"
#include "base/json_view.hpp"
#include "base/version.hpp"
#include "engine/network.hpp"

namespace stepcast {
namespace {

constexpr std::int64_t most = 1'000'000;  // points, and shards

std::string this_version() {
  return fmt::format("{} ({}, {}, SimGrid {})", version, revision, build_type, simgrid_version());
}

}  // namespace

std::vector<std::size_t> points_of(const Shard& shard, std::size_t points) {
  std::vector<std::size_t> indices;
  for (std::size_t i = shard.number - 1; i < points; i += shard.count) indices.push_back(i);
  return indices;
}

std::string shard_line(const ShardHead& head) {
  return fmt::format(
      R"({{"format":"stepcast.shard/1","version":{},"study":"{:016x}","shard":{},"of":{},"points":{},"begin":{}}})"
      "\n",
      quote_json(this_version()), head.study, head.shard.number, head.shard.count, head.points,
      quote_json(head.begin));
}

std::string shard_line(std::size_t index, const std::string& point) {
  return fmt::format("{{\"index\":{},\"point\":{}}}\n", index, point);
}

ShardHead read_shard_head(const std::string& line, const std::string& path) {
  const auto refuse = [&](const std::string& what) { throw InputError(path, what); };
  std::optional<JsonDocument> document;
  try {
    document = JsonDocument::parse(line, path);
    document->root().expect_format("stepcast.shard/1");
  } catch (const InputError&) {
    refuse("is no part of a sweep; stepcast run SCENARIO --shard K/N -o FILE writes one");
  }
  const JsonView root = document->root();
  if (const std::string wrote = root.at("version").string(); wrote != this_version())
    refuse(fmt::format("was written by stepcast {}, this is {}", wrote, this_version()));
  ShardHead head;
  head.study = std::stoull(root.at("study").string(), nullptr, 16);
  head.shard.count = static_cast<std::size_t>(root.at("of").integer(1, most));
  head.shard.number = static_cast<std::size_t>(
      root.at("shard").integer(1, static_cast<std::int64_t>(head.shard.count)));
  head.points = static_cast<std::size_t>(root.at("points").integer(1, most));
  head.begin = root.at("begin").string();
  return head;
}

ShardPoint read_shard_point(const std::string& line, const std::string& path) {
  const JsonDocument document = JsonDocument::parse(line, path);
  const JsonView point = document.root().at("point");
  return {static_cast<std::size_t>(document.root().at("index").integer(0, most - 1)), point.dump(),
          point.find("error").has_value()};
}

}  // namespace stepcast
