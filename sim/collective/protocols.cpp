#include "collective/protocols.hpp"

#include <algorithm>

namespace stepcast {
namespace {

constexpr Seconds us(double value) { return Seconds{1e-6 * value}; }

/// NCCL's tables of a ring (src/graph/tuning.cc v2.28.9-1:149, baseLatencies and hwLatencies): the
/// base stands for the launch; of a hop, what LL takes is the way itself, for it has no fence to
/// wait for, and what the others take more keeps the sender busy.
ProtocolFigures nominal_low_latency(const std::string& name, const Platform& platform) {
  const bool ll = name == "LL";
  const bool pcie = platform.over_pcie();
  ProtocolFigures figures;
  figures.name = name;
  figures.measured = false;
  figures.efficiency = 1.0 / wire_bytes_per_byte(name);
  figures.launch = us(ll ? 6.6 : 14.0);
  figures.latency_intra_node = us(pcie ? 1.0 : 0.6);
  figures.latency_inter_node = us(2.7);
  if (!ll) {
    figures.alpha_intra_node = us(pcie ? 2.5 : 1.9) - figures.latency_intra_node;
    figures.alpha_inter_node = us(4.0) - figures.latency_inter_node;
  }
  return figures;
}

ProtocolFigures nominal_simple(const Platform& platform) {
  ProtocolFigures figures;
  figures.name = "Simple";
  figures.measured = false;
  if (platform.gpu.compute_capability) figures.launch = us(8.4);
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
    for (const char* name : {"LL", "LL128"}) add_nominal(nominal_low_latency(name, platform));
  if (platform.gpu.compute_capability || protocols.empty()) add_nominal(nominal_simple(platform));
  return protocols;
}

double wire_bytes_per_byte(const std::string& protocol) {
  if (protocol == "LL") return 2.0;
  return protocol == "LL128" ? 128.0 / 120.0 : 1.0;
}

}  // namespace stepcast
