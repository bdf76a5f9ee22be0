#include "collective/cluster.hpp"

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <numeric>

#include <fmt/format.h>

#include "base/error.hpp"
#include "base/mix.hpp"

namespace stepcast {

namespace {

/// Of the data sheet's rate, what NCCL counts on: 20 GB/s of a V100's or A100's NVLink of 25, 20.6
/// of Hopper's, 40.1 of Blackwell's 50 (src/graph/topo.h:15-32), and 12 GB/s of a NIC of 100 Gb/s,
/// as its PCIe slot lets through. A calibration knows better.
double nominal_nvlink_share(int compute_capability) {
  if (compute_capability >= 100) return 40.1 / 50.0;
  return (compute_capability >= 90 ? 20.6 : 20.0) / 25.0;
}
constexpr double nominal_nic_share = 12.0 / 12.5;
constexpr double nominal_pcie_share = 12.0 / 15.75;  // of 16 lanes of PCIe 3

/// What the platform's rates are scaled by: measured, or else what NCCL counts on.
double intra_node_share(const Platform& platform, const Calibration* calibration) {
  if (calibration != nullptr && calibration->intra_node_share)
    return *calibration->intra_node_share;
  if (!platform.gpu.compute_capability) return 1.0;
  if (platform.over_pcie()) return nominal_pcie_share;
  return platform.node_graph.nvlinks > 0 ? nominal_nvlink_share(*platform.gpu.compute_capability)
                                         : 1.0;
}

double inter_node_share(const Platform& platform, const Calibration* calibration) {
  if (calibration != nullptr && calibration->inter_node_share)
    return *calibration->inter_node_share;
  return platform.gpu.compute_capability ? nominal_nic_share : 1.0;
}

/// What a switch makes of the fields that tell a connection from others.
std::uint64_t hash_of(std::uint64_t seed, std::initializer_list<int> fields) {
  std::uint64_t hash = mix(seed);
  for (const int field : fields) hash = mix(hash ^ static_cast<std::uint64_t>(field));
  return hash;
}

}  // namespace

Cluster::Cluster(const Platform& platform, const Calibration* calibration, int ranks,
                 std::string origin, const Placement& placement)
    : platform_(std::make_shared<const Platform>(platform)),
      calibration_(calibration ? std::make_shared<const Calibration>(*calibration) : nullptr),
      ranks_(ranks),
      origin_(std::move(origin)),
      intra_node_(intra_node_share(platform, calibration) * platform.intra_node.bandwidth) {
  place_ranks(placement);
  if (platform.nics)
    inter_node_ = inter_node_share(platform, calibration) * platform.nics->figures.bandwidth;
  bandwidths_.reserve(static_cast<std::size_t>(nodes()) *
                      static_cast<std::size_t>(links_per_node()));
  const NodeGraph& graph = platform.node_graph;
  for (int node = 0; node < nodes(); ++node) {
    for (std::size_t link = 0; link < graph.link_names.size(); ++link)
      bandwidths_.push_back(graph.link_scale.empty() ? intra_node_
                                                     : graph.link_scale[link] * intra_node_);
    bandwidths_.insert(bandwidths_.end(), 2 * static_cast<std::size_t>(nic_count()), inter_node_);
  }
  add_fabric();
}

void Cluster::place_ranks(const Placement& placement) {
  std::vector<int> used = placement.gpus_of_nodes;
  int most = placement.gpus_per_node.value_or(platform_->gpus_per_node);
  if (used.empty()) {
    used.assign(static_cast<std::size_t>((ranks_ + most - 1) / most), most);
    used.back() = ranks_ - most * (static_cast<int>(used.size()) - 1);
  } else {
    if (const int sum = std::accumulate(used.begin(), used.end(), 0); sum != ranks_)
      throw InputError(placement.origin,
                       fmt::format("must add up to {} GPUs, got {}", ranks_, sum));
    most = *std::max_element(used.begin(), used.end());
  }
  if (most > platform_->gpus_per_node)
    throw InputError(placement.origin,
                     fmt::format("{} has {} GPUs in a node, got {}", platform_->name,
                                 platform_->gpus_per_node, most));
  if (!placement.origin.empty() && static_cast<int>(used.size()) > platform_->nodes)
    throw InputError(placement.origin,
                     fmt::format("{} GPUs take {} nodes so, and {} has {}", ranks_, used.size(),
                                 platform_->name, platform_->nodes));

  std::vector<Place> places;
  std::vector<std::vector<int>> ranks_of(used.size());
  const auto place = [&](std::size_t node) {
    std::vector<int>& ranks = ranks_of[node];
    places.push_back({static_cast<int>(node), static_cast<int>(ranks.size())});
    ranks.push_back(static_cast<int>(places.size()) - 1);
  };
  if (placement.scattered) {
    for (int gpu = 0; gpu < platform_->gpus_per_node; ++gpu)
      for (std::size_t node = 0; node < used.size(); ++node)
        if (gpu < used[node]) place(node);
  } else {
    for (std::size_t node = 0; node < used.size(); ++node)
      for (int gpu = 0; gpu < used[node]; ++gpu) place(node);
  }
  places_ = std::make_shared<const std::vector<Place>>(std::move(places));
  ranks_of_ = std::make_shared<const std::vector<std::vector<int>>>(std::move(ranks_of));
}

void Cluster::add_fabric() {
  const Fabric& fabric = platform_->fabric;
  int ways = 1;
  for (const FabricLevel& level : fabric.levels) {
    first_fabric_link_.push_back(static_cast<int>(bandwidths_.size()));
    // Each uplink of a leaf leads to a switch of its own, which again has uplinks. Where they are
    // not told apart, all paths up from a group are one link: ideal balancing.
    ways *= level.uplinks;
    ways_up_.push_back(ways);
    const double nics = level.nodes_per_group * (fabric.rails ? 1 : nic_count());
    const int groups = group_of(level, nodes() - 1, nic_count() - 1) + 1;
    bandwidths_.insert(bandwidths_.end(),
                       2 * static_cast<std::size_t>(groups) * static_cast<std::size_t>(ways),
                       nics / level.oversubscription / ways * inter_node_);
  }
  first_pair_link_ = static_cast<int>(bandwidths_.size());
  if (fabric.node_pair)
    bandwidths_.resize(bandwidths_.size() + static_cast<std::size_t>(nodes()) *
                                                static_cast<std::size_t>(nodes() - 1) / 2,
                       *fabric.node_pair);
}

void Cluster::slow_down(const Imperfections::SlowNic& slow) {
  if (slow.node >= nodes())
    throw InputError(slow.origin, fmt::format("{} GPUs are on {} nodes, got node {}", ranks_,
                                              nodes(), slow.node));
  if (slow.nic >= nic_count())
    throw InputError(slow.origin, fmt::format("a node of {} has {} NICs, got NIC {}",
                                              platform_->name, nic_count(), slow.nic));
  const int port = slow.node * links_per_node() +
                   static_cast<int>(platform_->node_graph.link_names.size()) + 2 * slow.nic;
  for (const int link : {port, port + 1}) {
    BytesPerSecond& bandwidth = bandwidths_[static_cast<std::size_t>(link)];
    bandwidth = slow.rate_factor * bandwidth;
  }
  degraded_ = true;
}

int Cluster::period() const {
  if (platform_->fabric.node_pair) return nodes();  // whose links would have to turn too
  if (hashes_connections()) return nodes();         // what one node meets is not what the next does
  for (int period = 1; period <= nodes() / 2; ++period)
    if (nodes() % period == 0 && repeats_after(period)) return period;
  return nodes();
}

bool Cluster::hashes_connections() const {
  for (std::size_t level = 0; level < ways_up_.size(); ++level) {
    // Nothing leads out of the only group but what changes rail.
    const bool used =
        platform_->fabric.rails || nodes() > platform_->fabric.levels[level].nodes_per_group;
    if (used && ways_up_[level] > 1) return true;
  }
  return false;
}

bool Cluster::repeats_after(int period) const {
  const auto same = [&](int link, int other) {
    return bandwidths_[static_cast<std::size_t>(link)] ==
           bandwidths_[static_cast<std::size_t>(other)];
  };
  for (int node = 0; node < nodes(); ++node) {
    const int other = (node + period) % nodes();
    if (gpus_used(node) != gpus_used(other)) return false;
    for (int link = 0; link < links_per_node(); ++link)
      if (!same(node * links_per_node() + link, other * links_per_node() + link)) return false;
  }
  const std::vector<FabricLevel>& levels = platform_->fabric.levels;
  for (std::size_t level = 0; level < levels.size(); ++level) {
    const int in_group = levels[level].nodes_per_group;
    if (nodes() <= in_group) continue;  // nothing leads out of its only group
    // Whole groups take each other's places, so their links do.
    if (period % in_group != 0) return false;
    const int per_group = 2 * (platform_->fabric.rails ? nic_count() : 1);
    const int links = nodes() / in_group * per_group;
    for (int link = 0; link < links; ++link)
      if (!same(first_fabric_link_[level] + link,
                first_fabric_link_[level] + (link + period / in_group * per_group) % links))
        return false;
  }
  return true;
}

int Cluster::folded_link(int link, int period, int nodes) const {
  // Of `count` things with so many links each, the first `kept` are there and repeat after `turn`.
  const auto fold = [](int inside, int each, int kept, int turn) {
    const int which = inside / each;
    return (which < kept ? which : which % turn) * each + inside % each;
  };
  const int of_nodes = this->nodes() * links_per_node();
  if (link < of_nodes) return fold(link, links_per_node(), nodes, period);
  std::size_t level = first_fabric_link_.size() - 1;
  while (link < first_fabric_link_[level]) --level;
  const int in_group = platform_->fabric.levels[level].nodes_per_group;
  if (this->nodes() <= in_group) return link;
  const int first = first_fabric_link_[level];
  return first + fold(link - first, 2 * (platform_->fabric.rails ? nic_count() : 1),
                      nodes / in_group, period / in_group);
}

int Cluster::group_of(const FabricLevel& level, int node, int nic) const {
  const int group = node / level.nodes_per_group;
  return platform_->fabric.rails ? group * nic_count() + nic : group;
}

int Cluster::pair_link(int one, int other) const {
  const int high = std::max(one, other);
  return first_pair_link_ + high * (high - 1) / 2 + std::min(one, other);
}

int Cluster::links_per_node() const {
  return static_cast<int>(platform_->node_graph.link_names.size()) + 2 * nic_count();
}

std::string Cluster::link_name(int link) const {
  if (platform_->fabric.node_pair && link >= first_pair_link_) {
    int high = 1;
    while (pair_link(high + 1, 0) <= link) ++high;
    return fmt::format("node{}.node{}", link - pair_link(high, 0), high);
  }
  if (link >= nodes() * links_per_node()) {
    std::size_t level = first_fabric_link_.size() - 1;
    while (link < first_fabric_link_[level]) --level;
    const int ways = ways_up_[level];
    const int port = link - first_fabric_link_[level];
    const int group = port / 2 / ways;
    std::string way = port % 2 == 0 ? "up" : "down";
    if (ways > 1) way += std::to_string(port / 2 % ways);
    if (platform_->fabric.rails)
      return fmt::format("group{}.rail{}.{}", group / nic_count(), group % nic_count(), way);
    return fmt::format("level{}.group{}.{}", level, group, way);
  }
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
  return link >= nodes() * links_per_node() ||
         link % links_per_node() >= static_cast<int>(platform_->node_graph.link_names.size());
}

Cluster Cluster::with_network_rate(double factor) const {
  Cluster other = *this;
  other.inter_node_ = factor * inter_node_;
  for (std::size_t link = 0; link < bandwidths_.size(); ++link)
    if (is_inter_node(static_cast<int>(link))) other.bandwidths_[link] = factor * bandwidths_[link];
  return other;
}

Route Cluster::inside_node(int node, const Lane& lane) const {
  Route route;
  for (const int link : lane) route.links.push_back(node * links_per_node() + link);
  return route;
}

Route Cluster::between_nodes(int from, int to, int from_nic, int to_nic, int queue_pair) const {
  const int graph_links = static_cast<int>(platform_->node_graph.link_names.size());
  const auto port = [&](int node, int nic) {
    return node * links_per_node() + graph_links + 2 * nic;
  };
  Route route{.links = {}, .inter_node = true};
  const auto pass = [&](int rank, const Lane& lane) {
    for (const int link : lane) route.links.push_back(node_of(rank) * links_per_node() + link);
  };
  const auto& pcie = platform_->node_graph.nic_lanes;
  if (!pcie.empty()) {
    const auto& lanes = pcie[static_cast<std::size_t>(gpu_of(from))];
    pass(from, is_near(from_nic, gpu_of(from)) ? lanes.out_near : lanes.out_far);
  }
  route.links.push_back(port(node_of(from), from_nic));
  const std::vector<FabricLevel>& levels = platform_->fabric.levels;
  std::vector<int> down;
  // The switch that a connection is hashed to has one link down to each group: the way up tells the
  // way down.
  int way = 0;
  for (std::size_t level = 0; level < levels.size(); ++level) {
    const int out = group_of(levels[level], node_of(from), from_nic);
    const int in = group_of(levels[level], node_of(to), to_nic);
    if (out == in) continue;
    if (const auto uplinks = static_cast<std::uint64_t>(levels[level].uplinks); uplinks > 1) {
      const auto hash = hash_of(platform_->fabric.ecmp_seed,
                                {static_cast<int>(level), node_of(from) * nic_count() + from_nic,
                                 node_of(to) * nic_count() + to_nic,
                                 platform_->fabric.hashes_queue_pairs ? queue_pair : 0});
      way = way * levels[level].uplinks + static_cast<int>(hash % uplinks);
    }
    route.links.push_back(first_fabric_link_[level] + 2 * (out * ways_up_[level] + way));
    down.push_back(first_fabric_link_[level] + 2 * (in * ways_up_[level] + way) + 1);
  }
  if (platform_->fabric.node_pair) route.links.push_back(pair_link(node_of(from), node_of(to)));
  route.links.insert(route.links.end(), down.rbegin(), down.rend());
  route.links.push_back(port(node_of(to), to_nic) + 1);
  if (!pcie.empty()) {
    const auto& lanes = pcie[static_cast<std::size_t>(gpu_of(to))];
    pass(to, is_near(to_nic, gpu_of(to)) ? lanes.in_near : lanes.in_far);
  }
  return route;
}

bool Cluster::is_near(int nic, int gpu) const {
  const std::vector<int>& gpus = platform_->nics->near_gpus[static_cast<std::size_t>(nic)];
  return gpus.empty() || std::find(gpus.begin(), gpus.end(), gpu) != gpus.end();
}

int Cluster::nic_near(int gpu, int channel) const {
  std::vector<int> near;
  for (int nic = 0; nic < platform_->nics->count; ++nic)
    if (!platform_->nics->near_gpus[static_cast<std::size_t>(nic)].empty() && is_near(nic, gpu))
      near.push_back(nic);
  if (near.empty()) return (gpu + channel) % platform_->nics->count;
  return near[static_cast<std::size_t>(channel) % near.size()];
}

// A lane over a switch is the sender's port up, then the receiver's down.
Route Cluster::to_switch(int rank) const {
  const auto gpu = static_cast<std::size_t>(gpu_of(rank));
  const std::size_t other = gpu == 0 ? 1 : 0;
  return inside_node(node_of(rank), {platform_->node_graph.lanes[gpu][other].front().front()});
}

Route Cluster::from_switch(int rank) const {
  const auto gpu = static_cast<std::size_t>(gpu_of(rank));
  const std::size_t other = gpu == 0 ? 1 : 0;
  return inside_node(node_of(rank), {platform_->node_graph.lanes[other][gpu].front().back()});
}

Route Cluster::between_ranks(int from, int to, int channel, int queue_pair) const {
  if (node_of(from) != node_of(to))
    return between_nodes(from, to, nic_near(gpu_of(from), channel), nic_near(gpu_of(to), channel),
                         queue_pair);
  const NodeGraph& graph = platform_->node_graph;
  const auto a = static_cast<std::size_t>(gpu_of(from));
  const auto b = static_cast<std::size_t>(gpu_of(to));
  const bool direct = !graph.lanes[a][b].empty();
  if (!direct && (graph.detours.empty() || graph.detours[a][b].empty()))
    throw InputError(origin_,
                     fmt::format("no link joins GPUs {} and {} of a node, not even over another "
                                 "GPU; use an algorithm that needs none, such as ring",
                                 a, b));
  const std::vector<Lane>& lanes = direct ? graph.lanes[a][b] : graph.detours[a][b];
  return inside_node(node_of(from), lanes[static_cast<std::size_t>(channel) % lanes.size()]);
}

}  // namespace stepcast
