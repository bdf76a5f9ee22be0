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

TEST(Plan, HasConvolutionsInAllThreePassesAndAttention) {
  const auto all = names({});
  for (const std::string pass : {"forward", "backward_data", "backward_filter"}) {
    const std::string shape = " 32 x 64 x 56 x 56, 64 filters 3 x 3, stride 1";
    // Channels last where tensor cores read 16-bit numbers.
    EXPECT_THAT(all, Contains("convolution_" + pass + " float16 NHWC" + shape));
    EXPECT_THAT(all, Contains("convolution_" + pass + " tf32 NCHW" + shape));
  }
  EXPECT_THAT(all, Contains("attention bfloat16 8 x 16 heads x 1024 x 64"));
  EXPECT_THAT(all, Not(Contains(HasSubstr("224"))));
  EXPECT_THAT(names(full()),
              Contains("convolution_backward_filter bfloat16 NHWC 32 x 3 x 224 x 224, "
                       "64 filters 7 x 7, stride 2"));
}

/// What goes into a layer of ResNet-50 comes out of the one before it.
TEST(Plan, HasConvolutionsWhoseResultsAreImagesOfResNet) {
  std::set<std::int64_t> sizes;
  for (const PlannedCase& planned : make_plan(full(), nccl_vocabulary(), 1))
    if (const auto* what = std::get_if<ComputeCase>(&planned.what);
        what && what->convolution.batch > 0) {
      const ConvolutionShape& shape = what->convolution;
      EXPECT_EQ(shape.out_height() * shape.stride, shape.height) << name(*what);
      EXPECT_EQ(shape.out_width(), shape.out_height());
      EXPECT_EQ(shape.batch, 32);
      sizes.insert(shape.height);
    }
  EXPECT_EQ(sizes, (std::set<std::int64_t>{7, 14, 28, 56, 224}));
}

TEST(Plan, RunsAttentionBesideTheCollectiveByChannels) {
  const auto all = names({});
  for (const std::string channels : {"", ", 1 channels", ", 8 channels"})
    for (const std::string shape : {"1 x 12 heads x 128 x 64", "8 x 16 heads x 1024 x 64"})
      EXPECT_THAT(all, Contains("attention bfloat16 " + shape +
                                " beside all_reduce 256 MiB, 8 ranks" + channels));
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

TEST(Plan, OfNamedKernelsHasThemAloneAndBesideAllReduce) {
  PlanOptions options;
  options.kernels = {"attention", "copy"};
  std::set<std::string> first_words;
  for (const std::string& one : names(options)) {
    const std::string case_name = one.substr(one.rfind("again: ", 0) == 0 ? 7 : 0);
    first_words.insert(case_name.substr(0, case_name.find(' ')));
  }
  EXPECT_EQ(first_words, (std::set<std::string>{"attention", "copy"}));
  EXPECT_THAT(names(options),
              Contains(HasSubstr("attention bfloat16 8 x 16 heads x 1024 x 64 beside")));
}

TEST(Plan, KnowsEachKernelByName) {
  std::set<std::string> kernels;
  for (const PlannedCase& planned : make_plan(full(), nccl_vocabulary(), 1))
    if (const auto* what = std::get_if<ComputeCase>(&planned.what)) kernels.insert(what->kernel);
  const auto known = known_kernels();
  EXPECT_EQ(kernels, std::set<std::string>(known.begin(), known.end()));
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
