#include <cstdlib>
#include <filesystem>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.hpp"
#include "base/json_events.hpp"
#include "input/importer.hpp"
#include "input/importers/kineto_events.hpp"
#include "input/step_trace.hpp"
#include "workload/buckets.hpp"
#include "workload/replay.hpp"

namespace stepcast {
namespace {

using testing::ElementsAre;

TEST(KinetoTest, MicrosecondsBecomeNanosecondsFromTheirDigits) {
  EXPECT_EQ(nanoseconds_of("1711964646000000.125"), 1'711'964'646'000'000'125);
  EXPECT_EQ(nanoseconds_of("4458676522690.6"), 4'458'676'522'690'600);
  EXPECT_EQ(nanoseconds_of("7"), 7000);
  EXPECT_EQ(nanoseconds_of("-0.5"), -500);
  EXPECT_EQ(nanoseconds_of("0.0004"), 0);
  EXPECT_EQ(nanoseconds_of("0.0005"), 1);
  EXPECT_EQ(nanoseconds_of("1e3"), std::nullopt);
  EXPECT_EQ(nanoseconds_of("soon"), std::nullopt);
}

TEST(KinetoTest, KnowsTheKernelsOfNccl) {
  EXPECT_TRUE(is_communication_kernel("ncclKernel_AllReduce_RING_LL_Sum_float(ncclWorkElem)"));
  EXPECT_TRUE(
      is_communication_kernel("ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgs)"));
  EXPECT_TRUE(is_communication_kernel("ncclDevKernel_Generic(ncclDevKernelArgsStorage<4096ul>)"));
  EXPECT_FALSE(is_communication_kernel("volta_sgemm_128x64_nn"));
}

/// Reads `text` in pieces of so many bytes.
std::vector<std::vector<EventField>> read_events(const std::string& text, std::size_t piece,
                                                 std::vector<std::string>* outside = nullptr) {
  std::vector<std::vector<EventField>> events;
  std::size_t at = 0;
  read_json_events(
      [&](char* buffer, std::size_t size) {
        const std::size_t count = std::min({piece, size, text.size() - at});
        text.copy(buffer, count, at);
        at += count;
        return count;
      },
      "made up", "traceEvents", {"name", "ts", "args.stream", "args.grid", "args.Input Dims"},
      {[&](const std::vector<EventField>& fields) { events.push_back(fields); },
       [&](const std::string& place, const std::string& value) {
         if (outside != nullptr) outside->push_back(place + "=" + value);
       }});
  return events;
}

TEST(JsonEventsTest, HandsOverOneObjectAtATime) {
  const std::string text = R"({"distributedInfo": {"rank": 3, "pg": [{"name": "0"}]},
    "traceEvents": [
      {"name": "a", "ts": 12.500, "args": {"stream": 7, "grid": [8, 1], "other": {"stream": 9}}},
      {"stream": 1, "name": "b", "args": {"Input Dims": [[32, 3], [], [4]], "x": [1, [2]]}, "ts": 5}
    ], "traceName": "t"})";
  for (const std::size_t piece : {std::size_t{1}, std::size_t{7}, text.size()}) {
    std::vector<std::string> outside;
    const auto events = read_events(text, piece, &outside);
    EXPECT_THAT(outside, ElementsAre("/distributedInfo/rank=3", "/distributedInfo/pg/name=0",
                                     "/traceName=t"));
    ASSERT_EQ(events.size(), 2U);
    EXPECT_EQ(events[0][0].text, "a");
    EXPECT_EQ(events[0][1].text, "12.500");
    EXPECT_EQ(events[0][2].integer, 7);
    constexpr std::int64_t end = EventField::end_of_list;
    EXPECT_THAT(events[0][3].list, ElementsAre(8, 1, end));
    EXPECT_EQ(events[1][2].kind, EventField::Kind::absent);
    EXPECT_EQ(events[1][1].integer, 5);
    EXPECT_THAT(events[1][4].list, ElementsAre(32, 3, end, end, 4, end, end));
  }
}

TEST(JsonEventsTest, SaysWhereTheTextStopsBeingJson) {
  try {
    read_events(R"({"traceEvents": [{"name": "a"}, {"name": inf}]})", 100);
    FAIL();
  } catch (const InputError& error) {
    EXPECT_THAT(error.what(), testing::StartsWith("made up: not JSON at byte 42: "));
  }
}

Span span(double gap, double duration, double host, bool waits = false) {
  return {"", Seconds{gap}, Seconds{duration}, {}, Seconds{host}, waits};
}

TEST(ReplayTest, TheSlowerClockSetsThePace) {
  MeasuredStep step;
  step.forward = {span(0.0, 2.0, 1.0)};
  step.backward = {span(0.5, 4.0, 1.0)};
  step.optimizer = {span(0.0, 1.0, 1.0)};
  // GPU 2 + 0.5 + 4 + 1, host 3.
  EXPECT_DOUBLE_EQ(replay_alone(step).value(), 7.5);
  step.backward[0].host = Seconds{10.0};
  EXPECT_DOUBLE_EQ(replay_alone(step).value(), 12.0);
}

TEST(ReplayTest, AHostThatWaitsIsNotAhead) {
  MeasuredStep step;
  step.forward = {span(0.0, 2.0, 1.0)};
  step.optimizer = {span(0.0, 1.0, 3.0, true)};
  // Issued at 1, starts at 2, ends at 3; the host goes on at max(1 + 3, 3).
  EXPECT_DOUBLE_EQ(replay_alone(step).value(), 4.0);
  step.optimizer[0].host = Seconds{0.5};
  EXPECT_DOUBLE_EQ(replay_alone(step).value(), 3.0);
}

/// The five buckets of ResNet-50 that NCCL was given, as the trace itself says (shared/data).
TEST(KinetoTest, BucketsOfResnet50AreThoseOfTheTrace) {
  const char* data = std::getenv("STEPCAST_DATA");
  const std::filesystem::path folder =
      data != nullptr ? data : STEPCAST_SOURCE_DIR "/../shared/data";
  const auto trace =
      folder / "traces/facebookresearch+HolisticTraceAnalysis/nccl_parser_config_nccl_data.json.gz";
  if (!std::filesystem::exists(trace)) GTEST_SKIP() << "no ../shared/data";
  const Imported imported =
      (*importers().find("kineto"))({{trace}, {{"micro_batch", "32"}}}, nullptr);
  const JsonDocument document = JsonDocument::parse(imported.trace_json, "imported");
  const StepTrace model = read_step_trace(document.root());
  std::vector<int> order;
  for (const Span& one : model.measured[0].backward)
    order.insert(order.end(), one.gradients.begin(), one.gradients.end());
  std::vector<std::int64_t> elements;
  for (const Collective& bucket : ddp_buckets(model.parameters, order, 1 << 20, 25 << 20))
    elements.push_back(bucket.bytes / 4);
  EXPECT_THAT(elements, ElementsAre(2'049'000, 7'875'584, 6'563'840, 6'637'568, 2'431'040));
  ASSERT_EQ(model.buffers.size(), 2U);
  EXPECT_EQ(model.buffers[0].elements, 53'120);
  EXPECT_EQ(model.buffers[1].bytes(), 53 * 8);
}

}  // namespace
}  // namespace stepcast
