// Of connections that are alike one is simulated.
#include "engine/plan.hpp"

#include <algorithm>

#include "jobs.hpp"

namespace stepcast {
namespace {

constexpr double bandwidth_Bps = 1e10, alpha_s = 1e-6;

Plan plan_of(const Job& job) { return {job.lowered.front(), job.cluster, std::nullopt}; }

CollectiveSettings settings_for(const std::string& algorithm, int channels = 1) {
  CollectiveSettings settings = ring_settings(channels, infinite_chunk);
  settings.algorithm = {algorithm, "test"};
  return settings;
}

/// How often a link is in the list.
std::vector<std::ptrdiff_t> counts(std::vector<int> links) {
  std::vector<std::ptrdiff_t> counts;
  std::sort(links.begin(), links.end());
  for (auto link = links.begin(); link != links.end();) {
    const auto next = std::upper_bound(link, links.end(), *link);
    counts.push_back(next - link);
    link = next;
  }
  return counts;
}

TEST(Plan, HasOneConnectionForEachRoundOfHalvingDoubling) {
  const Job job = all_reduce_job(ideal_platform(bandwidth_Bps, alpha_s), 64, 1'000'000,
                                 settings_for("recursive_halving_doubling"));
  const Plan plan = plan_of(job);
  // log2 64 = 6 partners, with each of which a rank exchanges something on the way down and up.
  EXPECT_EQ(plan.schedule.connections.size(), 6u);
  EXPECT_EQ(plan.schedule.transfers.size(), 12u);
  EXPECT_EQ(plan.representative, std::vector<int>(64, 0));
  EXPECT_EQ(plan.followers.of(0).size(), 63u);
  EXPECT_EQ(plan.transfers_of_end[0], 2 * 12);  // sent and received
}

TEST(Plan, JoinsChannelsOnDifferentNics) {
  const Platform platform = switched_platform(4, 1e11, bandwidth_Bps, alpha_s, alpha_s);
  const Job one = all_reduce_job(platform, 32, 1'000'000, settings_for("hierarchical", 1));
  const Job four = all_reduce_job(platform, 32, 1'000'000, settings_for("hierarchical", 4));
  const Plan of_one = plan_of(one);
  const Plan of_four = plan_of(four);
  EXPECT_EQ(of_four.schedule.transfers.size(), of_one.schedule.transfers.size());
  ASSERT_EQ(of_four.links.size(), of_one.links.size());
  for (std::size_t i = 0; i < of_one.links.size(); ++i) {
    std::vector<std::ptrdiff_t> expected = counts(of_one.links[i]);
    for (std::ptrdiff_t& count : expected) count *= 4;
    EXPECT_EQ(counts(of_four.links[i]), expected);
  }
}

TEST(Plan, SetsOnlyTheRankOnTheSlowNicApart) {
  Cluster cluster(ideal_platform(bandwidth_Bps, alpha_s), nullptr, 6, "test");
  cluster.slow_down({3, 0, 0.5, "test"});
  const Job job = make_job(single_collective(Operation::all_reduce, 1'000'000),
                           settings_for("direct_one_shot"), cluster);
  const Plan plan = plan_of(job);
  EXPECT_EQ(plan.representative, (std::vector<int>{0, 0, 0, 3, 0, 0}));
  // From one of the others to another, to the slow one, and from the slow one.
  ASSERT_EQ(plan.links.size(), 3u);
  for (std::size_t i = 0; i < plan.links.size(); ++i) {
    const Connection& ends = plan.schedule.connections[i];
    if (ends.src == 3)  // all 5 of its own leave by one NIC, and one of them comes in at each other
      EXPECT_EQ(counts(plan.links[i]), (std::vector<std::ptrdiff_t>{1, 5}));
    else if (ends.dst == 3)
      EXPECT_EQ(counts(plan.links[i]), (std::vector<std::ptrdiff_t>{1, 5}));
    else
      EXPECT_EQ(counts(plan.links[i]), (std::vector<std::ptrdiff_t>{4, 4}));
  }
}

TEST(Plan, FindsNothingAlikeBesideASlowLinkOfARing) {
  Cluster cluster(ideal_platform(bandwidth_Bps, alpha_s), nullptr, 16, "test");
  cluster.slow_down({5, 0, 0.5, "test"});
  const Job job = make_job(single_collective(Operation::all_reduce, 1'000'000),
                           ring_settings(1, infinite_chunk), cluster);
  EXPECT_EQ(plan_of(job).schedule.connections.size(), 16u);
}

TEST(Plan, HasEveryConnectionWithoutFolding) {
  CollectiveSettings settings = settings_for("recursive_halving_doubling");
  settings.fold = false;
  const Job job = all_reduce_job(ideal_platform(bandwidth_Bps, alpha_s), 64, 1'000'000, settings);
  const Plan plan = plan_of(job);
  EXPECT_EQ(plan.schedule.connections.size(), 64u * 6u);
  EXPECT_EQ(plan.schedule.transfers.size(), job.lowered.front().schedule.transfers.size());
  EXPECT_TRUE(plan.followers.members.empty());
}

}  // namespace
}  // namespace stepcast
