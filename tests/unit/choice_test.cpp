#include "collective/choice.hpp"

#include "testing.hpp"

namespace stepcast {
namespace {

class Choosing : public testing::Test {
 protected:
  static Platform platform(const std::string& name) {
    return read_platform(
        JsonDocument::read_file(repository_file("platforms/" + name + ".json")).root());
  }
  [[nodiscard]] CollectiveChoice choice(const std::string& on, int ranks, double bytes,
                                        Operation operation = Operation::all_reduce) const {
    const Cluster cluster(platform(on), calibration, ranks, "test");
    return choose(operation, Bytes{bytes}, settings, cluster, find_rings(cluster));
  }
  [[nodiscard]] std::string taken(const std::string& on, int ranks, double bytes) const {
    const CollectiveChoice chosen = choice(on, ranks, bytes);
    return chosen.algorithm_name + "/" + chosen.protocol.name;
  }
  /// Why a way was not taken.
  static std::string why_not(const CollectiveChoice& choice, const std::string& algorithm,
                             const std::string& protocol) {
    for (const ConsideredChoice& one : choice.considered)
      if (one.algorithm == algorithm && one.protocol == protocol) return one.why_not;
    return "not considered";
  }

  CollectiveSettings settings;
  const Calibration* calibration = nullptr;
};

TEST_F(Choosing, IsNcclsTunersWhereTheGpuIsKnown) {
  // Recorded with nccl-tests (facts.md §1): A100 goes LL, LL128, Simple; H100 takes NVLS.
  settings.nccl_version.value = "2.21.5";
  EXPECT_EQ(taken("dgx_a100", 8, 1024), "ring/LL");
  EXPECT_EQ(taken("dgx_a100", 8, 1 << 22), "ring/LL128");
  EXPECT_EQ(taken("dgx_a100", 8, 1 << 28), "ring/Simple");
  EXPECT_EQ(taken("dgx_h100", 8, 1 << 28), "nvls/Simple");
  EXPECT_EQ(choice("dgx_h100", 8, 1 << 28).chooser, "the tuner of NCCL 2.21.5");
}

TEST_F(Choosing, IsTheRingByEstimateWhereItIsNot) {
  const CollectiveChoice chosen = choice("pcie_8gpu", 8, 1e6);
  EXPECT_EQ(chosen.algorithm_name, "ring");
  EXPECT_EQ(chosen.chunking, Chunking::plain);
  EXPECT_FALSE(chosen.communicator);
}

TEST_F(Choosing, PutsTheTakenOneFirstAndTheRestByTime) {
  const CollectiveChoice chosen = choice("dgx_h100", 16, 1e7);
  ASSERT_GT(chosen.considered.size(), 3u);
  EXPECT_EQ(chosen.considered.front().algorithm, chosen.algorithm_name);
  EXPECT_EQ(chosen.considered.front().why_not, "");
  for (std::size_t i = 2; i < chosen.considered.size() && chosen.considered[i].estimate; ++i)
    EXPECT_LE(*chosen.considered[i - 1].estimate, *chosen.considered[i].estimate);
}

TEST_F(Choosing, SaysWhatTheScenarioLeavesOut) {
  settings.algorithm = {"ring", "s.json:/collective/algorithm"};
  const CollectiveChoice chosen = choice("dgx_h100", 8, 1 << 28);
  EXPECT_EQ(chosen.algorithm_name, "ring");
  EXPECT_EQ(why_not(chosen, "nvls", "Simple"), "left out by s.json:/collective/algorithm");
  EXPECT_EQ(why_not(chosen, "ring", "LL"), "slower");
}

TEST_F(Choosing, ObeysTheLimitsOfTheChannels) {
  const int free = choice("dgx_a100", 8, 1 << 28).channels;
  EXPECT_EQ(free, 24);
  settings.max_channels = 10;
  EXPECT_EQ(choice("dgx_a100", 8, 1 << 28).channels, 10);
  settings.max_channels = 64;
  settings.min_channels = 30;
  EXPECT_EQ(choice("dgx_a100", 8, 1 << 28).channels, 30);
  settings.channels = {3, "test"};
  EXPECT_EQ(choice("dgx_a100", 8, 1 << 28).channels, 3);
}

TEST_F(Choosing, TakesWhatWasMeasuredThere) {
  const Calibration measured = read_calibration(
      JsonDocument::read_file(repository_file("platforms/abci_v100.calibration.json")).root());
  calibration = &measured;
  const CollectiveChoice chosen = choice("abci_v100", 8, 8 << 20);
  EXPECT_EQ(chosen.algorithm_name, "ring");
  EXPECT_EQ(chosen.protocol.name, "Simple");
  EXPECT_EQ(chosen.chooser, "measurement: the calibration covers this size, ranks and nodes");
  // Nothing else than an AllReduce was measured.
  EXPECT_NE(choice("abci_v100", 8, 8 << 20, Operation::broadcast).chooser, chosen.chooser);
}

TEST_F(Choosing, RefusesWhatCannotBe) {
  settings.algorithm = {"nvls", "s.json:/collective/algorithm"};
  EXPECT_EQ(input_error([&] { static_cast<void>(choice("dgx_a100", 8, 1e6)); }),
            "s.json:/collective/algorithm: NCCL cannot do that here: needs switches with "
            "NVLink SHARP");
  settings.algorithm = {};
  settings.chunking = {Chunking::nccl, "s.json:/collective/chunking"};
  EXPECT_EQ(input_error([&] { static_cast<void>(choice("pcie_8gpu", 8, 1e6)); }),
            "s.json:/collective/chunking: NCCL's chunks need a platform with "
            "gpu.compute_capability");
  settings.algorithm = {"direct", "test"};
  EXPECT_EQ(input_error([&] { static_cast<void>(choice("dgx_a100", 8, 1e6)); }),
            "s.json:/collective/chunking: NCCL has no direct; use \"plain\"");
}

// Protocols --------------------------------------------------------------------------------------

TEST_F(Choosing, NominalProtocolsAreNcclsConstantsOnThePlatformsLinks) {
  // LL and LL128 send flags: 8 B of 16, 120 of 128. Simple pays the fence, LL only what is hidden.
  const Cluster cluster(platform("dgx_a100"), nullptr, 8, "test");
  std::vector<std::string> names;
  for (const ProtocolFigures& protocol : protocols_of(cluster)) {
    names.push_back(protocol.name);
    EXPECT_FALSE(protocol.measured);
    EXPECT_GT(protocol.efficiency, 0.0);
    EXPECT_LE(protocol.efficiency, 1.0);
  }
  EXPECT_EQ(names, (std::vector<std::string>{"LL", "LL128", "Simple"}));
  EXPECT_EQ(wire_bytes_per_byte("LL"), 2.0);
  EXPECT_EQ(wire_bytes_per_byte("LL128"), 128.0 / 120.0);
  EXPECT_EQ(wire_bytes_per_byte("Simple"), 1.0);
}

TEST_F(Choosing, FillsUpACalibrationWithNominalProtocols) {
  Calibration measured = read_calibration(
      JsonDocument::read_file(repository_file("platforms/abci_v100.calibration.json")).root());
  std::erase_if(measured.protocols, [](const auto& protocol) { return protocol.name == "LL128"; });
  const Cluster cluster(platform("abci_v100"), &measured, 8, "test");
  for (const ProtocolFigures& protocol : protocols_of(cluster))
    EXPECT_EQ(protocol.measured, protocol.name != "LL128") << protocol.name;
}

TEST_F(Choosing, AFittedProtocolLeavesTheOthersWhereNcclsTunerIsNotKnown) {
  const Platform machine = platform("mi355x_8gpu");
  Calibration fitted;
  fitted.platform = machine.name;
  fitted.protocols = {nominal_protocol("LL", machine)};
  std::vector<std::string> names;
  for (const ProtocolFigures& protocol : protocols_of({machine, &fitted, 8, "test"}))
    names.push_back(protocol.name);
  EXPECT_EQ(names, (std::vector<std::string>{"LL", "Simple"}));
}

}  // namespace
}  // namespace stepcast
