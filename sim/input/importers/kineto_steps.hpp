// From a profiler's events to steps: who launched what, on which stream, in which phase, and why
// the compute stream stood idle.
#pragma once

#include <string>
#include <vector>

#include "input/importers/kineto_events.hpp"

namespace stepcast {

enum class StepPhase { forward, backward, finalize, optimizer };

/// A run of GPU work of one operator, or up to one gradient, in one step.
struct SpanSample {
  StepPhase phase = StepPhase::forward;
  std::string name;
  Nanoseconds gap = 0;       ///< the stream stood idle although the host was early
  Nanoseconds duration = 0;  ///< its activities, and such gaps between them
  Nanoseconds launch = 0;    ///< the host's clock at its first launch
  Nanoseconds host = 0;      ///< from there to the next span's, without waiting for the GPU
  bool host_waits = false;
  int gradients = 0;  ///< that are ready at its end
};

/// What one AccumulateGrad says of its size; 0 where it says nothing.
struct GradientSample {
  std::int64_t elements = 0;          ///< of its input
  std::int64_t bytes = 0;             ///< of the copy out of DDP's bucket
  std::int64_t elements_at_most = 0;  ///< by its launch grid
  std::string dtype;
};

struct TracedCollective {
  std::string operation;  ///< all_reduce, broadcast, all_to_all, ...
  std::int64_t elements = 0;
  std::string dtype;  ///< float32; empty: not said
  Nanoseconds start = 0, end = 0;
  [[nodiscard]] std::int64_t bytes() const;
};

struct StepSample {
  std::string name;
  Nanoseconds begin = 0, end = 0;  ///< on the host
  Nanoseconds period = 0;          ///< since the end of the step before, on the GPU; 0: not known
  Nanoseconds compute_busy = 0, communication_busy = 0, exposed = 0;
  std::size_t launches = 0;  ///< of kernels and copies
  int backward_passes = 0;
  int without_gradient = 0;  ///< AccumulateGrads of parameters that got none
  std::vector<SpanSample> spans;
  std::vector<GradientSample> gradients;      ///< in the order in which they became ready
  std::vector<TracedCollective> collectives;  ///< in order of start
  std::vector<TracedCollective> called;       ///< as the host called them, even for one rank alone
  std::int64_t batch = 0;  ///< samples, from the input of `batch_from`; 0: not said
  std::string batch_from;
};

struct RankSteps {
  std::vector<StepSample> steps;
  std::string steps_from;  ///< how they were told apart
  std::string optimizer;   ///< SGD, of Optimizer.step#SGD.step; empty: not said
  bool momentum = false;   ///< SGD's first operator multiplies a buffer
  bool ddp = false;
  double unclassified = 0.0;       ///< share of the GPU's busy time that belongs to no step
  double other_streams = 0.0;      ///< share that ran beside the compute stream, without NCCL
  double overlapped = 0.0;         ///< share of the compute stream's time that is in two kernels
  Nanoseconds launch_latency = 0;  ///< from the call to the start of a kernel that nothing delays
};

/// float32 for Float, float and c10::Float; empty where it is none that is known.
[[nodiscard]] std::string dtype_of(const std::string& word);
[[nodiscard]] std::int64_t bytes_of_dtype(const std::string& dtype);

/// Throws InputError.
[[nodiscard]] RankSteps steps_of(const KinetoTrace& trace);

}  // namespace stepcast
