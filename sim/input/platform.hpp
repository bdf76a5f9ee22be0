// The machines: GPUs per node, what joins them, NICs and the fabric (platforms/*.json,
// stepcast.platform/1). Nominal figures; a calibration scales the rates and has alphas of its own.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/json_view.hpp"
#include "base/registry.hpp"
#include "base/units.hpp"

namespace stepcast {

struct Gpu {
  std::string name;
  /// 70 V100, 80 A100, 90 H100, 100 B200. With it NCCL's own choices and constants are used.
  std::optional<int> compute_capability;
  std::optional<std::int64_t> memory_bytes;
  std::optional<int> multiprocessors;  ///< SMs, or compute units
  /// Cost of an element-wise kernel (such as the division after an AllReduce): floor + traffic /
  /// bandwidth. Zero where the platform does not say.
  Seconds kernel_floor;
  std::optional<BytesPerSecond> memory_bandwidth;
};

/// What one direction of one physical link carries, and what each transfer over it costs besides.
struct LinkFigures {
  BytesPerSecond bandwidth;
  Seconds
      alpha;  ///< overhead of one transfer of a connection (flag, fence, proxy): docs/model.md §2
  Seconds latency{};  ///< from the end of a transfer to its arrival; keeps nothing busy
};

enum class Cpu { intel, amd, arm };

/// The links that one GPU's data passes on its way to another GPU of the node.
using Lane = std::vector<int>;

/// What joins the GPUs of one node, as a plain graph of directed links. Several lanes between two
/// GPUs are parallel ways; lanes that name the same link share it.
struct NodeGraph {
  using Lanes = std::vector<std::vector<std::vector<Lane>>>;  ///< [from][to], empty: not joined

  std::vector<std::string> link_names;
  std::vector<double> link_scale;  ///< rates in units of the interconnect's; empty: all 1
  Lanes lanes;
  /// Ways over another GPU for two that are not joined (NCCL's PATH_NVB).
  Lanes detours;
  /// What joins a GPU to a NIC on its own PCIe switch, and to one elsewhere; empty where that is
  /// not modelled because the NIC is the bottleneck.
  struct NicLanes {
    Lane out_near, in_near, out_far, in_far;
  };
  std::vector<NicLanes> nic_lanes;
  int nvlinks = 0;            ///< of each GPU; 0 when it has none or the file does not say
  bool nvlink_sharp = false;  ///< the switch reduces and multicasts
};

/// Reads the keys of one interconnect kind besides kind, bandwidth_Bps and alpha_s.
using TopologyBuilder = NodeGraph (*)(const JsonView& interconnect, int gpus);
Registry<TopologyBuilder>& topologies();

struct Nics {
  int count = 0;
  LinkFigures figures;                      ///< of one port
  std::vector<std::vector<int>> near_gpus;  ///< [nic], the GPUs on its PCIe switch
};

/// Switches between the nodes. A level joins groups of nodes; between its groups there is less room
/// than the NICs of a group could fill, by the oversubscription.
struct FabricLevel {
  int nodes_per_group = 1;
  double oversubscription = 1.0;
  /// Of a switch, among which connections are hashed (ECMP). 1: all are one link, ideally balanced.
  int uplinks = 1;
};
struct Fabric {
  std::vector<FabricLevel> levels;  ///< from the leaves up; none: one non-blocking switch
  bool rails = false;               ///< NIC i of all nodes of a group has a leaf of its own
  bool hashes_queue_pairs = false;  ///< ECMP tells channels between the same two NICs apart
  std::uint64_t ecmp_seed = 0;      ///< of the hash: another one, other collisions
  /// The most that any two nodes exchange, both ways together, as a cloud may limit it.
  std::optional<BytesPerSecond> node_pair;
};

/// What one node costs to rent.
struct Price {
  double usd_per_hour = 0.0;
  std::string source, date;
};

struct Platform {
  std::string name;
  std::string source;
  Gpu gpu;
  int gpus_per_node = 1;
  int nodes = 1;  ///< how many there are
  Cpu cpu = Cpu::intel;
  std::string interconnect;  ///< its kind; empty when a node has one GPU
  LinkFigures intra_node;
  NodeGraph node_graph;
  Fabric fabric;
  std::optional<Nics> nics;  ///< always there when there is more than one node
  std::optional<Price> price;

  [[nodiscard]] bool has_switch() const { return interconnect == "switch"; }
  [[nodiscard]] bool over_pcie() const { return interconnect == "pcie_tree"; }
  [[nodiscard]] std::int64_t total_gpus() const { return std::int64_t{gpus_per_node} * nodes; }
};

[[nodiscard]] Platform read_platform(const JsonView& json);

}  // namespace stepcast
