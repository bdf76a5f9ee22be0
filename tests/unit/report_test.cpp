#include "report/report.hpp"

#include <algorithm>
#include <cstddef>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>

#include "base/text.hpp"
#include "documents.hpp"
#include "hand_made_step.hpp"
#include "testing.hpp"

namespace stepcast {
namespace {

std::vector<JsonDocument> documents(const std::vector<std::string>& texts) {
  std::vector<JsonDocument> all;
  for (const std::string& text : texts) all.push_back(JsonDocument::parse(text, "point"));
  return all;
}

/// The hand-made step as a point of a study that varies two keys.
std::string hand_made_point() {
  HandMadeStep step;
  step.point.settings = {{"cluster.gpus", "2"}, {"training.bucket_cap_bytes", "26214400"}};
  return point_json(step.point, summarize(step.point, step.job, step.timeline), "analytic");
}

// JSON -------------------------------------------------------------------------------------------

TEST(PointJson, HoldsTheFiguresUnderTheirUnits) {
  const JsonDocument document = JsonDocument::parse(hand_made_point(), "point");
  const JsonView point = document.root();
  EXPECT_EQ(point.at("settings").dump(),
            R"({"cluster.gpus":2,"training.bucket_cap_bytes":26214400})");
  EXPECT_EQ(point.at("engine").string(), "analytic");
  EXPECT_EQ(point.at("world_size").dump(), "2");
  EXPECT_EQ(point.at("global_batch").dump(), "64");
  EXPECT_EQ(point.at("step_time_s").number(), 157.0);
  EXPECT_EQ(point.at("split").dump(),
            R"({"compute_s":107.5,"exposed_comm_s":27.5,"host_s":5.0,"wait_s":10.0,)"
            R"("optimizer_s":7.0})");
  EXPECT_EQ(point.at("comm_s").number(), 27.5);
  EXPECT_EQ(point.at("overlapped_comm_s").number(), 0.0);
  EXPECT_EQ(point.at("basis").dump(),
            R"({"compute":"measured","communication":"interpolated","interference":"none"})");
}

TEST(PointJson, HoldsTheBandAsAPair) {
  const JsonDocument document = JsonDocument::parse(hand_made_point(), "point");
  const std::vector<JsonView> band = document.root().at("step_time_band_s").elements();
  ASSERT_EQ(band.size(), 2u);
  EXPECT_LT(band[0].number(), 157.0);
  EXPECT_GT(band[1].number(), 157.0);
}

TEST(PointJson, HoldsEachBucket) {
  const JsonDocument document = JsonDocument::parse(hand_made_point(), "point");
  const std::vector<JsonView> buckets = document.root().at("buckets").elements();
  ASSERT_EQ(buckets.size(), 1u);
  EXPECT_EQ(buckets[0].at("bytes").dump(), "1000");
  EXPECT_EQ(buckets[0].at("ready_s").number(), 120.0);
  EXPECT_EQ(buckets[0].at("start_s").number(), 120.0);
  EXPECT_EQ(buckets[0].at("end_s").number(), 150.0);
  EXPECT_EQ(buckets[0].at("basis").string(), "interpolated");
}

TEST(PointJson, HasEmptyListsAndNullsWithoutCommunication) {
  HandMadeStep step;
  StepResult result = summarize(step.point, step.job, step.timeline);
  result.buckets.clear();
  result.links.clear();
  result.communication_basis.reset();
  const JsonDocument document = JsonDocument::parse(point_json(step.point, result, "e"), "point");
  EXPECT_EQ(document.root().at("buckets").dump(), "[]");
  EXPECT_EQ(document.root().at("links").dump(), "[]");
  EXPECT_EQ(document.root().at("basis").at("communication").dump(), "null");
  EXPECT_EQ(document.root().at("settings").dump(), "{}");
}

TEST(PointJson, SaysNullForMemoryThatIsNotKnown) {
  const JsonDocument document = JsonDocument::parse(hand_made_point(), "point");
  const JsonView memory = document.root().at("memory");
  EXPECT_TRUE(memory.at("activation_bytes").is_null());
  EXPECT_EQ(memory.at("gpu_bytes").dump(), "1000000");
  EXPECT_FALSE(memory.at("fits").boolean());  // the framework alone is larger
}

/// A study from files, with one point's result.
class ResultJson : public testing::Test {
 protected:
  ResultJson() {
    folder.write("model.json", tiny_trace());
    folder.write("platform.json", tiny_platform());
    folder.write("calibration.json", tiny_calibration());
    folder.write("scenario.json", tiny_scenario());
  }
  [[nodiscard]] JsonDocument result(const std::vector<std::string>& sets = {}) const {
    return JsonDocument::parse(
        result_json(load_study(folder.path("scenario.json"), sets), {hand_made_point()}), "result");
  }

  Folder folder;
};

TEST_F(ResultJson, FillsInTheDefaultsOfTheScenario) {
  const JsonDocument document = result();
  EXPECT_EQ(document.root().at("format").string(), "stepcast.result/1");
  const JsonView scenario = document.root().at("scenario");
  EXPECT_EQ(
      scenario.at("training").dump(),
      R"({"micro_batch":"auto","accumulation_steps":1,"sync":"ddp","accumulation":"no_sync",)"
      R"("bucket_cap_bytes":26214400,"first_bucket_bytes":1048576,"broadcast_buffers":true,)"
      R"("gradient_as_bucket_view":false,"find_unused_parameters":false,)"
      R"("host_per_kernel_s":"auto",)"
      R"("communication_hook":"none","iteration":"steady","synchronized_batch_norm":false,"fusion_bytes":134217728,)"
      R"("cycle_time_s":0.001,"merge_cost":null,"data_loader":null,)"
      R"("reference_global_batch":"auto"})");
  EXPECT_EQ(
      scenario.at("collective").dump(),
      R"({"algorithm":"auto","protocol":"auto","channels":"auto","chunk_bytes":"auto",)"
      R"("chunking":"auto","nccl_version":"auto","min_channels":1,"max_channels":64,"nvls":true,)"
      R"("intra_node_algorithm":"auto","inter_node_algorithm":"auto"})");
}

TEST_F(ResultJson, KeepsNcclsListsOfTheScenario) {
  const JsonDocument document =
      result({"collective.NCCL_ALGO=^Tree", "collective.NCCL_PROTO=LL,Simple"});
  const JsonView collective = document.root().at("scenario").at("collective");
  EXPECT_EQ(collective.at("NCCL_ALGO").string(), "^Tree");
  EXPECT_EQ(collective.at("NCCL_PROTO").string(), "LL,Simple");
  EXPECT_FALSE(collective.find("algorithm"));
}

TEST_F(ResultJson, HoldsAScenarioThatCanBeReadAgain) {
  const JsonDocument document =
      result({"training.micro_batch=8", "collective.chunk_bytes=max", "vary.cluster.gpus=[2, 4]"});
  const JsonView resolved = document.root().at("scenario");
  folder.write("again.json", resolved.dump());
  const Study again = load_study(folder.path("again.json"), {});
  EXPECT_EQ(again.points.size(), 2u);
  EXPECT_EQ(again.points[1].scenario.gpus, 4);
  EXPECT_EQ(again.points[0].scenario.training.micro_batch, 8);
  EXPECT_EQ(again.points[0].scenario.collective.chunk_bytes.value, infinite_chunk);
}

TEST_F(ResultJson, HoldsTheInputsAsTheyWereUsed) {
  const JsonDocument document = result({"platform.nodes=1"});
  const JsonView platform = document.root().at("inputs").at("platform");
  EXPECT_EQ(platform.at("path").string(), folder.path("platform.json"));
  EXPECT_EQ(platform.at("name").string(), "tiny cluster");
  EXPECT_EQ(platform.at("source").string(), "made up");
  EXPECT_EQ(platform.at("document").at("nodes").dump(), "1");
}

TEST_F(ResultJson, SaysNullWithoutACalibration) {
  const JsonDocument document = result({"calibration=null"});
  EXPECT_TRUE(document.root().at("inputs").at("calibration").is_null());
  EXPECT_TRUE(document.root().at("scenario").at("calibration").is_null());
}

TEST_F(ResultJson, HoldsThePointsAsTheyAre) {
  const JsonDocument document = result();
  const std::vector<JsonView> points = document.root().at("points").elements();
  ASSERT_EQ(points.size(), 1u);
  EXPECT_EQ(points[0].dump(), hand_made_point());
}

TEST_F(ResultJson, NamesTheVersions) {
  const JsonDocument document = result();
  std::vector<std::string> names;
  for (const auto& [name, value] : document.root().at("versions").members()) names.push_back(name);
  EXPECT_EQ(names, (std::vector<std::string>{"stepcast", "revision", "build_type", "simgrid"}));
}

CollectiveRow small_row() {
  CollectiveRow row;
  row.bytes = 1024;
  row.ranks = 4;
  row.algorithm = "ring";
  row.protocol = "Simple";
  row.channels = 2;
  row.chunk_bytes = 127.6;
  row.time_s = 12.345678e-6;
  row.algbw_Bps = 1.0e9;
  row.busbw_Bps = 1.5e9;
  row.sent_bytes_per_rank = 1536.0;
  row.relative_error = 0.125;
  row.basis = "mechanism";
  return row;
}

TEST(CollectiveJson, HoldsEachRow) {
  const JsonDocument document = JsonDocument::parse(
      collective_json("DGX-1V", "all_reduce", "simgrid", {collective_row_json(small_row())}), "c");
  const JsonView root = document.root();
  EXPECT_EQ(root.at("format").string(), "stepcast.collective/1");
  EXPECT_EQ(root.at("platform").string(), "DGX-1V");
  EXPECT_EQ(root.at("operation").string(), "all_reduce");
  EXPECT_EQ(root.at("engine").string(), "simgrid");
  ASSERT_EQ(root.at("rows").elements().size(), 1u);
  EXPECT_EQ(root.at("rows").elements()[0].dump(),
            R"({"bytes":1024,"ranks":4,"algorithm":"ring","protocol":"Simple","channels":2,)"
            R"("chunk_bytes":127.6,"time_s":1.2345678e-05,"algbw_Bps":1000000000.0,)"
            R"("busbw_Bps":1500000000.0,"sent_bytes_per_rank":1536.0,)"
            R"("relative_error":0.125,"basis":"mechanism"})");
}

// CSV --------------------------------------------------------------------------------------------

TEST(Csv, HasALineOfHeadsAndALineForEachPoint) {
  EXPECT_EQ(result_csv(documents({R"({"a": 1, "b": "x"})", R"({"a": 2, "b": "y"})"})),
            "a,b\n1,x\n2,y\n");
}

TEST(Csv, NamesNestedFiguresByTheirPath) {
  EXPECT_EQ(result_csv(documents({R"({"settings": {"cluster.gpus": 2}, "split": {"a_s": 0.5}})"})),
            "settings.cluster.gpus,split.a_s\n2,0.5\n");
}

TEST(Csv, NamesThePlacesOfAList) {
  EXPECT_EQ(result_csv(documents({R"({"band_s": [1, 2], "b": {"c": []}, "d": 3})"})),
            "band_s.0,band_s.1,d\n1,2,3\n");
}

TEST(Csv, LeavesListsOfObjectsToTheJson) {
  EXPECT_EQ(result_csv(documents({R"({"buckets": [{"bytes": 1}], "d": 3})"})), "d\n3\n");
}

TEST(Csv, LeavesACellEmptyForNull) {
  EXPECT_EQ(result_csv(documents({R"({"a": null, "b": 1, "c": null})"})), "a,b,c\n,1,\n");
}

TEST(Csv, WritesBooleans) { EXPECT_EQ(result_csv(documents({R"({"a": true})"})), "a\ntrue\n"); }

TEST(Csv, QuotesTextThatWouldBreakALine) {
  EXPECT_EQ(result_csv(documents({R"({"a": "x,y", "b": "say \"no\"", "c": "1\n2", "d": "a b"})"})),
            "a,b,c,d\n\"x,y\",\"say \"\"no\"\"\",\"1\n2\",a b\n");
}

TEST(Csv, QuotesHeads) { EXPECT_EQ(result_csv(documents({R"({"a,b": 1})"})), "\"a,b\"\n1\n"); }

TEST(Csv, WritesEveryDigitOfAFigure) {
  EXPECT_EQ(result_csv(documents({R"({"a": 0.1, "b": 1e-05, "c": 0.30000000000000004})"})),
            "a,b,c\n0.1,1e-05,0.30000000000000004\n");
}

TEST(Csv, OfARealPointBeginsWithTheVariedKeys) {
  const std::string csv = result_csv(documents({hand_made_point()}));
  EXPECT_TRUE(csv.starts_with("settings.cluster.gpus,settings.training.bucket_cap_bytes,engine,"))
      << csv;
  EXPECT_NE(csv.find("\n2,26214400,analytic,2,1,8,4,64,157.0,"), std::string::npos) << csv;
}

TEST(Csv, HasAsManyCellsAsHeads) {
  const std::vector<std::string> lines =
      split(result_csv(documents({hand_made_point(), hand_made_point()})), '\n');
  ASSERT_EQ(lines.size(), 4u);  // heads, two points, nothing behind the last line break
  const auto commas = [](const std::string& line) {
    return std::count(line.begin(), line.end(), ',');
  };
  EXPECT_EQ(commas(lines[1]), commas(lines[0]));
  EXPECT_EQ(lines[2], lines[1]);
}

TEST(Csv, PutsACellUnderItsOwnHeadWhenPointsSetDifferentKeys) {
  EXPECT_EQ(result_csv(documents({R"({"settings": {"training": {"sync": "flat"}}, "n": 1})",
                                  R"({"settings": {"training": {"micro_batch": 8}}, "n": 2})"})),
            "settings.training.sync,settings.training.micro_batch,n\nflat,,1\n,8,2\n");
}

// Tables -----------------------------------------------------------------------------------------

std::string table_point(const std::string& settings, const std::string& buckets) {
  return R"({"settings": )" + settings + R"(, "world_size": 8, "global_batch": 256,
    "step_time_s": 0.1, "step_time_band_s": [0.099, 0.1125], "split": {"compute_s": 0.08, "exposed_comm_s": 0.0125, "host_s": 0.001,
    "wait_s": 0.0005, "optimizer_s": 0.006}, "comm_fraction": 0.125, "overlapped_comm_s": 0.002,
    "throughput_samples_per_s": 2560, "scaling_efficiency": 0.876,
    "basis": {"communication": "interpolated"}, "buckets": )" +
         buckets + "}";
}

TEST(Table, ShowsTimesInMillisecondsUnderTheirHeads) {
  EXPECT_EQ(
      result_table(documents({table_point("{}", "[1]")})),
      "GPUs  batch  step ms     80 % band  compute  exposed   host   wait  optim.  exposed %  "
      "hidden ms  samples/s  efficiency   comm. basis\n"
      "   8    256  100.000  -1.0 +12.5 %   80.000   12.500  1.000  0.500   6.000     12.5 %      "
      "2.000  "
      "   2560.0      87.6 %  interpolated\n");
}

TEST(Table, ShowsTheVariedKeysFirstButNotTheGpusTwice) {
  const std::string table = result_table(documents(
      {table_point(
           R"({"cluster.gpus": 8, "training.sync": "ddp", "training.bucket_cap_bytes": 26214400})",
           "[1]"),
       table_point(
           R"({"cluster.gpus": 8, "training.sync": "flat", "training.bucket_cap_bytes": "max"})",
           "[1]")}));
  const std::vector<std::string> lines = split(table, '\n');
  ASSERT_EQ(lines.size(), 4u);
  EXPECT_TRUE(lines[0].starts_with("sync  bucket_cap_bytes  GPUs  batch  ")) << table;
  EXPECT_TRUE(lines[1].starts_with(" ddp            25 MiB     8    256  ")) << table;
  EXPECT_TRUE(lines[2].starts_with("flat               max     8    256  ")) << table;
}

TEST(Table, SaysNoneWhereNothingIsCommunicated) {
  const std::string table = result_table(documents({table_point("{}", "[]")}));
  EXPECT_TRUE(table.ends_with("         none\n")) << table;
}

TEST(Table, OfARealPointCanBeMade) {
  const std::vector<std::string> lines = split(result_table(documents({hand_made_point()})), '\n');
  ASSERT_EQ(lines.size(), 3u);
  EXPECT_NE(lines[1].find(" %  107500.000  27500.000  5000.000  10000.000  7000.000  "),
            std::string::npos)
      << lines[1];
}

std::string notes_point(const std::string& linear, const std::string& known_bytes,
                        const std::string& activation_bytes, const std::string& gpu_bytes) {
  return R"({"learning_rate": {"reference_global_batch": 32, "linear_factor": )" + linear +
         R"(, "sqrt_factor": 2, "rule": null, "warm_up_epochs": 0, "batch_norm_samples": null},
             "cost_per_step_usd": null, "cost_per_million_samples_usd": null, "host_bound": false, "world_size": 8, "basis": {"interference": "set"},
             "interference": {"computation_factor": 1, "communication_factor": 1},
             "memory": {"known_bytes": )" +
         known_bytes + R"(, "activation_bytes": )" + activation_bytes + R"(, "gpu_bytes": )" +
         gpu_bytes + R"(, "fits": null}})";
}

TEST(Notes, AdviseOnTheLearningRateAndTheMemory) {
  EXPECT_EQ(result_notes(documents({notes_point("1", "1048576", "null", "34359738368"),
                                    notes_point("4", "3145728", "null", "34359738368")})),
            "Learning rate relative to batch 32: linear rule x 1, 4; square-root rule x 2, 2\n"
            "Memory per GPU: at least 3 MiB of 32 GiB\n");
}

TEST(Notes, SayWhatSlowsWhatAndWhereTheHostIsTheLimit) {
  const std::string point = notes_point("1", "1024", "5", "null");
  const std::string slow = with(point, "/interference/computation_factor", "1.25");
  EXPECT_EQ(result_notes(documents({point, with(slow, "/host_bound", "true")})),
            "At the same time computation takes up to 1.25 x, a collective 1.00 x as long (set)\n"
            "Host bound at 8 GPUs: the host issues kernels for the whole step\n"
            "Memory per GPU: 1 KiB\n");
}

TEST(Notes, SayHowFarTheBandWasComparedWithSteps) {
  const std::string point = notes_point("1", "1024", "5", "null");
  const auto on = [&](const char* gpus) { return with(point, "/world_size", gpus); };
  EXPECT_EQ(result_notes(documents({on("32")})), "Memory per GPU: 1 KiB\n");
  EXPECT_EQ(result_notes(documents({on("33"), on("32")})),
            "No step on more than 32 GPUs was compared yet: further on the band is a guess\n"
            "Memory per GPU: 1 KiB\n");
}

TEST(Notes, NameTheUsualRuleTheWarmUpAndWhatBatchNormSees) {
  std::string point = notes_point("4", "1024", "5", "null");
  for (const auto& [key, value] : {std::pair{"rule", R"("square_root")"},
                                   {"warm_up_epochs", "5"},
                                   {"batch_norm_samples", "32"}})
    point = with(point, std::string("/learning_rate/") + key, value);
  EXPECT_EQ(result_notes(documents({point})),
            "Learning rate relative to batch 32: linear rule x 4; square-root rule x 2\n"
            "Usual for this optimizer is the square-root rule, with a linear warm-up from the old "
            "rate over 5 epochs\n"
            "BatchNorm: its statistics are over 32 samples, whatever the global batch\n"
            "Memory per GPU: 1 KiB\n");
  const std::string fewer = with(point, "/learning_rate/batch_norm_samples", "8");
  EXPECT_THAT(result_notes(documents({point, fewer})),
              testing::HasSubstr("BatchNorm: its statistics are over 8 to 32 samples, so the model "
                                 "changes with them; fewer than 16 make them noisy\n"));
}

TEST(Notes, SayWhatWouldFit) {
  const std::string full = with(notes_point("1", "4096", "5", "2048"), "/memory/fits", "false");
  const std::string none = with(with(full, "/memory/fitting_micro_batch", "null"),
                                "/memory/fitting_accumulation_steps", "null");
  EXPECT_EQ(result_notes(documents({none})), "Memory per GPU: 4 KiB of 2 KiB\nIt does not fit\n");
  const std::string fitting = with(with(full, "/memory/fitting_micro_batch", "8"),
                                   "/memory/fitting_accumulation_steps", "4");
  EXPECT_EQ(result_notes(documents({fitting})),
            "Memory per GPU: 4 KiB of 2 KiB\n"
            "It does not fit; a micro-batch of 8 with 4 accumulation steps is expected to\n");
}

TEST(Notes, AreSilentAboutABatchThatDoesNotGrow) {
  EXPECT_EQ(result_notes(documents({notes_point("1", "1048576", "5", "null")})),
            "Memory per GPU: 1 MiB\n");
}

TEST(Notes, TakeTheMemoryOfTheFullestPoint) {
  EXPECT_EQ(result_notes(documents({notes_point("1", "1024", "null", "null"),
                                    notes_point("1", "3072", "5", "2048"),
                                    notes_point("1", "2048", "null", "4096")})),
            "Memory per GPU: 3 KiB of 2 KiB\n");
}

TEST(Notes, AreSilentAboutBatchesThatAreComparedWithDifferentOnes) {
  const std::string other =
      with(notes_point("4", "1024", "5", "null"), "/learning_rate/reference_global_batch", "64");
  EXPECT_EQ(result_notes(documents({notes_point("4", "1024", "5", "null"), other})),
            "Memory per GPU: 1 KiB\n");
}

TEST(Notes, AreSilentAboutMoreThanSixteenFactors) {
  const std::vector<std::string> points(17, notes_point("4", "1024", "5", "null"));
  EXPECT_EQ(result_notes(documents(points)), "Memory per GPU: 1 KiB\n");
  const std::vector<std::string> fewer(16, points[0]);
  EXPECT_TRUE(result_notes(documents(fewer)).starts_with("Learning rate relative to batch 32: "));
}

TEST(CollectiveTable, LooksLikeThatOfNcclTests) {
  EXPECT_EQ(
      collective_table(documents({collective_row_json(small_row())})),
      "#      size  algorithm  protocol  channels  chunk   time   algbw   busbw  error      basis\n"
      "#       (B)                                   (B)   (us)  (GB/s)  (GB/s)    (%)\n"
      "       1024       ring    Simple         2    128  12.35    1.00    1.50   12.5  "
      "mechanism\n");
}

TEST(PointName, ListsTheVariedKeys) {
  Point point = HandMadeStep().point;
  EXPECT_EQ(point_name(point), "the scenario");
  point.settings = {{"cluster.gpus", "8"}, {"training.sync", "\"ddp\""}};
  EXPECT_EQ(point_name(point), "cluster.gpus = 8, training.sync = \"ddp\"");
}

// Chrome trace -----------------------------------------------------------------------------------

struct Event {
  std::string category;
  std::string name;
  double begin_us;
  double duration_us;
};

/// The spans of a trace by process and track, in the order of the file.
std::map<std::pair<std::string, std::string>, std::vector<Event>> spans_of(
    const std::string& trace) {
  const JsonDocument document = JsonDocument::parse(trace, "trace");
  std::map<std::pair<std::string, std::string>, std::vector<Event>> spans;
  for (const JsonView& event : document.root().at("traceEvents").elements())
    if (event.at("ph").string() == "X")
      spans[{event.at("pid").dump(), event.at("tid").dump()}].push_back(
          {event.at("cat").string(), event.at("name").string(), event.at("ts").number(0.0),
           event.at("dur").number(0.0)});
  return spans;
}

std::string hand_made_trace(std::size_t point_index = 0, int ranks = 4,
                            const std::string& name = "p") {
  const HandMadeStep step;
  return chrome_trace(chrome_trace_events(step.job, step.timeline, point_index, name, ranks));
}

TEST(ChromeTrace, ShowsTheComputeStreamInMicroseconds) {
  const std::vector<Event> events = spans_of(hand_made_trace()).at({"1", "0"});
  std::vector<std::string> names;
  for (const Event& event : events) names.push_back(event.category + ": " + event.name);
  EXPECT_EQ(names, (std::vector<std::string>{"forward: f", "backward: b",
                                             "repeat: 2 more equal micro-steps",
                                             "host: gap before b", "backward: b",
                                             "wait: wait for all_reduce 0", "optimizer: step"}));
  EXPECT_EQ(events[1].begin_us, 10e6);  // rank 0's first backward: 10 s to 30 s
  EXPECT_EQ(events[1].duration_us, 20e6);
  EXPECT_EQ(events[2].begin_us, 30e6);  // two passes of 35 s behind it
  EXPECT_EQ(events[2].duration_us, 70e6);
  EXPECT_EQ(events[5].begin_us, 115e6);
  EXPECT_EQ(events[5].duration_us, 35e6);
}

TEST(ChromeTrace, ShowsTheCommunicationStreamOfEachRank) {
  const auto spans = spans_of(hand_made_trace());
  ASSERT_EQ(spans.at({"1", "1"}).size(), 1u);
  EXPECT_EQ(spans.at({"1", "1"})[0].name, "all_reduce 0");
  EXPECT_EQ(spans.at({"1", "1"})[0].begin_us, 120e6);
  EXPECT_EQ(spans.at({"1", "1"})[0].duration_us, 30e6);  // until 150 s on rank 0
  EXPECT_EQ(spans.at({"2", "1"})[0].duration_us, 25e6);  // until 145 s on rank 1
}

TEST(ChromeTrace, SaysWhatACollectiveWas) {
  const JsonDocument document = JsonDocument::parse(hand_made_trace(), "trace");
  std::vector<std::string> args;
  for (const JsonView& event : document.root().at("traceEvents").elements())
    if (event.at("name").string() == "all_reduce 0") args.push_back(event.at("args").dump());
  ASSERT_EQ(args.size(), 2u);
  EXPECT_EQ(args[0], R"({"bytes":1000,"algorithm":"ring","protocol":"Simple","channels":2,)"
                     R"("ready_us":115000000})");
}

TEST(ChromeTrace, HasSpansThatFollowOneAnotherOnEachTrack) {
  const auto spans = spans_of(hand_made_trace());
  EXPECT_EQ(spans.size(), 2u * 2u);  // two tracks on each of two ranks
  for (const auto& [track, events] : spans)
    for (std::size_t i = 1; i < events.size(); ++i)
      EXPECT_GE(events[i].begin_us, events[i - 1].begin_us + events[i - 1].duration_us)
          << "process " << track.first << " track " << track.second << ": " << events[i].name;
}

TEST(ChromeTrace, LeavesOutAWaitThatTakesNoTime) {
  HandMadeStep step;
  step.timeline.task_times[5] = {Seconds{115.0}, Seconds{115.0}};
  const auto spans =
      spans_of(chrome_trace(chrome_trace_events(step.job, step.timeline, 0, "p", 1)));
  for (const Event& event : spans.at({"1", "0"})) EXPECT_NE(event.category, "wait");
}

TEST(ChromeTrace, NamesProcessesAndTracks) {
  const JsonDocument document = JsonDocument::parse(hand_made_trace(0, 1, "a \"b\""), "trace");
  std::vector<std::string> names;
  for (const JsonView& event : document.root().at("traceEvents").elements())
    if (event.at("ph").string() == "M")
      names.push_back(event.at("name").string() + ": " + event.at("args").at("name").string());
  EXPECT_EQ(names,
            (std::vector<std::string>{"process_name: a \"b\": rank 0 of 2", "thread_name: compute",
                                      "thread_name: communication"}));
}

TEST(ChromeTrace, ShowsTheFirstRanksOnly) {
  const auto spans = spans_of(hand_made_trace(0, 1));
  EXPECT_TRUE(spans.contains({"1", "0"}));
  EXPECT_FALSE(spans.contains({"2", "0"}));
}

TEST(ChromeTrace, GivesEachPointProcessesOfItsOwn) {
  const auto spans = spans_of(hand_made_trace(3));
  EXPECT_TRUE(spans.contains({"3000001", "0"}));
  EXPECT_TRUE(spans.contains({"3000002", "0"}));
}

}  // namespace
}  // namespace stepcast
