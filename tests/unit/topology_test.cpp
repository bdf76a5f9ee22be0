// What routes charge on PCIe trees and fabrics, and where ranks are placed.
#include <string>
#include <vector>

#include "collective/cluster.hpp"
#include "documents.hpp"
#include "testing.hpp"

namespace stepcast {
namespace {

Platform platform_of(const std::string& text) {
  return read_platform(JsonDocument::parse(text, "p.json").root());
}

using Names = std::vector<std::string>;
Names names_of(const Cluster& cluster, const Route& route) {
  Names names;
  for (const int link : route.links) names.push_back(cluster.link_name(link));
  return names;
}

/// Four GPUs, two on each switch, a socket for each switch; a NIC on the first switch.
std::string pcie(const std::string& more) {
  return R"({"format": "stepcast.platform/1", "name": "pcie", "source": "test", "gpu": {"name": "g"},
    "node": {"gpus": 4,
      "interconnect": {"kind": "pcie_tree", "bandwidth_Bps": 12e9, "alpha_s": 1e-6,
        "switches": [[0, 1], [2, 3]], "sockets": [[0], [1]], "socket_link_Bps": 6e9, )" +
         more + R"(},
      "nics": {"count": 1, "bandwidth_Bps": 10e9, "alpha_s": 1e-6, "near_gpus": [[0, 1]]}},
    "fabric": {"kind": "switch"}, "nodes": 8})";
}

TEST(PcieTree, WithPeerToPeerTakesTheShortestWay) {
  const Cluster cluster(platform_of(pcie(R"("peer_to_peer": true)")), nullptr, 4, "test");
  EXPECT_EQ(names_of(cluster, cluster.between_ranks(0, 1, 0)),
            (Names{"node0.gpu0.up", "node0.gpu1.down"}));
  EXPECT_EQ(names_of(cluster, cluster.between_ranks(1, 2, 0)),
            (Names{"node0.gpu1.up", "node0.switch0.up", "node0.socket0.up", "node0.socket1.down",
                   "node0.switch1.down", "node0.gpu2.down"}));
}

TEST(PcieTree, WithoutPeerToPeerGoesThroughTheMemoryOfTheReceiversSocket) {
  const Cluster cluster(
      platform_of(pcie(R"("peer_to_peer": false, "host_memory_Bps": 30e9, "uplink_Bps": 8e9)")),
      nullptr, 4, "test");
  EXPECT_EQ(names_of(cluster, cluster.between_ranks(2, 3, 0)),
            (Names{"node0.gpu2.up", "node0.switch1.up", "node0.memory1.write", "node0.memory1.read",
                   "node0.switch1.down", "node0.gpu3.down"}));
  const Route far = cluster.between_ranks(3, 0, 0);
  EXPECT_EQ(names_of(cluster, far),
            (Names{"node0.gpu3.up", "node0.switch1.up", "node0.socket1.up", "node0.socket0.down",
                   "node0.memory0.write", "node0.memory0.read", "node0.switch0.down",
                   "node0.gpu0.down"}));
  const std::vector<double> rates = {12e9, 8e9, 6e9, 6e9, 30e9, 30e9, 8e9, 12e9};
  for (std::size_t i = 0; i < rates.size(); ++i)
    EXPECT_NEAR(cluster.bandwidths()[static_cast<std::size_t>(far.links[i])].value(), rates[i],
                1.0);
}

TEST(PcieTree, ReachesANicOverPcie) {
  const Cluster cluster(platform_of(pcie(R"("peer_to_peer": true)")), nullptr, 8, "test");
  EXPECT_EQ(names_of(cluster, cluster.between_ranks(0, 6, 0)),
            (Names{"node0.gpu0.up", "node0.nic0.up", "node1.nic0.down", "node1.switch1.down",
                   "node1.gpu2.down"}));
}

TEST(PcieTree, SaysWhatIsWrong) {
  const auto error_of = [](const std::string& text) {
    return input_error([&] { static_cast<void>(platform_of(text)); });
  };
  EXPECT_EQ(error_of(pcie(R"("peer_to_peer": false)")),
            "p.json:/node/interconnect: the key \"host_memory_Bps\" is missing");
  std::string text = pcie(R"("peer_to_peer": true)");
  const std::size_t second = text.find("[2, 3]");
  EXPECT_EQ(error_of(std::string(text).replace(second, 6, "[2, 1]")),
            "p.json:/node/interconnect/switches/1/1: GPU 1 is listed twice");
  EXPECT_EQ(error_of(std::string(text).replace(second, 6, "[2]")),
            "p.json:/node/interconnect/switches: GPU 3 is missing");
}

/// Nodes of two GPUs with a NIC each at 10 GB/s.
Platform on_fabric(const std::string& fabric) {
  return platform_of(
      R"({"format": "stepcast.platform/1", "name": "f", "source": "test", "gpu": {"name": "g"},
    "node": {"gpus": 2, "interconnect": {"kind": "switch", "bandwidth_Bps": 100e9, "alpha_s": 0},
      "nics": {"count": 2, "bandwidth_Bps": 10e9, "alpha_s": 0, "near_gpus": [[0], [1]]}},
    "fabric": )" +
      fabric + R"(, "nodes": 64})");
}

TEST(Fabric, ChargesTheLinksOfTheGroupsThatAreLeft) {
  const Cluster cluster(on_fabric(R"({"kind": "fat_tree", "levels": [
                                     {"nodes_per_group": 2, "oversubscription": 2},
                                     {"nodes_per_group": 4, "oversubscription": 4}]})"),
                        nullptr, 16, "test");
  EXPECT_EQ(names_of(cluster, cluster.between_ranks(0, 2, 0)),
            (Names{"node0.nic0.up", "node1.nic0.down"}));
  EXPECT_EQ(names_of(cluster, cluster.between_ranks(0, 4, 0)),
            (Names{"node0.nic0.up", "level0.group0.up", "level0.group1.down", "node2.nic0.down"}));
  const Route far = cluster.between_ranks(1, 15, 0);
  EXPECT_EQ(names_of(cluster, far),
            (Names{"node0.nic1.up", "level0.group0.up", "level1.group0.up", "level1.group1.down",
                   "level0.group3.down", "node7.nic1.down"}));
  const auto rate = [&](std::size_t i) {
    return cluster.bandwidths()[static_cast<std::size_t>(far.links[i])].value();
  };
  EXPECT_NEAR(rate(1), 2 * 2 * 10e9 / 2, 1.0);  // two nodes of two NICs, half of what they fill
  EXPECT_NEAR(rate(2), 4 * 2 * 10e9 / 4, 1.0);
  EXPECT_TRUE(cluster.is_inter_node(far.links[2]));
}

TEST(Fabric, KeepsARailInItsLeaf) {
  const Cluster cluster(
      on_fabric(R"({"kind": "rail", "nodes_per_group": 4, "oversubscription": 2})"), nullptr, 16,
      "test");
  EXPECT_EQ(names_of(cluster, cluster.between_ranks(0, 6, 0)),
            (Names{"node0.nic0.up", "node3.nic0.down"}));
  EXPECT_EQ(names_of(cluster, cluster.between_ranks(0, 7, 0)),
            (Names{"node0.nic0.up", "group0.rail0.up", "group0.rail1.down", "node3.nic1.down"}));
  EXPECT_EQ(names_of(cluster, cluster.between_ranks(0, 8, 0)),
            (Names{"node0.nic0.up", "group0.rail0.up", "group1.rail0.down", "node4.nic0.down"}));
}

TEST(Fabric, LimitsWhatTwoNodesExchange) {
  const Cluster cluster(on_fabric(R"({"kind": "switch", "node_pair_bandwidth_Bps": 3e9})"), nullptr,
                        8, "test");
  const Route there = cluster.between_ranks(2, 6, 0);
  EXPECT_EQ(names_of(cluster, there), (Names{"node1.nic0.up", "node1.node3", "node3.nic0.down"}));
  EXPECT_EQ(names_of(cluster, cluster.between_ranks(6, 2, 0)),
            (Names{"node3.nic0.up", "node1.node3", "node1.nic0.down"}));
  EXPECT_EQ(cluster.bandwidths()[static_cast<std::size_t>(there.links[1])], BytesPerSecond{3e9});
  EXPECT_TRUE(cluster.is_inter_node(there.links[1]));
  EXPECT_EQ(cluster.bandwidths().size(), 4u * (2 * 2 + 2 * 2) + 4 * 3 / 2);
}

TEST(Fabric, RefusesLevelsThatDoNotNest) {
  EXPECT_EQ(
      input_error([] {
        static_cast<void>(on_fabric(R"({"kind": "fat_tree", "levels": [
                                              {"nodes_per_group": 4, "oversubscription": 1},
                                              {"nodes_per_group": 6, "oversubscription": 1}]})"));
      }),
      "p.json:/fabric/levels/1/nodes_per_group: must be a multiple of the level below, 4, got "
      "6");
}

Placement placement_of(const std::string& cluster) {
  return read_placement(JsonDocument::parse(cluster, "s.json").root());
}

std::vector<int> nodes_of(int ranks, const std::string& placement) {
  const Cluster cluster(on_fabric(R"({"kind": "switch"})"), nullptr, ranks, "test",
                        placement_of(placement));
  std::vector<int> nodes;
  for (int rank = 0; rank < ranks; ++rank) nodes.push_back(cluster.node_of(rank));
  return nodes;
}

TEST(PlacementOf, PacksOrScattersTheRanks) {
  EXPECT_EQ(nodes_of(5, "{}"), (std::vector<int>{0, 0, 1, 1, 2}));
  EXPECT_EQ(nodes_of(5, R"({"placement": "scattered"})"), (std::vector<int>{0, 1, 2, 0, 1}));
  EXPECT_EQ(nodes_of(4, R"({"gpus_per_node": [1, 2, 1]})"), (std::vector<int>{0, 1, 1, 2}));
  EXPECT_EQ(nodes_of(3, R"({"gpus_per_node": 1})"), (std::vector<int>{0, 1, 2}));
}

TEST(PlacementOf, RefusesWhatThereIsNoRoomFor) {
  const auto error = [](int ranks, const std::string& placement) {
    return input_error([&] { static_cast<void>(nodes_of(ranks, placement)); });
  };
  EXPECT_EQ(error(4, R"({"gpus_per_node": [2, 1]})"),
            "s.json:/gpus_per_node: must add up to 4 GPUs, got 3");
  EXPECT_EQ(error(4, R"({"gpus_per_node": [1, 3]})"),
            "s.json:/gpus_per_node: f has 2 GPUs in a node, got 3");
  EXPECT_EQ(error(4, R"({"gpus_per_node": 3})"),
            "s.json:/gpus_per_node: f has 2 GPUs in a node, got 3");
  EXPECT_EQ(error(65, R"({"gpus_per_node": 1})"),
            "s.json:/gpus_per_node: 65 GPUs take 65 nodes so, and f has 64");
  EXPECT_EQ(error(4, R"({"placement": "scaterred"})"),
            "s.json:/placement: unknown \"scaterred\"; did you mean \"scattered\"? known: packed, "
            "scattered");
}

}  // namespace
}  // namespace stepcast
