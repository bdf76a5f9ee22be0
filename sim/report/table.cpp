#include <algorithm>
#include <map>
#include <set>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/text.hpp"
#include "report/render.hpp"
#include "report/report.hpp"
#include "result/band.hpp"

namespace stepcast {

std::string render(const std::vector<Row>& rows, std::size_t left) {
  std::vector<std::size_t> width;
  for (const Row& row : rows) {
    width.resize(std::max(width.size(), row.size()), 0);
    for (std::size_t i = 0; i < row.size(); ++i) width[i] = std::max(width[i], row[i].size());
  }
  std::string text;
  for (const Row& row : rows) {
    for (std::size_t i = 0; i < row.size(); ++i) {
      const std::string pad(width[i] - row[i].size(), ' ');
      text += (i == 0 ? "" : "  ") + (i < left ? row[i] + pad : pad + row[i]);
    }
    text.erase(text.find_last_not_of(' ') + 1);
    text += '\n';
  }
  return text;
}

namespace {

std::string milliseconds(double seconds) { return fmt::format("{:.3f}", seconds * 1e3); }

std::string percent(double fraction) { return fmt::format("{:.1f} %", fraction * 100.0); }

std::string setting_text(const std::string& key, const JsonView& value) {
  if (key.ends_with("_bytes") && !value.is_auto() && value.dump().front() != '"')
    return format_bytes(value.number());
  std::string text = value.dump();
  if (text.size() >= 2 && text.front() == '"') text = text.substr(1, text.size() - 2);
  return text;
}

/// The last word of each key, or all of it where two end alike. GPUs have a column anyway.
Row heads_of(const std::vector<std::string>& keys) {
  const auto last_word = [](const std::string& key) { return key.substr(key.rfind('.') + 1); };
  std::map<std::string, int> uses;
  for (const std::string& key : keys) ++uses[last_word(key)];
  Row heads;
  for (const std::string& key : keys)
    if (key != "cluster.gpus") heads.push_back(uses[last_word(key)] == 1 ? last_word(key) : key);
  return heads;
}

}  // namespace

std::string points_table(const Study& study, std::size_t most) {
  std::vector<Row> rows;
  for (std::size_t i = 0; i < std::min(most, study.points.size()); ++i) {
    const Point point = study.points[i];
    std::vector<std::string> keys;
    Row row = {std::to_string(i)};
    for (const auto& [key, value] : point.settings) {
      keys.push_back(key);
      if (key != "cluster.gpus")
        row.push_back(setting_text(key, JsonDocument::parse(value, key).root()));
    }
    if (rows.empty()) {
      rows.push_back({"point"});
      for (const std::string& head : heads_of(keys)) rows.back().push_back(head);
      for (const char* head : {"GPUs", "micro-batch", "accumulation", "batch"})
        rows.back().emplace_back(head);
    }
    const TrainingSettings& training = point.scenario.training;
    const std::int64_t micro_batch =
        training.micro_batch.value_or(point.model->measured.front().micro_batch);
    row.push_back(std::to_string(point.scenario.gpus));
    row.push_back(std::to_string(micro_batch));
    row.push_back(std::to_string(training.accumulation_steps));
    row.push_back(std::to_string(micro_batch * training.accumulation_steps * point.scenario.gpus));
    rows.push_back(std::move(row));
  }
  return render(rows);
}

std::string result_table(const std::vector<JsonDocument>& points) {
  std::vector<Row> rows;
  std::vector<std::string> keys;
  for (const auto& [key, value] : points.front().root().at("settings").members())
    keys.push_back(key);
  Row heads = heads_of(keys);
  for (const char* head :
       {"GPUs", "batch", "step ms", "80 % band", "compute", "exposed", "host", "wait", "optim.",
        "exposed %", "hidden ms", "samples/s", "efficiency", "comm. basis"})
    heads.emplace_back(head);
  rows.push_back(heads);
  for (const JsonDocument& document : points) {
    const JsonView point = document.root();
    Row row;
    for (const auto& [key, value] : point.at("settings").members())
      if (key != "cluster.gpus") row.push_back(setting_text(key, value));
    if (point.find("error")) {
      const auto gpus = point.at("settings").find("cluster.gpus");
      row.push_back(gpus ? gpus->dump() : "");
      row.emplace_back("failed");
      rows.push_back(std::move(row));
      continue;
    }
    row.push_back(point.at("world_size").dump());
    row.push_back(point.at("global_batch").dump());
    const double step = point.at("step_time_s").number();
    row.push_back(milliseconds(step));
    std::vector<std::string> band;
    for (const JsonView& end : point.at("step_time_band_s").elements())
      band.push_back(fmt::format("{:+.1f}", 100.0 * (end.number() / step - 1.0)));
    row.push_back(fmt::format("{} %", fmt::join(band, " ")));
    const JsonView split = point.at("split");
    for (const char* part : {"compute_s", "exposed_comm_s", "host_s", "wait_s", "optimizer_s"})
      row.push_back(milliseconds(split.at(part).number()));
    row.push_back(percent(point.at("comm_fraction").number()));
    row.push_back(milliseconds(point.at("overlapped_comm_s").number()));
    row.push_back(fmt::format("{:.1f}", point.at("throughput_samples_per_s").number()));
    row.push_back(percent(point.at("scaling_efficiency").number()));
    row.push_back(point.at("buckets").elements().empty()
                      ? "none"
                      : point.at("basis").at("communication").string());
    rows.push_back(std::move(row));
  }
  return render(rows);
}

namespace {

/// Of the point with the largest factors.
std::string interference_note(const std::vector<JsonDocument>& points) {
  const auto loss = [](const JsonDocument& point) {
    const JsonView factors = point.root().at("interference");
    return factors.at("computation_factor").number() * factors.at("communication_factor").number();
  };
  const JsonDocument& worst =
      *std::max_element(points.begin(), points.end(),
                        [&](const auto& a, const auto& b) { return loss(a) < loss(b); });
  if (loss(worst) <= 1.0) return {};
  const JsonView factors = worst.root().at("interference");
  return fmt::format(
      "At the same time computation takes up to {:.2f} x, a collective {:.2f} x as long ({})\n",
      factors.at("computation_factor").number(), factors.at("communication_factor").number(),
      worst.root().at("basis").at("interference").string());
}

/// The cheapest of the points with a price.
std::string cost_note(const std::vector<JsonDocument>& points) {
  const JsonDocument* cheapest = nullptr;
  const auto cost_of = [](const JsonDocument& point) {
    return point.root().at("cost_per_million_samples_usd");
  };
  for (const JsonDocument& point : points)
    if (!cost_of(point).is_null() &&
        (cheapest == nullptr || cost_of(point).number() < cost_of(*cheapest).number()))
      cheapest = &point;
  if (cheapest == nullptr) return {};
  const JsonView point = cheapest->root();
  return fmt::format("Cost: {}{:.4g} USD per million samples at {} GPUs, {:.3g} USD per step\n",
                     points.size() > 1 ? "at least " : "",
                     point.at("cost_per_million_samples_usd").number(),
                     point.at("world_size").dump(), point.at("cost_per_step_usd").number());
}

/// Which of the two rules is usual, how to begin, and what no rule covers.
std::string learning_rate_notes(const JsonView& rate) {
  std::string text;
  if (const JsonView rule = rate.at("rule"); !rule.is_null())
    text += fmt::format("Usual for this optimizer is the {} rule",
                        rule.string() == "linear" ? "linear" : "square-root");
  if (const auto epochs = rate.at("warm_up_epochs").integer(0, 1000); epochs > 0)
    text += fmt::format("{} a linear warm-up from the old rate over {} epochs",
                        text.empty() ? "For a larger one," : ", with", epochs);
  if (!text.empty()) text += '\n';
  return text;
}

std::string batch_norm_notes(const std::set<double>& samples) {
  constexpr double few_samples = 16;  // docs/results.md, Learning rate
  if (samples.empty()) return {};
  const bool one = samples.size() == 1;
  return fmt::format("BatchNorm: its statistics are over {:.0f}{} samples{}{}\n", *samples.begin(),
                     one ? "" : fmt::format(" to {:.0f}", *samples.rbegin()),
                     one ? ", whatever the global batch" : ", so the model changes with them",
                     *samples.begin() < few_samples ? "; fewer than 16 make them noisy" : "");
}

}  // namespace

std::string result_notes(const std::vector<JsonDocument>& all) {
  std::vector<JsonDocument> points;  // that did not fail
  for (const JsonDocument& point : all)
    if (!point.root().find("error")) points.push_back(point);
  if (points.empty()) return {};
  constexpr std::size_t most_factors = 16;
  std::vector<std::string> linear;
  std::vector<std::string> square_root;
  std::set<std::string> references;
  std::set<double> norm_samples;
  const JsonDocument* grown = nullptr;  // the point with the largest batch beside the reference
  const JsonDocument* fullest = &points.front();
  const auto known_bytes = [](const JsonDocument& point) {
    return point.root().at("memory").at("known_bytes").number();
  };
  for (const JsonDocument& point : points) {
    const JsonView rate = point.root().at("learning_rate");
    references.insert(rate.at("reference_global_batch").dump());
    linear.push_back(fmt::format("{:.4g}", rate.at("linear_factor").number()));
    square_root.push_back(fmt::format("{:.4g}", rate.at("sqrt_factor").number()));
    if (const double factor = rate.at("linear_factor").number(); factor != 1.0)
      if (grown == nullptr ||
          factor > grown->root().at("learning_rate").at("linear_factor").number())
        grown = &point;
    if (const JsonView samples = rate.at("batch_norm_samples"); !samples.is_null())
      norm_samples.insert(samples.number());
    if (known_bytes(point) > known_bytes(*fullest)) fullest = &point;
  }
  std::string text;
  if (grown != nullptr && references.size() == 1 && points.size() <= most_factors)
    text +=
        fmt::format("Learning rate relative to batch {}: linear rule x {}; square-root rule x {}\n",
                    *references.begin(), fmt::join(linear, ", "), fmt::join(square_root, ", "));
  if (grown != nullptr)
    text += learning_rate_notes(grown->root().at("learning_rate")) + batch_norm_notes(norm_samples);
  text += interference_note(points);
  for (const JsonDocument& point : points)
    if (point.root().at("host_bound").boolean())
      text += fmt::format("Host bound at {} GPUs: the host issues kernels for the whole step\n",
                          point.root().at("world_size").dump());
  if (std::any_of(points.begin(), points.end(), [](const JsonDocument& point) {
        return point.root().at("world_size").number() > most_validated_gpus;
      }))
    text += fmt::format(
        "No step on more than {} GPUs was compared yet: further on the band is a guess\n",
        most_validated_gpus);
  // Below so many a point takes milliseconds however it is simulated.
  constexpr double worth_folding = 256;
  for (const JsonDocument& point : points)
    if (point.root().at("world_size").number() >= worth_folding)
      if (const JsonView reasons = point.root().at("folding").at("not_folded"); !reasons.is_null())
        text += fmt::format("Not folded at {} GPUs: {}\n", point.root().at("world_size").dump(),
                            reasons.string());
  text += cost_note(points);
  const JsonView memory = fullest->root().at("memory");
  const JsonView gpu = memory.at("gpu_bytes");
  text += fmt::format("Memory per GPU: {}{}{}\n",
                      memory.at("activation_bytes").is_null() ? "at least " : "",
                      format_bytes(known_bytes(*fullest)),
                      gpu.is_null() ? "" : " of " + format_bytes(gpu.number()));
  if (const JsonView fits = memory.at("fits"); !fits.is_null() && !fits.boolean()) {
    const JsonView size = memory.at("fitting_micro_batch");
    text += size.is_null()
                ? std::string("It does not fit\n")
                : fmt::format(
                      "It does not fit; a micro-batch of {} with {} accumulation steps is "
                      "expected to\n",
                      size.dump(), memory.at("fitting_accumulation_steps").dump());
  }
  return text;
}

std::string collective_table(const std::vector<JsonDocument>& documents) {
  std::vector<Row> rows = {
      {"#      size", "algorithm", "protocol", "channels", "chunk", "time", "algbw", "busbw",
       "error", "basis"},
      {"#       (B)", "", "", "", "(B)", "(us)", "(GB/s)", "(GB/s)", "(%)", ""}};
  for (const JsonDocument& document : documents) {
    const JsonView row = document.root();
    rows.push_back({row.at("bytes").dump(), row.at("algorithm").string(),
                    row.at("protocol").string(), row.at("channels").dump(),
                    fmt::format("{:.0f}", row.at("chunk_bytes").number()),
                    fmt::format("{:.2f}", row.at("time_s").number() * 1e6),
                    fmt::format("{:.2f}", row.at("algbw_Bps").number() / 1e9),
                    fmt::format("{:.2f}", row.at("busbw_Bps").number() / 1e9),
                    row.at("relative_error").is_null()
                        ? "none"
                        : fmt::format("{:.1f}", 100.0 * row.at("relative_error").number()),
                    row.at("basis").string()});
  }
  return render(rows);
}

std::string collective_explanation(const std::vector<JsonDocument>& documents) {
  std::string text;
  for (const JsonDocument& document : documents) {
    const JsonView row = document.root();
    text += fmt::format("\n# {}, chosen by {}\n", format_bytes(row.at("bytes").number()),
                        row.at("chosen_by").string());
    std::vector<Row> rows = {{"#   algorithm", "protocol", "estimate (us)", "why not"}};
    for (const JsonView& one : row.at("considered").elements())
      rows.push_back({one.at("algorithm").string(), one.at("protocol").string(),
                      one.at("estimate_s").is_null()
                          ? "-"
                          : fmt::format("{:.2f}", one.at("estimate_s").number() * 1e6),
                      one.at("why_not").is_null() ? "taken" : one.at("why_not").string()});
    text += render(rows);
  }
  return text;
}

}  // namespace stepcast
