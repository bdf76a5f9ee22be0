#include "input/platform.hpp"

#include <cstddef>
#include <string>
#include <vector>

#include "documents.hpp"
#include "testing.hpp"

namespace stepcast {
namespace {

Platform read(const std::string& text) {
  return read_platform(JsonDocument::parse(text, "p.json").root());
}

std::string error_of(const std::string& text) {
  return input_error([&] { static_cast<void>(read(text)); });
}

Platform shipped(const std::string& name) {
  return read_platform(JsonDocument::read_file(repository_file("platforms/" + name)).root());
}

/// Two GPUs with two NVLinks between them, the third with one to the first.
std::string mesh() {
  const std::string three =
      with(with(tiny_platform(), "/node/gpus", "3"), "/node/nics/near_gpus/1", "[2]");
  return with(three, "/node/interconnect",
              R"({"kind": "nvlink_mesh", "bandwidth_Bps": 25e9, "alpha_s": 1e-6,
                  "links": [{"gpus": [0, 1], "count": 2}, {"gpus": [2, 0], "count": 1}]})");
}

TEST(Platform, ReadsTheMachine) {
  const Platform platform = read(tiny_platform());
  EXPECT_EQ(platform.name, "tiny cluster");
  EXPECT_EQ(platform.source, "made up");
  EXPECT_EQ(platform.gpus_per_node, 4);
  EXPECT_EQ(platform.nodes, 2);
  EXPECT_EQ(platform.total_gpus(), 4 * 2);
  EXPECT_EQ(platform.intra_node.bandwidth, BytesPerSecond{100e9});
  EXPECT_EQ(platform.intra_node.alpha, Seconds{1e-6});
}

TEST(Platform, ReadsTheNics) {
  const Platform platform = read(tiny_platform());
  ASSERT_TRUE(platform.nics.has_value());
  EXPECT_EQ(platform.nics->count, 2);
  EXPECT_EQ(platform.nics->figures.bandwidth, BytesPerSecond{10e9});
  EXPECT_EQ(platform.nics->figures.alpha, Seconds{5e-6});
  EXPECT_EQ(platform.nics->near_gpus, (std::vector<std::vector<int>>{{0, 1}, {2, 3}}));
}

TEST(Platform, NicsAreNearNoGpuWhereThePlatformDoesNotSay) {
  const Platform platform = read(without(tiny_platform(), "/node/nics/near_gpus"));
  EXPECT_EQ(platform.nics->near_gpus, (std::vector<std::vector<int>>{{}, {}}));
}

TEST(Platform, ReadsWhatTheGpuCosts) {
  const Platform platform = read(with(
      tiny_platform(), "/gpu",
      R"({"name": "g", "memory_bytes": 5, "memory_bandwidth_Bps": 750e9, "kernel_floor_s": 2e-6})"));
  EXPECT_EQ(platform.gpu.name, "g");
  EXPECT_EQ(platform.gpu.memory_bytes, 5);
  EXPECT_EQ(platform.gpu.memory_bandwidth, BytesPerSecond{750e9});
  EXPECT_EQ(platform.gpu.kernel_floor, Seconds{2e-6});
}

TEST(Platform, KnowsNothingOfAGpuThatHasOnlyAName) {
  const Platform platform = read(with(tiny_platform(), "/gpu", R"({"name": "g"})"));
  EXPECT_FALSE(platform.gpu.memory_bytes.has_value());
  EXPECT_FALSE(platform.gpu.memory_bandwidth.has_value());
  EXPECT_EQ(platform.gpu.kernel_floor, Seconds{0.0});
}

TEST(Platform, OneNodeNeedsNoNicsAndNoFabric) {
  const Platform platform =
      read(without(without(with(tiny_platform(), "/nodes", "1"), "/node/nics"), "/fabric"));
  EXPECT_FALSE(platform.nics.has_value());
}

TEST(Platform, OneGpuNeedsNoInterconnect) {
  const Platform platform = read(
      without(with(with(tiny_platform(), "/node/gpus", "1"), "/node/nics/near_gpus", "[[0], [0]]"),
              "/node/interconnect"));
  EXPECT_EQ(platform.gpus_per_node, 1);
  EXPECT_TRUE(platform.node_graph.link_names.empty());
}

TEST(SwitchTopology, GivesEachGpuOneWayUpAndOneDown) {
  const NodeGraph graph = read(tiny_platform()).node_graph;
  EXPECT_EQ(graph.link_names,
            (std::vector<std::string>{"gpu0.up", "gpu0.down", "gpu1.up", "gpu1.down", "gpu2.up",
                                      "gpu2.down", "gpu3.up", "gpu3.down"}));
}

TEST(SwitchTopology, LeadsUpFromTheSenderAndDownToTheReceiver) {
  const NodeGraph graph = read(tiny_platform()).node_graph;
  for (std::size_t from = 0; from < 4; ++from) {
    for (std::size_t to = 0; to < 4; ++to) {
      if (from == to) {
        EXPECT_TRUE(graph.lanes[from][to].empty());
        continue;
      }
      ASSERT_EQ(graph.lanes[from][to].size(), 1u);
      const Lane& lane = graph.lanes[from][to][0];
      ASSERT_EQ(lane.size(), 2u);
      EXPECT_EQ(graph.link_names[static_cast<std::size_t>(lane[0])],
                "gpu" + std::to_string(from) + ".up");
      EXPECT_EQ(graph.link_names[static_cast<std::size_t>(lane[1])],
                "gpu" + std::to_string(to) + ".down");
    }
  }
}

TEST(NvlinkMesh, HasALinkEachWayForEachNvlink) {
  const NodeGraph graph = read(mesh()).node_graph;
  EXPECT_EQ(graph.link_names,
            (std::vector<std::string>{"nvlink0-1.0", "nvlink1-0.0", "nvlink0-1.1", "nvlink1-0.1",
                                      "nvlink2-0.0", "nvlink0-2.0"}));
  EXPECT_EQ(graph.lanes[0][1], (std::vector<Lane>{{0}, {2}}));
  EXPECT_EQ(graph.lanes[1][0], (std::vector<Lane>{{1}, {3}}));
  EXPECT_EQ(graph.lanes[2][0], (std::vector<Lane>{{4}}));
  EXPECT_EQ(graph.lanes[0][2], (std::vector<Lane>{{5}}));
  EXPECT_TRUE(graph.lanes[1][2].empty());
}

TEST(ShippedPlatform, IdealHasOneGpuANode) {
  const Platform platform = shipped("ideal.json");
  EXPECT_EQ(platform.gpus_per_node, 1);
  EXPECT_EQ(platform.total_gpus(), 65536);
  EXPECT_EQ(platform.nics->count, 1);
}

TEST(ShippedPlatform, Dgx1vHasSixNvlinksPerGpuEachWay) {
  const NodeGraph graph = shipped("dgx1v.json").node_graph;
  ASSERT_EQ(graph.lanes.size(), 8u);
  EXPECT_EQ(graph.link_names.size(), 8u * 6u);
  for (std::size_t gpu = 0; gpu < 8; ++gpu) {
    std::size_t out = 0;
    std::size_t in = 0;
    for (std::size_t other = 0; other < 8; ++other) {
      out += graph.lanes[gpu][other].size();
      in += graph.lanes[other][gpu].size();
    }
    EXPECT_EQ(out, 6u) << "GPU " << gpu;
    EXPECT_EQ(in, 6u) << "GPU " << gpu;
  }
}

TEST(ShippedPlatform, Dgx1vIsSymmetric) {
  const NodeGraph graph = shipped("dgx1v.json").node_graph;
  for (std::size_t a = 0; a < 8; ++a)
    for (std::size_t b = 0; b < 8; ++b)
      EXPECT_EQ(graph.lanes[a][b].size(), graph.lanes[b][a].size()) << a << " - " << b;
}

TEST(ShippedPlatform, AbciV100HasTwoNvlinksBetweenAnyTwoGpus) {
  const Platform platform = shipped("abci_v100.json");
  ASSERT_EQ(platform.gpus_per_node, 4);
  for (std::size_t a = 0; a < 4; ++a)
    for (std::size_t b = 0; b < 4; ++b)
      EXPECT_EQ(platform.node_graph.lanes[a][b].size(), a == b ? 0u : 2u) << a << " - " << b;
  EXPECT_EQ(platform.nics->count, 2);
}

class PlatformRefuses : public testing::TestWithParam<Mistake> {};

TEST_P(PlatformRefuses, AMistake) { EXPECT_EQ(error_of(GetParam().document), GetParam().error); }

std::vector<Mistake> platform_mistakes() {
  const std::string good = tiny_platform();
  return {
      {"AnotherFormat", with(good, "/format", R"("stepcast.platform/2")"),
       "p.json:/format: must be \"stepcast.platform/1\", got \"stepcast.platform/2\""},
      {"AnUnknownKey", with(good, "/node/nic", "1"),
       "p.json:/node: unknown key \"nic\"; did you mean \"nics\"? known: gpus, cpu, "
       "interconnect, nics, price_per_hour_usd, price_source, price_date"},
      {"AnUnknownKindOfInterconnect", with(good, "/node/interconnect/kind", R"("swich")"),
       "p.json:/node/interconnect/kind: unknown \"swich\"; did you mean \"switch\"? known: "
       "nvlink_mesh, pcie_tree, switch"},
      {"AnUnknownKindOfFabric", with(good, "/fabric/kind", R"("torus")"),
       "p.json:/fabric/kind: unknown \"torus\"; known: switch, fat_tree, rail"},
      {"ASourceThatIsNotText", with(good, "/fabric/source", "1"),
       "p.json:/fabric/source: must be a string, got 1"},
      {"ASourceOfNicsThatIsNotText", with(good, "/node/nics/source", "1"),
       "p.json:/node/nics/source: must be a string, got 1"},
      {"LinksOfASwitch", with(good, "/node/interconnect/links", "[]"),
       "p.json:/node/interconnect: unknown key \"links\"; did you mean \"nvlinks\"? known: kind, "
       "bandwidth_Bps, alpha_s, latency_s, nvlinks, nvlink_sharp, "
       "source"},
      {"OneGpuWithAnInterconnect", with(good, "/node/gpus", "1"),
       "p.json:/node/interconnect: a node with one GPU has nothing to join"},
      {"ManyGpusWithoutAnInterconnect", without(good, "/node/interconnect"),
       "p.json:/node: the key \"interconnect\" is missing"},
      {"NoGpus", with(good, "/node/gpus", "0"),
       "p.json:/node/gpus: must be a whole number in [1, 1024], got 0"},
      {"NoNodes", with(good, "/nodes", "0"),
       "p.json:/nodes: must be a whole number in [1, 1048576], got 0"},
      {"SeveralNodesWithoutNics", without(good, "/node/nics"),
       "p.json:/node: the key \"nics\" is missing"},
      {"SeveralNodesWithoutAFabric", without(good, "/fabric"),
       "p.json: the key \"fabric\" is missing"},
      {"NoBandwidth", with(good, "/node/interconnect/bandwidth_Bps", "0"),
       "p.json:/node/interconnect/bandwidth_Bps: must be in [1, 100000000000000], got 0"},
      {"NegativeAlpha", with(good, "/node/nics/alpha_s", "-1e-6"),
       "p.json:/node/nics/alpha_s: must be in [0, 1], got -1e-06"},
      {"NoNics", with(good, "/node/nics/count", "0"),
       "p.json:/node/nics/count: must be a whole number in [1, 256], got 0"},
      {"NearGpusOfTooFewNics", with(good, "/node/nics/near_gpus", "[[0]]"),
       "p.json:/node/nics/near_gpus: must hold one list for each of the 2 NICs, got 1"},
      {"NearGpusOfTooManyNics", with(good, "/node/nics/near_gpus", "[[0], [1], [2]]"),
       "p.json:/node/nics/near_gpus: must hold one list for each of the 2 NICs, got 3"},
      {"NearGpusThatTheNodeLacks", with(good, "/node/nics/near_gpus/1/0", "4"),
       "p.json:/node/nics/near_gpus/1/0: must be a whole number in [0, 3], got 4"},
      {"NoMemory", with(good, "/gpu/memory_bytes", "0"),
       "p.json:/gpu/memory_bytes: must be a whole number in [1, 1125899906842624], got 0"},
      {"ALinkToItself", with(mesh(), "/node/interconnect/links/0/gpus", "[1, 1]"),
       "p.json:/node/interconnect/links/0/gpus: joins GPU 1 to itself"},
      {"APairTwice", with(mesh(), "/node/interconnect/links/1/gpus", "[0, 1]"),
       "p.json:/node/interconnect/links/1/gpus: GPUs 0 and 1 are listed twice"},
      {"APairTwiceTheOtherWayRound", with(mesh(), "/node/interconnect/links/1/gpus", "[1, 0]"),
       "p.json:/node/interconnect/links/1/gpus: GPUs 1 and 0 are listed twice"},
      {"ALinkOfThreeGpus", with(mesh(), "/node/interconnect/links/1/gpus", "[0, 1, 2]"),
       "p.json:/node/interconnect/links/1/gpus: must name two GPUs, got [0,1,2]"},
      {"ALinkOfAGpuThatTheNodeLacks", with(mesh(), "/node/interconnect/links/1/gpus", "[0, 3]"),
       "p.json:/node/interconnect/links/1/gpus/1: must be a whole number in [0, 2], got 3"},
      {"APairWithoutNvlinks", with(mesh(), "/node/interconnect/links/1/count", "0"),
       "p.json:/node/interconnect/links/1/count: must be a whole number in [1, 64], got 0"},
  };
}
INSTANTIATE_TEST_SUITE_P(Platforms, PlatformRefuses, testing::ValuesIn(platform_mistakes()),
                         case_name);

}  // namespace
}  // namespace stepcast
