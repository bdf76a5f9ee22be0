// The part of a platform that a job runs on: ranks on GPUs, and the links between them.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/units.hpp"
#include "input/calibration.hpp"
#include "input/platform.hpp"

namespace stepcast {

/// The links that data passes from one GPU to another, and the kind of the hop.
struct Route {
  std::vector<int> links;
  bool inter_node = false;
};

/// Ranks fill one node after the other (rank = node * gpus_per_node + local_rank). Each node has
/// the links of its node graph, then one link up and one down for each NIC; the fabric is not a
/// bottleneck and adds none.
class Cluster {
 public:
  /// The calibration, if any, scales nominal bandwidths. `origin` is what errors
  /// about the number of ranks name.
  Cluster(const Platform& platform, const Calibration* calibration, int ranks, std::string origin);

  [[nodiscard]] const Platform& platform() const { return *platform_; }
  [[nodiscard]] const Calibration* calibration() const { return calibration_.get(); }
  [[nodiscard]] int ranks() const { return ranks_; }
  [[nodiscard]] const std::string& origin() const { return origin_; }
  [[nodiscard]] int nodes() const { return nodes_; }
  [[nodiscard]] int node_of(int rank) const { return rank / platform_->gpus_per_node; }
  /// How many of the node's GPUs have a rank.
  [[nodiscard]] int gpus_used(int node) const;

  [[nodiscard]] const std::vector<BytesPerSecond>& bandwidths() const { return bandwidths_; }
  [[nodiscard]] BytesPerSecond intra_node_bandwidth() const { return intra_node_; }
  [[nodiscard]] BytesPerSecond inter_node_bandwidth() const { return inter_node_; }
  [[nodiscard]] std::string link_name(int link) const;
  /// A NIC port, not a link of the node graph.
  [[nodiscard]] bool is_inter_node(int link) const;

  [[nodiscard]] Route inside_node(int node, const Lane& lane) const;
  [[nodiscard]] Route between_nodes(int from_node, int to_node, int from_nic, int to_nic) const;
  /// A way from any rank to any other. Channels take parallel lanes and the NICs near a GPU in
  /// turn. Throws InputError when two GPUs of a node have no direct link.
  [[nodiscard]] Route between_ranks(int from, int to, int channel) const;

 private:
  [[nodiscard]] int nic_near(int local_rank, int channel) const;
  [[nodiscard]] int nic_count() const { return platform_->nics ? platform_->nics->count : 0; }
  [[nodiscard]] int links_per_node() const;

  // Shared by the copies of a cluster.
  std::shared_ptr<const Platform> platform_;
  std::shared_ptr<const Calibration> calibration_;
  int ranks_;
  std::string origin_;
  int nodes_;
  BytesPerSecond intra_node_;
  BytesPerSecond inter_node_;
  std::vector<BytesPerSecond> bandwidths_;
};

}  // namespace stepcast
