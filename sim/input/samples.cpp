#include "input/samples.hpp"

#include <algorithm>
#include <string>
#include <vector>

#include "input/collective_settings.hpp"

namespace stepcast {
namespace {

constexpr std::int64_t largest_bytes = std::int64_t{1} << 50;
constexpr std::int64_t largest_extent = 1 << 20;
constexpr double longest_s = 3600.0;
constexpr int most_ranks = 1 << 20;
const std::vector<std::string> operations = {"all_reduce", "reduce_scatter", "all_gather",
                                             "broadcast"};

void check_spread(const JsonView& json) {
  for (const char* key : {"min_s", "p90_s"})
    if (const auto time = json.find(key)) static_cast<void>(time->number(0.0, longest_s));
  if (const auto calls = json.find("calls"))
    static_cast<void>(calls->integer(1, std::int64_t{1} << 40));
}

void check_kernel(const JsonView& json) {
  static_cast<void>(json.at("kernel").string());
  if (const auto dtype = json.find("dtype")) static_cast<void>(dtype->string());
  for (const char* key : {"m", "n", "k", "bytes"})
    if (const auto size = json.find(key)) static_cast<void>(size->integer(0, largest_bytes));
  if (const auto layout = json.find("layout")) static_cast<void>(layout->word({"NCHW", "NHWC"}));
  for (const char* key : {"batch", "in_channels", "height", "width", "out_channels", "filter_size",
                          "stride", "heads", "sequence_length", "head_size"})
    if (const auto size = json.find(key)) static_cast<void>(size->integer(1, largest_extent));
  if (const auto padding = json.find("padding"))
    static_cast<void>(padding->integer(0, largest_extent));
  if (const auto cold = json.find("cold_cache")) static_cast<void>(cold->boolean());
}

/// What a collective was asked to be.
void read_case(const JsonView& json, CollectiveSample& sample) {
  sample.operation = json.at("operation").word(operations);
  sample.ranks = static_cast<int>(json.at("ranks").integer(1, most_ranks));
  sample.bytes = json.at("bytes").integer(0, largest_bytes);
  if (const auto algorithm = json.find("algorithm")) sample.algorithm = algorithm->string();
  if (const auto protocol = json.find("protocol"))
    sample.protocol = protocol->word({"LL", "LL128", "Simple"});
  if (const auto channels = json.find("channels"))
    sample.channels = static_cast<int>(channels->integer(1, most_channels));
  if (const auto buffer = json.find("buffer_bytes"))
    sample.buffer_bytes = buffer->integer(1, largest_bytes);
  if (const auto single = json.find("single_shot")) sample.single_shot = single->boolean();
}

}  // namespace

CollectiveSample read_collective_sample(const JsonView& json) {
  json.allow_only({"operation", "nodes", "ranks", "bytes", "time_s", "min_s", "p90_s", "calls",
                   "algorithm", "protocol", "channels", "buffer_bytes", "single_shot", "correct",
                   "own_estimate_s", "source"});
  CollectiveSample sample;
  read_case(json, sample);
  sample.nodes = static_cast<int>(json.at("nodes").integer(1, sample.ranks));
  sample.time = Seconds{json.at("time_s").number(0.0, longest_s)};
  check_spread(json);
  if (const auto correct = json.find("correct")) static_cast<void>(correct->boolean());
  if (const auto estimate = json.find("own_estimate_s"))
    static_cast<void>(estimate->number(0.0, longest_s));
  static_cast<void>(json.at("source").string());
  return sample;
}

void check_curve(const JsonView& json) {
  json.allow_only({"operation", "nodes", "ranks", "algorithm", "protocol", "regimes", "residuals",
                   "outliers_bytes"});
  static_cast<void>(json.at("operation").word(operations));
  for (const char* key : {"nodes", "ranks"}) static_cast<void>(json.at(key).integer(1, most_ranks));
  if (const auto algorithm = json.find("algorithm")) static_cast<void>(algorithm->string());
  if (const auto protocol = json.find("protocol"))
    static_cast<void>(protocol->word({"LL", "LL128", "Simple"}));
  const auto check_fitted = [](const JsonView& value) {
    value.allow_only({"value", "stderr"});
    for (const char* key : {"value", "stderr"}) static_cast<void>(value.at(key).number(0.0));
  };
  for (const JsonView& regime : json.at("regimes").elements()) {
    regime.allow_only({"bytes", "overhead_s", "rate_Bps"});
    const auto ends = regime.at("bytes").elements();
    if (ends.size() != 2) regime.at("bytes").fail("must be [smallest, largest]");
    for (const JsonView& end : ends) static_cast<void>(end.integer(0, largest_bytes));
    check_fitted(regime.at("overhead_s"));
    if (const JsonView rate = regime.at("rate_Bps"); !rate.is_null()) check_fitted(rate);
  }
  const JsonView residuals = json.at("residuals");
  residuals.allow_only({"samples", "median_abs", "max_abs", "held_out_median_abs"});
  static_cast<void>(residuals.at("samples").integer(1, 1 << 24));
  for (const char* key : {"median_abs", "max_abs", "held_out_median_abs"})
    static_cast<void>(residuals.at(key).number(0.0));
  for (const JsonView& bytes : json.at("outliers_bytes").elements())
    static_cast<void>(bytes.integer(0, largest_bytes));
}

void check_compute_sample(const JsonView& json) {
  json.allow_only(
      {"kernel",       "dtype",       "m",      "n",           "k",      "bytes",
       "cold_cache",   "layout",      "batch",  "in_channels", "height", "width",
       "out_channels", "filter_size", "stride", "padding",     "heads",  "sequence_length",
       "head_size",    "time_s",      "min_s",  "p90_s",       "calls",  "correct"});
  check_kernel(json);
  if (const auto correct = json.find("correct")) static_cast<void>(correct->boolean());
  static_cast<void>(json.at("time_s").number(0.0, longest_s));
  check_spread(json);
}

InterferenceSample read_interference_sample(const JsonView& json) {
  json.allow_only({"compute", "collective", "compute_alone_s", "compute_beside_s",
                   "collective_alone_s", "collective_beside_s"});
  const JsonView compute = json.at("compute");
  compute.allow_only({"kernel", "dtype", "m", "n", "k", "bytes", "cold_cache", "layout", "batch",
                      "in_channels", "height", "width", "out_channels", "filter_size", "stride",
                      "padding", "heads", "sequence_length", "head_size"});
  check_kernel(compute);
  const JsonView collective = json.at("collective");
  collective.allow_only({"operation", "ranks", "bytes", "algorithm", "protocol", "channels",
                         "buffer_bytes", "single_shot"});
  CollectiveSample sample;
  read_case(collective, sample);
  // A pair that was measured to be faster together than alone is noise around 1.
  const auto factor = [&](const char* beside, const char* alone) {
    const double time_alone = json.at(alone).number(0.0, longest_s);
    const double time_beside = json.at(beside).number(0.0, longest_s);
    return time_alone > 0.0 ? std::max(1.0, time_beside / time_alone) : 1.0;
  };
  return {compute.at("kernel").string(), sample.operation, sample.channels,
          factor("compute_beside_s", "compute_alone_s"),
          factor("collective_beside_s", "collective_alone_s")};
}

}  // namespace stepcast
