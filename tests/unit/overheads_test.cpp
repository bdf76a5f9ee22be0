#include "engine/overheads.hpp"

#include <cstdint>
#include <utility>
#include <vector>

#include "collective/protocols.hpp"
#include "documents.hpp"
#include "engine/measured.hpp"
#include "input/platform.hpp"
#include "testing.hpp"

namespace stepcast {
namespace {

Calibration bare(const Platform& platform) {
  Calibration calibration;
  calibration.platform = platform.name;
  calibration.machine = platform;
  return calibration;
}

Platform shipped(const char* file) {
  return read_platform(JsonDocument::read_file(repository_file(file)).root());
}

using Ranks = std::vector<std::pair<int, int>>;  // ranks, nodes

/// What all_reduce takes with these figures, as if it had been measured.
std::vector<Curve> curves_with(const Calibration& truth, const Ranks& on, std::int64_t largest) {
  std::vector<Curve> curves;
  for (const auto& [ranks, nodes] : on) {
    CurveKey key;
    key.ranks = ranks;
    key.nodes = nodes;
    std::vector<CurvePoint> points;
    for (std::int64_t bytes = 8; bytes <= largest; bytes *= 4) {
      const Bytes size{static_cast<double>(bytes)};
      points.push_back({size, mechanism_time(key.operation, size, {}, cluster_of(key, truth))});
    }
    curves.emplace_back(key, points);
  }
  return curves;
}

TEST(Overheads, AreThoseThatTheTimesWereMadeOf) {
  // A ring of Simple, which is all that there is without NCCL's tuner.
  const Platform platform =
      read_platform(JsonDocument::parse(with(tiny_platform(), "/nodes", "8"), "p").root());
  Calibration truth = bare(platform);
  truth.protocols = protocols_of(cluster_of(CurveKey{Operation::all_reduce, 8, 2, "", ""}, truth));
  ASSERT_EQ(truth.protocols.size(), 1u);
  truth.protocols[0].launch = Seconds{20e-6};
  truth.protocols[0].alpha_intra_node = Seconds{3e-6};
  truth.protocols[0].alpha_inter_node = Seconds{12e-6};
  const auto fits =
      fit_overheads(curves_with(truth, {{2, 1}, {4, 1}, {8, 2}, {16, 4}}, 65536), bare(platform));
  ASSERT_EQ(fits.size(), 1u);
  EXPECT_EQ(fits[0].why_not, "");
  // The model is what made the times, so what is left is the step of the derivatives.
  EXPECT_NEAR(fits[0].figures.launch.value(), 20e-6, 0.1e-6);
  EXPECT_NEAR(fits[0].figures.alpha_intra_node.value(), 3e-6, 0.02e-6);
  EXPECT_NEAR(fits[0].figures.alpha_inter_node.value(), 12e-6, 0.02e-6);
  EXPECT_LT(fits[0].max_abs, 0.002);
}

TEST(Overheads, OfATreeAreToldByTheNumberOfNodes) {
  // Launch and hops inside a node always go together, so the one is held and the other has the
  // rest.
  const Platform platform = shipped("platforms/abci_v100.json");
  Calibration truth = bare(platform);
  truth.protocols = protocols_of(cluster_of(CurveKey{Operation::all_reduce, 8, 2, "", ""}, truth));
  for (ProtocolFigures& protocol : truth.protocols) {
    if (protocol.name != "LL") continue;
    protocol.launch = Seconds{5e-6};
    protocol.latency_inter_node = Seconds{6e-6};
  }
  const auto fits =
      fit_overheads(curves_with(truth, {{4, 1}, {8, 2}, {16, 4}}, 4096), bare(platform));
  ASSERT_EQ(fits.size(), 1u);
  EXPECT_EQ(fits[0].figures.name, "LL");
  EXPECT_TRUE(fits[0].hop_between_nodes.determined);
  EXPECT_NEAR(fits[0].figures.latency_inter_node.value(), 6e-6, 0.02e-6);
  EXPECT_NEAR(fits[0].figures.launch.value(), 5e-6, 0.05e-6);
  EXPECT_TRUE(fits[0].hop_inside_node.held);
  EXPECT_EQ(fits[0].figures.latency_intra_node, Seconds{0.6e-6});
  EXPECT_EQ(fits[0].figures.alpha_inter_node, Seconds{});
}

TEST(Overheads, AreLeftOutWhereOneNumberOfNodesDoesNotTellThem) {
  const Platform platform = shipped("platforms/abci_v100.json");
  const auto curves = curves_with(bare(platform), {{8, 2}}, 4096);
  const auto fits = fit_overheads(curves, bare(platform));
  ASSERT_EQ(fits.size(), 1u);
  EXPECT_FALSE(fits[0].is_determined());
  EXPECT_EQ(fits[0].why_not,
            "launch and hops cannot be told apart; more numbers of ranks or nodes would");
  EXPECT_EQ(fits[0].figures.latency_inter_node, Seconds{2.7e-6});  // as it was
}

TEST(Overheads, AreLeftOutWhereTheMechanismIsAnother) {
  // Times that fall and rise with the size by a factor of 1.8.
  const Platform platform = shipped("platforms/abci_v100.json");
  std::vector<Curve> curves;
  for (const auto& [ranks, nodes] : Ranks{{4, 1}, {8, 2}, {16, 4}}) {
    std::vector<CurvePoint> points;
    for (int i = 0; i < 8; ++i)
      points.push_back({Bytes{8.0 * (1 << i)}, Seconds{i % 4 < 2 ? 20e-6 : 36e-6}});
    curves.emplace_back(CurveKey{Operation::all_reduce, ranks, nodes, "", ""}, points);
  }
  const auto fits = fit_overheads(curves, bare(platform));
  ASSERT_EQ(fits.size(), 1u);
  EXPECT_TRUE(fits[0].why_not.starts_with("half of the sizes are more than ")) << fits[0].why_not;
}

TEST(Overheads, AreNotAskedOfBroadcasts) {
  const Platform platform = shipped("platforms/abci_v100.json");
  std::vector<CurvePoint> points;
  for (int i = 0; i < 8; ++i) points.push_back({Bytes{8.0 * (1 << i)}, Seconds{8e-6}});
  const std::vector<Curve> curves = {Curve(CurveKey{Operation::broadcast, 8, 2, "", ""}, points)};
  EXPECT_TRUE(fit_overheads(curves, bare(platform)).empty());
}

}  // namespace
}  // namespace stepcast
