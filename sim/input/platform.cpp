#include "input/platform.hpp"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "base/text.hpp"

namespace stepcast {
namespace {

constexpr double slowest_Bps = 1.0;
constexpr double fastest_Bps = 1e14;
constexpr double longest_alpha_s = 1.0;
constexpr int most_uplinks = 1024;                     // a large switch has 512 ports
constexpr std::int64_t most_fabric_links = 1'000'000;  // one way; they take 100 MB

LinkFigures read_figures(const JsonView& json) {
  if (const auto source = json.find("source")) static_cast<void>(source->string());
  LinkFigures figures;
  figures.bandwidth = BytesPerSecond{json.at("bandwidth_Bps").number(slowest_Bps, fastest_Bps)};
  figures.alpha = Seconds{json.at("alpha_s").number(0.0, longest_alpha_s)};
  if (const auto latency = json.find("latency_s"))
    figures.latency = Seconds{latency->number(0.0, longest_alpha_s)};
  return figures;
}

Cpu read_cpu(const JsonView& json) {
  const std::string name = json.word({"intel", "amd", "arm"});
  if (name == "amd") return Cpu::amd;
  return name == "arm" ? Cpu::arm : Cpu::intel;
}

Gpu read_gpu(const JsonView& json) {
  json.allow_only({"name", "compute_capability", "memory_bytes", "memory_bandwidth_Bps",
                   "multiprocessors", "kernel_floor_s", "source"});
  Gpu gpu;
  gpu.name = json.at("name").string();
  if (const auto capability = json.find("compute_capability"))
    gpu.compute_capability = static_cast<int>(std::lround(10.0 * capability->number(3.0, 20.0)));
  if (const auto bytes = json.find("memory_bytes"))
    gpu.memory_bytes = bytes->integer(1, std::int64_t{1} << 50);
  if (const auto count = json.find("multiprocessors"))
    gpu.multiprocessors = static_cast<int>(count->integer(1, 1 << 16));
  if (const auto rate = json.find("memory_bandwidth_Bps"))
    gpu.memory_bandwidth = BytesPerSecond{rate->number(slowest_Bps, fastest_Bps)};
  if (const auto floor = json.find("kernel_floor_s"))
    gpu.kernel_floor = Seconds{floor->number(0.0, 1.0)};
  if (const auto source = json.find("source")) static_cast<void>(source->string());
  return gpu;
}

Nics read_nics(const JsonView& json, int gpus) {
  json.allow_only({"count", "bandwidth_Bps", "alpha_s", "latency_s", "near_gpus", "source"});
  Nics nics;
  nics.count = static_cast<int>(json.at("count").integer(1, 256));
  nics.figures = read_figures(json);
  if (const auto near = json.find("near_gpus"); near && !near->is_null()) {
    for (const JsonView& one : near->elements()) {
      auto& list = nics.near_gpus.emplace_back();
      for (const JsonView& gpu : one.elements())
        list.push_back(static_cast<int>(gpu.integer(0, gpus - 1)));
    }
    if (nics.near_gpus.size() != static_cast<std::size_t>(nics.count))
      near->fail(fmt::format("must hold one list for each of the {} NICs, got {}", nics.count,
                             nics.near_gpus.size()));
  } else {
    nics.near_gpus.resize(static_cast<std::size_t>(nics.count));
  }
  return nics;
}

/// A price goes with where it is from and its date, for it does not last.
std::optional<Price> read_price(const JsonView& node) {
  const auto usd = node.find("price_per_hour_usd");
  if (!usd) {
    for (const char* key : {"price_source", "price_date"})
      if (const auto alone = node.find(key)) alone->fail("there is no price_per_hour_usd");
    return std::nullopt;
  }
  constexpr double most_usd = 1e6;
  Price price;
  price.usd_per_hour = usd->number(0.0, most_usd);
  price.source = node.at("price_source").string();
  price.date = node.at("price_date").string();
  return price;
}

FabricLevel read_level(const JsonView& json, int nodes, bool ecmp) {
  FabricLevel level;
  level.nodes_per_group = static_cast<int>(json.at("nodes_per_group").integer(1, nodes));
  level.oversubscription = json.at("oversubscription").number(1.0, 1e6);
  if (const auto uplinks = json.find("uplinks")) {
    const auto count = static_cast<int>(uplinks->integer(1, most_uplinks));
    if (ecmp) level.uplinks = count;
  } else if (ecmp) {
    json.fail("ECMP needs uplinks: among how many a switch hashes connections");
  }
  return level;
}

/// The links up from all groups, each of which would be simulated.
void refuse_too_many_uplinks(const Fabric& fabric, const JsonView& json, int nodes, int nics) {
  std::int64_t paths = 1;  // up from a group: each switch below has uplinks of its own
  for (const FabricLevel& level : fabric.levels) {
    paths *= level.uplinks;
    const std::int64_t leaves = fabric.rails ? std::max(1, nics) : 1;  // of a group
    const std::int64_t groups =
        (nodes + level.nodes_per_group - 1) / level.nodes_per_group * leaves;
    if (paths > 1 && paths > most_fabric_links / groups)
      json.fail(fmt::format("{} groups with {} uplinks each; at most {} links are hashed among",
                            groups, paths, most_fabric_links));
  }
}

Fabric read_fabric(const JsonView& json, int nodes, int nics) {
  Fabric fabric;
  const std::string kind = json.at("kind").word({"switch", "fat_tree", "rail"});
  if (const auto source = json.find("source")) static_cast<void>(source->string());
  if (const auto pair = json.find("node_pair_bandwidth_Bps"); pair && !pair->is_null())
    fabric.node_pair = BytesPerSecond{pair->number(slowest_Bps, fastest_Bps)};
  std::string balancing = "ideal";
  if (const auto word = json.find("load_balancing"))
    balancing = word->word({"ideal", "ecmp", "ecmp_qp"});
  const bool ecmp = balancing != "ideal";
  fabric.hashes_queue_pairs = balancing == "ecmp_qp";
  if (const auto seed = json.find("ecmp_seed"))
    fabric.ecmp_seed = static_cast<std::uint64_t>(seed->integer(0, std::int64_t{1} << 53));
  if (kind == "switch") {
    if (ecmp) json.at("load_balancing").fail("needs a fabric with uplinks: fat_tree or rail");
    json.allow_only({"kind", "node_pair_bandwidth_Bps", "source"});
  } else if (kind == "rail") {
    json.allow_only({"kind", "nodes_per_group", "oversubscription", "uplinks", "load_balancing",
                     "ecmp_seed", "node_pair_bandwidth_Bps", "source"});
    fabric.rails = true;
    fabric.levels.push_back(read_level(json, nodes, ecmp));
  } else {
    json.allow_only(
        {"kind", "levels", "load_balancing", "ecmp_seed", "node_pair_bandwidth_Bps", "source"});
    for (const JsonView& entry : json.at("levels").elements()) {
      entry.allow_only({"nodes_per_group", "oversubscription", "uplinks"});
      const FabricLevel level = read_level(entry, nodes, ecmp);
      if (!fabric.levels.empty() &&
          level.nodes_per_group % fabric.levels.back().nodes_per_group != 0)
        entry.at("nodes_per_group")
            .fail(fmt::format("must be a multiple of the level below, {}, got {}",
                              fabric.levels.back().nodes_per_group, level.nodes_per_group));
      fabric.levels.push_back(level);
    }
    if (fabric.levels.empty()) json.at("levels").fail("must hold at least one level");
  }
  refuse_too_many_uplinks(fabric, json, nodes, nics);
  return fabric;
}

}  // namespace

Registry<TopologyBuilder>& topologies() {
  static Registry<TopologyBuilder> registry;
  return registry;
}

Platform read_platform(const JsonView& json) {
  json.expect_format("stepcast.platform/1");
  json.allow_only({"format", "name", "source", "gpu", "node", "fabric", "nodes"});
  Platform platform;
  platform.name = json.at("name").string();
  platform.source = json.at("source").string();
  platform.gpu = read_gpu(json.at("gpu"));
  platform.nodes = static_cast<int>(json.at("nodes").integer(1, 1 << 20));

  const JsonView node = json.at("node");
  node.allow_only(
      {"gpus", "cpu", "interconnect", "nics", "price_per_hour_usd", "price_source", "price_date"});
  platform.price = read_price(node);
  if (const auto cpu = node.find("cpu")) platform.cpu = read_cpu(*cpu);
  platform.gpus_per_node = static_cast<int>(node.at("gpus").integer(1, 1024));
  if (platform.gpus_per_node > 1) {
    const JsonView interconnect = node.at("interconnect");
    platform.interconnect = interconnect.at("kind").word(topologies().names());
    platform.intra_node = read_figures(interconnect);
    platform.node_graph =
        (*topologies().find(platform.interconnect))(interconnect, platform.gpus_per_node);
  } else if (const auto interconnect = node.find("interconnect")) {
    interconnect->fail("a node with one GPU has nothing to join");
  } else {
    platform.node_graph.lanes.resize(1, std::vector<std::vector<Lane>>(1));
  }
  if (platform.nodes > 1 || node.find("nics"))
    platform.nics = read_nics(node.at("nics"), platform.gpus_per_node);

  if (platform.nodes > 1 || json.find("fabric"))
    platform.fabric =
        read_fabric(json.at("fabric"), platform.nodes, platform.nics ? platform.nics->count : 0);
  return platform;
}

}  // namespace stepcast
