#include "collective/protocols.hpp"

#include <algorithm>

#include "collective/nccl_tuner.hpp"

namespace stepcast {
namespace {

/// NCCL's figures of a ring: the base stands for the launch; of a hop, what LL takes is the way
/// itself, for it has no fence to wait for, and what the others take more keeps the sender busy.
ProtocolFigures nominal_low_latency(nccl::Protocol protocol, const Platform& platform) {
  const nccl::RingLatency way = nccl::ring_latency(nccl::Protocol::ll);
  const nccl::RingLatency whole = nccl::ring_latency(protocol);
  const bool pcie = platform.over_pcie();
  ProtocolFigures figures;
  figures.name = nccl::to_string(protocol);
  figures.measured = false;
  figures.efficiency = 1.0 / wire_bytes_per_byte(figures.name);
  figures.launch = whole.base;
  figures.latency_intra_node = pcie ? way.pci : way.nvlink;
  figures.latency_inter_node = way.net;
  figures.alpha_intra_node = (pcie ? whole.pci : whole.nvlink) - figures.latency_intra_node;
  figures.alpha_inter_node = whole.net - figures.latency_inter_node;
  return figures;
}

ProtocolFigures nominal_simple(const Platform& platform) {
  ProtocolFigures figures;
  figures.name = "Simple";
  figures.measured = false;
  if (platform.gpu.compute_capability)
    figures.launch = nccl::ring_latency(nccl::Protocol::simple).base;
  figures.alpha_intra_node = platform.intra_node.alpha;
  figures.latency_intra_node = platform.intra_node.latency;
  if (platform.nics) {
    figures.alpha_inter_node = platform.nics->figures.alpha;
    figures.latency_inter_node = platform.nics->figures.latency;
  }
  return figures;
}

}  // namespace

std::vector<ProtocolFigures> protocols_of(const Cluster& cluster) {
  std::vector<ProtocolFigures> protocols;
  if (cluster.calibration() != nullptr) protocols = cluster.calibration()->protocols;
  const auto add_nominal = [&](const ProtocolFigures& nominal) {
    if (std::none_of(protocols.begin(), protocols.end(),
                     [&](const auto& known) { return known.name == nominal.name; }))
      protocols.push_back(nominal);
  };
  const Platform& platform = cluster.platform();
  if (platform.gpu.compute_capability)
    for (const char* name : {"LL", "LL128"}) add_nominal(nominal_protocol(name, platform));
  add_nominal(nominal_simple(platform));
  return protocols;
}

ProtocolFigures nominal_protocol(const std::string& name, const Platform& platform) {
  if (name == "Simple") return nominal_simple(platform);
  return nominal_low_latency(name == "LL" ? nccl::Protocol::ll : nccl::Protocol::ll128, platform);
}

double wire_bytes_per_byte(const std::string& protocol) {
  if (protocol == "LL") return 2.0;
  return protocol == "LL128" ? 128.0 / 120.0 : 1.0;
}

}  // namespace stepcast
