// NCCL's graph search, as far as the cost model needs it: how many channels a communicator gets
// and how fast NCCL takes each to be.
#pragma once

#include <compare>
#include <optional>
#include <string>
#include <string_view>

#include "base/units.hpp"
#include "input/platform.hpp"

namespace stepcast::nccl {

/// GB/s, the unit of NCCL's tables: 1e9 B/s.
constexpr BytesPerSecond giga(double value) { return BytesPerSecond{1e9 * value}; }

struct Version {
  int major = 0;
  int minor = 0;
  int patch = 0;
  friend constexpr auto operator<=>(const Version&, const Version&) = default;
};
/// `2.27.5`; empty when the text is not three numbers.
[[nodiscard]] std::optional<Version> parse_version(std::string_view text);
[[nodiscard]] std::string to_string(Version version);

/// What NCCL knows about the ranks and the machine. The ranks are spread evenly over the nodes.
struct Communicator {
  Version version;
  int ranks = 1;
  int nodes = 1;
  int compute_capability = 80;  ///< 70 V100, 80 A100, 90 H100 and H200, 100 B200
  Cpu cpu = Cpu::intel;
  int nvlinks = 0;            ///< of each GPU
  bool nvswitch = false;      ///< all NVLinks of a node lead to switches
  bool nvlink_sharp = false;  ///< and those can reduce
  int mesh_rings = 0;         ///< without a switch: rings of a node that share no NVLink
  BytesPerSecond pci;         ///< of a GPU, NCCL's figure: 12 GB/s for gen3 x16, 24 gen4, 48 gen5
  int nics_per_node = 0;
  BytesPerSecond nic;        ///< of one, as its data sheet says (50 GB/s for 400G)
  bool nvls_enabled = true;  ///< NCCL_NVLS_ENABLE, and a driver that can do it
  Seconds net_latency;       ///< that the network plugin reports; InfiniBand and sockets: 0
};

enum class Generation { volta, ampere, hopper, blackwell };
/// The row of NCCL's tables: the newest that this version knows (Blackwell has its own from 2.25).
[[nodiscard]] Generation generation_of(const Communicator& communicator);

[[nodiscard]] int gpus_per_node(const Communicator& communicator);
/// Whether the GPUs of a node are joined by NVLink. One GPU is not: NCCL then takes the PCI rows.
[[nodiscard]] bool over_nvlink(const Communicator& communicator);
/// What NCCL takes one NVLink to carry each way.
[[nodiscard]] BytesPerSecond nvlink_speed(const Communicator& communicator);
/// The most channels NCCL ever launches.
[[nodiscard]] int channel_limit(Version version);

/// Parallel rings or trees, before connect.cc doubles them.
struct Graph {
  int channels = 0;
  BytesPerSecond intra;  ///< of each channel inside a node
  BytesPerSecond inter;  ///< and between nodes
};

struct Graphs {
  Graph ring;
  Graph tree;
  std::optional<Graph> nvls;   ///< of NVLS on one node, of NVLSTree on several
  bool same_channels = false;  ///< all rings have one order of ranks
  bool tree_pattern = false;   ///< all traffic of a tree with its NIC passes one GPU
};

/// Why there is no NVLS graph; empty when there is one.
[[nodiscard]] std::string why_no_nvls(const Communicator& communicator);

/// Steps down NCCL's ladder of speeds and keeps the largest channels * speed, then halves the speed
/// and doubles the channels where NCCL does (src/graph/search.cc). Real searches also mind which
/// PCIe switch a NIC is on; here each GPU has its NIC near.
[[nodiscard]] Graphs search_graphs(const Communicator& communicator);

}  // namespace stepcast::nccl
