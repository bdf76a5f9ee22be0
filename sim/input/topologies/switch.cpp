// A switch between all GPUs of a node (NVSwitch): each GPU has one way up and one way down, and any
// two GPUs can talk at the full rate of their ports.
#include <fmt/format.h>

#include "input/platform.hpp"

namespace stepcast {
namespace {

NodeGraph switch_graph(const JsonView& interconnect, int gpus) {
  interconnect.allow_only(
      {"kind", "bandwidth_Bps", "alpha_s", "latency_s", "nvlinks", "nvlink_sharp", "source"});
  NodeGraph graph;
  if (const auto count = interconnect.find("nvlinks"))
    graph.nvlinks = static_cast<int>(count->integer(1, 64));
  if (const auto sharp = interconnect.find("nvlink_sharp")) graph.nvlink_sharp = sharp->boolean();
  for (int gpu = 0; gpu < gpus; ++gpu) {
    graph.link_names.push_back(fmt::format("gpu{}.up", gpu));
    graph.link_names.push_back(fmt::format("gpu{}.down", gpu));
  }
  const auto size = static_cast<std::size_t>(gpus);
  graph.lanes.assign(size, std::vector<std::vector<Lane>>(size));
  for (int from = 0; from < gpus; ++from)
    for (int to = 0; to < gpus; ++to)
      if (from != to)
        graph.lanes[static_cast<std::size_t>(from)][static_cast<std::size_t>(to)] = {
            {2 * from, 2 * to + 1}};
  return graph;
}

const bool registered = topologies().add("switch", switch_graph);

}  // namespace
}  // namespace stepcast
