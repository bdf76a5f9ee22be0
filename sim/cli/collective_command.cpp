// stepcast collective: a predicted nccl-tests table, each size simulated in a process of its own.
#include <fmt/format.h>

#include "base/error.hpp"
#include "base/version.hpp"
#include "cli/commands.hpp"
#include "cli/output_file.hpp"
#include "engine/engine.hpp"
#include "engine/isolate.hpp"
#include "report/report.hpp"
#include "result/metrics.hpp"

namespace stepcast {
namespace {

Simulation simulate_as_asked(const Job& job, EngineKind engine) {
  switch (engine) {
    case EngineKind::analytic: return {simulate_analytically(job), false};
    case EngineKind::simgrid: return {simulate_with_simgrid(job), true};
    case EngineKind::automatic: break;
  }
  return simulate(job);
}

/// In a child: whether SimGrid was asked (1 or 0), then the row's JSON.
std::string simulate_size(std::int64_t bytes, const CollectiveOptions& options,
                          const Cluster& cluster) {
  const Job job = make_job(single_collective(options.operation, bytes), options.settings, cluster);
  const Simulation simulation = simulate_as_asked(job, options.engine);
  const Timeline& timeline = simulation.timeline;
  const Timeline::CollectiveTimes& times = timeline.collectives.front();
  const Seconds time = times.last_end() - times.start;
  const std::vector<Bytes> sent = sent_bytes_per_rank(job);

  const LoweredCollective& lowered = job.collective(0);
  CollectiveRow row;
  row.bytes = bytes;
  row.ranks = cluster.ranks();
  row.algorithm = lowered.algorithm;
  row.protocol = lowered.protocol;
  row.channels = lowered.channels;
  row.chunk_bytes = lowered.chunk.value();
  row.time_s = time.value();
  // An empty buffer on links without overhead takes no time at all; it has no bandwidth.
  row.algbw_Bps = row.time_s > 0.0 ? (lowered.bytes / time).value() : 0.0;
  row.busbw_Bps = row.algbw_Bps * bus_factor(options.operation, cluster.ranks());
  row.sent_bytes_per_rank = std::max_element(sent.begin(), sent.end())->value();
  row.relative_error = lowered.relative_error;
  row.basis = to_string(lowered.basis);
  if (options.explain) {
    row.chooser = lowered.chooser;
    row.considered = lowered.considered;
  }
  return (simulation.used_simgrid ? "1" : "0") + collective_row_json(row);
}

}  // namespace

int collective_command(const CollectiveOptions& options) {
  const JsonDocument platform_file = JsonDocument::read_file(options.platform);
  const Platform platform = read_platform(platform_file.root());
  std::optional<Calibration> calibration;
  std::vector<std::string> inputs = {options.platform};
  if (options.calibration) {
    calibration = read_calibration(JsonDocument::read_file(*options.calibration).root());
    inputs.push_back(*options.calibration);
  }
  if (calibration)
    if (const std::string warning = foreign_platform(*calibration, platform); !warning.empty())
      fmt::print(stderr, "stepcast: warning: {}\n", warning);
  if (options.gpus > platform.total_gpus())
    throw InputError(
        "--gpus",
        fmt::format("must be a whole number in [2, {}] ({} nodes of {} GPUs in {}), got {}",
                    platform.total_gpus(), platform.nodes, platform.gpus_per_node, options.platform,
                    options.gpus));
  std::optional<OutputFile> json;
  if (options.json) json.emplace("--json", *options.json, inputs);

  const Cluster cluster(platform, calibration ? &*calibration : nullptr, options.gpus, "--gpus",
                        options.placement);
  const std::vector<Outcome> outcomes = run_isolated(
      options.bytes.size(), options.jobs,
      [&](std::size_t i) { return simulate_size(options.bytes[i], options, cluster); });
  std::vector<std::string> rows;
  std::vector<JsonDocument> documents;
  bool used_simgrid = false;
  for (const Outcome& outcome : outcomes) {
    if (outcome.kind == Outcome::Kind::input_error) throw InputError(outcome.text);
    if (outcome.kind == Outcome::Kind::failed) throw SimulationError(outcome.text);
    used_simgrid |= outcome.text.front() == '1';
    rows.push_back(outcome.text.substr(1));
    documents.push_back(JsonDocument::parse(rows.back(), "row"));
  }
  const char* engine = used_simgrid ? "simgrid" : "analytic";
  const char* operation = to_string(options.operation);
  if (json) json->write(collective_json(platform.name, operation, engine, rows));
  if (!json || !json->is_stdout())
    fmt::print("# stepcast {}: {} of {} ranks on {}, {} engine\n{}", version, operation,
               options.gpus, platform.name, engine, collective_table(documents));
  if (options.explain && (!json || !json->is_stdout()))
    fmt::print("{}", collective_explanation(documents));
  return 0;
}

}  // namespace stepcast
