// The inner loops, each timed by itself: what one scenario, one transfer, one flow, one task costs.
// bench/run.py reads the figures by name.
#include <algorithm>
#include <string>
#include <vector>

#include <benchmark/benchmark.h>

#include "engine/engine.hpp"
#include "engine/isolate.hpp"
#include "engine/network.hpp"
#include "engine/point_job.hpp"
#include "input/study.hpp"

namespace stepcast {
namespace {

const std::string folder = STEPCAST_SOURCE_DIR;

Study study_of(const std::string& scenario, const std::vector<std::string>& sets = {}) {
  return load_study(folder + "/" + scenario, sets);
}

Job job_from(const std::string& scenario, const std::vector<std::string>& sets) {
  return job_of(study_of(scenario, sets).points[0]);
}

/// Transfers of one collective; a ring may stand for its transfers without a list of them.
std::int64_t transfers_of(const LoweredCollective& collective, int ranks) {
  const std::size_t listed = collective.schedule.transfers.size();
  return listed > 0 ? static_cast<std::int64_t>(listed) : 2LL * ranks * (ranks - 1);
}

void set_items(benchmark::State& state, std::int64_t in_an_iteration) {
  state.SetItemsProcessed(static_cast<std::int64_t>(state.iterations()) * in_an_iteration);
}

void read_scenario(benchmark::State& state) {
  for (auto _ : state) benchmark::DoNotOptimize(study_of("scenarios/quickstart.json"));
  set_items(state, 1);
}
BENCHMARK(read_scenario)->Unit(benchmark::kMillisecond);

/// From a point to what an engine is given: buckets, schedules, links.
void lower_step(benchmark::State& state) {
  const Study study = study_of("scenarios/quickstart.json", {"cluster.gpus=32"});
  const Point point = study.points[0];
  for (auto _ : state) benchmark::DoNotOptimize(job_of(point));
  set_items(state, 1);
}
BENCHMARK(lower_step)->Unit(benchmark::kMillisecond);

void longest_path(benchmark::State& state, const std::string& algorithm) {
  const int ranks = static_cast<int>(state.range(0));
  const Job job = job_from("bench/scenarios/step.json", {"cluster.gpus=" + std::to_string(ranks),
                                                         "collective.algorithm=" + algorithm});
  for (auto _ : state) benchmark::DoNotOptimize(done_analytically(job.collective(0), job.cluster));
  set_items(state, transfers_of(job.collective(0), ranks));
}
BENCHMARK_CAPTURE(longest_path, ring, "ring")->Arg(64)->Arg(1024)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(longest_path, halving_doubling, "recursive_halving_doubling")
    ->Arg(1024)
    ->Unit(benchmark::kMillisecond);

/// Chains of flows, each on two links as from one host to another, with nothing above SimGrid.
class Chains : public Sink {
 public:
  explicit Chains(int count) {
    for (int i = 0; i < 2 * count; ++i) links_.push_back(network_.add_link(BytesPerSecond{12.5e9}));
    network_.seal();
  }
  void run(int flows) {
    left_ = flows;
    for (std::size_t chain = 0; 2 * chain < links_.size(); ++chain) next(chain);
    network_.run(*this);
  }
  void flow_done(std::uint64_t tag) override { next(tag); }
  void timer(std::uint64_t) override {}

 private:
  void next(std::size_t chain) {
    if (left_-- > 0)
      network_.start_flow({links_.data() + 2 * chain, 2}, Bytes{1e6}, Seconds{1e-6}, chain);
  }
  Network network_;
  std::vector<int> links_;
  int left_ = 0;
};

/// SimGrid allows one simulation per process, so that each iteration is a child.
void simgrid_flows(benchmark::State& state) {
  constexpr int flows = 20'000;
  for (auto _ : state)
    benchmark::DoNotOptimize(isolated_numbers([&] {
      Chains(static_cast<int>(state.range(0))).run(flows);
      return std::vector<double>{};
    }));
  set_items(state, flows);
}
BENCHMARK(simgrid_flows)->Arg(1)->Arg(64)->Unit(benchmark::kMillisecond)->UseRealTime();

/// A whole step with every transfer a flow.
void simgrid_step(benchmark::State& state) {
  const int ranks = static_cast<int>(state.range(0));
  const Job job = job_from("bench/scenarios/step.json", {"cluster.gpus=" + std::to_string(ranks)});
  std::int64_t transfers = 0;
  for (std::size_t c = 0; c < job.program.collectives.size(); ++c)
    transfers += transfers_of(job.collective(c), ranks);
  for (auto _ : state)
    benchmark::DoNotOptimize(isolated_numbers([&] {
      benchmark::DoNotOptimize(simulate_with_simgrid(job));
      return std::vector<double>{};
    }));
  set_items(state, transfers);
}
BENCHMARK(simgrid_step)->Arg(8)->Arg(32)->Unit(benchmark::kMillisecond)->UseRealTime();

/// Micro-steps of one GPU, where nothing but tasks is put on the clock.
void walk_tasks(benchmark::State& state) {
  const Job job =
      job_from("scenarios/quickstart.json", {"cluster.gpus=1", "training.accumulation_steps=16"});
  std::int64_t tasks = 0;
  for (auto _ : state) {
    const Simulation simulation = simulate(job);
    tasks = static_cast<std::int64_t>(simulation.timeline.tasks);
    benchmark::DoNotOptimize(&simulation);
  }
  set_items(state, tasks);
}
BENCHMARK(walk_tasks)->Unit(benchmark::kMicrosecond);

/// What the process of a point costs before it simulates anything.
void start_child(benchmark::State& state) {
  for (auto _ : state)
    benchmark::DoNotOptimize(isolated_numbers([] { return std::vector<double>{}; }));
  set_items(state, 1);
}
BENCHMARK(start_child)->Unit(benchmark::kMicrosecond)->UseRealTime();

}  // namespace
}  // namespace stepcast

BENCHMARK_MAIN();
