// A table with one row for each layer to a step trace (docs/model.md §1.5).
#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/error.hpp"
#include "base/json_view.hpp"
#include "base/text.hpp"
#include "input/importer.hpp"
#include "input/importers/layer_tables.hpp"

namespace stepcast {
namespace {

constexpr std::int64_t most_samples = 1 << 24;
const std::map<std::string, double>& element_bytes() {
  static const std::map<std::string, double> table = {
      {"float64", 8}, {"float32", 4}, {"float16", 2}, {"bfloat16", 2}};
  return table;
}

/// The `--set key=value` of an import.
class Options {
 public:
  explicit Options(const std::map<std::string, std::string>& values) : values_(values) {
    static const std::vector<std::string> known = {
        "name",         "gpu",         "precision",      "source",
        "dtype",        "micro_batch", "optimizer",      "optimizer_state_bytes_per_element",
        "optimizer_s",  "flops_per_s", "calibration",    "memory_bandwidth_Bps",
        "kernel_dtype", "efficiency",  "kernel_floor_s",
    };
    for (const auto& [key, value] : values)
      if (std::find(known.begin(), known.end(), key) == known.end())
        throw InputError("--set " + key, "unknown option of `layers`" + suggest(key, known));
  }
  [[nodiscard]] std::string text(const std::string& key, const std::string& otherwise) const {
    const auto found = values_.find(key);
    return found == values_.end() ? otherwise : found->second;
  }
  [[nodiscard]] bool has(const std::string& key) const { return values_.contains(key); }
  [[nodiscard]] std::optional<double> number(const std::string& key, double smallest,
                                             double largest) const {
    const auto found = values_.find(key);
    if (found == values_.end()) return std::nullopt;
    const std::string& text = found->second;
    double value = 0.0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc{} || end != text.data() + text.size() ||
        !(smallest <= value && value <= largest))
      throw InputError("--set " + key,
                       fmt::format("must be a number in [{}, {}], got \"{}\"",
                                   format_number(smallest), format_number(largest), text));
    return value;
  }
  /// Micro-batches, rising: `8` or `8,16,32`.
  [[nodiscard]] std::set<std::int64_t> micro_batches() const {
    std::set<std::int64_t> all;
    const auto found = values_.find("micro_batch");
    if (found == values_.end()) return all;
    for (const std::string& text : split(found->second, ',')) {
      std::int64_t value = 0;
      const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
      if (error != std::errc{} || end != text.data() + text.size() || value < 1 ||
          value > most_samples)
        throw InputError("--set micro_batch",
                         fmt::format("must be whole numbers in [1, {}] with commas between them, "
                                     "got \"{}\"",
                                     most_samples, found->second));
      all.insert(value);
    }
    return all;
  }

 private:
  const std::map<std::string, std::string>& values_;
};

/// What the GPU does at best, and how long its shortest kernel takes.
struct Roofline {
  double flops_per_s = 0.0;
  double memory_Bps = 0.0;
  double kernel_floor_s = 0.0;
  std::string source;
};

/// The fastest gemm and the fastest copy among a calibration's kernels.
Roofline measured_roofline(const std::string& path, const std::string& dtype) {
  const JsonDocument document = JsonDocument::read_file(path);
  const JsonView root = document.root();
  root.expect_format("stepcast.calibration/1");
  Roofline best;
  const auto samples = root.find("compute");
  for (const JsonView& sample : samples ? samples->elements() : std::vector<JsonView>{}) {
    const std::string kernel = sample.at("kernel").string();
    const double time_s = sample.at("time_s").number(0.0);
    const auto size = [&](const char* key) { return sample.at(key).number(0.0); };
    const auto type = sample.find("dtype");
    if (time_s <= 0.0) continue;
    if (kernel == "gemm" && type && type->string() == dtype)
      best.flops_per_s =
          std::max(best.flops_per_s, 2.0 * size("m") * size("n") * size("k") / time_s);
    if (kernel == "copy")  // reads its bytes and writes them
      best.memory_Bps = std::max(best.memory_Bps, 2.0 * size("bytes") / time_s);
  }
  if (best.flops_per_s <= 0.0 || best.memory_Bps <= 0.0)
    throw InputError(
        path, fmt::format("its `compute` holds no gemm of {} and no copy, or not both", dtype));
  best.source = fmt::format("the fastest gemm of {} ({} FLOP/s) and copy ({} B/s) of {}", dtype,
                            format_number(best.flops_per_s), format_number(best.memory_Bps), path);
  return best;
}

std::optional<Roofline> roofline_of(const Options& options) {
  Roofline roofline;
  if (options.has("calibration")) {
    roofline = measured_roofline(options.text("calibration", ""),
                                 options.text("kernel_dtype", options.text("dtype", "float32")));
  } else {
    const auto flops = options.number("flops_per_s", 1.0, 1e18);
    const auto bandwidth = options.number("memory_bandwidth_Bps", 1.0, 1e15);
    if (!flops && !bandwidth) return std::nullopt;
    if (!flops || !bandwidth)
      throw InputError(
          flops ? "--set flops_per_s" : "--set memory_bandwidth_Bps",
          flops ? "needs memory_bandwidth_Bps beside it" : "needs flops_per_s beside it");
    const double efficiency = options.number("efficiency", 0.001, 1.0).value_or(1.0);
    roofline.flops_per_s = *flops * efficiency;
    roofline.memory_Bps = *bandwidth * efficiency;
    roofline.source = fmt::format("{} of {} FLOP/s and {} B/s", format_number(efficiency),
                                  format_number(*flops), format_number(*bandwidth));
  }
  roofline.kernel_floor_s = options.number("kernel_floor_s", 0.0, 1.0).value_or(0.0);
  return roofline;
}

struct Layer {
  std::string name;
  std::int64_t elements = 0;
  double forward_s = 0.0;
  double backward_s = 0.0;
};

/// One entry of `measured`.
struct Step {
  std::vector<Layer> layers;  ///< in the order of the forward pass
  std::optional<double> activation_bytes;
  bool modelled = false;
};

std::optional<double> seconds(const LayerRow& row, const std::string& pass) {
  const auto s = row.figure(pass + "_s");
  const auto ms = row.figure(pass + "_ms");
  if (s && ms)
    throw InputError(row.where, fmt::format("has {0}_s and {0}_ms: give one of them", pass));
  return ms ? std::optional(*ms / 1e3) : s;
}

std::int64_t elements_of(const LayerRow& row, const std::string& dtype) {
  const auto count = row.figure("parameters");
  const auto bytes = row.figure("parameter_bytes");
  if (count && bytes)
    throw InputError(row.where, "has parameters and parameter_bytes: give one of them");
  const double elements = count ? *count : bytes.value_or(0.0) / element_bytes().at(dtype);
  if (elements != std::floor(elements))
    throw InputError(row.where, fmt::format("must hold a whole number of parameters of {}, got {}",
                                            dtype, format_number(elements)));
  return static_cast<std::int64_t>(elements);
}

/// docs/model.md §1.5. A row without times and without work takes none.
std::pair<double, double> roofline_times(const LayerRow& row, double parameter_bytes,
                                         double micro_batch, const Roofline& roofline) {
  const auto macs = row.figure("macs_per_sample");
  const auto flops = row.figure("flops_per_sample");
  if (macs && flops)
    throw InputError(row.where, "has macs_per_sample and flops_per_sample: give one of them");
  if (!macs && !flops)
    throw InputError(row.where,
                     "needs forward and backward times, or macs_per_sample or flops_per_sample");
  const double work = (flops ? *flops : 2.0 * *macs) * micro_batch / roofline.flops_per_s;
  const double bytes = row.figure("bytes_per_sample").value_or(0.0) * micro_batch + parameter_bytes;
  const double launches = row.figure("kernels").value_or(1.0) * roofline.kernel_floor_s;
  const double forward = launches + std::max(work, bytes / roofline.memory_Bps);
  // The gradient with respect to the inputs, then that with respect to the weights.
  return {forward, 2.0 * forward};
}

/// Rows of one micro-batch to its entry.
void add_row(Step& step, const LayerRow& row, const std::string& dtype, double micro_batch,
             const std::optional<Roofline>& roofline) {
  if (row.name.empty()) throw InputError(row.where, "needs a name");
  if (std::any_of(step.layers.begin(), step.layers.end(),
                  [&](const Layer& layer) { return layer.name == row.name; }))
    throw InputError(row.where, fmt::format("\"{}\" stands twice", row.name));
  Layer layer{row.name, elements_of(row, dtype), 0.0, 0.0};
  const auto forward = seconds(row, "forward");
  const auto backward = seconds(row, "backward");
  if (forward.has_value() != backward.has_value())
    throw InputError(row.where, "needs both a forward and a backward time");
  if (forward) {
    layer.forward_s = *forward;
    layer.backward_s = *backward;
  } else if (roofline) {
    step.modelled = true;
    const double bytes = static_cast<double>(layer.elements) * element_bytes().at(dtype);
    std::tie(layer.forward_s, layer.backward_s) =
        roofline_times(row, bytes, micro_batch, *roofline);
  } else {
    throw InputError(row.where,
                     "has no times; for a roofline give flops_per_s and memory_bandwidth_Bps, or "
                     "calibration");
  }
  if (const auto bytes = row.figure("activation_bytes"))
    step.activation_bytes = step.activation_bytes.value_or(0.0) + *bytes;
  step.layers.push_back(std::move(layer));
}

using StepsByMicroBatch = std::map<std::int64_t, Step>;

StepsByMicroBatch steps_of(const std::vector<LayerRow>& rows, const std::string& dtype,
                           const std::set<std::int64_t>& wanted,
                           const std::optional<Roofline>& roofline) {
  StepsByMicroBatch steps;
  for (const LayerRow& row : rows) {
    std::set<std::int64_t> micro_batches = wanted;
    if (const auto own = row.figure("micro_batch"); own && wanted.empty()) {
      if (*own != std::floor(*own) || *own < 1)
        throw InputError(
            row.where,
            fmt::format("micro_batch must be a whole number above 0, got {}", format_number(*own)));
      micro_batches = {static_cast<std::int64_t>(*own)};
    }
    if (micro_batches.empty())
      throw InputError(row.where, "does not say its micro_batch: give the column or the option");
    if (micro_batches.size() > 1 && seconds(row, "forward"))
      throw InputError("--set micro_batch", "the times of a table are those of one micro-batch");
    for (const std::int64_t micro_batch : micro_batches)
      add_row(steps[micro_batch], row, dtype, static_cast<double>(micro_batch), roofline);
  }
  const StepsByMicroBatch::value_type& first = *steps.begin();
  const auto same_layer = [](const Layer& a, const Layer& b) {
    return a.name == b.name && a.elements == b.elements;
  };
  for (const StepsByMicroBatch::value_type& step : steps)
    if (!std::equal(first.second.layers.begin(), first.second.layers.end(),
                    step.second.layers.begin(), step.second.layers.end(), same_layer))
      throw InputError(rows.front().where,
                       fmt::format("micro-batches {} and {} must have the same layers in the same "
                                   "order, with the same parameters",
                                   first.first, step.first));
  return steps;
}

std::string span(const std::string& name, double duration_s, const std::string& more = {}) {
  return fmt::format("{{\"name\": {}, \"duration_s\": {}{}}}", quote_json(name),
                     format_number(duration_s), more);
}

std::string step_json(std::int64_t micro_batch, const Step& step,
                      const std::optional<double>& optimizer_s) {
  std::vector<std::string> forward;
  std::vector<std::string> backward;
  double total_s = optimizer_s.value_or(0.0);
  for (const Layer& layer : step.layers) {
    forward.push_back(span(layer.name, layer.forward_s));
    const std::string ready = fmt::format(", \"gradients\": [{}]", quote_json(layer.name));
    backward.insert(backward.begin(),
                    span(layer.name, layer.backward_s, layer.elements > 0 ? ready : ""));
    total_s += layer.forward_s + layer.backward_s;
  }
  const std::string time = format_number(total_s);
  return fmt::format(
      "    {{\"micro_batch\": {}, \"steps\": 1,\n"
      "     \"step_time_s\": {{\"median\": {}, \"min\": {}, \"max\": {}}},\n"
      "     \"forward\": [\n      {}],\n     \"backward\": [\n      {}],\n"
      "     \"optimizer\": [{}],\n     \"activation_bytes\": {}}}",
      micro_batch, time, time, time, fmt::join(forward, ",\n      "),
      fmt::join(backward, ",\n      "), optimizer_s ? span("optimizer", *optimizer_s) : "",
      step.activation_bytes ? fmt::format("{:.0f}", *step.activation_bytes) : "null");
}

Imported import_layers(const ImportRequest& request,
                       const std::function<void(double fraction)>& progress) {
  const Options options(request.options);
  const std::string dtype = options.text("dtype", "float32");
  if (!element_bytes().contains(dtype))
    throw InputError(
        "--set dtype",
        fmt::format("must be bfloat16, float16, float32 or float64, got \"{}\"", dtype));
  if (request.files.empty()) throw InputError("layers", "name a table of layers");
  const std::optional<Roofline> roofline = roofline_of(options);

  Imported imported;
  std::vector<LayerRow> rows;
  std::int64_t float_buffers = 0;
  std::int64_t counters = 0;
  for (std::size_t i = 0; i < request.files.size(); ++i) {
    LayerTable table = read_layer_table(request.files[i]);
    rows.insert(rows.end(), table.rows.begin(), table.rows.end());
    imported.notes.insert(imported.notes.end(), table.notes.begin(), table.notes.end());
    // Files of one model differ in their micro-batch only.
    float_buffers = std::max(float_buffers, table.float_buffer_elements);
    counters = std::max(counters, table.counter_buffers);
    if (progress) progress(static_cast<double>(i + 1) / static_cast<double>(request.files.size()));
  }
  const StepsByMicroBatch steps = steps_of(rows, dtype, options.micro_batches(), roofline);
  const bool modelled = std::any_of(steps.begin(), steps.end(),
                                    [](const auto& entry) { return entry.second.modelled; });

  std::vector<std::string> parameters;
  double elements = 0.0;
  for (const Layer& layer : steps.begin()->second.layers) {
    if (layer.elements == 0) continue;
    elements += static_cast<double>(layer.elements);
    parameters.push_back(fmt::format("    {{\"name\": {}, \"elements\": {}, \"dtype\": \"{}\"}}",
                                     quote_json(layer.name), layer.elements, dtype));
  }
  if (parameters.empty()) throw InputError(rows.front().where, "no layer has parameters");

  const double state = options.number("optimizer_state_bytes_per_element", 0.0, 64.0).value_or(4.0);
  std::optional<double> optimizer_s = options.number("optimizer_s", 0.0, 3600.0);
  std::string optimizer_source = "optimizer_s as given";
  if (!optimizer_s && roofline) {
    // It reads and writes parameters and state and reads gradients, at the speed of the memory.
    const double bytes = elements * (3.0 * element_bytes().at(dtype) + 2.0 * state);
    optimizer_s = roofline->kernel_floor_s + bytes / roofline->memory_Bps;
    optimizer_source = "the optimizer's time is its memory traffic";
  }
  if (!optimizer_s) {
    optimizer_source = "no optimizer";
    imported.warnings.emplace_back(
        "the table has no optimizer: its time is 0 unless optimizer_s says it");
  }
  if (!options.has("gpu"))
    imported.warnings.emplace_back("gpu is not given: \"unknown\" fits no platform");
  if (modelled && std::none_of(rows.begin(), rows.end(), [](const LayerRow& row) {
        return row.figure("bytes_per_sample").has_value();
      }))
    imported.warnings.emplace_back(
        "no layer has bytes_per_sample: those that the memory limits come out too fast");
  imported.notes.emplace_back(
      "the parameters of a layer are one tensor, ready at the end of its backward span");

  std::vector<std::string> files;
  for (const auto& path : request.files) files.push_back(path.filename().string());
  std::string source = fmt::format("{}; {}", fmt::join(files, ", "), optimizer_source);
  if (modelled)
    source +=
        "; MODELLED by a roofline: max(FLOPs / rate, bytes / bandwidth), backward twice "
        "forward, from " +
        roofline->source;
  if (options.has("source")) source = options.text("source", "") + "; " + source;
  std::string buffers;
  if (float_buffers > 0)
    buffers = fmt::format(
        "  \"buffers\": [{{\"elements\": {}, \"dtype\": \"float32\"}}, {{\"elements\": {}, "
        "\"dtype\": "
        "\"int64\"}}],\n",
        float_buffers, counters);

  std::vector<std::string> measured;
  for (const StepsByMicroBatch::value_type& step : steps)
    measured.push_back(step_json(step.first, step.second, optimizer_s));
  imported.trace_json = fmt::format(
      "{{\n  \"format\": \"stepcast.trace/1\",\n  \"name\": {},\n  \"source\": {},\n  \"gpu\": "
      "{},\n"
      "  \"precision\": {},\n  \"parameters\": [\n{}\n  ],\n{}  \"optimizer\": {{\"name\": {}, "
      "\"state_bytes_per_element\": {}}},\n{}  \"measured\": [\n{}\n  ]\n}}\n",
      quote_json(options.text("name", request.files.front().stem().string())), quote_json(source),
      quote_json(options.text("gpu", "unknown")), quote_json(options.text("precision", "fp32")),
      fmt::join(parameters, ",\n"), buffers, quote_json(options.text("optimizer", "SGD")),
      format_number(state), modelled ? "  \"modelled\": true,\n" : "", fmt::join(measured, ",\n"));
  return imported;
}

const bool registered = importers().add("layers", import_layers);

}  // namespace
}  // namespace stepcast
