#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <set>

#include <fmt/format.h>

#include "base/text.hpp"
#include "report/render.hpp"
#include "report/report.hpp"

namespace stepcast {
namespace {

constexpr std::size_t most_keys = 12;  // of a file that are listed one by one

using Leaves = std::map<std::string, std::string>;

/// Every value that is no object or list, under its dotted name.
void add_leaves(const JsonView& json, const std::string& name, Leaves& leaves) {
  const auto below = [&](const std::string& step) {
    return name.empty() ? step : name + "." + step;
  };
  if (json.is_object()) {
    for (const auto& [key, value] : json.members()) add_leaves(value, below(key), leaves);
  } else if (json.is_array()) {
    const auto elements = json.elements();
    for (std::size_t i = 0; i < elements.size(); ++i)
      add_leaves(elements[i], below(std::to_string(i)), leaves);
  } else {
    leaves[name] = json.is_string() ? json.string() : json.dump();
  }
}

/// `set` takes the place of what stood under its keys.
void set_leaves(const JsonView& set, Leaves& leaves) {
  for (const auto& [key, value] : set.members()) {
    const std::string prefix = key + ".";
    std::erase_if(leaves, [&](const auto& leaf) { return leaf.first.starts_with(prefix); });
    leaves.erase(key);
    add_leaves(value, key, leaves);
  }
}

/// All that the point was simulated with: the scenario, its files and what the point changes.
Leaves settings_of(const JsonView& result, const JsonView& point) {
  Leaves leaves;
  const JsonView scenario = result.at("scenario");
  static const std::set<std::string> no_setting = {"format", "question", "vary", "cases",
                                                   "constraints"};
  for (const auto& [key, value] : scenario.members())
    if (!no_setting.contains(key)) add_leaves(value, key, leaves);
  for (const auto& [key, input] : result.at("inputs").members())
    if (!input.is_null()) add_leaves(input.at("document"), key, leaves);
  const JsonView settings = point.at("settings");
  const auto name = settings.find("case");
  const auto cases = scenario.find("cases");
  if (name && cases)
    for (const JsonView& one : cases->elements())
      if (one.at("name").string() == name->string()) set_leaves(one.at("set"), leaves);
  set_leaves(settings, leaves);
  return leaves;
}

std::string differences(const Leaves& a, const Leaves& b) {
  std::map<std::string, std::pair<std::string, std::string>> differing;
  const auto value_in = [](const Leaves& leaves, const std::string& key) {
    const auto found = leaves.find(key);
    return found == leaves.end() ? std::string("(none)") : found->second;
  };
  for (const Leaves* leaves : {&a, &b})
    for (const auto& [key, value] : *leaves)
      if (value_in(a, key) != value_in(b, key))
        differing[key] = {value_in(a, key), value_in(b, key)};
  if (differing.empty()) return "No setting differs.\n";
  std::string text = "What differs:\n";
  for (const char* file : {"model", "platform", "calibration"}) {
    const std::string prefix = std::string(file) + ".";
    const auto count = static_cast<std::size_t>(
        std::count_if(differing.begin(), differing.end(),
                      [&](const auto& entry) { return entry.first.starts_with(prefix); }));
    if (count <= most_keys) continue;
    std::erase_if(differing, [&](const auto& entry) { return entry.first.starts_with(prefix); });
    text += fmt::format("  {} file: {} -> {} ({} values)\n", file, value_in(a, prefix + "name"),
                        value_in(b, prefix + "name"), count);
  }
  for (const auto& [key, values] : differing)
    text += fmt::format("  {}: {} -> {}\n", key, values.first, values.second);
  return text;
}

struct Figure {
  const char* name;
  std::vector<const char*> path;
  const char* unit;
  double scale;  ///< of the unit
};

double figure_of(JsonView value, const std::vector<const char*>& path) {
  for (const char* key : path) value = value.at(key);
  return value.number();
}

std::string change_table(const JsonView& a, const JsonView& b) {
  static const std::vector<Figure> figures = {
      {"GPUs", {"world_size"}, "", 1},
      {"batch", {"global_batch"}, "samples", 1},
      {"step", {"step_time_s"}, "ms", 1e3},
      {"  compute", {"split", "compute_s"}, "ms", 1e3},
      {"  exposed", {"split", "exposed_comm_s"}, "ms", 1e3},
      {"  host", {"split", "host_s"}, "ms", 1e3},
      {"  wait", {"split", "wait_s"}, "ms", 1e3},
      {"  optimizer", {"split", "optimizer_s"}, "ms", 1e3},
      {"hidden", {"overlapped_comm_s"}, "ms", 1e3},
      {"throughput", {"throughput_samples_per_s"}, "samples/s", 1},
      {"efficiency", {"scaling_efficiency"}, "%", 100},
      {"memory", {"memory", "known_bytes"}, "MiB", 1.0 / (1 << 20)},
  };
  std::vector<Row> rows = {{"", "", "A", "B", "change", ""}};
  for (const Figure& figure : figures) {
    const double before = figure.scale * figure_of(a, figure.path);
    const double after = figure.scale * figure_of(b, figure.path);
    const bool is_whole = figure.scale == 1 && before == std::floor(before) &&
                          after == std::floor(after) && before < 1e15 && after < 1e15;
    const int places = is_whole ? 0 : figure.scale == 1e3 ? 3 : 1;
    const std::string relative =
        before == 0.0 ? "" : fmt::format("{:+.1f} %", 100.0 * (after / before - 1.0));
    rows.push_back({figure.name, figure.unit, fmt::format("{:.{}f}", before, places),
                    fmt::format("{:.{}f}", after, places),
                    fmt::format("{:+.{}f}", after - before, places), relative});
  }
  const auto cost_of = [](const JsonView& point) {
    const auto cost = point.find("cost_per_million_samples_usd");
    return cost && !cost->is_null() ? cost->number() : 0.0;
  };
  const double before = cost_of(a);
  const double after = cost_of(b);
  if (before > 0.0 && after > 0.0)
    rows.push_back({"cost", "USD/1e6 samples", fmt::format("{:.4g}", before),
                    fmt::format("{:.4g}", after), fmt::format("{:+.4g}", after - before),
                    fmt::format("{:+.1f} %", 100.0 * (after / before - 1.0))});
  return render(rows, /*left=*/2);
}

/// What a rank does in the step, for the largest AllReduce.
std::string way_of(const JsonView& point) {
  const JsonView* largest = nullptr;
  const auto buckets = point.at("buckets").elements();
  for (const JsonView& bucket : buckets)
    if (bucket.at("operation").string() == "all_reduce" &&
        (largest == nullptr || bucket.at("bytes").number() > largest->at("bytes").number()))
      largest = &bucket;
  if (largest == nullptr) return "none";
  return fmt::format("{} by {} and {} at {:.1f} GB/s (busbw)",
                     format_bytes(largest->at("bytes").number()), largest->at("algorithm").string(),
                     largest->at("protocol").string(), largest->at("busbw_Bps").number() / 1e9);
}

std::string why_exposed(const JsonView& a, const JsonView& b, double samples_a, double samples_b) {
  const double comm_a = a.at("comm_s").number() / samples_a;
  const double comm_b = b.at("comm_s").number() / samples_b;
  const double hidden_a = a.at("overlapped_comm_s").number() / samples_a;
  const double hidden_b = b.at("overlapped_comm_s").number() / samples_b;
  const bool more = comm_b - hidden_b > comm_a - hidden_a;
  const bool by_length =
      more == (comm_b > comm_a) && std::abs(comm_b - comm_a) >= std::abs(hidden_b - hidden_a);
  std::string text =
      by_length
          ? fmt::format("Collectives are under way for {:.3f} instead of {:.3f} ms a step.",
                        1e3 * b.at("comm_s").number(), 1e3 * a.at("comm_s").number())
          : fmt::format(
                "Of the collectives {:.3f} instead of {:.3f} ms are hidden behind "
                "computation.",
                1e3 * b.at("overlapped_comm_s").number(), 1e3 * a.at("overlapped_comm_s").number());
  const std::string before = way_of(a);
  const std::string after = way_of(b);
  if (before != after)
    text += fmt::format("\nThe largest AllReduce: {} instead of {}.", after, before);
  return text;
}

/// The part of the split that explains most of the change, in words.
std::string explanation(const JsonView& a, const JsonView& b) {
  struct Part {
    const char* key;
    const char* words;
  };
  constexpr std::array<Part, 5> parts = {{{"compute_s", "computation"},
                                          {"exposed_comm_s", "communication that nothing hides"},
                                          {"host_s", "waiting for the host"},
                                          {"wait_s", "waiting for other ranks"},
                                          {"optimizer_s", "the optimizer"}}};
  const auto samples_of = [](const JsonView& point) {
    return point.at("micro_batch").number() * point.at("accumulation_steps").number();
  };
  // With other work for each GPU only the time for each sample can be compared.
  const bool same_work = samples_of(a) == samples_of(b);
  const double samples_a = same_work ? 1.0 : samples_of(a);
  const double samples_b = same_work ? 1.0 : samples_of(b);
  const auto change_of = [&](const JsonView& from, const JsonView& to, const char* key) {
    return to.at(key).number() / samples_b - from.at(key).number() / samples_a;
  };
  const double before = a.at("step_time_s").number() / samples_a;
  const double change = change_of(a, b, "step_time_s");
  const std::string what = same_work ? "The step" : "For each sample that a GPU takes, the step";
  constexpr double nothing = 1e-6;  // of the step: rounding
  if (std::abs(change) < nothing * before) return what + " takes the same time.\n";
  const Part* main = &parts.front();
  double most = 0.0;
  for (const Part& part : parts) {
    const double its = change_of(a.at("split"), b.at("split"), part.key) / change;
    if (its <= most) continue;
    most = its;
    main = &part;
  }
  std::string text =
      fmt::format("{} takes {:.3f} ms ({:.1f} %) {}; {} explains {:+.3f} ms of it ({:.0f} %).\n",
                  what, 1e3 * std::abs(change), 100.0 * std::abs(change) / before,
                  change > 0 ? "more" : "less", main->words, 1e3 * most * change, 100.0 * most);
  const std::string key = main->key;
  if (key == "exposed_comm_s") {
    text += why_exposed(a, b, samples_a, samples_b) + "\n";
  } else if (key == "compute_s") {
    const auto factor_of = [](const JsonView& point) {
      return point.at("interference").at("computation_factor").number();
    };
    if (factor_of(a) != factor_of(b))
      text += fmt::format("Beside a collective it takes {:.2f} instead of {:.2f} x as long.\n",
                          factor_of(b), factor_of(a));
  } else if (key == "host_s" && b.at("host_bound").boolean() != a.at("host_bound").boolean()) {
    text += fmt::format("The host {} issues kernels for the whole step.\n",
                        b.at("host_bound").boolean() ? "now" : "no longer");
  }
  return text;
}

}  // namespace

std::string comparison(const JsonView& result_a, const JsonView& a, const JsonView& result_b,
                       const JsonView& b) {
  return fmt::format("{}\n{}\n{}", differences(settings_of(result_a, a), settings_of(result_b, b)),
                     change_table(a, b), explanation(a, b));
}

}  // namespace stepcast
