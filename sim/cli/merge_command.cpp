// stepcast merge: the parts of a sweep, which run --shard wrote, as one result.
#include <fstream>
#include <map>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/error.hpp"
#include "cli/commands.hpp"
#include "cli/point_store.hpp"
#include "cli/result_files.hpp"
#include "cli/shard.hpp"

namespace stepcast {
namespace {

std::string name_of(const Shard& shard) { return fmt::format("{}/{}", shard.number, shard.count); }

/// The first line of a part.
ShardHead head_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw InputError(path, "cannot be read");
  std::string line;
  std::getline(file, line);
  return read_shard_head(line, path);
}

/// Refuses parts that do not make a whole. Gives what their heads share.
ShardHead check(const std::vector<std::string>& paths) {
  std::map<std::size_t, std::string> path_of;  // by number of the shard
  ShardHead first;
  for (const std::string& path : paths) {
    ShardHead head = head_of(path);
    if (path_of.empty()) first = head;
    if (head.study != first.study || head.points != first.points)
      throw InputError(path,
                       fmt::format("belongs to another scenario, other inputs or options than {}",
                                   paths.front()));
    if (head.shard.count != first.shard.count)
      throw InputError(path, fmt::format("is part {}, but {} is part {}", name_of(head.shard),
                                         paths.front(), name_of(first.shard)));
    const auto [other, is_new] = path_of.emplace(head.shard.number, path);
    if (!is_new)
      throw InputError(path,
                       fmt::format("is part {}, and so is {}", name_of(head.shard), other->second));
  }
  std::vector<std::string> missing;
  for (std::size_t i = 1; i <= first.shard.count && path_of.size() < first.shard.count; ++i)
    if (!path_of.contains(i)) missing.push_back(name_of({i, first.shard.count}));
  constexpr std::size_t most_named = 8;
  const std::size_t count = missing.size();
  if (count > most_named) missing.resize(most_named);
  if (count > 0)
    throw InputError("stepcast merge",
                     fmt::format("{} of {} parts missing: {}{}", count, first.shard.count,
                                 fmt::join(missing, ", "), count > most_named ? ", ..." : ""));
  return first;
}

}  // namespace

int merge_command(const MergeOptions& options) {
  ResultFiles outputs;
  if (options.json) outputs.json.emplace("-o", *options.json, options.parts);
  if (options.csv) outputs.csv.emplace("--csv", *options.csv, options.parts);
  const ShardHead whole = check(options.parts);
  PointStore store(whole.points);
  std::size_t failed = 0;
  for (const std::string& path : options.parts) {
    std::ifstream file(path, std::ios::binary);
    std::string line;
    std::getline(file, line);
    const std::vector<std::size_t> wanted =
        points_of(read_shard_head(line, path).shard, whole.points);
    for (const std::size_t index : wanted) {
      if (!std::getline(file, line) || file.eof())
        throw InputError(path, fmt::format("was cut off: it must hold {} points", wanted.size()));
      const ShardPoint point = read_shard_point(line, path);
      if (point.index != index)
        throw InputError(path,
                         fmt::format("must hold point {} where it has {}", index, point.index));
      store.add(index, point.point, {});
      failed += point.has_failed ? 1 : 0;
    }
  }
  write_results(outputs, whole.begin, store);
  if (failed > 0) fmt::print(stderr, "stepcast: {} of {} points failed\n", failed, whole.points);
  return failed > 0 ? 1 : 0;
}

}  // namespace stepcast
