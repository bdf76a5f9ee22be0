#include "collective/rings.hpp"

#include <algorithm>
#include <cstddef>
#include <map>
#include <numeric>
#include <ostream>
#include <set>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "documents.hpp"
#include "testing.hpp"

namespace stepcast {
namespace {

/// A platform of this repository, or one made up here.
Platform platform_named(const std::string& name) {
  if (name == "switch") return read_platform(JsonDocument::parse(tiny_platform(), "p").root());
  // The nodes have one NIC of 50 GB/s and NVLinks of 25 GB/s: two rings fill it.
  if (name == "fast_nic") {
    const std::string one_nic =
        with(with(tiny_platform(), "/node/nics/count", "1"), "/node/nics/near_gpus", "[[0, 3]]");
    return read_platform(
        JsonDocument::parse(
            with(with(one_nic, "/node/nics/bandwidth_Bps", "50e9"), "/node/interconnect",
                 R"({"kind": "nvlink_mesh", "bandwidth_Bps": 25e9, "alpha_s": 0,
              "links": [{"gpus": [0, 1], "count": 1}, {"gpus": [1, 2], "count": 1},
                        {"gpus": [2, 3], "count": 1}, {"gpus": [3, 0], "count": 1},
                        {"gpus": [0, 2], "count": 1}, {"gpus": [1, 3], "count": 1}]})"),
            "p")
            .root());
  }
  return read_platform(
      JsonDocument::read_file(repository_file("platforms/" + name + ".json")).root());
}

struct Machine {
  std::string platform;
  int ranks;
  std::size_t rings;  ///< expected
  int sharing = 1;    ///< expected: most hops over one link of a node
};
void PrintTo(const Machine& machine, std::ostream* out) {
  *out << machine.platform << " x " << machine.ranks;
}

class RingsOf : public testing::TestWithParam<Machine> {
 protected:
  [[nodiscard]] const NodeGraph& graph() const { return platform.node_graph; }
  [[nodiscard]] int local(int rank) const { return rank % platform.gpus_per_node; }
  /// For each link, how many hops of all rings pass it.
  [[nodiscard]] std::map<int, int> hops_per_link() const {
    std::map<int, int> hops;
    for (const Ring& ring : rings)
      for (const Route& hop : ring.hops)
        for (const int link : hop.links) ++hops[link];
    return hops;
  }

  Platform platform = platform_named(GetParam().platform);
  Cluster cluster = Cluster(platform, nullptr, GetParam().ranks, "test");
  std::vector<Ring> rings = find_rings(cluster);
};

TEST_P(RingsOf, AreAsManyAsExpected) { EXPECT_EQ(rings.size(), GetParam().rings); }

TEST_P(RingsOf, VisitEachRankOnce) {
  for (const Ring& ring : rings) {
    std::vector<int> visited = ring.ranks;
    std::sort(visited.begin(), visited.end());
    std::vector<int> all;
    for (int rank = 0; rank < GetParam().ranks; ++rank) all.push_back(rank);
    EXPECT_EQ(visited, all);
  }
}

TEST_P(RingsOf, LeadFromEachRankToTheNextOverLinksThatJoinThem) {
  for (const Ring& ring : rings) {
    ASSERT_EQ(ring.hops.size(), ring.ranks.size());
    for (std::size_t i = 0; i < ring.hops.size(); ++i) {
      const int from = ring.ranks[i];
      const int to = ring.ranks[(i + 1) % ring.ranks.size()];
      const int from_node = cluster.node_of(from);
      const int to_node = cluster.node_of(to);
      std::set<std::vector<int>> ways;
      if (from_node == to_node) {
        for (const Lane& lane : graph().lanes[static_cast<std::size_t>(local(from))]
                                             [static_cast<std::size_t>(local(to))])
          ways.insert(cluster.inside_node(from_node, lane).links);
      } else {
        for (int nic = 0; nic < platform.nics->count; ++nic)
          ways.insert(cluster.between_nodes(from, to, nic, nic).links);
      }
      EXPECT_EQ(ring.hops[i].inter_node, from_node != to_node);
      EXPECT_TRUE(ways.contains(ring.hops[i].links)) << "from rank " << from << " to rank " << to;
    }
  }
}

TEST_P(RingsOf, BeginAtRankZeroInsideOneNode) {
  if (cluster.nodes() > 1) return;  // there it begins near a NIC
  for (const Ring& ring : rings) EXPECT_EQ(ring.ranks.front(), 0);
}

TEST_P(RingsOf, EnterAndLeaveEachNodeOnce) {
  for (const Ring& ring : rings) {
    std::vector<int> left;
    for (std::size_t i = 0; i < ring.hops.size(); ++i)
      if (ring.hops[i].inter_node) left.push_back(cluster.node_of(ring.ranks[i]));
    std::sort(left.begin(), left.end());
    std::vector<int> all;
    for (int node = 0; cluster.nodes() > 1 && node < cluster.nodes(); ++node) all.push_back(node);
    EXPECT_EQ(left, all);
  }
}

TEST_P(RingsOf, TakeTheNicsInTurn) {
  for (std::size_t channel = 0; channel < rings.size(); ++channel) {
    const auto nic = channel % static_cast<std::size_t>(platform.nics->count);
    for (const Route& hop : rings[channel].hops) {
      if (!hop.inter_node) continue;
      ASSERT_EQ(hop.links.size(), 2u);
      EXPECT_TRUE(cluster.link_name(hop.links[0]).ends_with(fmt::format(".nic{}.up", nic)));
      EXPECT_TRUE(cluster.link_name(hop.links[1]).ends_with(fmt::format(".nic{}.down", nic)));
    }
  }
}

TEST_P(RingsOf, ShareLinksOfANodeOnlyWhereTheyMust) {
  int most = 0;
  for (const auto& [link, hops] : hops_per_link())
    if (!cluster.is_inter_node(link)) most = std::max(most, hops);
  EXPECT_EQ(most, GetParam().sharing);
}

constexpr auto machine_name = [](const auto& test) {
  return test.param.platform + "_" + std::to_string(test.param.ranks);
};
// DGX-1V, facts.md §1.6: six rings on eight GPUs. With fewer GPUs the one with the fewest NVLinks
// to the others sets the limit. GPU 0 has 1 to GPU 1, 1 to 2, 2 to 3 and 2 to 4: 1 among two GPUs,
// 2 among three, 4 among four. Six GPUs: every ring passes GPU 4 between 0 and 5, and there is one
// NVLink between 4 and 5: one ring each way. Seven: GPU 4 has 2 to 0, 1 to 5 and 1 to 6: 4.
// Over nodes: one for each of four NICs of 12.5 GB/s, half of what an NVLink carries, that has a
// GPU near it in every node: each has two, so 9 = 8 + 1 GPUs have one NIC, 12 = 8 + 4 two.
INSTANTIATE_TEST_SUITE_P(Dgx1v, RingsOf,
                         testing::Values(Machine{"dgx1v", 2, 1}, Machine{"dgx1v", 3, 2},
                                         Machine{"dgx1v", 4, 4}, Machine{"dgx1v", 6, 2},
                                         Machine{"dgx1v", 7, 4}, Machine{"dgx1v", 8, 6},
                                         Machine{"dgx1v", 9, 1}, Machine{"dgx1v", 12, 2},
                                         Machine{"dgx1v", 13, 3}, Machine{"dgx1v", 16, 4},
                                         Machine{"dgx1v", 24, 4}),
                         machine_name);
// ABCI: two NVLinks between any two of four GPUs: 2 (n - 1) per GPU. Two NICs, of which a
// node with only GPUs 0 and 1 in use has one near them.
INSTANTIATE_TEST_SUITE_P(AbciV100, RingsOf,
                         testing::Values(Machine{"abci_v100", 2, 2}, Machine{"abci_v100", 3, 4},
                                         Machine{"abci_v100", 4, 6}, Machine{"abci_v100", 5, 1},
                                         Machine{"abci_v100", 6, 1}, Machine{"abci_v100", 8, 2}),
                         machine_name);
// A switch: one port for each GPU. Two NICs of 10 GB/s: two rings, so that 2 * 3 hops through a
// node meet 4 ports.
INSTANTIATE_TEST_SUITE_P(Switch, RingsOf,
                         testing::Values(Machine{"switch", 2, 1}, Machine{"switch", 3, 1},
                                         Machine{"switch", 4, 1}, Machine{"switch", 6, 1},
                                         Machine{"switch", 8, 2, 2}),
                         machine_name);
// One GPU in a node has no links but the NIC's.
INSTANTIATE_TEST_SUITE_P(Ideal, RingsOf,
                         testing::Values(Machine{"ideal", 2, 1, 0}, Machine{"ideal", 5, 1, 0},
                                         Machine{"ideal", 64, 1, 0}),
                         machine_name);
INSTANTIATE_TEST_SUITE_P(FastNic, RingsOf, testing::Values(Machine{"fast_nic", 8, 2}),
                         machine_name);

TEST(Rings, OfOneRankHaveNoHops) {
  const Platform platform = platform_named("dgx1v");
  const std::vector<Ring> rings = find_rings(Cluster(platform, nullptr, 1, "test"));
  ASSERT_EQ(rings.size(), 1u);
  EXPECT_EQ(rings[0].ranks, std::vector<int>{0});
  EXPECT_TRUE(rings[0].hops.empty());
}

TEST(Rings, UseAllNvlinksOfADgx1v) {
  const Platform platform = platform_named("dgx1v");
  std::set<int> used;
  for (const Ring& ring : find_rings(Cluster(platform, nullptr, 8, "test")))
    for (const Route& hop : ring.hops) used.insert(hop.links.begin(), hop.links.end());
  EXPECT_EQ(used.size(), 8u * 6u);  // six NVLinks out of each of eight GPUs
}

TEST(Rings, BeginAndEndEachNodeNearTheirNic) {
  const Platform platform = platform_named("dgx1v");
  const Cluster cluster(platform, nullptr, 16, "test");
  const std::vector<Ring> rings = find_rings(cluster);
  for (std::size_t channel = 0; channel < rings.size(); ++channel) {
    const std::vector<int>& near = platform.nics->near_gpus[channel % 4];
    const auto is_near = [&](int rank) {
      return std::find(near.begin(), near.end(), rank % 8) != near.end();
    };
    const Ring& ring = rings[channel];
    for (std::size_t i = 0; i < ring.hops.size(); ++i) {
      if (!ring.hops[i].inter_node) continue;
      EXPECT_TRUE(is_near(ring.ranks[i])) << "channel " << channel;
      EXPECT_TRUE(is_near(ring.ranks[(i + 1) % 16])) << "channel " << channel;
    }
  }
}

/// Nodes whose GPUs form a line 0 - 1 - 2 - 3.
Platform line_of_four(const std::string& near_gpus) {
  const std::string nics = with(tiny_platform(), "/node/nics/near_gpus", near_gpus);
  const std::string line = R"({"kind": "nvlink_mesh", "bandwidth_Bps": 25e9, "alpha_s": 0,
      "links": [{"gpus": [0, 1], "count": 1}, {"gpus": [1, 2], "count": 1},
                {"gpus": [2, 3], "count": 1}]})";
  return read_platform(JsonDocument::parse(with(nics, "/node/interconnect", line), "p").root());
}

TEST(Rings, BeginNearTheirNicWhereTheyCannotAlsoEndThere) {
  const Platform platform = line_of_four("[[3, 2], [0, 1]]");
  const std::vector<Ring> rings = find_rings(Cluster(platform, nullptr, 8, "test"));
  ASSERT_EQ(rings.size(), 2u);
  EXPECT_EQ(rings[0].ranks, (std::vector<int>{3, 2, 1, 0, 7, 6, 5, 4}));
  EXPECT_EQ(rings[1].ranks, (std::vector<int>{0, 1, 2, 3, 4, 5, 6, 7}));
}

TEST(Rings, CrossANodeSomehowWhereNoneCanBeginNearItsNic) {
  const Platform platform = line_of_four("[[1], [2]]");
  const std::vector<Ring> rings = find_rings(Cluster(platform, nullptr, 8, "test"));
  ASSERT_EQ(rings.size(), 2u);
  EXPECT_EQ(rings[0].ranks, (std::vector<int>{0, 1, 2, 3, 4, 5, 6, 7}));
  // The first ring took the links one way, the second takes them the other way.
  EXPECT_EQ(rings[1].ranks, (std::vector<int>{3, 2, 1, 0, 7, 6, 5, 4}));
}

TEST(Rings, AreNoMoreThanNcclHasChannels) {
  // Three GPUs with 64 NVLinks between any two: 128 leave each.
  const std::string mesh = R"({"kind": "nvlink_mesh", "bandwidth_Bps": 25e9, "alpha_s": 0,
      "links": [{"gpus": [0, 1], "count": 64}, {"gpus": [1, 2], "count": 64},
                {"gpus": [2, 0], "count": 64}]})";
  const Platform platform = read_platform(
      JsonDocument::parse(with(tiny_platform(), "/node/interconnect", mesh), "p").root());
  EXPECT_EQ(find_rings(Cluster(platform, nullptr, 3, "test")).size(), 64u);
}

TEST(Rings, OverNodesAreNoMoreThanNcclHasChannels) {
  Platform platform = platform_named("ideal");
  platform.nics->count = 100;
  platform.nics->near_gpus.resize(100);
  EXPECT_EQ(find_rings(Cluster(platform, nullptr, 2, "test")).size(), 64u);
}

TEST(Rings, AreTheMostThatWereFoundWhereNotAllNvlinksCanBeUsed) {
  // Five NVLinks leave each GPU but one, yet at most four rings share none: found by trying all
  // sets of the mesh's 12 rings (each way counts). The search meets four on its way and ends on
  // three.
  const std::string mesh = R"({"kind": "nvlink_mesh", "bandwidth_Bps": 25e9, "alpha_s": 0,
      "links": [{"gpus": [0, 1], "count": 2}, {"gpus": [0, 2], "count": 2},
                {"gpus": [0, 3], "count": 1}, {"gpus": [1, 2], "count": 1},
                {"gpus": [1, 3], "count": 1}, {"gpus": [1, 4], "count": 2},
                {"gpus": [2, 3], "count": 1}, {"gpus": [2, 4], "count": 1},
                {"gpus": [3, 4], "count": 2}]})";
  const Platform platform = read_platform(
      JsonDocument::parse(
          with(with(tiny_platform(), "/node/gpus", "5"), "/node/interconnect", mesh), "p")
          .root());
  EXPECT_EQ(find_rings(Cluster(platform, nullptr, 5, "test")).size(), 4u);
}

TEST(Rings, AreTheSameEachTime) {
  const Platform platform = platform_named("dgx1v");
  const Cluster cluster(platform, nullptr, 8, "test");
  const std::vector<Ring> once = find_rings(cluster);
  const std::vector<Ring> again = find_rings(cluster);
  ASSERT_EQ(once.size(), again.size());
  for (std::size_t i = 0; i < once.size(); ++i) EXPECT_EQ(once[i].ranks, again[i].ranks);
}

TEST(Rings, OfFiveGpusOfADgx1vLeadOverAnother) {
  // GPU 4 is joined to GPU 0 only, so a ring leaves it over a third GPU.
  const Platform platform = platform_named("dgx1v");
  const std::vector<Ring> rings = find_rings(Cluster(platform, nullptr, 5, "--gpus"));
  ASSERT_FALSE(rings.empty());
  for (const Ring& ring : rings) {
    EXPECT_EQ(ring.ranks.size(), 5u);
    EXPECT_TRUE(std::any_of(ring.hops.begin(), ring.hops.end(),
                            [](const Route& hop) { return hop.links.size() == 2; }));
  }
}

TEST(Rings, FollowNodesHoweverTheRanksAreDealt) {
  for (const char* name : {"dgx1v", "dgx_a100", "g4dn_12xlarge"}) {
    const Platform platform = platform_named(name);
    const int each = platform.gpus_per_node;
    for (const bool scattered : {false, true})
      for (const std::vector<int>& used :
           {std::vector<int>{each, each, each}, {each, 2, each - 1}, {1, 1, 1, 1}}) {
        const int ranks = std::accumulate(used.begin(), used.end(), 0);
        const Cluster cluster(
            platform, nullptr, ranks, "test",
            {.gpus_per_node = {}, .gpus_of_nodes = used, .scattered = scattered, .origin = "p"});
        for (const Ring& ring : find_rings(cluster)) {
          std::set<int> seen(ring.ranks.begin(), ring.ranks.end());
          EXPECT_EQ(seen.size(), static_cast<std::size_t>(ranks));
          std::size_t between = 0;
          for (std::size_t i = 0; i < ring.ranks.size(); ++i) {
            const int next = ring.ranks[(i + 1) % ring.ranks.size()];
            const bool leaves = cluster.node_of(ring.ranks[i]) != cluster.node_of(next);
            EXPECT_EQ(ring.hops[i].inter_node, leaves);
            between += leaves ? 1 : 0;
          }
          EXPECT_EQ(between, used.size()) << name;  // enters and leaves each node once
        }
      }
  }
}

TEST(Rings, OverNodesDoNotExistWhereGpusAreNotJoined) {
  // Two islands of two GPUs in each node.
  const Platform platform = read_platform(
      JsonDocument::parse(with(tiny_platform(), "/node/interconnect",
                               R"({"kind": "nvlink_mesh", "bandwidth_Bps": 25e9, "alpha_s": 0,
                   "links": [{"gpus": [0, 1], "count": 1}, {"gpus": [2, 3], "count": 1}]})"),
                          "p")
          .root());
  EXPECT_EQ(
      input_error([&] { static_cast<void>(find_rings(Cluster(platform, nullptr, 8, "--gpus"))); }),
      "--gpus: no ring joins 4 GPUs of a node over its links; use another number of GPUs per node");
}

}  // namespace
}  // namespace stepcast
