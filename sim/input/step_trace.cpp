#include "input/step_trace.hpp"

#include <algorithm>
#include <unordered_map>

#include <fmt/format.h>

#include "base/error.hpp"

namespace stepcast {
namespace {

constexpr double longest_span_s = 3600.0;
constexpr std::int64_t largest_micro_batch = 1 << 24;
/// [1] How far beyond the measured micro-batches one may ask. NVIDIA's sweep of ResNet-50 on V100
/// (DeepLearningExamples, PyTorch resnet50v1.5, FP32) is launch bound up to 4 samples and linear
/// from 16: a factor of 4 lies between the two laws, and one of 8 leads from either well into the
/// other, of which the trace then says nothing.
constexpr std::int64_t furthest_extrapolation = 8;
constexpr std::int64_t most_elements = std::int64_t{1} << 44;

const std::map<std::string, std::int64_t>& dtype_bytes() {
  static const std::map<std::string, std::int64_t> table = {
      {"float64", 8}, {"float32", 4}, {"float16", 2}, {"bfloat16", 2}};
  return table;
}

/// Buffers may also count.
const std::map<std::string, std::int64_t>& buffer_dtype_bytes() {
  static const auto table = [] {
    auto all = dtype_bytes();
    all.insert({{"int64", 8}, {"int32", 4}, {"uint8", 1}, {"bool", 1}});
    return all;
  }();
  return table;
}

std::vector<std::string> names_in(const std::map<std::string, std::int64_t>& table) {
  std::vector<std::string> names;
  for (const auto& [name, bytes] : table) names.push_back(name);
  return names;
}

using ParameterIndex = std::unordered_map<std::string, int>;

std::vector<Span> read_spans(const JsonView& json, const ParameterIndex* gradients_of) {
  std::vector<Span> spans;
  for (const JsonView& entry : json.elements()) {
    if (gradients_of != nullptr)
      entry.allow_only({"name", "gap_s", "duration_s", "host_s", "host_waits", "gradients"});
    else
      entry.allow_only({"name", "gap_s", "duration_s", "host_s", "host_waits"});
    Span span;
    span.name = entry.at("name").string();
    if (const auto gap = entry.find("gap_s")) span.gap = Seconds{gap->number(0.0, longest_span_s)};
    span.duration = Seconds{entry.at("duration_s").number(0.0, longest_span_s)};
    if (const auto host = entry.find("host_s"))
      span.host = Seconds{host->number(0.0, longest_span_s)};
    if (const auto waits = entry.find("host_waits")) span.host_waits = waits->boolean();
    if (const auto gradients = entry.find("gradients")) {
      for (const JsonView& name : gradients->elements()) {
        const auto parameter = gradients_of->find(name.string());
        if (parameter == gradients_of->end())
          name.fail(fmt::format("\"{}\" is not one of the parameters", name.string()));
        span.gradients.push_back(parameter->second);
      }
    }
    spans.push_back(std::move(span));
  }
  return spans;
}

MeasuredStep read_measured_step(const JsonView& json, const ParameterIndex& index,
                                const std::vector<Parameter>& parameters) {
  json.allow_only({"micro_batch", "steps", "step_time_s", "forward", "backward", "finalize",
                   "optimizer", "activation_bytes"});
  MeasuredStep step;
  step.micro_batch = json.at("micro_batch").integer(1, largest_micro_batch);
  step.steps = json.at("steps").integer(1, 1 << 24);
  const JsonView time = json.at("step_time_s");
  time.allow_only({"median", "min", "max"});
  step.fastest = Seconds{time.at("min").number(0.0, longest_span_s)};
  step.slowest = Seconds{time.at("max").number(step.fastest.value(), longest_span_s)};
  step.median = Seconds{time.at("median").number(step.fastest.value(), step.slowest.value())};
  step.forward = read_spans(json.at("forward"), nullptr);
  step.backward = read_spans(json.at("backward"), &index);
  if (const auto finalize = json.find("finalize")) step.finalize = read_spans(*finalize, nullptr);
  step.optimizer = read_spans(json.at("optimizer"), nullptr);
  if (const auto activations = json.find("activation_bytes");
      activations && !activations->is_null())
    step.activation_bytes = activations->integer(0, std::int64_t{1} << 50);

  if (step.total() == Seconds{0.0}) json.fail("its spans take no time at all");

  std::vector<int> times_ready(parameters.size(), 0);
  for (const Span& span : step.backward)
    for (const int parameter : span.gradients) ++times_ready[static_cast<std::size_t>(parameter)];
  for (std::size_t i = 0; i < parameters.size(); ++i)
    if (times_ready[i] != 1)
      json.at("backward")
          .fail(
              fmt::format("the gradient of \"{}\" must become ready in exactly one span, found {}",
                          parameters[i].name, times_ready[i]));
  return step;
}

BatchNorm read_batch_norm(const JsonView& json, const std::vector<MeasuredStep>& measured) {
  json.allow_only({"span", "channels"});
  BatchNorm norm{json.at("span").string(), json.at("channels").integer(1, 1 << 24)};
  const auto named = [&](const Span& span) { return span.name == norm.span; };
  for (const MeasuredStep& step : measured)
    for (const auto* spans : {&step.forward, &step.backward})
      if (const auto found = std::count_if(spans->begin(), spans->end(), named); found != 1)
        json.at("span").fail(fmt::format(
            "must be the name of one forward and one backward span of each measured "
            "micro-batch, found {} of \"{}\" in {} of {}",
            found, norm.span, spans == &step.forward ? "forward" : "backward", step.micro_batch));
  return norm;
}

}  // namespace

std::int64_t Parameter::bytes() const { return elements * dtype_bytes().at(dtype); }

std::int64_t Buffers::bytes() const { return elements * buffer_dtype_bytes().at(dtype); }

std::pair<std::int64_t, std::int64_t> StepTrace::micro_batches() const {
  const std::int64_t smallest = measured.front().micro_batch;
  const std::int64_t largest = measured.back().micro_batch;
  return {(smallest + furthest_extrapolation - 1) / furthest_extrapolation,
          std::min(largest * furthest_extrapolation, largest_micro_batch)};
}

Seconds MeasuredStep::total() const {
  Seconds sum;
  for (const auto* spans : {&forward, &backward, &finalize, &optimizer})
    for (const Span& span : *spans) sum += span.gap + span.duration;
  return sum;
}

std::int64_t StepTrace::elements() const {
  std::int64_t sum = 0;
  for (const Parameter& parameter : parameters) sum += parameter.elements;
  return sum;
}

std::int64_t StepTrace::gradient_bytes() const {
  std::int64_t sum = 0;
  for (const Parameter& parameter : parameters) sum += parameter.bytes();
  return sum;
}

StepTrace read_step_trace(const JsonView& json) {
  json.expect_format("stepcast.trace/1");
  json.allow_only({"format", "name", "source", "gpu", "precision", "versions", "parameters",
                   "buffers", "batch_norms", "optimizer", "modelled", "in_ddp", "host_per_kernel_s",
                   "measured"});
  StepTrace trace;
  trace.name = json.at("name").string();
  trace.source = json.at("source").string();
  trace.gpu = json.at("gpu").string();
  trace.precision = json.at("precision").string();
  if (const auto versions = json.find("versions"))
    for (const auto& [library, version] : versions->members()) static_cast<void>(version.string());

  ParameterIndex index;
  for (const JsonView& entry : json.at("parameters").elements()) {
    entry.allow_only({"name", "elements", "dtype"});
    Parameter parameter{entry.at("name").string(), entry.at("elements").integer(1, most_elements),
                        entry.at("dtype").word(names_in(dtype_bytes()))};
    if (!index.emplace(parameter.name, static_cast<int>(trace.parameters.size())).second)
      entry.at("name").fail(
          fmt::format("\"{}\" stands twice among the parameters", parameter.name));
    trace.parameters.push_back(std::move(parameter));
  }
  if (trace.parameters.empty()) json.at("parameters").fail("must name at least one parameter");

  if (const auto buffers = json.find("buffers"))
    for (const JsonView& entry : buffers->elements()) {
      entry.allow_only({"elements", "dtype"});
      trace.buffers.push_back({entry.at("elements").integer(1, std::int64_t{1} << 32),
                               entry.at("dtype").word(names_in(buffer_dtype_bytes()))});
    }

  const JsonView optimizer = json.at("optimizer");
  optimizer.allow_only({"name", "state_bytes_per_element", "master_weights"});
  trace.optimizer = optimizer.at("name").string();
  trace.optimizer_state_bytes_per_element =
      optimizer.at("state_bytes_per_element").number(0.0, 64.0);
  if (const auto master = optimizer.find("master_weights"))
    trace.master_weights = master->boolean();

  if (const auto modelled = json.find("modelled")) trace.modelled = modelled->boolean();
  for (const JsonView& entry : json.at("measured").elements()) {
    trace.measured.push_back(read_measured_step(entry, index, trace.parameters));
    if (trace.measured.size() > 1 &&
        trace.measured[trace.measured.size() - 2].micro_batch >= trace.measured.back().micro_batch)
      entry.at("micro_batch").fail("micro-batches must rise from one entry to the next");
  }
  if (trace.measured.empty())
    json.at("measured").fail("must hold at least one measured micro-batch");
  trace.in_ddp = std::any_of(trace.measured.begin(), trace.measured.end(),
                             [](const MeasuredStep& step) { return !step.finalize.empty(); });
  if (const auto in_ddp = json.find("in_ddp")) {
    if (trace.in_ddp && !in_ddp->boolean())
      in_ddp->fail("must be true, for there are finalize spans, found false");
    trace.in_ddp = in_ddp->boolean();
  }
  if (const auto host = json.find("host_per_kernel_s"))
    trace.host_per_kernel = Seconds{host->number(0.0, longest_span_s)};
  if (const auto norms = json.find("batch_norms"))
    for (const JsonView& entry : norms->elements())
      trace.batch_norms.push_back(read_batch_norm(entry, trace.measured));
  return trace;
}

}  // namespace stepcast
