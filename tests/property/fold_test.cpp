// What is alike is simulated once, and gives the same; what is not, is not.
#include "collective/algorithms.hpp"
#include "jobs.hpp"
#include "simulate.hpp"

namespace stepcast {
namespace {

/// All that a result is made of: times of each rank, bytes of each link and of each rank.
std::vector<double> all_of(const Job& job, const Timeline& timeline) {
  std::vector<double> numbers = numbers_of(timeline);
  for (const Bytes bytes : wire_bytes_per_link(job)) numbers.push_back(bytes.value());
  for (const Bytes bytes : sent_bytes_per_rank(job)) numbers.push_back(bytes.value());
  return numbers;
}

/// Last whether SimGrid was asked.
std::vector<double> simulated(const Job& job) {
  return isolated_numbers([&] {
    const Simulation simulation = simulate(job);
    std::vector<double> numbers = all_of(job, simulation.timeline);
    numbers.push_back(simulation.used_simgrid ? 1.0 : 0.0);
    return numbers;
  });
}

Platform fabric_platform(Random& random) {
  const int gpus = random.whole(0, 1) == 0 ? 1 : 4;
  const std::string inside =
      gpus == 1
          ? ""
          : fmt::format(
                R"("interconnect": {{"kind": "switch", "bandwidth_Bps": {}, "alpha_s": 1e-6}},)",
                random.magnitude(2e10, 1e12));
  std::string fabric = R"({"kind": "switch"})";
  if (const auto kind = random.whole(0, 5); kind == 1)
    fabric = fmt::format(
        R"({{"kind": "fat_tree", "levels": [{{"nodes_per_group": 2, "oversubscription": {0}}},
                                            {{"nodes_per_group": 4, "oversubscription": {0}}}]}})",
        random.whole(1, 4));
  else if (kind == 2)
    fabric = fmt::format(R"({{"kind": "rail", "nodes_per_group": 3, "oversubscription": {}}})",
                         random.whole(1, 4));
  else if (kind == 3)
    fabric = fmt::format(
        R"({{"kind": "fat_tree", "load_balancing": "ecmp", "levels": [
             {{"nodes_per_group": 2, "oversubscription": 1, "uplinks": {}}},
             {{"nodes_per_group": 4, "oversubscription": 2, "uplinks": {}}}]}})",
        random.whole(1, 2), random.whole(1, 3));
  return platform_from(fmt::format(
      R"({{"format": "stepcast.platform/1", "name": "fabric", "source": "test", "gpu": {{"name": "g"}},
           "node": {{"gpus": {0}, {1}
                     "nics": {{"count": {2}, "bandwidth_Bps": {3}, "alpha_s": {4}, "latency_s": {5}}}}},
           "fabric": {6}, "nodes": 1024}})",
      gpus, inside, gpus == 1 ? 1 : random.whole(1, 2) * 2, random.magnitude(1e9, 1e11),
      random.magnitude(1e-7, 1e-5), random.magnitude(1e-7, 1e-5), fabric));
}

/// The largest relative difference of two numbers in the same place.
double worst_ratio(const std::vector<double>& a, const std::vector<double>& b) {
  EXPECT_EQ(a.size(), b.size());
  double worst = 0.0;
  for (std::size_t i = 0; i < std::min(a.size(), b.size()); ++i)
    if (a[i] != b[i])
      worst = std::max(worst, std::abs(a[i] - b[i]) / std::max(std::abs(a[i]), std::abs(b[i])));
  return worst;
}

/// A step with two collectives behind each other, on nodes that are alike or nearly so.
Job random_job(Random& random, const std::string& algorithm, bool fold) {
  const Platform platform = fabric_platform(random);
  const int nodes = static_cast<int>(random.whole(2, 13));
  CollectiveSettings settings;
  settings.fold = fold;
  settings.algorithm = {algorithm, "test"};
  settings.channels = {static_cast<int>(random.whole(1, 3)), "test"};
  if (random.whole(0, 1) == 1)
    settings.chunk_bytes = {static_cast<std::int64_t>(random.magnitude(1e5, 1e7)), "test"};
  if (random.whole(0, 3) == 0) settings.intra_node_algorithm = {"direct", "test"};
  if (random.whole(0, 3) == 0) settings.inter_node_algorithm = {"recursive_doubling", "test"};
  Placement placement;
  placement.scattered = random.whole(0, 3) == 0;
  const int missing = random.whole(0, 7) == 0 ? 1 : 0;
  Cluster cluster(platform, nullptr, nodes * platform.gpus_per_node - missing, "test", placement);
  if (random.whole(0, 4) == 0 && cluster.nodes() > 1)
    cluster.slow_down({static_cast<int>(random.whole(0, cluster.nodes() - 1)), 0, 0.7, "test"});
  Program program;
  program.collectives = {{static_cast<std::int64_t>(random.magnitude(1e3, 1e7)), {}},
                         {static_cast<std::int64_t>(random.magnitude(1e3, 1e7)), {}}};
  program.segments = {{1,
                       {Compute{Phase::backward, "b", Seconds{1e-4}}, Launch{0},
                        Compute{Phase::backward, "b", Seconds{1e-4}}, Launch{1}, Wait{0}, Wait{1},
                        Compute{Phase::optimizer, "o", Seconds{1e-5}}}}};
  Job job = make_job(program, settings, cluster);
  job.interference.assign(job.lowered.size(), {1.5, 1.25, Interference::Basis::set});
  if (random.whole(0, 2) == 0) {
    job.pace.assign(static_cast<std::size_t>(cluster.ranks()), 1.0);
    job.pace[static_cast<std::size_t>(random.whole(0, cluster.ranks() - 1))] = 1.5;
  }
  return job;
}

class EveryFoldedAllReduce : public testing::TestWithParam<std::string> {};

TEST_P(EveryFoldedAllReduce, IsTheSame) {
  int folded = 0;
  const bool turns = GetParam() == "ring" || GetParam() == "hierarchical";
  for (unsigned seed = 0; seed < (turns ? 40u : 10u); ++seed) {
    Random one(seed);
    Random other(seed);
    std::optional<Job> folding;
    std::optional<Job> in_full;
    try {
      folding = random_job(one, GetParam(), true);
      in_full = random_job(other, GetParam(), false);
    } catch (const InputError&) {
      continue;  // not on this machine
    }
    const Job& with = *folding;
    const Job& without = *in_full;
    for (std::size_t i = 0; i < with.lowered.size(); ++i) {
      folded += with.lowered[i].fold ? 1 : 0;
      EXPECT_EQ(with.lowered[i].fold.has_value(), with.lowered[i].why_not_folded.empty());
      EXPECT_FALSE(without.lowered[i].fold);
    }
    const std::vector<double> one_of_each = simulated(with);
    const std::vector<double> each = simulated(without);
    if (each.back() == 0.0) {  // nothing on SimGrid
      EXPECT_EQ(one_of_each, each) << "seed " << seed;
    }
    // There m flows of a class may leave something to another one: C - m r, not ((C - r) - r) - ...
    EXPECT_LE(worst_ratio(one_of_each, each), 1e-13)
        << "seed " << seed << ": " << with.cluster.nodes() << " nodes, " << with.cluster.ranks()
        << " ranks";
  }
  EXPECT_GE(folded, turns ? 14 : 0);
}

INSTANTIATE_TEST_SUITE_P(Registered, EveryFoldedAllReduce,
                         testing::ValuesIn(collective_algorithms(Operation::all_reduce).names()),
                         [](const auto& test) { return test.param; });

TEST(Folding, IsTheSameWithEveryTransferOnSimgrid) {
  int folded = 0;
  for (unsigned seed = 100; seed < 130; ++seed) {
    Random one(seed);
    Random other(seed);
    const std::string algorithm = seed % 2 == 0 ? "ring" : "hierarchical";
    const Job with = random_job(one, algorithm, true);
    const Job without = random_job(other, algorithm, false);
    folded += with.lowered.front().fold ? 1 : 0;
    EXPECT_LE(worst_difference(simgrid_numbers(with), simgrid_numbers(without)), 1e-12)
        << "seed " << seed;
  }
  EXPECT_GE(folded, 10);
}

TEST(Folding, OfTheHalvesOfAnAllReduceIsTheSame) {
  const Platform platform = switched_platform(4, 1e11, 1e10, 1e-6, 5e-6);
  const Cluster cluster(platform, nullptr, 40, "test");
  for (const Operation operation : all_operations) {
    CollectiveSettings settings;
    const Job with = make_job(single_collective(operation, 1'000'003), settings, cluster);
    settings.fold = false;
    const Job without = make_job(single_collective(operation, 1'000'003), settings, cluster);
    EXPECT_EQ(with.lowered.front().fold.has_value(), operation != Operation::broadcast);
    EXPECT_EQ(simulated(with), simulated(without)) << to_string(operation);
  }
}

TEST(Folding, SimulatesNoMoreThanItMust) {
  // Ten nodes that are all alike: three, for a rank's predecessor not to be its successor.
  const Job alike =
      all_reduce_job(ideal_platform(1e10, 1e-6), 10, 1'000'000, ring_settings(1, infinite_chunk));
  ASSERT_TRUE(alike.lowered.front().fold);
  EXPECT_EQ(alike.lowered.front().fold->nodes, 3);
  EXPECT_EQ(alike.lowered.front().fold->period, 1);
  // Switches of four nodes: two of them, for what leads from one to the other.
  const Platform tree = platform_from(
      R"({"format": "stepcast.platform/1", "name": "tree", "source": "test", "gpu": {"name": "g"},
          "node": {"gpus": 1, "nics": {"count": 1, "bandwidth_Bps": 1e10, "alpha_s": 1e-6}},
          "fabric": {"kind": "fat_tree", "levels": [{"nodes_per_group": 4, "oversubscription": 2}]},
          "nodes": 64})");
  const Job grouped = all_reduce_job(tree, 64, 1'000'000, ring_settings(1, infinite_chunk));
  ASSERT_TRUE(grouped.lowered.front().fold);
  EXPECT_EQ(grouped.lowered.front().fold->nodes, 8);
  EXPECT_EQ(grouped.lowered.front().fold->period, 4);
  const Timeline timeline = simulate_analytically(alike);
  EXPECT_EQ(timeline.class_sizes(), std::vector<int>{10});
}

TEST(Folding, IsRefusedWhereItWouldBeWrong) {
  const auto why_not = [](const Cluster& cluster, const std::string& algorithm) {
    CollectiveSettings settings;
    settings.algorithm = {algorithm, "test"};
    return make_job(single_collective(Operation::all_reduce, 1'000'003), settings, cluster)
        .lowered.front()
        .why_not_folded;
  };
  const Platform ideal = ideal_platform(1e10, 1e-6);
  const Cluster alike(ideal, nullptr, 16, "test");
  EXPECT_EQ(why_not(alike, "ring"), "");
  EXPECT_EQ(why_not(alike, "double_binary_tree"),
            "all_reduce by double_binary_tree does something else on each node");
  EXPECT_EQ(why_not(Cluster(ideal, nullptr, 3, "test"), "ring"), "there are 3 nodes only");
  Cluster slow = alike;
  slow.slow_down({3, 0, 0.5, "test"});
  EXPECT_EQ(why_not(slow, "ring"), "no two nodes are alike");
  const Platform nodes_of_4 = switched_platform(4, 1e11, 1e10, 1e-6, 5e-6);
  EXPECT_EQ(why_not(Cluster(nodes_of_4, nullptr, 39, "test"), "ring"), "no two nodes are alike");
  // NCCL's last loop has chunks of 16 B, but for the last ones: 1,000,003 B are no multiple.
  EXPECT_EQ(why_not(Cluster(repository_platform("dgx_a100"), nullptr, 64, "test"), "ring"),
            "all_reduce by ring is not the same on each node with these chunks or levels");
}

TEST(Folding, KeepsTheQueueOfAConnection) {
  // Pieces of a block are of one kind, and on one connection, which serves them one after the
  // other: 2(n-1) C (alpha + c/B), not the time of one piece. n = 12, C = 4.
  const Job job =
      all_reduce_job(ideal_platform(1e10, 1e-5), 12, 12 * 400'000, ring_settings(1, 100'000));
  ASSERT_TRUE(job.lowered.front().fold);
  EXPECT_NEAR(duration_of(simulate_analytically(job)).value(), 22.0 * 4 * (1e-5 + 1e-5), 1e-12);
  EXPECT_NEAR(simgrid_duration(job), 22.0 * 4 * (1e-5 + 1e-5), 1e-12);
}

TEST(Folding, OfUnequalRanksKeepsThemApart) {
  // Only the one that is late differs from the other 15.
  Job job =
      all_reduce_job(ideal_platform(1e10, 1e-6), 16, 1'000'000, ring_settings(1, infinite_chunk));
  job.pace.assign(16, 1.0);
  job.pace[5] = 2.0;
  EXPECT_EQ(simulate_analytically(job).class_sizes(), (std::vector<int>{15, 1}));
}

TEST(RingByIndex, IsThatOfItsList) {
  Random random(5);
  int by_index = 0;
  for (int trial = 0; trial < 60; ++trial) {
    const bool nccl = random.whole(0, 1) == 1;
    const Platform platform = nccl ? repository_platform(trial % 2 == 0 ? "dgx_a100" : "abci_v100")
                                   : fabric_platform(random);
    CollectiveSettings settings;
    settings.algorithm = {"ring", "test"};
    settings.fold = false;
    settings.channels = {static_cast<int>(random.whole(1, 3)), "test"};
    if (random.whole(0, 1) == 1)
      settings.chunk_bytes = {static_cast<std::int64_t>(random.magnitude(1e4, 1e6)), "test"};
    const auto operation = static_cast<Operation>(random.whole(0, 2));
    const int ranks = static_cast<int>(random.whole(2, 40));
    Cluster cluster(platform, nullptr, ranks, "test");
    if (cluster.nodes() > 1 && random.whole(0, 1) == 1) cluster.slow_down({1, 0, 0.6, "test"});
    Job job = make_job(
        single_collective(operation, static_cast<std::int64_t>(random.magnitude(1.0, 3e7))),
        settings, cluster);
    ASSERT_TRUE(job.lowered.front().schedule.ring);
    Job in_full = job;
    in_full.lowered.front().schedule = listed(job.lowered.front().schedule);
    std::vector<double> expected;
    try {
      expected = all_of(in_full, simulate_analytically(in_full));
    } catch (const SimulationError&) {
      EXPECT_THROW(static_cast<void>(simulate_analytically(job)), SimulationError);
      continue;
    }
    ++by_index;
    const std::vector<double> found = all_of(job, simulate_analytically(job));
    EXPECT_LE(worst_difference(found, expected), 1e-14) << "trial " << trial;
    EXPECT_EQ(numbers_of(simulate_analytically(job)), numbers_of(simulate_analytically(in_full)))
        << "trial " << trial << ": " << ranks << " ranks on " << platform.name;
  }
  EXPECT_GE(by_index, 30);
}

TEST(MeanOverRanks, DoesNotDependOnTheClasses) {
  Random random(1);
  const std::vector<double> values = {random.real(0.0, 1.0), random.real(0.0, 1.0), 0.1};
  const std::vector<int> sizes = {7, 2, 11};
  std::vector<double> of_rank;
  for (std::size_t i = 0; i < values.size(); ++i)
    of_rank.insert(of_rank.end(), static_cast<std::size_t>(sizes[i]), values[i]);
  const std::vector<int> ones(of_rank.size(), 1);
  EXPECT_EQ(mean_over_ranks(values, sizes), mean_over_ranks(of_rank, ones));
  std::reverse(of_rank.begin(), of_rank.end());
  EXPECT_EQ(mean_over_ranks(values, sizes), mean_over_ranks(of_rank, ones));
  EXPECT_NEAR(mean_over_ranks(values, sizes), (7 * values[0] + 2 * values[1] + 1.1) / 20, 1e-15);
}

}  // namespace
}  // namespace stepcast
