// GPUs on PCIe switches, switches on sockets (host bridges), sockets on a link. With peer_to_peer a
// transfer takes the shortest way through the tree; without, the sender writes into the memory
// of the receiver's socket and the receiver reads from there (NCCL's SHM transport, whose default
// is NCCL_SHM_LOCALITY = receiver).
#include <algorithm>
#include <optional>

#include <fmt/format.h>

#include "input/platform.hpp"

namespace stepcast {
namespace {

/// Each number of 0..count-1 in one of the lists: [number] -> list.
std::vector<int> read_groups(const JsonView& json, int count, const char* what) {
  std::vector<int> group_of(static_cast<std::size_t>(count), -1);
  int group = 0;
  for (const JsonView& list : json.elements()) {
    for (const JsonView& member : list.elements()) {
      const auto index = static_cast<std::size_t>(member.integer(0, count - 1));
      if (group_of[index] >= 0) member.fail(fmt::format("{} {} is listed twice", what, index));
      group_of[index] = group;
    }
    ++group;
  }
  const auto missing = std::find(group_of.begin(), group_of.end(), -1);
  if (missing != group_of.end())
    json.fail(fmt::format("{} {} is missing", what, missing - group_of.begin()));
  return group_of;
}

/// A way down and its opposite, by number.
struct Pair {
  int up;
  int down;
};

class Tree {
 public:
  Tree(const JsonView& json, int gpus) : unit_(json.at("bandwidth_Bps").number(1.0)) {
    switch_of_ = read_groups(json.at("switches"), gpus, "GPU");
    const int switches = *std::max_element(switch_of_.begin(), switch_of_.end()) + 1;
    const auto sockets = json.find("sockets");
    socket_of_ = sockets ? read_groups(*sockets, switches, "switch")
                         : std::vector<int>(static_cast<std::size_t>(switches), 0);
    const int socket_count = *std::max_element(socket_of_.begin(), socket_of_.end()) + 1;
    peer_to_peer_ = json.at("peer_to_peer").boolean();

    const auto rate = [&](const char* key) { return json.at(key).number(1.0, 1e14); };
    for (int gpu = 0; gpu < gpus; ++gpu) gpus_.push_back(add(fmt::format("gpu{}", gpu), unit_));
    const double uplink = json.find("uplink_Bps") ? rate("uplink_Bps") : unit_;
    for (int s = 0; s < switches; ++s) switches_.push_back(add(fmt::format("switch{}", s), uplink));
    if (socket_count > 1)
      for (int s = 0; s < socket_count; ++s)
        sockets_.push_back(add(fmt::format("socket{}", s), rate("socket_link_Bps")));
    if (!peer_to_peer_)
      for (int s = 0; s < socket_count; ++s) {
        memory_.push_back({add_link(fmt::format("memory{}.write", s), rate("host_memory_Bps")),
                           add_link(fmt::format("memory{}.read", s), rate("host_memory_Bps"))});
      }
  }

  NodeGraph take() {
    const std::size_t gpus = gpus_.size();
    graph_.lanes.assign(gpus, std::vector<std::vector<Lane>>(gpus));
    for (std::size_t from = 0; from < gpus; ++from)
      for (std::size_t to = 0; to < gpus; ++to)
        if (from != to) graph_.lanes[from][to] = {way(from, to)};
    for (std::size_t gpu = 0; gpu < gpus; ++gpu) {
      const Pair& own = gpus_[gpu];
      const Pair& up = switches_[static_cast<std::size_t>(switch_of_[gpu])];
      graph_.nic_lanes.push_back({.out_near = {own.up},
                                  .in_near = {own.down},
                                  .out_far = {own.up, up.up},
                                  .in_far = {up.down, own.down}});
    }
    return std::move(graph_);
  }

 private:
  int add_link(const std::string& name, double rate) {
    graph_.link_names.push_back(name);
    graph_.link_scale.push_back(rate / unit_);
    return static_cast<int>(graph_.link_names.size()) - 1;
  }
  Pair add(const std::string& name, double rate) {
    const int up = add_link(name + ".up", rate);
    return {up, add_link(name + ".down", rate)};
  }

  [[nodiscard]] Lane way(std::size_t from, std::size_t to) const {
    const auto a = static_cast<std::size_t>(switch_of_[from]);
    const auto b = static_cast<std::size_t>(switch_of_[to]);
    Lane lane = {gpus_[from].up};
    if (a != b || !peer_to_peer_) {
      const auto socket_a = static_cast<std::size_t>(socket_of_[a]);
      const auto socket_b = static_cast<std::size_t>(socket_of_[b]);
      lane.push_back(switches_[a].up);
      if (socket_a != socket_b) {
        lane.push_back(sockets_[socket_a].up);
        lane.push_back(sockets_[socket_b].down);
      }
      if (!peer_to_peer_) {
        lane.push_back(memory_[socket_b].up);
        lane.push_back(memory_[socket_b].down);
      }
      lane.push_back(switches_[b].down);
    }
    lane.push_back(gpus_[to].down);
    return lane;
  }

  double unit_;
  bool peer_to_peer_ = true;
  NodeGraph graph_;
  std::vector<int> switch_of_;  ///< by GPU
  std::vector<int> socket_of_;  ///< by switch
  std::vector<Pair> gpus_, switches_, sockets_, memory_;
};

NodeGraph pcie_tree_graph(const JsonView& interconnect, int gpus) {
  interconnect.allow_only({"kind", "bandwidth_Bps", "alpha_s", "latency_s", "switches",
                           "uplink_Bps", "sockets", "socket_link_Bps", "peer_to_peer",
                           "host_memory_Bps", "source"});
  return Tree(interconnect, gpus).take();
}

const bool registered = topologies().add("pcie_tree", pcie_tree_graph);

}  // namespace
}  // namespace stepcast
