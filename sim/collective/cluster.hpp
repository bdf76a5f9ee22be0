// The part of a platform that a job runs on: ranks on GPUs, and the links between them.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/units.hpp"
#include "input/calibration.hpp"
#include "input/platform.hpp"
#include "input/scenario.hpp"

namespace stepcast {

/// The links that data passes from one GPU to another, and the kind of the hop.
struct Route {
  std::vector<int> links;
  bool inter_node = false;
};

/// The first GPUs of each node have the ranks, as the placement says. Each node has the links of
/// its node graph, then one link up and one down for each NIC; after all nodes come the links of
/// the fabric, one up and one down for each group of each level or, where connections are hashed,
/// for each of its uplinks, then one for each pair of nodes where the fabric limits what they
/// exchange.
class Cluster {
 public:
  /// The calibration, if any, scales nominal bandwidths. `origin` is what errors
  /// about the number of ranks name. Throws InputError for a placement that the platform has no
  /// room for.
  Cluster(const Platform& platform, const Calibration* calibration, int ranks, std::string origin,
          const Placement& placement = {});

  /// A NIC of which both ways carry so much of what they should. Throws InputError for one that is
  /// not there.
  void slow_down(const Imperfections::SlowNic& slow);
  /// Whether a link is slower than the platform says.
  [[nodiscard]] bool is_degraded() const { return degraded_; }

  [[nodiscard]] const Platform& platform() const { return *platform_; }
  [[nodiscard]] const Calibration* calibration() const { return calibration_.get(); }
  [[nodiscard]] int ranks() const { return ranks_; }
  [[nodiscard]] const std::string& origin() const { return origin_; }
  [[nodiscard]] int nodes() const { return static_cast<int>(ranks_of_->size()); }
  [[nodiscard]] int node_of(int rank) const {
    return (*places_)[static_cast<std::size_t>(rank)].node;
  }
  /// The GPU's number in its node.
  [[nodiscard]] int gpu_of(int rank) const {
    return (*places_)[static_cast<std::size_t>(rank)].gpu;
  }
  /// By GPU of the node, those that have one.
  [[nodiscard]] const std::vector<int>& ranks_of(int node) const {
    return (*ranks_of_)[static_cast<std::size_t>(node)];
  }
  /// How many of the node's GPUs have a rank.
  [[nodiscard]] int gpus_used(int node) const { return static_cast<int>(ranks_of(node).size()); }

  /// After how many nodes they repeat: with every node in the place of the one so far before it
  /// (the first ones of the last) the same GPUs are in use over links of the same rates. nodes()
  /// where only the whole turn is like that.
  [[nodiscard]] int period() const;
  /// Whether connections that are alike but for their ends may take other links (ECMP).
  [[nodiscard]] bool hashes_connections() const;
  /// The same of connections that are alike but for their channel.
  [[nodiscard]] bool hashes_channels() const {
    return platform_->fabric.hashes_queue_pairs && hashes_connections();
  }
  /// Among the links of the first `nodes` nodes the one that takes the place of this one, when
  /// nodes repeat after `period`.
  [[nodiscard]] int folded_link(int link, int period, int nodes) const;

  [[nodiscard]] const std::vector<BytesPerSecond>& bandwidths() const { return bandwidths_; }
  [[nodiscard]] BytesPerSecond intra_node_bandwidth() const { return intra_node_; }
  [[nodiscard]] BytesPerSecond inter_node_bandwidth() const { return inter_node_; }
  /// The same, but NICs and fabric have so many times their rate.
  [[nodiscard]] Cluster with_network_rate(double factor) const;
  [[nodiscard]] std::string link_name(int link) const;
  /// A NIC port, not a link of the node graph.
  [[nodiscard]] bool is_inter_node(int link) const;

  [[nodiscard]] Route inside_node(int node, const Lane& lane) const;
  /// Over the fabric, for two ranks on different nodes. The number of the queue pair counts where
  /// ECMP hashes it.
  [[nodiscard]] Route between_nodes(int from, int to, int from_nic, int to_nic,
                                    int queue_pair = 0) const;
  /// The ways between a rank and the switch of its node.
  [[nodiscard]] Route to_switch(int rank) const;
  [[nodiscard]] Route from_switch(int rank) const;
  /// A way from any rank to any other. Channels take parallel lanes and the NICs near a GPU in
  /// turn. Throws InputError when two GPUs of a node have no direct link.
  [[nodiscard]] Route between_ranks(int from, int to, int channel) const {
    return between_ranks(from, to, channel, channel);
  }
  [[nodiscard]] Route between_ranks(int from, int to, int channel, int queue_pair) const;

 private:
  struct Place {
    int node;
    int gpu;
  };

  void place_ranks(const Placement& placement);
  [[nodiscard]] bool repeats_after(int period) const;
  void add_fabric();
  /// The group of a level that a NIC is in.
  [[nodiscard]] int group_of(const FabricLevel& level, int node, int nic) const;
  [[nodiscard]] bool is_near(int nic, int gpu) const;
  [[nodiscard]] int nic_near(int gpu, int channel) const;
  [[nodiscard]] int nic_count() const { return platform_->nics ? platform_->nics->count : 0; }
  [[nodiscard]] int links_per_node() const;
  /// What two nodes share.
  [[nodiscard]] int pair_link(int one, int other) const;

  // Shared by the copies of a cluster.
  std::shared_ptr<const Platform> platform_;
  std::shared_ptr<const Calibration> calibration_;
  int ranks_;
  std::string origin_;
  std::shared_ptr<const std::vector<Place>> places_;               ///< by rank
  std::shared_ptr<const std::vector<std::vector<int>>> ranks_of_;  ///< [node][gpu]
  std::vector<int> first_fabric_link_;                             ///< by level
  std::vector<int> ways_up_;  ///< by level: from a group, one where they are not told apart
  int first_pair_link_ = 0;
  BytesPerSecond intra_node_;
  BytesPerSecond inter_node_;
  std::vector<BytesPerSecond> bandwidths_;
  bool degraded_ = false;
};

}  // namespace stepcast
