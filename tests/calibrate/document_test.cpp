#include "document.hpp"

#include <string>
#include <vector>

#include <gmock/gmock.h>

#include "fake_backend.hpp"
#include "measure.hpp"

namespace stepcast::calibrate {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

const Heading heading{{"DGX-X", {{"name", "DGX-X"}}},
                      "made up",
                      "2026-01-02",
                      "stepcast-calibrate -o x",
                      {{"gpu", "fake"}}};

Outcome measured(const Case& what, FakeBackend backend = {}, bool again = false) {
  return measure({what, again}, backend, Accuracy{});
}

CollectiveCase all_reduce() { return {.operation = "all_reduce", .bytes = 1000000, .ranks = 4}; }

TEST(Measure, GivesACollectiveItsTimesNodesAndCheck) {
  CollectiveCase what = all_reduce();
  what.algorithm = "ring";
  what.protocol = "LL";
  // 10 us + 1 MB / 10 GB/s = 110 us, so 2 calls fill a sample of 200 us, and 10 samples agree.
  EXPECT_EQ(measured(what).entry.dump(),
            R"({"operation":"all_reduce","ranks":4,"bytes":1000000,"algorithm":"ring",)"
            R"("protocol":"LL","nodes":2,"time_s":0.00011,"min_s":0.00011,"p90_s":0.00011,)"
            R"("calls":20,"correct":true,"own_estimate_s":5e-06,)"
            R"("source":"measured by stepcast-calibrate"})");
}

TEST(Measure, GivesAConvolutionItsShape) {
  ComputeCase what{.kernel = "convolution_forward", .dtype = "float16"};
  what.convolution = {"NHWC", 32, 64, 56, 28, 128, 3, 2, 1};
  EXPECT_EQ(measured(what).entry.dump(),
            R"({"kernel":"convolution_forward","dtype":"float16","layout":"NHWC","batch":32,)"
            R"("in_channels":64,"height":56,"width":28,"out_channels":128,"filter_size":3,)"
            R"("stride":2,"padding":1,"time_s":1e-05,"min_s":1e-05,"p90_s":1e-05,"calls":200})");
}

TEST(Measure, GivesAnAttentionItsShapeAndCheck) {
  ComputeCase what{.kernel = "attention", .dtype = "bfloat16"};
  what.attention = {8, 16, 1024, 64};
  EXPECT_EQ(measured(what).entry.dump(),
            R"({"kernel":"attention","dtype":"bfloat16","batch":8,"heads":16,)"
            R"("sequence_length":1024,"head_size":64,"time_s":1e-05,"min_s":1e-05,)"
            R"("p90_s":1e-05,"calls":200,"correct":true})");
  FakeBackend backend;
  backend.correct = false;
  EXPECT_EQ(measured(what, backend).entry.at("correct"), false);
  EXPECT_THAT(measured(what, backend).problems, ElementsAre("left wrong numbers"));
}

TEST(Measure, CountsTheNodesOfTheFirstRanks) {
  CollectiveCase what = all_reduce();
  what.ranks = 2;  // of 2 nodes with 2 ranks each
  EXPECT_EQ(measured(what).entry.at("nodes"), 1);
}

TEST(Measure, SaysThatNumbersWereWrong) {
  FakeBackend backend;
  backend.correct = false;
  const Outcome outcome = measured(all_reduce(), backend);
  EXPECT_EQ(outcome.entry.at("correct"), false);
  EXPECT_THAT(outcome.problems, ElementsAre("left wrong numbers"));
}

TEST(Measure, NamesWhatItSkipsAndWhy) {
  const Outcome outcome = measured(ComputeCase{"gemm", "float8", 8, 8, 8});
  EXPECT_EQ(outcome.array, "skipped");
  EXPECT_EQ(outcome.entry.dump(),
            R"({"case":"gemm float8 8 x 8 x 8","reason":"needs compute capability 8.9"})");
}

TEST(Document, ListsASkippedCaseOnceAlthoughItIsPlannedTwice) {
  const ComputeCase what{"gemm", "float8", 8, 8, 8};
  const Json file = Json::parse(document(heading, {measured(what), measured(what, {}, true)}));
  EXPECT_EQ(file.at("skipped").size(), 1U);
  EXPECT_TRUE(file.at("warnings").empty());
}

TEST(Measure, SkipsInterferenceWithACollectiveThatIsSkipped) {
  CollectiveCase beside = all_reduce();
  beside.algorithm = "nvls";
  EXPECT_EQ(measured(InterferenceCase{{.kernel = "copy"}, beside}).entry.at("reason"),
            "needs NVSwitch");
}

TEST(Measure, TakesTheMediansOfInterference) {
  const Outcome outcome =
      measured(InterferenceCase{{.kernel = "copy", .dtype = "float32"}, all_reduce()});
  EXPECT_EQ(outcome.entry.dump(),
            R"({"compute":{"kernel":"copy","dtype":"float32"},)"
            R"("collective":{"operation":"all_reduce","ranks":4,"bytes":1000000},)"
            R"("compute_alone_s":1.0,"compute_beside_s":1.25,)"
            R"("collective_alone_s":2.0,"collective_beside_s":3.0})");
}

TEST(Document, HasAllKeysEvenWhenThereIsNothing) {
  const Json file = Json::parse(document(heading, {}));
  std::vector<std::string> keys;
  for (const auto& [key, value] : file.items()) keys.push_back(key);
  EXPECT_THAT(keys,
              ElementsAre("format", "name", "source", "platform", "machine", "date", "command",
                          "versions", "samples", "compute", "interference", "skipped", "warnings"));
  EXPECT_EQ(file.at("format"), "stepcast.calibration/1");
  EXPECT_EQ(file.at("versions").at("gpu"), "fake");
}

TEST(Document, PutsEachOutcomeInItsArray) {
  const Json file = Json::parse(
      document(heading, {measured(all_reduce()), measured(ComputeCase{"gemm", "float8", 8, 8, 8}),
                         measured(ComputeCase{"copy", "float32", 0, 0, 0, 1000})}));
  EXPECT_EQ(file.at("samples").size(), 1U);
  EXPECT_EQ(file.at("compute").size(), 1U);
  EXPECT_EQ(file.at("skipped").size(), 1U);
  EXPECT_EQ(file.at("compute")[0].at("kernel"), "copy");
}

TEST(Document, WarnsOnceOfEachProblem) {
  FakeBackend backend;
  backend.state.throttled = true;
  const Outcome first = measured(all_reduce(), backend);
  Outcome second = first;
  second.name = "another";
  const Json file = Json::parse(document(heading, {first, second}));
  ASSERT_EQ(file.at("warnings").size(), 1U);
  EXPECT_EQ(file.at("warnings")[0],
            "2 cases ran while the GPU was throttled, the first of them: all_reduce 1000000 B, 4 "
            "ranks");
}

TEST(Document, WarnsOfARepetitionThatDisagrees) {
  FakeBackend slower;
  slower.slowdown = 1.06;
  const Outcome first = measured(all_reduce());
  const Json file = Json::parse(document(heading, {first, measured(all_reduce(), slower, true)}));
  EXPECT_EQ(file.at("samples").size(), 1U);
  ASSERT_EQ(file.at("warnings").size(), 1U);
  EXPECT_THAT(file.at("warnings")[0], HasSubstr("all_reduce 1000000 B, 4 ranks (+6 %) differed"));

  slower.slowdown = 1.04;
  EXPECT_TRUE(Json::parse(document(heading, {first, measured(all_reduce(), slower, true)}))
                  .at("warnings")
                  .empty());
}

}  // namespace
}  // namespace stepcast::calibrate
