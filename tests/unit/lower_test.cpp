#include "collective/lower.hpp"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "base/text.hpp"
#include "collective/algorithms.hpp"
#include "documents.hpp"
#include "testing.hpp"

namespace stepcast {
namespace {

/// Nodes of one GPU and one NIC.
Platform one_gpu_nodes(double bandwidth_Bps) {
  Platform platform;
  platform.name = "line";
  platform.nodes = 1 << 20;
  platform.node_graph.lanes.resize(1, std::vector<std::vector<Lane>>(1));
  platform.nics = Nics{
      .count = 1, .figures = {BytesPerSecond{bandwidth_Bps}, Seconds{2e-6}}, .near_gpus = {{}}};
  return platform;
}

ProtocolFigures protocol(const std::string& name, double efficiency, double launch_s,
                         double alpha_s) {
  ProtocolFigures figures;
  figures.name = name;
  figures.efficiency = efficiency;
  figures.launch = Seconds{launch_s};
  figures.alpha_intra_node = Seconds{alpha_s};
  figures.alpha_inter_node = Seconds{alpha_s};
  figures.bytes = {1000, 1000000};
  figures.ranks = {2, 4};
  figures.nodes = {2, 4};
  return figures;
}

/// LL: half the rate, low latency. Simple: full rate, high latency.
Calibration two_protocols() {
  Calibration calibration;
  calibration.platform = "line";
  calibration.protocols = {protocol("LL", 0.5, 3e-6, 1e-6), protocol("Simple", 1.0, 15e-6, 5e-6)};
  calibration.protocols[0].worst_residual = 0.25;
  calibration.protocols[1].worst_residual = 0.125;
  return calibration;
}

LoweredCollective lower(double bytes, const Cluster& cluster,
                        const CollectiveSettings& settings = {}) {
  return lower(Operation::all_reduce, Bytes{bytes}, settings, cluster, find_rings(cluster));
}

// Protocol ---------------------------------------------------------------------------------------

class TwoProtocols : public testing::Test {
 protected:
  [[nodiscard]] std::string protocol_of(double bytes, int ranks) const {
    return lower(bytes, Cluster(platform, &calibration, ranks, "test")).protocol;
  }

  Platform platform = one_gpu_nodes(10e9);
  Calibration calibration = two_protocols();
};

TEST_F(TwoProtocols, ChangeWhereTheirTimesCross) {
  // launch + 2(n-1) (alpha + S / (n efficiency B)), in us with x = S / (4 * 1e4 B/us):
  // 3 + 6 (1 + 2x) = 15 + 6 (5 + x) where x = 6, S = 240 000 B.
  EXPECT_EQ(protocol_of(239'000, 4), "LL");
  EXPECT_EQ(protocol_of(241'000, 4), "Simple");
}

TEST_F(TwoProtocols, CrossElsewhereForAnotherNumberOfRanks) {
  // x = S / (2 * 1e4 B/us): 3 + 2 (1 + 2x) = 15 + 2 (5 + x) where x = 10, S = 200 000 B.
  EXPECT_EQ(protocol_of(199'000, 2), "LL");
  EXPECT_EQ(protocol_of(201'000, 2), "Simple");
}

TEST_F(TwoProtocols, CrossElsewhereWithAnotherMeasuredBandwidth) {
  calibration.inter_node_share = 2.0;
  // Twice the bandwidth of ChangeWhereTheirTimesCross: twice the size.
  EXPECT_EQ(protocol_of(479'000, 4), "LL");
  EXPECT_EQ(protocol_of(481'000, 4), "Simple");
}

TEST_F(TwoProtocols, GiveTheirFiguresToTheCollective) {
  const LoweredCollective ll = lower(1000, Cluster(platform, &calibration, 4, "test"));
  ASSERT_EQ(ll.protocol, "LL");
  EXPECT_EQ(ll.launch, Seconds{3e-6});
  EXPECT_EQ(ll.wire_bytes_per_byte, 1.0 / 0.5);
  EXPECT_EQ(ll.relative_error, 0.25);
  for (const Seconds alpha : ll.alpha) EXPECT_EQ(alpha, Seconds{1e-6});
}

TEST_F(TwoProtocols, ObeyAForcedChoice) {
  CollectiveSettings settings;
  settings.protocol = {"Simple", "test"};
  const LoweredCollective forced =
      lower(1000, Cluster(platform, &calibration, 4, "test"), settings);
  EXPECT_EQ(forced.protocol, "Simple");
  EXPECT_EQ(forced.launch, Seconds{15e-6});
  EXPECT_EQ(forced.relative_error, 0.125);
}

TEST_F(TwoProtocols, RefuseAnotherName) {
  CollectiveSettings settings;
  settings.protocol = {"LL128", "s.json:/collective/protocol"};
  EXPECT_EQ(input_error([&] {
              static_cast<void>(lower(1000, Cluster(platform, &calibration, 4, "test"), settings));
            }),
            "s.json:/collective/protocol: no figures for \"LL128\"; known: LL, Simple");
}

/// Two GPUs on a switch in each of two nodes, with two NICs.
class TwoProtocolsOnTwoNodes : public testing::Test {
 protected:
  TwoProtocolsOnTwoNodes() {
    const std::string two_gpus =
        with(with(tiny_platform(), "/node/gpus", "2"), "/node/nics/near_gpus", "[[0, 1], [0, 1]]");
    platform = read_platform(JsonDocument::parse(two_gpus, "p.json").root());
    for (ProtocolFigures& figures : calibration.protocols) figures.launch = Seconds{0.0};
  }
  [[nodiscard]] std::string protocol_of(double bytes, int ranks, int channels) const {
    CollectiveSettings settings;
    settings.channels = {channels, "test"};
    return lower(bytes, Cluster(platform, &calibration, ranks, "test"), settings).protocol;
  }

  Platform platform;  // 100 GB/s inside a node, 10 GB/s for each NIC
  Calibration calibration = two_protocols();
};

TEST_F(TwoProtocolsOnTwoNodes, AreJudgedByTheSlowerKindOfHop) {
  // Two channels, one on each NIC: block = S / (4 * 2), the NICs are slower.
  // 1 us + 2 block / 1e4 = 5 us + block / 1e4 where block = 40 000 B, S = 320 000 B.
  EXPECT_EQ(protocol_of(319'000, 4, 2), "LL");
  EXPECT_EQ(protocol_of(321'000, 4, 2), "Simple");
}

TEST_F(TwoProtocolsOnTwoNodes, ShareANicBetweenChannels) {
  // Four channels: the block is half as large and each NIC carries two of them.
  EXPECT_EQ(protocol_of(319'000, 4, 4), "LL");
  EXPECT_EQ(protocol_of(321'000, 4, 4), "Simple");
}

TEST_F(TwoProtocolsOnTwoNodes, LeaveANicIdleWithOneChannel) {
  // One channel: the block is twice as large, and no NIC is faster than itself: S = 160 000 B.
  EXPECT_EQ(protocol_of(159'000, 4, 1), "LL");
  EXPECT_EQ(protocol_of(161'000, 4, 1), "Simple");
}

TEST_F(TwoProtocolsOnTwoNodes, AreJudgedByTheSwitchInsideOneNode) {
  // Two ranks, one channel: 1 us + 2 block / 1e5 = 5 us + block / 1e5 where block = 400 000 B,
  // S = 800 000 B.
  EXPECT_EQ(protocol_of(799'000, 2, 1), "LL");
  EXPECT_EQ(protocol_of(801'000, 2, 1), "Simple");
}

TEST_F(TwoProtocolsOnTwoNodes, AreJudgedByTheAlphaOfEachKindOfHop) {
  // LL's NIC alpha rises to 3 us: 3 us + 2 block / 1e4 = 5 us + block / 1e4 where block = 20 000 B.
  calibration.protocols[0].alpha_inter_node = Seconds{3e-6};
  EXPECT_EQ(protocol_of(159'000, 4, 2), "LL");
  EXPECT_EQ(protocol_of(161'000, 4, 2), "Simple");
}

TEST_F(TwoProtocolsOnTwoNodes, HaveAnAlphaForEachKindOfHop) {
  for (ProtocolFigures& figures : calibration.protocols) figures.alpha_inter_node = Seconds{7e-6};
  CollectiveSettings settings;
  settings.protocol = {"LL", "test"};
  const LoweredCollective lowered =
      lower(1000, Cluster(platform, &calibration, 4, "test"), settings);
  ASSERT_EQ(lowered.alpha.size(), lowered.routes.size());
  std::size_t inter_node = 0;
  for (std::size_t i = 0; i < lowered.routes.size(); ++i) {
    EXPECT_EQ(lowered.alpha[i], lowered.routes[i].inter_node ? Seconds{7e-6} : Seconds{1e-6});
    if (lowered.routes[i].inter_node) ++inter_node;
  }
  EXPECT_EQ(inter_node, 2u * 2u);  // each of two rings leaves each of two nodes once
}

// Without a calibration --------------------------------------------------------------------------

TEST(NominalFigures, AreSimpleWithTheAlphasOfThePlatform) {
  const Platform platform = read_platform(JsonDocument::parse(tiny_platform(), "p.json").root());
  const LoweredCollective lowered = lower(1000, Cluster(platform, nullptr, 8, "test"));
  EXPECT_EQ(lowered.protocol, "Simple");
  EXPECT_EQ(lowered.launch, Seconds{0.0});
  EXPECT_EQ(lowered.wire_bytes_per_byte, 1.0);
  EXPECT_EQ(lowered.relative_error, 0.0);
  for (std::size_t i = 0; i < lowered.routes.size(); ++i)
    EXPECT_EQ(lowered.alpha[i], lowered.routes[i].inter_node ? Seconds{5e-6} : Seconds{1e-6});
}

TEST(NominalFigures, HaveNoOtherProtocol) {
  const Platform platform = one_gpu_nodes(10e9);
  CollectiveSettings settings;
  settings.protocol = {"LL", "--protocol"};
  EXPECT_EQ(input_error([&] {
              static_cast<void>(lower(1000, Cluster(platform, nullptr, 4, "test"), settings));
            }),
            "--protocol: no figures for \"LL\"; known: Simple");
}

// Algorithm, channels, chunks --------------------------------------------------------------------

TEST(Lowering, ChoosesARing) {
  const Platform platform = one_gpu_nodes(10e9);
  EXPECT_EQ(lower(1000, Cluster(platform, nullptr, 4, "test")).algorithm, "ring");
}

TEST(Lowering, RefusesAnUnknownAlgorithm) {
  const Platform platform = one_gpu_nodes(10e9);
  CollectiveSettings settings;
  settings.algorithm = {"rnig", "s.json:/collective/algorithm"};
  EXPECT_EQ(input_error([&] {
              static_cast<void>(lower(1000, Cluster(platform, nullptr, 4, "test"), settings));
            }),
            "s.json:/collective/algorithm: unknown \"rnig\"" +
                suggest("rnig", collective_algorithms(Operation::all_reduce).names()));
}

TEST(Lowering, UsesAllRingsOfTheMachine) {
  const Platform platform =
      read_platform(JsonDocument::read_file(repository_file("platforms/dgx1v.json")).root());
  const Cluster cluster(platform, nullptr, 8, "test");
  // NCCL's two channels on each of the six rings move alike and are simulated as one.
  const LoweredCollective lowered = lower(48'000'000, cluster);
  EXPECT_EQ(lowered.channels, 12);
  EXPECT_EQ(lowered.schedule.connections.size(), 6u * 8u);
  EXPECT_EQ(lowered.chunk, Bytes{48'000'000.0 / (12 * 8)});
  // A chunk in two slices.
  EXPECT_EQ(lowered.schedule.chunk_bytes.front(), Bytes{48'000'000.0 / (6 * 8) / 2});
}

TEST(Lowering, GivesEachConnectionTheHopThatStartsAtItsSender) {
  const Platform platform =
      read_platform(JsonDocument::read_file(repository_file("platforms/dgx1v.json")).root());
  const Cluster cluster(platform, nullptr, 8, "test");
  const std::vector<Ring> rings = find_rings(cluster);
  CollectiveSettings settings;
  settings.channels = {8, "test"};  // two more than there are rings: they take the first two again
  const LoweredCollective lowered =
      lower(Operation::all_reduce, Bytes{64e3}, settings, cluster, rings);
  ASSERT_EQ(lowered.routes.size(), 8u * 8u);
  for (std::size_t i = 0; i < lowered.routes.size(); ++i) {
    const Connection& connection = lowered.schedule.connections[i];
    const Ring& ring = rings[static_cast<std::size_t>(connection.channel) % 6];
    for (std::size_t hop = 0; hop < 8; ++hop) {
      if (ring.ranks[hop] != connection.src) continue;
      EXPECT_EQ(connection.dst, ring.ranks[(hop + 1) % 8]);
      EXPECT_EQ(lowered.routes[i].links, ring.hops[hop].links);
    }
  }
}

TEST(Lowering, UsesFewerChannelsWhenAsked) {
  const Platform platform =
      read_platform(JsonDocument::read_file(repository_file("platforms/dgx1v.json")).root());
  CollectiveSettings settings;
  settings.channels = {2, "test"};
  const LoweredCollective lowered = lower(48'000, Cluster(platform, nullptr, 8, "test"), settings);
  EXPECT_EQ(lowered.channels, 2);
  EXPECT_EQ(lowered.schedule.connections.size(), 2u * 8u);
}

TEST(Lowering, CutsABlockIntoChunks) {
  const Platform platform = one_gpu_nodes(10e9);
  CollectiveSettings settings;
  settings.chunk_bytes = {1000, "test"};
  // Blocks of 10 000 / 4 = 2500 B: 1000 + 1000 + 500.
  const LoweredCollective lowered = lower(10'000, Cluster(platform, nullptr, 4, "test"), settings);
  EXPECT_EQ(lowered.chunk, Bytes{1000.0});
  EXPECT_EQ(lowered.schedule.chunk_bytes.size(), 4u * 3u);
}

TEST(Lowering, DoesNotCutABlockThatIsSmallerThanAChunk) {
  const Platform platform = one_gpu_nodes(10e9);
  CollectiveSettings settings;
  settings.chunk_bytes = {1'000'000, "test"};
  EXPECT_EQ(lower(10'000, Cluster(platform, nullptr, 4, "test"), settings).chunk, Bytes{2500.0});
}

TEST(Lowering, RefusesAChunkThatCutsABufferIntoTooManyTransfers) {
  const Platform platform = one_gpu_nodes(10e9);
  CollectiveSettings settings;
  settings.chunk_bytes = {1, "s.json:/collective/chunk_bytes"};
  // 2(n-1) transfers from each of three nodes, as all are alike, of each of 40e6 / 4 pieces.
  EXPECT_EQ(input_error([&] {
              static_cast<void>(lower(40e6, Cluster(platform, nullptr, 4, "test"), settings));
            }),
            "s.json:/collective/chunk_bytes: 1 cuts 38.15 MiB into 1.8e+08 transfers; at most "
            "1e+08 are simulated");
}

TEST(Lowering, RefusesTooManyRanksWithoutBlamingTheChunk) {
  const Platform platform = one_gpu_nodes(10e9);
  // Each of n ranks has n - 1 connections and waits for as many blocks: n (n-1)^2, which no chunk
  // can make fewer.
  const std::string expected =
      "--gpus: 1024 ranks need 1.07e+09 transfers; at most 1e+08 are simulated";
  for (const std::optional<std::int64_t> chunk :
       {std::optional<std::int64_t>{}, {infinite_chunk}}) {
    CollectiveSettings settings;
    settings.algorithm = {"direct", "test"};
    settings.chunk_bytes = {chunk, "test"};
    EXPECT_EQ(input_error([&] {
                static_cast<void>(lower(1e6, Cluster(platform, nullptr, 1024, "--gpus"), settings));
              }),
              expected);
  }
}

TEST(Lowering, NeedsNoListOfTheTransfersOfARing) {
  // 2(n-1) n = 2 * 16383 * 16384 of them; one node is slow, so nothing is alike.
  const Platform platform = one_gpu_nodes(10e9);
  Cluster cluster(platform, nullptr, 16384, "--gpus");
  cluster.slow_down({.node = 5, .nic = 0, .rate_factor = 0.5, .origin = "test"});
  const LoweredCollective lowered =
      stepcast::lower(Operation::all_reduce, Bytes{1e6}, {}, cluster, find_rings(cluster));
  ASSERT_TRUE(lowered.schedule.ring);
  EXPECT_EQ(lowered.schedule.ring->transfers(), 2.0 * 16383 * 16384);
  EXPECT_TRUE(lowered.schedule.transfers.empty());
  EXPECT_FALSE(lowered.fold);
  EXPECT_EQ(lowered.why_not_folded, "no two nodes are alike");
}

// Basis ------------------------------------------------------------------------------------------

struct BasisCase {
  std::string name;
  double bytes;
  int ranks;
  std::string platform;
  Basis basis;
};
void PrintTo(const BasisCase& test, std::ostream* out) { *out << test.name; }

class BasisOf : public testing::TestWithParam<BasisCase> {};

TEST_P(BasisOf, IsInterpolatedInsideAllRangesOfTheFitOnly) {
  Platform platform = one_gpu_nodes(10e9);
  platform.name = GetParam().platform;
  Calibration calibration;
  calibration.platform = "line";
  calibration.protocols = {protocol("Simple", 1.0, 0.0, 0.0)};  // 1 kB to 1 MB on 2 to 4 ranks
  const Cluster cluster(platform, &calibration, GetParam().ranks, "test");
  EXPECT_EQ(lower(GetParam().bytes, cluster).basis, GetParam().basis);
}

INSTANTIATE_TEST_SUITE_P(
    Fit, BasisOf,
    testing::Values(BasisCase{"Inside", 5000, 3, "line", Basis::interpolated},
                    BasisCase{"AtTheSmallest", 1000, 2, "line", Basis::interpolated},
                    BasisCase{"AtTheLargest", 1'000'000, 4, "line", Basis::interpolated},
                    BasisCase{"TooFewBytes", 999, 3, "line", Basis::extrapolated},
                    BasisCase{"TooManyBytes", 1'000'001, 3, "line", Basis::extrapolated},
                    BasisCase{"TooManyRanks", 5000, 5, "line", Basis::extrapolated},
                    BasisCase{"AnotherPlatform", 5000, 3, "circle", Basis::extrapolated}),
    case_name);

TEST(Basis, IsExtrapolatedForANumberOfNodesThatWasNotMeasured) {
  const Platform platform = one_gpu_nodes(10e9);
  Calibration calibration;
  calibration.platform = "line";
  calibration.protocols = {protocol("Simple", 1.0, 0.0, 0.0)};
  calibration.protocols[0].nodes = {1, 2};
  EXPECT_EQ(lower(5000, Cluster(platform, &calibration, 2, "test")).basis, Basis::interpolated);
  EXPECT_EQ(lower(5000, Cluster(platform, &calibration, 3, "test")).basis, Basis::extrapolated);
}

TEST(Basis, IsExtrapolatedForANumberOfRanksThatWasNotMeasured) {
  const Platform platform = one_gpu_nodes(10e9);
  Calibration calibration;
  calibration.platform = "line";
  calibration.protocols = {protocol("Simple", 1.0, 0.0, 0.0)};
  calibration.protocols[0].nodes = {1, 100};
  EXPECT_EQ(lower(5000, Cluster(platform, &calibration, 5, "test")).basis, Basis::extrapolated);
}

TEST(Basis, IsTheMechanismWithoutACalibration) {
  const Platform platform = one_gpu_nodes(10e9);
  EXPECT_EQ(lower(5000, Cluster(platform, nullptr, 3, "test")).basis, Basis::mechanism);
}

TEST(Basis, HasAWordForEach) {
  EXPECT_EQ(to_string(Basis::measured), "measured");
  EXPECT_EQ(to_string(Basis::mechanism), "mechanism");
  EXPECT_EQ(to_string(Basis::interpolated), "interpolated");
  EXPECT_EQ(to_string(Basis::extrapolated), "extrapolated");
}

// Shares of links --------------------------------------------------------------------------------

TEST(EvenShareRates, AreTheSmallestShareOnTheWay) {
  LoweredCollective collective;
  collective.routes = {{{0}, false}, {{0, 1}, false}, {{1, 0}, false}, {{2}, false}};
  const std::vector<BytesPerSecond> bandwidths = {BytesPerSecond{120.0}, BytesPerSecond{60.0},
                                                  BytesPerSecond{7.0}, BytesPerSecond{1.0}};
  EXPECT_EQ(connections_per_link(collective, 4), (std::vector<int>{3, 2, 1, 0}));
  EXPECT_EQ(even_share_rates(collective, bandwidths),
            (std::vector<BytesPerSecond>{BytesPerSecond{120.0 / 3}, BytesPerSecond{60.0 / 2},
                                         BytesPerSecond{60.0 / 2}, BytesPerSecond{7.0}}));
}

}  // namespace
}  // namespace stepcast
