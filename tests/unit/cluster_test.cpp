#include "collective/cluster.hpp"

#include <string>
#include <vector>

#include "documents.hpp"
#include "testing.hpp"

namespace stepcast {
namespace {

/// Nodes of four GPUs on a switch with two NICs: 8 links of the switch, then 4 of the NICs.
class ClusterOf : public testing::Test {
 protected:
  [[nodiscard]] Cluster ranks(int count) const {
    return Cluster(platform, nullptr, count, "--gpus");
  }
  static std::vector<std::string> names_of(const Cluster& cluster, const Route& route) {
    std::vector<std::string> names;
    for (const int link : route.links) names.push_back(cluster.link_name(link));
    return names;
  }

  Platform platform = read_platform(JsonDocument::parse(tiny_platform(), "p.json").root());
  Calibration calibration =
      read_calibration(JsonDocument::parse(tiny_calibration(), "c.json").root());
};

TEST_F(ClusterOf, FewRanksIsOneNode) {
  const Cluster cluster = ranks(3);
  EXPECT_EQ(cluster.nodes(), 1);
  EXPECT_EQ(cluster.gpus_used(0), 3);
  EXPECT_EQ(cluster.bandwidths().size(), 8u + 4u);
}

TEST_F(ClusterOf, RanksFillsOneNodeAfterTheOther) {
  const Cluster cluster = ranks(8);
  EXPECT_EQ(cluster.nodes(), 2);
  EXPECT_EQ(cluster.node_of(3), 0);
  EXPECT_EQ(cluster.node_of(4), 1);
  EXPECT_EQ(cluster.gpus_used(0), 4);
  EXPECT_EQ(cluster.gpus_used(1), 4);
}

TEST_F(ClusterOf, RanksLeavesTheLastNodePartlyFull) {
  const Cluster cluster = ranks(6);
  EXPECT_EQ(cluster.nodes(), 2);
  EXPECT_EQ(cluster.gpus_used(0), 4);
  EXPECT_EQ(cluster.gpus_used(1), 2);
}

TEST_F(ClusterOf, OneNodeMoreBeginsWithOneRankMore) {
  EXPECT_EQ(ranks(4).nodes(), 1);
  EXPECT_EQ(ranks(5).nodes(), 2);
  EXPECT_EQ(ranks(5).gpus_used(1), 1);
}

TEST_F(ClusterOf, RanksRemembersWhoAskedForThem) { EXPECT_EQ(ranks(2).origin(), "--gpus"); }

TEST_F(ClusterOf, LinksHasThoseOfTheSwitchBeforeThoseOfTheNics) {
  const Cluster cluster = ranks(8);
  EXPECT_EQ(cluster.link_name(0), "node0.gpu0.up");
  EXPECT_EQ(cluster.link_name(7), "node0.gpu3.down");
  EXPECT_EQ(cluster.link_name(8), "node0.nic0.up");
  EXPECT_EQ(cluster.link_name(9), "node0.nic0.down");
  EXPECT_EQ(cluster.link_name(11), "node0.nic1.down");
  EXPECT_EQ(cluster.link_name(12), "node1.gpu0.up");
  EXPECT_EQ(cluster.link_name(23), "node1.nic1.down");
}

TEST_F(ClusterOf, LinksTellsNicsFromTheNodeGraph) {
  const Cluster cluster = ranks(8);
  EXPECT_FALSE(cluster.is_inter_node(7));
  EXPECT_TRUE(cluster.is_inter_node(8));
  EXPECT_TRUE(cluster.is_inter_node(11));
  EXPECT_FALSE(cluster.is_inter_node(12));
}

TEST_F(ClusterOf, LinksHasNominalBandwidthsWithoutACalibration) {
  const Cluster cluster = ranks(8);
  ASSERT_EQ(cluster.bandwidths().size(), 2u * (8u + 4u));
  for (int link = 0; link < 24; ++link)
    EXPECT_EQ(cluster.bandwidths()[static_cast<std::size_t>(link)],
              cluster.is_inter_node(link) ? BytesPerSecond{10e9} : BytesPerSecond{100e9})
        << cluster.link_name(link);
}

TEST_F(ClusterOf, LinksHasMeasuredBandwidthsWithACalibration) {
  const Cluster cluster(platform, &calibration, 8, "test");
  EXPECT_EQ(cluster.intra_node_bandwidth(), BytesPerSecond{80e9});
  EXPECT_EQ(cluster.inter_node_bandwidth(), BytesPerSecond{8e9});
  EXPECT_EQ(cluster.bandwidths()[12], BytesPerSecond{80e9});  // node1.gpu0.up
  EXPECT_EQ(cluster.bandwidths()[23], BytesPerSecond{8e9});   // node1.nic1.down
}

TEST_F(ClusterOf, LinksOfASlowerNetworkAreSlowerBetweenNodesOnly) {
  const Cluster cluster = ranks(8).with_network_rate(0.25);
  EXPECT_EQ(cluster.intra_node_bandwidth(), BytesPerSecond{100e9});
  EXPECT_EQ(cluster.inter_node_bandwidth(), BytesPerSecond{2.5e9});
  for (int link = 0; link < 24; ++link)
    EXPECT_EQ(cluster.bandwidths()[static_cast<std::size_t>(link)],
              cluster.is_inter_node(link) ? BytesPerSecond{2.5e9} : BytesPerSecond{100e9})
        << cluster.link_name(link);
}

TEST_F(ClusterOf, LinksKeepsTheNominalBandwidthOfWhatWasNotMeasured) {
  calibration.intra_node_share.reset();
  const Cluster cluster(platform, &calibration, 8, "test");
  EXPECT_EQ(cluster.intra_node_bandwidth(), BytesPerSecond{100e9});
  EXPECT_EQ(cluster.inter_node_bandwidth(), BytesPerSecond{8e9});
}

TEST_F(ClusterOf, RoutesInsideANodeUsesThatNodesLinks) {
  const Cluster cluster = ranks(8);
  const Route route = cluster.inside_node(1, platform.node_graph.lanes[2][0][0]);
  EXPECT_FALSE(route.inter_node);
  EXPECT_EQ(names_of(cluster, route),
            (std::vector<std::string>{"node1.gpu2.up", "node1.gpu0.down"}));
}

TEST_F(ClusterOf, RoutesBetweenNodesLeadsFromOneNicToItsTwin) {
  const Cluster cluster = ranks(8);
  const Route route = cluster.between_nodes(5, 2, 1, 1);
  EXPECT_TRUE(route.inter_node);
  EXPECT_EQ(names_of(cluster, route),
            (std::vector<std::string>{"node1.nic1.up", "node0.nic1.down"}));
}

TEST_F(ClusterOf, MachinesWithoutNicsHasTheLinksOfTheirNodeOnly) {
  platform.nics.reset();
  const Cluster cluster = ranks(4);
  EXPECT_EQ(cluster.bandwidths().size(), 8u);
  EXPECT_EQ(cluster.inter_node_bandwidth(), BytesPerSecond{0.0});
}

}  // namespace
}  // namespace stepcast
