#include "plan.hpp"

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include <gmock/gmock.h>

namespace stepcast::calibrate {
namespace {

using testing::Contains;
using testing::HasSubstr;
using testing::Not;

std::vector<std::string> names(const PlanOptions& options, int world_size = 8,
                               const Vocabulary& vocabulary = nccl_vocabulary()) {
  std::vector<std::string> all;
  for (const PlannedCase& planned : make_plan(options, vocabulary, world_size))
    all.push_back(name(planned));
  return all;
}

std::vector<CollectiveCase> collectives(const PlanOptions& options, int world_size = 8) {
  std::vector<CollectiveCase> all;
  for (const PlannedCase& planned : make_plan(options, nccl_vocabulary(), world_size))
    if (const auto* what = std::get_if<CollectiveCase>(&planned.what)) all.push_back(*what);
  return all;
}

PlanOptions full() {
  PlanOptions options;
  options.full = true;
  return options;
}

TEST(Plan, NamesEachCaseOnce) {
  for (const int world_size : {1, 2, 3, 6, 8}) {
    const auto all = names(full(), world_size);
    EXPECT_EQ(std::set<std::string>(all.begin(), all.end()).size(), all.size()) << world_size;
  }
}

TEST(Plan, OfOneGpuHasNoCollectives) {
  EXPECT_TRUE(collectives(full(), 1).empty());
  EXPECT_THAT(names(full(), 1), Contains("gemm bfloat16 4096 x 4096 x 4096"));
}

TEST(Plan, TakesPowersOfTwoRanksAndAll) {
  std::set<int> ranks;
  for (const CollectiveCase& what : collectives({}, 6)) ranks.insert(what.ranks);
  EXPECT_EQ(ranks, (std::set<int>{2, 4, 6}));
}

TEST(Plan, ScattersEqualPartsOfWholeFloats) {
  PlanOptions options;
  options.ranks = {3};
  for (const CollectiveCase& what : collectives(options, 3))
    if (what.operation == "reduce_scatter" || what.operation == "all_gather") {
      EXPECT_EQ(what.bytes % 12, 0) << name(what);
    }
}

TEST(Plan, HasTheBucketsOfDdp) {
  const auto all = names({});
  EXPECT_THAT(all, Contains("all_reduce 25 MiB, 8 ranks"));
  EXPECT_THAT(all, Contains("all_reduce 8196000 B, 8 ranks"));
}

TEST(Plan, FullForcesEachAlgorithmProtocolChannelAndBuffer) {
  const auto all = names(full());
  EXPECT_THAT(all, Contains("all_reduce 1 MiB, 8 ranks, double_binary_tree, LL128"));
  EXPECT_THAT(all, Contains("all_reduce 1 MiB, 8 ranks, ring, Simple, 4 channels"));
  EXPECT_THAT(all, Contains("all_reduce 1 MiB, 8 ranks, ring, Simple, buffer 64 KiB"));
  EXPECT_THAT(all, Contains("all_reduce 1 MiB, 8 ranks, ring, Simple, buffer 16 MiB"));
  EXPECT_THAT(all, Contains("all_reduce 1 MiB, 8 ranks, single shot"));
  EXPECT_THAT(all, Contains("gemm bfloat16 4096 x 4096 x 4096 beside all_reduce 256 MiB, 8 ranks, "
                            "2 channels"));
}

TEST(Plan, KeepsToTheSizesThatAreAsked) {
  PlanOptions options = full();
  options.min_bytes = 64 << 10;
  options.max_bytes = 4 << 20;
  for (const CollectiveCase& what : collectives(options)) {
    EXPECT_GE(what.bytes, options.min_bytes);
    EXPECT_LE(what.bytes, options.max_bytes);
  }
}

TEST(Plan, OfNamedAlgorithmsHasNothingElse) {
  PlanOptions options = full();
  options.algorithms = {"ring"};
  options.ranks = {4};
  for (const std::string& one : names(options, 4, mpi_vocabulary()))
    EXPECT_THAT(one, testing::AllOf(HasSubstr("all_reduce"), HasSubstr("4 ranks, ring")));
}

TEST(Plan, OfMpiForcesNoProtocol) {
  const auto all = names(full(), 4, mpi_vocabulary());
  EXPECT_THAT(all, Contains("all_reduce 1 MiB, 4 ranks, recursive_halving_doubling"));
  EXPECT_THAT(all, Not(Contains(HasSubstr("Simple"))));
}

TEST(Plan, RepeatsSomeCasesAtItsEnd) {
  const auto all = names({});
  EXPECT_EQ(all.back().rfind("again: ", 0), 0U);
  EXPECT_THAT(all, Contains("again: empty_kernel"));
}

TEST(Plan, QuickIsShorterThanFull) {
  const auto seconds = [](const PlanOptions& options) {
    double sum = 0;
    for (const PlannedCase& planned : make_plan(options, nccl_vocabulary(), 8))
      sum += estimated_s(planned.what, accuracy(options));
    return sum;
  };
  EXPECT_LT(seconds({}), seconds(full()) / 2);
}

}  // namespace
}  // namespace stepcast::calibrate
