#include "input/step_trace.hpp"

#include <string>
#include <vector>

#include "documents.hpp"
#include "testing.hpp"

namespace stepcast {
namespace {

StepTrace read(const std::string& text) {
  return read_step_trace(JsonDocument::parse(text, "m.json").root());
}

std::string error_of(const std::string& text) {
  return input_error([&] { static_cast<void>(read(text)); });
}

TEST(StepTrace, ReadsWhatItIsAbout) {
  const StepTrace trace = read(tiny_trace());
  EXPECT_EQ(trace.name, "tiny");
  EXPECT_EQ(trace.source, "made up");
  EXPECT_EQ(trace.gpu, "none");
  EXPECT_EQ(trace.precision, "mixed");
  EXPECT_EQ(trace.optimizer, "SGD");
  EXPECT_EQ(trace.optimizer_state_bytes_per_element, 4.0);
}

TEST(StepTrace, KeepsTheParametersInTheirOrder) {
  const StepTrace trace = read(tiny_trace());
  ASSERT_EQ(trace.parameters.size(), 3u);
  EXPECT_EQ(trace.parameters[0].name, "first.weight");
  EXPECT_EQ(trace.parameters[0].elements, 100);
  EXPECT_EQ(trace.parameters[2].name, "second.weight");
  EXPECT_EQ(trace.parameters[2].dtype, "float16");
}

TEST(StepTrace, AddsUpElementsAndBytes) {
  const StepTrace trace = read(tiny_trace());
  EXPECT_EQ(trace.elements(), 100 + 10 + 50);
  EXPECT_EQ(trace.gradient_bytes(), (100 + 10) * 4 + 50 * 2);
}

TEST(StepTrace, KnowsTheSizeOfEachDtype) {
  EXPECT_EQ((Parameter{"a", 3, "float64"}.bytes()), 3 * 8);
  EXPECT_EQ((Parameter{"a", 3, "float32"}.bytes()), 3 * 4);
  EXPECT_EQ((Parameter{"a", 3, "float16"}.bytes()), 3 * 2);
  EXPECT_EQ((Parameter{"a", 3, "bfloat16"}.bytes()), 3 * 2);
}

TEST(StepTrace, ReadsTheMeasuredTimes) {
  const MeasuredStep step = read(tiny_trace()).measured.at(0);
  EXPECT_EQ(step.micro_batch, 8);
  EXPECT_EQ(step.steps, 5);
  EXPECT_EQ(step.fastest, Seconds{0.09});
  EXPECT_EQ(step.median, Seconds{0.1});
  EXPECT_EQ(step.slowest, Seconds{0.12});
}

TEST(StepTrace, ReadsTheSpansOfEachPhase) {
  const MeasuredStep step = read(tiny_trace()).measured.at(0);
  ASSERT_EQ(step.forward.size(), 2u);
  EXPECT_EQ(step.forward[1].name, "second");
  EXPECT_EQ(step.forward[1].duration, Seconds{0.01});
  ASSERT_EQ(step.backward.size(), 2u);
  EXPECT_EQ(step.backward[0].gap, Seconds{0.001});
  ASSERT_EQ(step.finalize.size(), 1u);
  EXPECT_EQ(step.finalize[0].name, "copy");
  ASSERT_EQ(step.optimizer.size(), 1u);
  EXPECT_EQ(step.optimizer[0].name, "SGD.step");
}

TEST(StepTrace, TakesAMissingGapForNone) {
  EXPECT_EQ(read(tiny_trace()).measured.at(0).backward.at(1).gap, Seconds{0.0});
}

TEST(StepTrace, KeepsTheGradientsInTheOrderInWhichTheyBecomeReady) {
  const MeasuredStep step = read(tiny_trace()).measured.at(0);
  EXPECT_EQ(step.backward[0].gradients, std::vector<int>{2});
  EXPECT_EQ(step.backward[1].gradients, (std::vector<int>{1, 0}));  // first.bias, first.weight
}

TEST(StepTrace, NeedsNoFinalizeAndNoActivations) {
  const MeasuredStep step = read(without(tiny_trace(), "/measured/0/finalize")).measured.at(0);
  EXPECT_TRUE(step.finalize.empty());
  EXPECT_FALSE(step.activation_bytes.has_value());
}

TEST(StepTrace, TakesAStepThatIsAllGaps) {
  const std::string no_duration = R"([{"name": "x", "gap_s": 0, "duration_s": 0}])";
  std::string text = tiny_trace();
  for (const char* phase : {"forward", "finalize", "optimizer"})
    text = with(text, std::string("/measured/0/") + phase, no_duration);
  text = with(text, "/measured/0/backward/0/duration_s", "0");
  text = with(text, "/measured/0/backward/1/duration_s", "0");
  EXPECT_EQ(error_of(text), "no error");  // the gap before the first backward span is left
}

TEST(StepTrace, TakesNullForUnknownActivations) {
  const StepTrace trace = read(with(tiny_trace(), "/measured/0/activation_bytes", "null"));
  EXPECT_FALSE(trace.measured.at(0).activation_bytes.has_value());
}

TEST(StepTrace, ReadsActivations) {
  const StepTrace trace = read(with(tiny_trace(), "/measured/0/activation_bytes", "123"));
  EXPECT_EQ(trace.measured.at(0).activation_bytes, 123);
}

TEST(StepTrace, HoldsSeveralMicroBatches) {
  const std::string step =
      JsonDocument::parse(tiny_trace(), "m.json").root().at("measured").elements().at(0).dump();
  const StepTrace trace =
      read(with(with(tiny_trace(), "/measured/1", step), "/measured/1/micro_batch", "16"));
  ASSERT_EQ(trace.measured.size(), 2u);
  EXPECT_EQ(trace.measured[1].micro_batch, 16);
}

TEST(StepTrace, ShippedResNet50HasTheParametersOfTorchvision) {
  const JsonDocument document =
      JsonDocument::read_file(repository_file("models/resnet50_v100_fp32.json"));
  const StepTrace trace = read_step_trace(document.root());
  EXPECT_EQ(trace.parameters.size(), 161u);
  EXPECT_EQ(trace.elements(), 25'557'032);  // torchvision's resnet50
  EXPECT_EQ(trace.gradient_bytes(), 4 * 25'557'032);
}

TEST(StepTrace, ShippedResNet50HasItsBatchNorms) {
  const JsonDocument document =
      JsonDocument::read_file(repository_file("models/resnet50_v100_fp32.json"));
  const StepTrace trace = read_step_trace(document.root());
  ASSERT_EQ(trace.batch_norms.size(), 53u);
  std::int64_t channels = 0;
  for (const BatchNorm& norm : trace.batch_norms) channels += norm.channels;
  // Running mean and variance of all of them are the buffers of floats.
  EXPECT_EQ(2 * channels, trace.buffers.at(0).elements);
}

class StepTraceRefuses : public testing::TestWithParam<Mistake> {};

TEST_P(StepTraceRefuses, AMistake) { EXPECT_EQ(error_of(GetParam().document), GetParam().error); }

std::vector<Mistake> trace_mistakes() {
  const std::string good = tiny_trace();
  const auto first_step =
      JsonDocument::parse(good, "m.json").root().at("measured").elements().at(0).dump();
  return {
      {"AnotherFormat", with(good, "/format", R"("stepcast.platform/1")"),
       "m.json:/format: must be \"stepcast.trace/1\", got \"stepcast.platform/1\""},
      {"AnUnknownKey", with(good, "/optimiser", "1"),
       "m.json: unknown key \"optimiser\"; did you mean \"optimizer\"? known: format, name, "
       "source, gpu, precision, versions, parameters, buffers, batch_norms, optimizer, "
       "modelled, in_ddp, host_per_kernel_s, measured"},
      {"ABatchNormWithoutItsSpan",
       with(good, "/batch_norms", R"([{"span": "third", "channels": 1}])"),
       "m.json:/batch_norms/0/span: must be the name of one forward and one backward span of each "
       "measured micro-batch, found 0 of \"third\" in forward of 8"},
      {"ABatchNormWithoutChannels",
       with(good, "/batch_norms", R"([{"span": "first", "channels": 0}])"),
       "m.json:/batch_norms/0/channels: must be a whole number in [1, 16777216], got 0"},
      {"AMissingSource", without(good, "/source"), "m.json: the key \"source\" is missing"},
      {"NoParameters", with(good, "/parameters", "[]"),
       "m.json:/parameters: must name at least one parameter"},
      {"AParameterTwice", with(good, "/parameters/1/name", R"("first.weight")"),
       "m.json:/parameters/1/name: \"first.weight\" stands twice among the parameters"},
      {"AParameterWithNoElements", with(good, "/parameters/1/elements", "0"),
       "m.json:/parameters/1/elements: must be a whole number in [1, 17592186044416], got 0"},
      {"AnUnknownDtype", with(good, "/parameters/1/dtype", R"("float23")"),
       "m.json:/parameters/1/dtype: unknown \"float23\"; did you mean \"float32\", \"float16\", "
       "\"float64\"? known: bfloat16, float16, float32, float64"},
      {"AnUnknownKeyOfAParameter", with(good, "/parameters/0/shape", "[100]"),
       "m.json:/parameters/0: unknown key \"shape\"; known: name, elements, dtype"},
      {"NothingMeasured", with(good, "/measured", "[]"),
       "m.json:/measured: must hold at least one measured micro-batch"},
      {"AnUnknownParameter", with(good, "/measured/0/backward/0/gradients/0", R"("third")"),
       "m.json:/measured/0/backward/0/gradients/0: \"third\" is not one of the parameters"},
      {"AGradientThatIsNeverReady",
       with(good, "/measured/0/backward/1/gradients", R"(["first.bias"])"),
       "m.json:/measured/0/backward: the gradient of \"first.weight\" must become ready in exactly "
       "one span, found 0"},
      {"AGradientThatIsReadyTwice",
       with(good, "/measured/0/backward/0/gradients", R"(["second.weight", "first.bias"])"),
       "m.json:/measured/0/backward: the gradient of \"first.bias\" must become ready in exactly "
       "one span, found 2"},
      {"AGradientTwiceInOneSpan",
       with(good, "/measured/0/backward/0/gradients", R"(["second.weight", "second.weight"])"),
       "m.json:/measured/0/backward: the gradient of \"second.weight\" must become ready in "
       "exactly one span, found 2"},
      {"GradientsInTheForwardPass", with(good, "/measured/0/forward/0/gradients", "[]"),
       "m.json:/measured/0/forward/0: unknown key \"gradients\"; known: name, gap_s, duration_s, "
       "host_s, host_waits"},
      {"ANegativeDuration", with(good, "/measured/0/forward/0/duration_s", "-1"),
       "m.json:/measured/0/forward/0/duration_s: must be in [0, 3600], got -1"},
      {"ANegativeGap", with(good, "/measured/0/backward/0/gap_s", "-1e-6"),
       "m.json:/measured/0/backward/0/gap_s: must be in [0, 3600], got -1e-06"},
      {"AMissingDuration", without(good, "/measured/0/optimizer/0/duration_s"),
       "m.json:/measured/0/optimizer/0: the key \"duration_s\" is missing"},
      {"AMedianBelowTheFastest", with(good, "/measured/0/step_time_s/median", "0.08"),
       "m.json:/measured/0/step_time_s/median: must be in [0.09, 0.12], got 0.08"},
      {"AMedianAboveTheSlowest", with(good, "/measured/0/step_time_s/median", "0.13"),
       "m.json:/measured/0/step_time_s/median: must be in [0.09, 0.12], got 0.13"},
      {"ASlowestBelowTheFastest", with(good, "/measured/0/step_time_s/max", "0.05"),
       "m.json:/measured/0/step_time_s/max: must be in [0.09, 3600], got 0.05"},
      {"AFractionOfASample", with(good, "/measured/0/micro_batch", "8.5"),
       "m.json:/measured/0/micro_batch: must be a whole number in [1, 16777216], got 8.5"},
      {"AnEqualMicroBatchTwice", with(good, "/measured/1", first_step),
       "m.json:/measured/1/micro_batch: micro-batches must rise from one entry to the next"},
      {"AFallingMicroBatch",
       with(with(good, "/measured/1", first_step), "/measured/1/micro_batch", "4"),
       "m.json:/measured/1/micro_batch: micro-batches must rise from one entry to the next"},
      {"SpansThatTakeNoTime",
       with(with(with(with(good, "/measured/0/forward", "[]"), "/measured/0/finalize", "[]"),
                 "/measured/0/optimizer", "[]"),
            "/measured/0/backward",
            R"([{"name": "b", "duration_s": 0,
                 "gradients": ["first.weight", "first.bias", "second.weight"]}])"),
       "m.json:/measured/0: its spans take no time at all"},
      {"NegativeActivations", with(good, "/measured/0/activation_bytes", "-1"),
       "m.json:/measured/0/activation_bytes: must be a whole number in [0, 1125899906842624], got "
       "-1"},
      {"AVersionThatIsNotText", with(good, "/versions", R"({"nccl": 2})"),
       "m.json:/versions/nccl: must be a string, got 2"},
  };
}
INSTANTIATE_TEST_SUITE_P(Traces, StepTraceRefuses, testing::ValuesIn(trace_mistakes()), case_name);

}  // namespace
}  // namespace stepcast
