// From a timeline to the figures that people read. docs/results.md defines each of them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine/job.hpp"
#include "engine/timeline.hpp"
#include "input/study.hpp"
#include "result/band.hpp"
#include "result/learning_rate.hpp"
#include "result/memory.hpp"

namespace stepcast {

/// Where a step's time goes on the compute stream of a rank, averaged over ranks; adds up to it.
struct Split {
  Seconds compute;       ///< forward, backward, copies and divisions of gradients
  Seconds exposed_comm;  ///< blocked while one of the rank's collectives is under way
  Seconds host;          ///< idle because the host is late
  Seconds wait;          ///< blocked or done while other ranks are not there yet
  Seconds optimizer;
};

struct BucketResult {
  Operation operation = Operation::all_reduce;
  std::int64_t bytes = 0;
  std::size_t parameters = 0;
  std::string algorithm;
  std::string protocol;
  int channels = 0;
  Bytes chunk;
  Seconds ready;  ///< the last rank hands it over
  Seconds start;  ///< and the communication stream is free
  Seconds end;    ///< the last rank has it
  BytesPerSecond algbw;
  BytesPerSecond busbw;
  double relative_error = 0.0;  ///< standard error of its time; 0: not known
  Basis basis = Basis::mechanism;
  std::int64_t runs_per_step = 1;
};

/// Traffic of one kind of link in one step.
struct LinkResult {
  std::string kind;  ///< intra_node or inter_node
  std::size_t links = 0;
  Bytes total;
  Bytes busiest;  ///< on the link that carries most
  std::string busiest_link;
  double busiest_utilisation = 0;  ///< its bytes / (bandwidth * step time)
};

/// What was not simulated because it is like something that was.
struct FoldingResult {
  std::size_t rank_classes = 0;         ///< ranks that differ
  std::vector<std::string> not_folded;  ///< why something had to be simulated in full, for people
};

struct StepResult {
  int world_size = 0;
  int nodes = 0;
  std::int64_t micro_batch = 0;
  std::int64_t global_batch = 0;
  Seconds step_time;
  Band band;
  Split split;
  Seconds comm;        ///< communication stream busy, averaged over ranks
  Seconds overlapped;  ///< of that, hidden behind computation
  double comm_fraction = 0.0;
  double throughput_samples_per_s = 0.0;
  double scaling_efficiency = 0.0;
  std::optional<double> cost_per_step_usd;  ///< of whole nodes
  std::optional<double> cost_per_million_samples_usd;
  Bytes sent_per_rank;  ///< payload, the rank that sends most
  double all_reduce_bytes_per_sample = 0.0;
  std::vector<BucketResult> buckets;
  std::vector<LinkResult> links;
  FoldingResult folding;
  MemoryResult memory;
  std::optional<MicroSteps> fitting;  ///< where this step does not fit into memory
  std::int64_t reference_global_batch = 0;
  double linear_lr_factor = 1.0;
  double sqrt_lr_factor = 1.0;
  bool host_bound = false;    ///< the host issues kernels for as good as the whole step
  Interference interference;  ///< the largest of all collectives
  /// That of the micro-batch; extrapolated when the trace is of another GPU.
  Basis compute_basis = Basis::measured;
  LearningRateAdvice learning_rate;
  std::optional<Basis> communication_basis;  ///< the weakest of all AllReduces; empty without any
};

[[nodiscard]] StepResult summarize(const Point& point, const Job& job, const Timeline& timeline);

/// The times of a result that a mean over several steps is taken of, in seconds.
[[nodiscard]] std::vector<double> mean_times(StepResult result);
/// Makes a result that of steps of which `share` take the other times.
void mix(StepResult& result, const std::vector<double>& other_times, double share);

/// busbw / algbw of an AllReduce: 2(n-1)/n (nccl-tests doc/PERFORMANCE.md).
[[nodiscard]] double bus_factor(Operation operation, int ranks);

}  // namespace stepcast
