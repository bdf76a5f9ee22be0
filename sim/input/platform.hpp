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
  std::optional<std::int64_t> memory_bytes;
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
};

/// The links that one GPU's data passes on its way to another GPU of the node.
using Lane = std::vector<int>;

/// What joins the GPUs of one node, as a plain graph of directed links. Several lanes between two
/// GPUs are parallel ways; lanes that name the same link share it.
struct NodeGraph {
  std::vector<std::string> link_names;
  std::vector<std::vector<std::vector<Lane>>> lanes;  ///< [from][to], empty when not joined
};

/// Reads the keys of one interconnect kind besides kind, bandwidth_Bps and alpha_s.
using TopologyBuilder = NodeGraph (*)(const JsonView& interconnect, int gpus);
Registry<TopologyBuilder>& topologies();

struct Nics {
  int count = 0;
  LinkFigures figures;                      ///< of one port
  std::vector<std::vector<int>> near_gpus;  ///< [nic], the GPUs on its PCIe switch
};

struct Platform {
  std::string name;
  std::string source;
  Gpu gpu;
  int gpus_per_node = 1;
  int nodes = 1;  ///< how many there are
  LinkFigures intra_node;
  NodeGraph node_graph;
  std::optional<Nics> nics;  ///< always there when there is more than one node

  [[nodiscard]] std::int64_t total_gpus() const { return std::int64_t{gpus_per_node} * nodes; }
};

[[nodiscard]] Platform read_platform(const JsonView& json);

}  // namespace stepcast
