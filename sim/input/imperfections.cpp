#include "input/imperfections.hpp"

namespace stepcast {
namespace {

constexpr int most_ranks = 1 << 20;
constexpr double largest_factor = 1e3;

Imperfections::Slow read_slow_one(const JsonView& json, const char* what) {
  const JsonView index = json.at(what);
  return {static_cast<int>(index.integer(0, most_ranks - 1)),
          json.at("time_factor").number(1e-3, largest_factor), index.where()};
}

std::vector<Imperfections::Slow> read_slow(const JsonView& json, const char* what) {
  std::vector<Imperfections::Slow> all;
  for (const JsonView& entry : json.elements()) {
    entry.allow_only({what, "time_factor"});
    all.push_back(read_slow_one(entry, what));
  }
  return all;
}

Imperfections::Jitter read_jitter(const JsonView& json) {
  json.allow_only({"relative_sd", "seed"});
  Imperfections::Jitter jitter;
  const JsonView deviation = json.at("relative_sd");
  jitter.from_trace = deviation.is_auto();
  if (!jitter.from_trace) jitter.relative_sd = deviation.number(0.0, 1.0);
  if (const auto seed = json.find("seed"))
    jitter.seed = static_cast<std::uint64_t>(seed->integer(0, std::int64_t{1} << 53));
  return jitter;
}

}  // namespace

Imperfections read_imperfections(const JsonView& json) {
  json.allow_only({"slow_ranks", "slow_nodes", "slow_nics", "jitter", "straggler"});
  Imperfections imperfections;
  if (const auto ranks = json.find("slow_ranks"))
    imperfections.slow_ranks = read_slow(*ranks, "rank");
  if (const auto nodes = json.find("slow_nodes"))
    imperfections.slow_nodes = read_slow(*nodes, "node");
  if (const auto nics = json.find("slow_nics"))
    for (const JsonView& entry : nics->elements()) {
      entry.allow_only({"node", "nic", "rate_factor"});
      imperfections.slow_nics.push_back(
          {static_cast<int>(entry.at("node").integer(0, most_ranks - 1)),
           static_cast<int>(entry.at("nic").integer(0, 255)),
           entry.at("rate_factor").number(1e-3, 1.0), entry.where()});
    }
  if (const auto jitter = json.find("jitter"); jitter && !jitter->is_null())
    imperfections.jitter = read_jitter(*jitter);
  if (const auto straggler = json.find("straggler"); straggler && !straggler->is_null()) {
    straggler->allow_only({"rank", "time_factor", "every_steps"});
    imperfections.straggler = {read_slow_one(*straggler, "rank"),
                               straggler->at("every_steps").integer(2, std::int64_t{1} << 40)};
  }
  return imperfections;
}

InterferenceSettings read_interference(const JsonView& json) {
  json.allow_only({"computation_factor", "communication_factor"});
  const auto read = [&](const char* key) -> std::optional<double> {
    const auto value = json.find(key);
    if (!value || value->is_auto()) return std::nullopt;
    return value->number(1.0, largest_factor);
  };
  return {read("computation_factor"), read("communication_factor")};
}

}  // namespace stepcast
