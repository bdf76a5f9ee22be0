#include "engine/measured.hpp"

#include <cmath>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "collective/rings.hpp"
#include "documents.hpp"
#include "input/platform.hpp"
#include "testing.hpp"

namespace stepcast {
namespace {

constexpr std::int64_t kib = 1024;
constexpr double solved = 2e-3;  // how near the slowness of the network is looked for, and some

Platform platform_of(const std::string& json) {
  return read_platform(JsonDocument::parse(json, "p.json").root());
}

/// Nodes of four GPUs and two NICs; NCCL does not choose here, so all goes round a ring.
Platform nodes_of_four() { return platform_of(with(tiny_platform(), "/nodes", "64")); }

Platform slower(Platform platform, double inside, double between) {
  platform.intra_node.bandwidth = platform.intra_node.bandwidth / inside;
  platform.intra_node.alpha = inside * platform.intra_node.alpha;
  platform.nics->figures.bandwidth = platform.nics->figures.bandwidth / between;
  platform.nics->figures.alpha = between * platform.nics->figures.alpha;
  return platform;
}

Cluster cluster_on(const Platform& platform, const Calibration* calibration, int nodes) {
  Placement placement;
  placement.gpus_per_node = platform.gpus_per_node;
  return {platform, calibration, nodes * platform.gpus_per_node, "test", placement};
}

Seconds mechanism(const Platform& platform, int nodes, std::int64_t bytes) {
  return mechanism_time(Operation::all_reduce, Bytes{static_cast<double>(bytes)}, {},
                        cluster_on(platform, nullptr, nodes));
}

using Truth = std::function<double(int nodes, std::int64_t bytes)>;

/// What all_reduce takes in truth, on these numbers of nodes.
Calibration measured(const Platform& platform, const std::vector<int>& nodes, const Truth& truth,
                     std::int64_t smallest = kib) {
  Calibration calibration;
  calibration.platform = platform.name;
  calibration.machine = platform;
  for (const int on : nodes)
    for (std::int64_t bytes = smallest; bytes <= 65536 * kib; bytes *= 4) {
      CollectiveSample sample;
      sample.operation = "all_reduce";
      sample.nodes = on;
      sample.ranks = on * platform.gpus_per_node;
      sample.bytes = bytes;
      sample.time = Seconds{truth(on, bytes)};
      calibration.samples.push_back(sample);
    }
  return calibration;
}

/// s, with the level of the calibration.
double predicted(const Calibration& calibration, int nodes, std::int64_t bytes) {
  const Cluster cluster = cluster_on(*calibration.machine, &calibration, nodes);
  const Bytes size{static_cast<double>(bytes)};
  Measurements measurements(cluster);
  const auto level =
      measured_level(Operation::all_reduce, size, {}, cluster, find_rings(cluster), measurements);
  return level.value().factor * mechanism_time(Operation::all_reduce, size, {}, cluster).value();
}

TEST(MeasuredLevel, WhatAFewNodesTellOfTheNetworkHoldsForMore) {
  const Platform platform = nodes_of_four();
  const Platform real = slower(platform, 1.0, 3.0);
  const Calibration calibration = measured(
      platform, {2, 4}, [&](int n, std::int64_t s) { return mechanism(real, n, s).value(); });
  for (const std::int64_t bytes : {4 * kib, 256 * kib, 16384 * kib}) {
    const double truth = mechanism(real, 16, bytes).value();
    EXPECT_NEAR(predicted(calibration, 16, bytes), truth, solved * truth) << bytes;
    const double between = mechanism(real, 3, bytes).value();
    EXPECT_NEAR(predicted(calibration, 3, bytes), between, solved * between) << bytes;
  }
}

TEST(MeasuredLevel, OneNodeTellsWhatIsNotTheNetwork) {
  const Platform platform = nodes_of_four();
  const Platform real = slower(platform, 2.0, 5.0);
  const Truth truth = [&](int n, std::int64_t s) { return mechanism(real, n, s).value(); };
  for (const std::int64_t bytes : {4 * kib, 256 * kib, 16384 * kib})
    EXPECT_NEAR(predicted(measured(platform, {1, 2}, truth), 16, bytes), truth(16, bytes),
                solved * truth(16, bytes));
}

TEST(MeasuredLevel, RingsAreComparedAtEqualMessages) {
  // One GPU and one NIC a node: 2 (n-1) steps, whatever a step takes for its S / n bytes.
  Platform platform;
  platform.name = "line";
  platform.nodes = 64;
  platform.node_graph.lanes.resize(1, std::vector<std::vector<Lane>>(1));
  platform.nics =
      Nics{.count = 1, .figures = {BytesPerSecond{10e9}, Seconds{5e-6}}, .near_gpus = {{}}};
  const auto step = [](double message) { return 20e-6 * std::sqrt(1.0 + message / 30e3); };
  const Truth truth = [&](int n, std::int64_t s) {
    return 2.0 * (n - 1) * step(static_cast<double>(s) / n);
  };
  const Calibration calibration = measured(platform, {4}, truth);
  for (const std::int64_t bytes : {16 * kib, 1024 * kib, 65536 * kib})
    EXPECT_NEAR(predicted(calibration, 16, bytes), truth(16, bytes), solved * truth(16, bytes))
        << bytes;
}

TEST(MeasuredLevel, OfAnotherAlgorithmOnlyTheExcessCounts) {
  const Platform platform =
      read_platform(JsonDocument::read_file(repository_file("platforms/abci_v100.json")).root());
  const std::int64_t bytes = 64 * kib;
  const auto algorithm = [&](int nodes) {
    const Cluster cluster = cluster_on(platform, nullptr, nodes);
    return lower(Operation::all_reduce, Bytes{static_cast<double>(bytes)}, {}, cluster,
                 find_rings(cluster))
        .algorithm;
  };
  ASSERT_EQ(algorithm(2), "ring");
  ASSERT_EQ(algorithm(8), "double_binary_tree");
  const Calibration calibration = measured(platform, {2}, [&](int n, std::int64_t s) {
    return mechanism(platform, n, s).value() + 100e-6;
  });
  EXPECT_NEAR(predicted(calibration, 8, bytes), mechanism(platform, 8, bytes).value() + 100e-6,
              1e-9);
}

TEST(MeasuredLevel, WhatNoNetworkExplainsIsARatio) {
  // Twice as fast as the links inside a node allow.
  const Platform platform = nodes_of_four();
  const Platform inside = slower(platform, 1.0, 1e-6);
  const std::int64_t bytes = 16384 * kib;
  const double time = 0.5 * mechanism(inside, 2, bytes).value();
  const Calibration calibration = measured(platform, {2}, [&](int, std::int64_t) { return time; });
  // A ring: the message of 16 nodes is that of 2 nodes and an eighth of the bytes.
  EXPECT_NEAR(
      predicted(calibration, 16, bytes),
      mechanism(platform, 16, bytes).value() * time / mechanism(platform, 2, bytes / 8).value(),
      1e-9);
}

TEST(MeasuredLevel, IsOfTheFabricThatWasMeasured) {
  Platform platform = nodes_of_four();
  platform.fabric.levels = {{.nodes_per_group = 1, .oversubscription = 1.0}};
  const Calibration calibration = measured(platform, {4}, [](int, std::int64_t) { return 1.0; });
  const auto basis_on = [&](const Platform& on) {
    const Cluster cluster = cluster_on(on, &calibration, 4);
    Measurements measurements(cluster);
    return measured_level(Operation::all_reduce, Bytes{1024.0 * kib}, {}, cluster,
                          find_rings(cluster), measurements)
        ->basis;
  };
  EXPECT_EQ(basis_on(platform), Basis::measured);
  Platform other = platform;
  other.fabric.levels[0].uplinks = 2;
  EXPECT_EQ(basis_on(other), Basis::extrapolated);
  other = platform;
  other.fabric.levels[0].oversubscription = 2.0;
  EXPECT_EQ(basis_on(other), Basis::extrapolated);
}

TEST(MeasuredLevel, AMeasuredTimeComesBack) {
  const Platform platform = nodes_of_four();
  const Calibration calibration = measured(platform, {2, 4}, [](int n, std::int64_t s) {
    return 1e-3 * n + static_cast<double>(s) / 1e9;
  });
  EXPECT_NEAR(predicted(calibration, 4, 1024 * kib), 4e-3 + 1048576e-9, 1e-12);
}

}  // namespace
}  // namespace stepcast
