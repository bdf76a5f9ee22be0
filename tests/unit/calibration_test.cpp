#include "input/calibration.hpp"

#include <string>
#include <vector>

#include "documents.hpp"
#include "input/platform.hpp"
#include "testing.hpp"

namespace stepcast {
namespace {

Calibration read(const std::string& text) {
  return read_calibration(JsonDocument::parse(text, "c.json").root());
}

std::string error_of(const std::string& text) {
  return input_error([&] { static_cast<void>(read(text)); });
}

TEST(Range, HoldsBothItsEnds) {
  const Range range{2, 4};
  EXPECT_FALSE(range.holds(1));
  EXPECT_TRUE(range.holds(2));
  EXPECT_TRUE(range.holds(4));
  EXPECT_FALSE(range.holds(5));
}

TEST(Calibration, ReadsWhatItWasMeasuredOn) {
  const Calibration calibration = read(tiny_calibration());
  EXPECT_EQ(calibration.name, "tiny fit");
  EXPECT_EQ(calibration.source, "made up");
  EXPECT_EQ(calibration.platform, "tiny cluster");
}

TEST(Calibration, ReadsTheLinks) {
  const Calibration calibration = read(tiny_calibration());
  EXPECT_EQ(calibration.intra_node_share, 0.8);  // 80 of 100 GB/s
  EXPECT_EQ(calibration.inter_node_share, 0.8);
}

TEST(Calibration, LeavesOutLinksThatWereNotMeasured) {
  const Calibration calibration = read(with(tiny_calibration(), "/links", "{}"));
  EXPECT_FALSE(calibration.intra_node_share.has_value());
  EXPECT_FALSE(calibration.inter_node_share.has_value());
}

TEST(Calibration, ReadsAProtocol) {
  const Calibration calibration =
      read(with(tiny_calibration(), "/protocols/0/efficiency/value", "0.9375"));
  ASSERT_EQ(calibration.protocols.size(), 1u);
  const ProtocolFigures& protocol = calibration.protocols[0];
  EXPECT_EQ(protocol.name, "Simple");
  EXPECT_EQ(protocol.efficiency, 0.9375);
  EXPECT_EQ(protocol.launch, Seconds{10e-6});
  EXPECT_EQ(protocol.alpha_intra_node, Seconds{2e-6});
  EXPECT_EQ(protocol.alpha_inter_node, Seconds{6e-6});
  EXPECT_EQ(protocol.bytes.min, 1024);
  EXPECT_EQ(protocol.bytes.max, 1048576);
  EXPECT_EQ(protocol.ranks.min, 2);
  EXPECT_EQ(protocol.ranks.max, 8);
  EXPECT_EQ(protocol.nodes.min, 1);
  EXPECT_EQ(protocol.nodes.max, 2);
  EXPECT_EQ(protocol.worst_residual, 0.05);
}

TEST(Calibration, NeedsNoSamples) {
  EXPECT_EQ(error_of(without(tiny_calibration(), "/samples")), "no error");
}

TEST(Calibration, ShippedAbciV100WasMeasuredOnTheShippedPlatform) {
  const Calibration calibration = read_calibration(
      JsonDocument::read_file(repository_file("platforms/abci_v100.calibration.json")).root());
  const Platform platform =
      read_platform(JsonDocument::read_file(repository_file("platforms/abci_v100.json")).root());
  EXPECT_EQ(calibration.platform, platform.name);
  ASSERT_EQ(calibration.protocols.size(), 3u);
  EXPECT_EQ(calibration.protocols[0].name, "LL");
  EXPECT_EQ(calibration.protocols[1].name, "LL128");
  EXPECT_EQ(calibration.protocols[2].name, "Simple");
  EXPECT_EQ(calibration.nccl_version, "2.8.4-1");
}

class CalibrationRefuses : public testing::TestWithParam<Mistake> {};

TEST_P(CalibrationRefuses, AMistake) { EXPECT_EQ(error_of(GetParam().document), GetParam().error); }

std::vector<Mistake> calibration_mistakes() {
  const std::string good = tiny_calibration();
  const std::string protocol =
      JsonDocument::parse(good, "c.json").root().at("protocols").elements().at(0).dump();
  return {
      {"AnotherFormat", with(good, "/format", R"("stepcast.trace/1")"),
       "c.json:/format: must be \"stepcast.calibration/1\", got \"stepcast.trace/1\""},
      {"AnUnknownKey", with(good, "/link", "{}"),
       "c.json: unknown key \"link\"; did you mean \"links\"? known: format, name, source, "
       "platform, machine, date, command, versions, links, protocols, curves, samples, "
       "compute, interference, skipped, warnings"},
      {"AMissingPlatform", without(good, "/platform"), "c.json: the key \"platform\" is missing"},
      {"AnotherMachine", with(good, "/machine", with(tiny_platform(), "/name", R"("other")")),
       "c.json:/machine/name: must be \"tiny cluster\", the platform that was measured, got "
       "\"other\""},
      {"AProtocolTwice", with(good, "/protocols/1", protocol),
       "c.json:/protocols/1/name: the protocol Simple stands twice"},
      {"AnUnknownProtocol", with(good, "/protocols/0/name", R"("LL28")"),
       "c.json:/protocols/0/name: unknown \"LL28\"; did you mean \"LL128\", \"LL\"? known: LL, "
       "LL128, Simple"},
      {"AnEfficiencyAboveOne", with(good, "/protocols/0/efficiency/value", "1.1"),
       "c.json:/protocols/0/efficiency/value: must be in [0.001, 1], got 1.1"},
      {"ANegativeLaunch", with(good, "/protocols/0/launch_s/value", "-1e-6"),
       "c.json:/protocols/0/launch_s/value: must be in [0, 1], got -1e-06"},
      {"ABareFigure", with(good, "/protocols/0/launch_s", "1e-6"),
       "c.json:/protocols/0/launch_s: must be an object, got 1e-06"},
      {"ANegativeStandardError", with(good, "/links/intra_node_Bps/stderr", "-1"),
       "c.json:/links/intra_node_Bps/stderr: must be at least 0, got -1"},
      {"ARangeOfThree", with(good, "/protocols/0/range/ranks", "[1, 2, 3]"),
       "c.json:/protocols/0/range/ranks: must be [smallest, largest], got [1,2,3]"},
      {"ARangeTheWrongWayRound", with(good, "/protocols/0/range/nodes", "[4, 2]"),
       "c.json:/protocols/0/range/nodes/1: must be a whole number in [4, 1048576], got 2"},
      {"AMissingRange", without(good, "/protocols/0/range/bytes"),
       "c.json:/protocols/0/range: the key \"bytes\" is missing"},
      {"NoResidualSamples", with(good, "/protocols/0/residuals/samples", "0"),
       "c.json:/protocols/0/residuals/samples: must be a whole number in [1, 16777216], got 0"},
      {"AnotherOperation", with(good, "/samples/0/operation", R"("all_to_all")"),
       "c.json:/samples/0/operation: unknown \"all_to_all\"; known: all_reduce, reduce_scatter, "
       "all_gather, broadcast"},
      {"MoreNodesThanRanks", with(good, "/samples/0/nodes", "5"),
       "c.json:/samples/0/nodes: must be a whole number in [1, 4], got 5"},
      {"ASampleWithoutASource", without(good, "/samples/0/source"),
       "c.json:/samples/0: the key \"source\" is missing"},
  };
}
INSTANTIATE_TEST_SUITE_P(Calibrations, CalibrationRefuses,
                         testing::ValuesIn(calibration_mistakes()), case_name);

}  // namespace
}  // namespace stepcast
