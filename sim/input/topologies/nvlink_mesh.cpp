// GPUs joined by NVLinks without a switch (DGX-1's hybrid cube mesh): `links` lists each joined
// pair with the number of NVLinks between the two. Each NVLink is one lane each way. Two GPUs that
// are not joined reach each other over a third one, as NCCL's PATH_NVB does.
#include <algorithm>

#include <fmt/format.h>

#include "input/platform.hpp"

namespace stepcast {
namespace {

/// Over the GPU with the widest way between the two, the first of equals; as many lanes as that
/// has.
void add_detours(NodeGraph& graph) {
  const std::size_t gpus = graph.lanes.size();
  graph.detours.assign(gpus, std::vector<std::vector<Lane>>(gpus));
  for (std::size_t from = 0; from < gpus; ++from)
    for (std::size_t to = 0; to < gpus; ++to) {
      if (from == to || !graph.lanes[from][to].empty()) continue;
      std::size_t best = 0;
      std::size_t width = 0;
      for (std::size_t over = 0; over < gpus; ++over) {
        const std::size_t lanes =
            std::min(graph.lanes[from][over].size(), graph.lanes[over][to].size());
        if (lanes <= width) continue;
        width = lanes;
        best = over;
      }
      for (std::size_t lane = 0; lane < width; ++lane)
        graph.detours[from][to].push_back(
            {graph.lanes[from][best][lane].front(), graph.lanes[best][to][lane].front()});
    }
}

NodeGraph nvlink_mesh_graph(const JsonView& interconnect, int gpus) {
  interconnect.allow_only({"kind", "bandwidth_Bps", "alpha_s", "latency_s", "links", "source"});
  NodeGraph graph;
  const auto size = static_cast<std::size_t>(gpus);
  graph.lanes.assign(size, std::vector<std::vector<Lane>>(size));
  const auto add_lane = [&](int from, int to, std::int64_t copy) {
    graph.lanes[static_cast<std::size_t>(from)][static_cast<std::size_t>(to)].push_back(
        {static_cast<int>(graph.link_names.size())});
    graph.link_names.push_back(fmt::format("nvlink{}-{}.{}", from, to, copy));
  };
  for (const JsonView& entry : interconnect.at("links").elements()) {
    entry.allow_only({"gpus", "count"});
    const auto pair = entry.at("gpus").elements();
    if (pair.size() != 2)
      entry.at("gpus").fail(fmt::format("must name two GPUs, got {}", entry.at("gpus").dump()));
    const auto a = static_cast<int>(pair[0].integer(0, gpus - 1));
    const auto b = static_cast<int>(pair[1].integer(0, gpus - 1));
    if (a == b) entry.at("gpus").fail(fmt::format("joins GPU {} to itself", a));
    if (!graph.lanes[static_cast<std::size_t>(a)][static_cast<std::size_t>(b)].empty())
      entry.at("gpus").fail(fmt::format("GPUs {} and {} are listed twice", a, b));
    const std::int64_t count = entry.at("count").integer(1, 64);
    for (std::int64_t copy = 0; copy < count; ++copy) {
      add_lane(a, b, copy);
      add_lane(b, a, copy);
    }
  }
  for (const auto& lanes : graph.lanes.front()) graph.nvlinks += static_cast<int>(lanes.size());
  add_detours(graph);
  return graph;
}

const bool registered = topologies().add("nvlink_mesh", nvlink_mesh_graph);

}  // namespace
}  // namespace stepcast
