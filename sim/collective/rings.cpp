#include "collective/rings.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <set>

#include <fmt/format.h>

#include "base/error.hpp"
#include "input/scenario.hpp"

namespace stepcast {
namespace {

/// A way through all used GPUs of a node; lanes[i] leaves gpus[i].
struct Path {
  std::vector<int> gpus;
  std::vector<Lane> lanes;
};

/// Backtracking search for one path or cycle per channel through GPUs 0..gpus-1, such that no link
/// serves more than `shares` channels. Deterministic: lower GPUs and lanes first.
class PathSearch {
 public:
  PathSearch(const NodeGraph& graph, int gpus, int shares, bool detours)
      : graph_(graph),
        gpus_(gpus),
        shares_(shares),
        detours_(detours && !graph.detours.empty()),
        use_(graph.link_names.size(), 0) {}

  /// Cycles through all GPUs; as many as were found, at most `wanted`.
  std::vector<Path> cycles(int wanted) {
    ends_.assign(static_cast<std::size_t>(wanted), {});
    closed_ = true;
    search();
    return best_;
  }

  /// Paths through all GPUs. `ends[channel]` lists the GPUs near the channel's NIC: with two or
  /// more the path starts and ends on such, with one it starts there, with none it is free.
  std::vector<Path> paths(std::vector<std::vector<int>> ends) {
    ends_ = std::move(ends);
    search();
    return best_;
  }

 private:
  static constexpr long most_expansions = 200'000;  // about 10 ms; a real node needs some hundred

  void search() {
    found_.clear();
    next_channel();
  }

  bool next_channel() {
    if (found_.size() > best_.size()) best_ = found_;
    if (found_.size() == ends_.size()) return true;
    std::vector<int> starts = ends_[found_.size()];
    if (closed_)
      starts = {0};
    else if (starts.empty()) {
      starts.resize(static_cast<std::size_t>(gpus_));
      std::iota(starts.begin(), starts.end(), 0);
    }
    for (const int start : starts) {
      visited_.assign(static_cast<std::size_t>(gpus_), false);
      visited_[static_cast<std::size_t>(start)] = true;
      found_.push_back({{start}, {}});
      if (extend()) return true;
      found_.pop_back();
    }
    return false;
  }

  /// Grows the last path of `found_` until it has all GPUs, then goes on to the next channel.
  bool extend() {
    if (++expansions_ > most_expansions) return false;
    const int at = found_.back().gpus.back();
    if (static_cast<int>(found_.back().gpus.size()) == gpus_) {
      if (!closed_ || gpus_ == 1) return may_end(at) && complete();
      return over_a_lane(at, found_.back().gpus.front(), [&] { return complete(); });
    }
    for (int to = 0; to < gpus_; ++to) {
      if (visited_[static_cast<std::size_t>(to)]) continue;
      visited_[static_cast<std::size_t>(to)] = true;
      const bool done = over_a_lane(at, to, [&] {
        found_.back().gpus.push_back(to);
        if (extend()) return true;
        found_.back().gpus.pop_back();
        return false;
      });
      if (done) return true;
      visited_[static_cast<std::size_t>(to)] = false;
    }
    return false;
  }

  bool complete() {
    const std::vector<bool> visited = visited_;  // later channels use it too
    if (next_channel()) return true;
    visited_ = visited;
    return false;
  }

  [[nodiscard]] bool may_end(int gpu) const {
    const std::vector<int>& near = ends_[found_.size() - 1];
    return gpus_ == 1 || near.size() < 2 || std::find(near.begin(), near.end(), gpu) != near.end();
  }

  /// Takes the first lane with room for one more channel and goes on with `next`. Lanes between the
  /// same two GPUs are alike, so one is enough.
  template <class Next>
  bool over_a_lane(int from, int to, Next next) {
    const auto a = static_cast<std::size_t>(from);
    const auto b = static_cast<std::size_t>(to);
    const bool over_another = detours_ && graph_.lanes[a][b].empty();
    for (const Lane& lane : over_another ? graph_.detours[a][b] : graph_.lanes[a][b]) {
      if (std::any_of(lane.begin(), lane.end(),
                      [&](int link) { return use_[static_cast<std::size_t>(link)] >= shares_; }))
        continue;
      for (const int link : lane) ++use_[static_cast<std::size_t>(link)];
      found_.back().lanes.push_back(lane);
      if (next()) return true;
      found_.back().lanes.pop_back();
      for (const int link : lane) --use_[static_cast<std::size_t>(link)];
      return false;
    }
    return false;
  }

  const NodeGraph& graph_;
  int gpus_;
  int shares_;
  bool detours_;  ///< two GPUs that are not joined may be reached over a third
  bool closed_ = false;
  std::vector<std::vector<int>> ends_;
  std::vector<int> use_;
  std::vector<bool> visited_;
  std::vector<Path> found_;
  std::vector<Path> best_;
  long expansions_ = 0;
};

/// How many links leave each GPU towards the others in use.
std::vector<int> links_out(const NodeGraph& graph, int gpus) {
  std::vector<int> count;
  for (int from = 0; from < gpus; ++from) {
    std::set<int> first_links;
    for (int to = 0; to < gpus; ++to)
      for (const Lane& lane :
           graph.lanes[static_cast<std::size_t>(from)][static_cast<std::size_t>(to)])
        first_links.insert(lane.front());
    count.push_back(static_cast<int>(first_links.size()));
  }
  return count;
}

InputError no_ring(const Cluster& cluster, int gpus) {
  return InputError(
      cluster.origin(),
      fmt::format("no ring joins {} GPUs of a node over its links; use another number of GPUs per "
                  "node",
                  gpus));
}

std::vector<Ring> rings_in_one_node(const Cluster& cluster) {
  const NodeGraph& graph = cluster.platform().node_graph;
  const int gpus = cluster.ranks();
  const std::vector<int> out = links_out(graph, gpus);
  const int most = std::min(most_channels, *std::min_element(out.begin(), out.end()));
  // Best rings that share nothing, then such that lead over other GPUs, then one over shared links.
  std::vector<Path> cycles;
  for (const bool detours : {false, true})
    if (cycles.empty()) cycles = PathSearch(graph, gpus, 1, detours).cycles(most);
  for (int shares = 2; cycles.empty() && shares <= gpus; ++shares)
    cycles = PathSearch(graph, gpus, shares, true).cycles(1);
  std::vector<Ring> rings;
  for (const Path& cycle : cycles) {
    Ring ring;
    for (const int gpu : cycle.gpus)
      ring.ranks.push_back(cluster.ranks_of(0)[static_cast<std::size_t>(gpu)]);
    for (const Lane& lane : cycle.lanes) ring.hops.push_back(cluster.inside_node(0, lane));
    rings.push_back(std::move(ring));
  }
  if (rings.empty()) throw no_ring(cluster, gpus);
  return rings;
}

/// The NICs that have a used GPU near them, or near which no GPU is said to be.
std::vector<int> nics_in_use(const Nics& nics, int gpus) {
  std::vector<int> used;
  std::vector<int> all;
  for (int nic = 0; nic < nics.count; ++nic) {
    const std::vector<int>& near = nics.near_gpus[static_cast<std::size_t>(nic)];
    all.push_back(nic);
    if (near.empty() || std::any_of(near.begin(), near.end(), [&](int gpu) { return gpu < gpus; }))
      used.push_back(nic);
  }
  return used.empty() ? all : used;
}

/// The used GPUs near each channel's NIC, at most `most` of them.
std::vector<std::vector<int>> ends_of_channels(const Nics& all, const std::vector<int>& nics,
                                               int gpus, int channels, std::size_t most) {
  std::vector<std::vector<int>> ends(static_cast<std::size_t>(channels));
  for (std::size_t channel = 0; channel < ends.size(); ++channel)
    for (const int gpu : all.near_gpus[static_cast<std::size_t>(nics[channel % nics.size()])])
      if (gpu < gpus && ends[channel].size() < most) ends[channel].push_back(gpu);
  return ends;
}

/// One path for each channel through the GPUs of a node that has `gpus` of them in use.
std::vector<Path> paths_through_node(const Cluster& cluster, const std::vector<int>& nics, int gpus,
                                     int channels) {
  const Platform& platform = cluster.platform();
  const std::vector<int> out = links_out(platform.node_graph, gpus);
  const int room = std::accumulate(out.begin(), out.end(), 0);  // for channels * (gpus - 1) hops
  // Best both ends near the NIC; else one; else wherever there is a way.
  for (const bool detours : {false, true})
    for (const std::size_t near_ends : {std::size_t{64}, std::size_t{1}, std::size_t{0}}) {
      const auto ends = ends_of_channels(*platform.nics, nics, gpus, channels, near_ends);
      // Channels share links only where they must: the least number of channels on one link. Over
      // shared PCIe links a path meets itself.
      const int most_shares = platform.over_pcie() ? channels * gpus : channels;
      for (int shares = 1; shares <= most_shares; ++shares) {
        if (channels * (gpus - 1) > shares * room) continue;
        std::vector<Path> paths =
            PathSearch(platform.node_graph, gpus, shares, detours).paths(ends);
        if (static_cast<int>(paths.size()) == channels) return paths;
      }
    }
  throw no_ring(cluster, gpus);
}

std::vector<Ring> rings_over_nodes(const Cluster& cluster) {
  const Platform& platform = cluster.platform();
  int most_used = 0;
  int least_used = platform.gpus_per_node;
  for (int node = 0; node < cluster.nodes(); ++node) {
    most_used = std::max(most_used, cluster.gpus_used(node));
    least_used = std::min(least_used, cluster.gpus_used(node));
  }
  // A ring passes all nodes, so the one with the fewest GPUs near NICs says how many there are: no
  // GPU's slot takes more than its own.
  const std::vector<int> nics = nics_in_use(*platform.nics, least_used);
  // Enough channels on each NIC for their NVLinks to fill it.
  const bool one_gpu_each = most_used == 1;
  const double per_nic =
      one_gpu_each ? 1.0
                   : std::ceil(cluster.inter_node_bandwidth() / cluster.intra_node_bandwidth());
  const int channels =
      static_cast<int>(std::min<double>(most_channels, static_cast<double>(nics.size()) * per_nic));

  std::map<int, std::vector<Path>> paths;  // by how many GPUs of a node are used
  for (int node = 0; node < cluster.nodes(); ++node)
    if (const int used = cluster.gpus_used(node); !paths.contains(used))
      paths[used] = paths_through_node(cluster, nics, used, channels);
  std::vector<Ring> rings(static_cast<std::size_t>(channels));
  for (int channel = 0; channel < channels; ++channel) {
    Ring& ring = rings[static_cast<std::size_t>(channel)];
    const int nic = nics[static_cast<std::size_t>(channel) % nics.size()];
    ring.nic = nic;
    ring.ranks.reserve(static_cast<std::size_t>(cluster.ranks()));
    ring.hops.reserve(static_cast<std::size_t>(cluster.ranks()));
    const auto path_through = [&](int node) -> const Path& {
      return paths[cluster.gpus_used(node)][static_cast<std::size_t>(channel)];
    };
    for (int node = 0; node < cluster.nodes(); ++node) {
      const int next = node + 1 == cluster.nodes() ? 0 : node + 1;
      const std::vector<int>& ranks = cluster.ranks_of(node);
      const Path& path = path_through(node);
      for (const int gpu : path.gpus) ring.ranks.push_back(ranks[static_cast<std::size_t>(gpu)]);
      for (const Lane& lane : path.lanes) ring.hops.push_back(cluster.inside_node(node, lane));
      const int entry =
          cluster.ranks_of(next)[static_cast<std::size_t>(path_through(next).gpus.front())];
      ring.hops.push_back(cluster.between_nodes(ring.ranks.back(), entry, nic, nic));
    }
  }
  return rings;
}

}  // namespace

std::vector<Ring> through_first_nodes(const std::vector<Ring>& rings, int nodes,
                                      const Cluster& cluster) {
  std::size_t places = 0;  // rings pass the nodes in order
  for (int node = 0; node < nodes; ++node)
    places += static_cast<std::size_t>(cluster.gpus_used(node));
  std::vector<Ring> first;
  for (const Ring& ring : rings) {
    const auto end = static_cast<std::ptrdiff_t>(places);
    Ring part{{ring.ranks.begin(), ring.ranks.begin() + end},
              {ring.hops.begin(), ring.hops.begin() + end - 1},
              ring.nic};
    part.hops.push_back(
        cluster.between_nodes(part.ranks.back(), part.ranks.front(), ring.nic, ring.nic));
    first.push_back(std::move(part));
  }
  return first;
}

std::vector<Ring> find_rings(const Cluster& cluster) {
  if (cluster.ranks() == 1) return {{{0}, {}}};
  return cluster.nodes() == 1 ? rings_in_one_node(cluster) : rings_over_nodes(cluster);
}

}  // namespace stepcast
