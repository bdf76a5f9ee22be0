// A part of a sweep in a file: JSON lines, first what it is a part of, then its points.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "cli/options.hpp"

namespace stepcast {

struct ShardHead {
  std::uint64_t study = 0;  ///< what the points belong to
  Shard shard;
  std::size_t points = 0;  ///< of the whole sweep
  std::string begin;       ///< of the result
};

/// Which of `points` points are in a shard: dealt out, as neighbours often take the same time.
[[nodiscard]] std::vector<std::size_t> points_of(const Shard& shard, std::size_t points);

/// `stepcast.shard/1`, a line each.
[[nodiscard]] std::string shard_line(const ShardHead& head);
[[nodiscard]] std::string shard_line(std::size_t index, const std::string& point);

/// What two lines above say. Throws InputError with the path.
[[nodiscard]] ShardHead read_shard_head(const std::string& line, const std::string& path);
struct ShardPoint {
  std::size_t index = 0;
  std::string point;
  bool has_failed = false;
};
[[nodiscard]] ShardPoint read_shard_point(const std::string& line, const std::string& path);

}  // namespace stepcast
