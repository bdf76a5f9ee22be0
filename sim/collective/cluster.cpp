#include "collective/cluster.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "base/error.hpp"

namespace stepcast {

Cluster::Cluster(const Platform& platform, const Calibration* calibration, int ranks,
                 std::string origin)
    : platform_(std::make_shared<const Platform>(platform)),
      calibration_(calibration ? std::make_shared<const Calibration>(*calibration) : nullptr),
      ranks_(ranks),
      origin_(std::move(origin)),
      nodes_((ranks + platform.gpus_per_node - 1) / platform.gpus_per_node),
      intra_node_(platform.intra_node.bandwidth) {
  if (platform.nics) inter_node_ = platform.nics->figures.bandwidth;
  if (calibration != nullptr) {
    intra_node_ = calibration->intra_node_share.value_or(1.0) * intra_node_;
    inter_node_ = calibration->inter_node_share.value_or(1.0) * inter_node_;
  }
  bandwidths_.reserve(static_cast<std::size_t>(nodes_) *
                      static_cast<std::size_t>(links_per_node()));
  for (int node = 0; node < nodes_; ++node) {
    bandwidths_.insert(bandwidths_.end(), platform.node_graph.link_names.size(), intra_node_);
    bandwidths_.insert(bandwidths_.end(), 2 * static_cast<std::size_t>(nic_count()), inter_node_);
  }
}

int Cluster::gpus_used(int node) const {
  return std::min(platform_->gpus_per_node, ranks_ - node * platform_->gpus_per_node);
}

int Cluster::links_per_node() const {
  return static_cast<int>(platform_->node_graph.link_names.size()) + 2 * nic_count();
}

std::string Cluster::link_name(int link) const {
  const int node = link / links_per_node();
  const int inside = link % links_per_node();
  const int graph_links = static_cast<int>(platform_->node_graph.link_names.size());
  if (inside < graph_links)
    return fmt::format("node{}.{}", node,
                       platform_->node_graph.link_names[static_cast<std::size_t>(inside)]);
  const int port = inside - graph_links;
  return fmt::format("node{}.nic{}.{}", node, port / 2, port % 2 == 0 ? "up" : "down");
}

bool Cluster::is_inter_node(int link) const {
  return link % links_per_node() >= static_cast<int>(platform_->node_graph.link_names.size());
}

Route Cluster::inside_node(int node, const Lane& lane) const {
  Route route;
  for (const int link : lane) route.links.push_back(node * links_per_node() + link);
  return route;
}

Route Cluster::between_nodes(int from_node, int to_node, int from_nic, int to_nic) const {
  const int graph_links = static_cast<int>(platform_->node_graph.link_names.size());
  const int up = from_node * links_per_node() + graph_links + 2 * from_nic;
  const int down = to_node * links_per_node() + graph_links + 2 * to_nic + 1;
  return {.links = {up, down}, .inter_node = true};
}

int Cluster::nic_near(int local_rank, int channel) const {
  std::vector<int> near;
  for (int nic = 0; nic < platform_->nics->count; ++nic) {
    const std::vector<int>& gpus = platform_->nics->near_gpus[static_cast<std::size_t>(nic)];
    if (std::find(gpus.begin(), gpus.end(), local_rank) != gpus.end()) near.push_back(nic);
  }
  if (near.empty()) return (local_rank + channel) % platform_->nics->count;
  return near[static_cast<std::size_t>(channel) % near.size()];
}

Route Cluster::between_ranks(int from, int to, int channel) const {
  const int from_local = from % platform_->gpus_per_node;
  const int to_local = to % platform_->gpus_per_node;
  if (node_of(from) != node_of(to))
    return between_nodes(node_of(from), node_of(to), nic_near(from_local, channel),
                         nic_near(to_local, channel));
  const auto& lanes =
      platform_->node_graph
          .lanes[static_cast<std::size_t>(from_local)][static_cast<std::size_t>(to_local)];
  if (lanes.empty())
    throw InputError(
        origin_,
        fmt::format("no direct link joins GPUs {} and {} of a node (paths over PCIe are not "
                    "modelled); use an algorithm that needs none, such as ring",
                    from_local, to_local));
  return inside_node(node_of(from), lanes[static_cast<std::size_t>(channel) % lanes.size()]);
}

}  // namespace stepcast
