// Connections that are hashed to uplinks: which links they take, and how evenly.
#include <algorithm>
#include <cmath>
#include <set>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "collective/cluster.hpp"
#include "collective/lower.hpp"
#include "testing.hpp"

namespace stepcast {
namespace {

constexpr double nic_Bps = 10e9;

/// 64 nodes of two GPUs with a NIC each.
Platform on_fabric(const std::string& fabric) {
  return read_platform(
      JsonDocument::parse(
          R"({"format": "stepcast.platform/1", "name": "f", "source": "test", "gpu": {"name": "g"},
    "node": {"gpus": 2, "interconnect": {"kind": "switch", "bandwidth_Bps": 100e9, "alpha_s": 0},
      "nics": {"count": 2, "bandwidth_Bps": 10e9, "alpha_s": 0, "near_gpus": [[0], [1]]}},
    "fabric": )" +
              fabric + R"(, "nodes": 64})",
          "p.json")
          .root());
}

Platform leaf_spine(int uplinks, const std::string& balancing = "ecmp") {
  return on_fabric(fmt::format(
      R"({{"kind": "fat_tree", "load_balancing": "{}", "levels": [
           {{"nodes_per_group": 4, "oversubscription": 2, "uplinks": {}}}]}})",
      balancing, uplinks));
}

/// Leaves of 2 nodes with 4 uplinks, pods of 8 nodes whose 4 spines have 3 uplinks each.
Platform pods() {
  return on_fabric(R"({"kind": "fat_tree", "load_balancing": "ecmp", "ecmp_seed": 7, "levels": [
                       {"nodes_per_group": 2, "oversubscription": 1, "uplinks": 4},
                       {"nodes_per_group": 8, "oversubscription": 2, "uplinks": 3}]})");
}

Cluster cluster_of(const Platform& platform, int ranks = 128) {
  return {platform, nullptr, ranks, "test"};
}

using Names = std::vector<std::string>;
Names names_of(const Cluster& cluster, const Route& route) {
  Names names;
  for (const int link : route.links) names.push_back(cluster.link_name(link));
  return names;
}

/// The number that the name of a fabric link ends in.
int way_of(const std::string& name) {
  return std::stoi(name.substr(name.find_last_not_of("0123456789") + 1));
}

TEST(Ecmp, SharesTheGroupsRateAmongItsUplinks) {
  for (const int uplinks : {1, 2, 3, 8}) {
    const Cluster cluster = cluster_of(leaf_spine(uplinks), 16);  // 2 groups
    double up = 0.0;
    double down = 0.0;
    std::set<std::string> names;
    for (std::size_t link = 0; link < cluster.bandwidths().size(); ++link) {
      const std::string name = cluster.link_name(static_cast<int>(link));
      EXPECT_TRUE(names.insert(name).second) << name;
      if (name.starts_with("level0.group1.up")) up += cluster.bandwidths()[link].value();
      if (name.starts_with("level0.group1.down")) down += cluster.bandwidths()[link].value();
    }
    const double group = 4 * 2 * nic_Bps / 2;  // four nodes of two NICs, half of what they fill
    EXPECT_NEAR(up, group, 1e-9 * group);
    EXPECT_NEAR(down, group, 1e-9 * group);
    // 8 nodes of 2 ports and 2 NICs, each up and down; 2 groups, each uplink up and down.
    EXPECT_EQ(static_cast<int>(names.size()), 8 * 8 + 2 * 2 * uplinks);
  }
}

/// Where the two trees join the same NICs: how often each goes over an uplink of its own.
int apart(const std::string& balancing) {
  int count = 0;
  for (int seed = 0; seed < 8; ++seed) {
    const Platform platform = on_fabric(fmt::format(
        R"({{"kind": "fat_tree", "load_balancing": "{}", "ecmp_seed": {}, "levels": [
             {{"nodes_per_group": 1, "oversubscription": 1, "uplinks": 64}}]}})",
        balancing, seed));
    Placement placement;
    placement.gpus_per_node = 1;  // of two, the trees would take one NIC each
    const Cluster cluster(platform, nullptr, 2, "test", placement);
    CollectiveSettings settings;
    settings.algorithm = {"double_binary_tree", "test"};
    settings.channels = {1, "test"};
    const LoweredCollective trees =
        lower(Operation::all_reduce, Bytes{1e6}, settings, cluster, find_rings(cluster));
    const std::vector<Connection>& connections = trees.schedule.connections;
    for (std::size_t i = 0; i < connections.size(); ++i)
      for (std::size_t j = 0; j < i; ++j)
        if (trees.routes[i].inter_node && connections[i].src == connections[j].src &&
            connections[i].dst == connections[j].dst)
          count += trees.routes[i].links != trees.routes[j].links ? 1 : 0;
  }
  return count;
}

TEST(Ecmp, HashesTheTreesOfAChannelApartAsNcclsChannelsAre) {
  EXPECT_EQ(apart("ecmp"), 0);
  EXPECT_GE(apart("ecmp_qp"), 2 * 8 - 4);  // both ways; each together by a chance of 1 in 64
}

TEST(Ecmp, TakesTheWayDownFromTheSwitchThatItWasHashedTo) {
  const Cluster cluster = cluster_of(leaf_spine(8));
  for (int from = 0; from < 128; ++from)
    for (int to = 0; to < 128; ++to) {
      if (from / 2 == to / 2) continue;
      const Names names = names_of(cluster, cluster.between_ranks(from, to, 0));
      if (from / 8 == to / 8) {
        EXPECT_EQ(names.size(), 2u);
        continue;
      }
      const int way = way_of(names[1]);
      EXPECT_TRUE(way >= 0 && way < 8);
      EXPECT_EQ(names, (Names{fmt::format("node{}.nic{}.up", from / 2, from % 2),
                              fmt::format("level0.group{}.up{}", from / 8, way),
                              fmt::format("level0.group{}.down{}", to / 8, way),
                              fmt::format("node{}.nic{}.down", to / 2, to % 2)}));
    }
}

TEST(Ecmp, GoesUpFromTheSwitchBelow) {
  const Cluster cluster = cluster_of(pods());
  for (int from = 0; from < 16; ++from)
    for (int to = 16; to < 128; ++to) {
      const Names names = names_of(cluster, cluster.between_ranks(from, to, 0));
      ASSERT_EQ(names.size(), 6u);
      const int spine = way_of(names[1]);
      const int core = way_of(names[2]);
      EXPECT_LT(spine, 4);
      EXPECT_EQ(core / 3, spine);  // spine s of a pod has the uplinks 3 s to 3 s + 2
      EXPECT_EQ(names[3], fmt::format("level1.group{}.down{}", to / 16, core));
      EXPECT_EQ(names[4], fmt::format("level0.group{}.down{}", to / 4, spine));
    }
  const std::vector<int> far = cluster.between_ranks(0, 16, 0).links;
  // Leaves: 2 nodes of 2 NICs over 4 uplinks. Pods: 8 nodes of 2 NICs, half, over 12.
  EXPECT_NEAR(cluster.bandwidths()[static_cast<std::size_t>(far[1])].value(), nic_Bps, 1.0);
  EXPECT_NEAR(cluster.bandwidths()[static_cast<std::size_t>(far[2])].value(), 8 * nic_Bps / 12,
              1.0);
}

TEST(Ecmp, OfRailsHashesWhatLeavesTheLeaf) {
  const Cluster cluster =
      cluster_of(on_fabric(R"({"kind": "rail", "nodes_per_group": 4, "oversubscription": 2,
                               "load_balancing": "ecmp", "uplinks": 5})"));
  EXPECT_EQ(names_of(cluster, cluster.between_ranks(0, 6, 0)),
            (Names{"node0.nic0.up", "node3.nic0.down"}));
  const Names names = names_of(cluster, cluster.between_ranks(0, 9, 0));
  const int way = way_of(names[1]);
  EXPECT_EQ(names, (Names{"node0.nic0.up", fmt::format("group0.rail0.up{}", way),
                          fmt::format("group1.rail1.down{}", way), "node4.nic1.down"}));
}

// What splitmix64 makes of (seed, level, source port, destination port, channel), as
// tests/cli/ecmp_test.py computes it too: results must not change with the machine or the release.
TEST(Ecmp, HashesAlikeEverywhere) {
  const Cluster cluster = cluster_of(leaf_spine(8));
  std::vector<int> ways;
  for (int nic = 0; nic < 8; ++nic)
    ways.push_back(way_of(names_of(cluster, cluster.between_ranks(nic, nic + 8, 0))[1]));
  EXPECT_EQ(ways, (std::vector<int>{2, 6, 6, 2, 5, 6, 0, 7}));
}

TEST(Ecmp, TellsChannelsApartOnlyByTheirQueuePairs) {
  std::set<int> by_address;
  std::set<int> by_queue_pair;
  const Cluster plain = cluster_of(leaf_spine(8));
  const Cluster enhanced = cluster_of(leaf_spine(8, "ecmp_qp"));
  for (int channel = 0; channel < 32; ++channel) {
    by_address.insert(plain.between_nodes(0, 8, 0, 0, channel).links[1]);
    by_queue_pair.insert(enhanced.between_nodes(0, 8, 0, 0, channel).links[1]);
  }
  EXPECT_EQ(by_address.size(), 1u);
  EXPECT_EQ(by_queue_pair.size(),
            8u);  // that one of 8 stays empty has a chance of 8 (7/8)^32 = 11 %
  EXPECT_FALSE(plain.hashes_channels());
  EXPECT_TRUE(enhanced.hashes_channels());
}

/// What chi-square with so many degrees of freedom exceeds with a chance of 1e-6 at most:
/// P(X >= k + 2 sqrt(k x) + 2 x) <= exp(-x) (Laurent & Massart, Annals of Statistics 28(5), 2000).
double chi_square_bound(double degrees) {
  const double x = std::log(1e6);
  return degrees + 2.0 * std::sqrt(degrees * x) + 2.0 * x;
}

double chi_square(const std::vector<int>& counts) {
  double all = 0.0;
  for (const int count : counts) all += count;
  const double expected = all / static_cast<double>(counts.size());
  double sum = 0.0;
  for (const int count : counts) sum += (count - expected) * (count - expected) / expected;
  return sum;
}

TEST(Ecmp, SpreadsEvenlyOverSeedsAndLevels) {
  Platform platform = pods();
  std::vector<int> cores(12, 0);            // of one connection, over seeds
  std::vector<int> two_connections(16, 0);  // the leaf's uplinks of two that differ in one NIC
  std::vector<int> two_seeds(16, 0);        // of one connection, seed and the next seed
  int before = 0;
  for (int seed = 0; seed < 4800; ++seed) {
    platform.fabric.ecmp_seed = static_cast<std::uint64_t>(seed);
    const Cluster cluster = cluster_of(platform, 34);
    const auto way = [&](int from, std::size_t hop) {
      return way_of(names_of(cluster, cluster.between_ranks(from, 32, 0))[hop]);
    };
    const int leaf = way(0, 1);
    ++cores[static_cast<std::size_t>(way(0, 2))];
    const int both = 4 * leaf + way(1, 1);
    ++two_connections[static_cast<std::size_t>(both)];
    const int in_turn = 4 * before + leaf;
    if (seed > 0) ++two_seeds[static_cast<std::size_t>(in_turn)];
    before = leaf;
  }
  EXPECT_LE(chi_square(cores), chi_square_bound(11.0));
  EXPECT_LE(chi_square(two_connections), chi_square_bound(15.0));
  EXPECT_LE(chi_square(two_seeds), chi_square_bound(15.0));
}

/// Of n balls in k bins that no bin has more than m: n! / k^n [x^n] (sum of x^i / i! to m)^k.
double chance_of_at_most(int m, int n, int k) {
  std::vector<double> product(static_cast<std::size_t>(n) + 1, 0.0);
  product[0] = 1.0;
  double chance = 1.0;
  for (int i = 1; i <= n; ++i) chance *= i;
  for (int bin = 0; bin < k; ++bin) {
    std::vector<double> next(product.size(), 0.0);
    double factorial = 1.0;
    for (int i = 0; i <= std::min(m, n); ++i) {
      if (i > 0) factorial *= i;
      for (std::size_t j = 0; j + static_cast<std::size_t>(i) < next.size(); ++j)
        next[j + static_cast<std::size_t>(i)] += product[j] / factorial;
    }
    product = next;
  }
  return chance * product.back() / std::pow(k, n);
}

TEST(Ecmp, LoadsTheFullestUplinkAsBallsDoTheFullestBin) {
  EXPECT_NEAR(chance_of_at_most(1, 2, 4), 3.0 / 4.0, 1e-12);
  double mean = 0.0;
  double mean_square = 0.0;
  for (int m = 0; m < 8; ++m) {
    const double more = 1.0 - chance_of_at_most(m, 8, 8);
    mean += more;
    mean_square += (2 * m + 1) * more;
  }
  Platform platform = leaf_spine(8);
  constexpr int seeds = 2000;
  double sum = 0.0;
  for (int seed = 0; seed < seeds; ++seed) {
    platform.fabric.ecmp_seed = static_cast<std::uint64_t>(seed);
    const Cluster cluster = cluster_of(platform, 16);
    std::vector<int> load(8, 0);  // of group 0's uplinks, each of whose 8 NICs sends to group 1
    for (int nic = 0; nic < 8; ++nic)
      ++load[static_cast<std::size_t>(
          way_of(names_of(cluster, cluster.between_ranks(nic, nic + 8, 0))[1]))];
    sum += *std::max_element(load.begin(), load.end());
  }
  const double error = std::sqrt((mean_square - mean * mean) / seeds);
  EXPECT_NEAR(sum / seeds, mean, 5.0 * error);  // 1 in a million
}

TEST(Ecmp, OverOneUplinkIsIdeal) {
  const Cluster ideal = cluster_of(leaf_spine(1, "ideal"));
  for (const Cluster& cluster : {cluster_of(leaf_spine(1)), cluster_of(leaf_spine(8, "ideal"))}) {
    EXPECT_EQ(cluster.bandwidths(), ideal.bandwidths());
    EXPECT_EQ(cluster.period(), ideal.period());
    for (const int to : {2, 8, 9, 77}) {
      const Route route = cluster.between_ranks(0, to, 3);
      EXPECT_EQ(route.links, ideal.between_ranks(0, to, 3).links);
      EXPECT_EQ(names_of(cluster, route), names_of(ideal, route));
    }
  }
}

TEST(Ecmp, LeavesNoTwoNodesAlike) {
  EXPECT_EQ(cluster_of(leaf_spine(8, "ideal")).period(), 4);
  EXPECT_EQ(cluster_of(leaf_spine(8)).period(), 64);
  EXPECT_EQ(cluster_of(leaf_spine(8), 8).period(), 1);  // nothing leaves the only group
}

TEST(Ecmp, SaysWhatIsWrong) {
  const auto error = [](const std::string& fabric) {
    return input_error([&] { static_cast<void>(on_fabric(fabric)); });
  };
  EXPECT_EQ(error(R"({"kind": "switch", "load_balancing": "ecmp"})"),
            "p.json:/fabric/load_balancing: needs a fabric with uplinks: fat_tree or rail");
  EXPECT_EQ(error(R"({"kind": "rail", "nodes_per_group": 4, "oversubscription": 1, "uplinks": 0})"),
            "p.json:/fabric/uplinks: must be a whole number in [1, 1024], got 0");
  EXPECT_EQ(error(R"({"kind": "fat_tree", "load_balancing": "ecmp", "levels": [
                      {"nodes_per_group": 4, "oversubscription": 1, "uplinks": 8},
                      {"nodes_per_group": 8, "oversubscription": 1}]})"),
            "p.json:/fabric/levels/1: ECMP needs uplinks: among how many a switch hashes "
            "connections");
  EXPECT_EQ(error(R"({"kind": "fat_tree", "load_balancing": "ecmp_qp", "levels": [
                      {"nodes_per_group": 1, "oversubscription": 1, "uplinks": 128},
                      {"nodes_per_group": 2, "oversubscription": 1, "uplinks": 256}]})"),
            "p.json:/fabric: 32 groups with 32768 uplinks each; at most 1000000 links are hashed "
            "among");
  EXPECT_EQ(error(R"({"kind": "rail", "nodes_per_group": 4, "oversubscription": 1, "uplinks": 2,
                      "load_balancing": "adaptive"})"),
            "p.json:/fabric/load_balancing: unknown \"adaptive\"; known: ideal, ecmp, ecmp_qp");
  EXPECT_EQ(error(R"({"kind": "rail", "nodes_per_group": 4, "oversubscription": 1, "uplinks": 2,
                      "load_balancing": "ecmp", "ecmp_seed": -1})"),
            "p.json:/fabric/ecmp_seed: must be a whole number in [0, 9007199254740992], got -1");
}

}  // namespace
}  // namespace stepcast
