// Which gradients go into one AllReduce.
#pragma once

#include <cstdint>
#include <vector>

#include "input/scenario.hpp"
#include "input/step_trace.hpp"
#include "workload/program.hpp"

namespace stepcast {

/// The rule of PyTorch's reducer.cpp (@ad78a7b) once its buckets are rebuilt: append gradients to
/// the open bucket of their dtype in the order in which they become ready; when the bucket has
/// reached its limit, close it. The first bucket's limit is `first_bytes`, all others' `cap_bytes`.
/// A gradient is never split, so buckets overshoot. Result in the order of their launch: closed
/// buckets as they were closed, then those that never reached their limit.
[[nodiscard]] std::vector<Collective> ddp_buckets(const std::vector<Parameter>& parameters,
                                                  const std::vector<int>& ready_order,
                                                  std::int64_t first_bytes, std::int64_t cap_bytes);

/// The buckets that DDP starts with, before any order is known: the same rule over the parameters
/// in the order of their registration, launched from the last bucket to the first
/// (`_ddp_init_helper` of torch/nn/parallel/distributed.py reverses the list). So the small bucket
/// is launched last.
[[nodiscard]] std::vector<Collective> initial_ddp_buckets(const std::vector<Parameter>& parameters,
                                                          std::int64_t first_bytes,
                                                          std::int64_t cap_bytes);

/// A gradient and when it is ready, counted from the start of backward by the spans' own times.
struct ReadyGradient {
  int parameter;
  Seconds at;
};

/// What each AllReduce of SyncMode::merged holds (S. Shi, X. Chu and B. Li, MG-WFBP, arXiv
/// 1811.11141, algorithm 1): a gradient waits for the next one, and goes with it, where that is
/// ready less than `cost.overhead` after its own AllReduce could start.
[[nodiscard]] std::vector<Collective> merged_buckets(const std::vector<Parameter>& parameters,
                                                     const std::vector<ReadyGradient>& ready,
                                                     const MergeCost& cost);

/// A collective and the time of its launch, counted from the start of backward.
struct TimedLaunch {
  Seconds at;
  Collective collective;
};

/// Horovod's background thread wakes at each multiple of the cycle and fuses what has become ready,
/// in that order: each AllReduce takes all later gradients of its dtype that still fit into
/// `fusion_bytes` (FuseResponses of horovod/common/controller.cc). A larger gradient goes alone.
[[nodiscard]] std::vector<TimedLaunch> horovod_launches(const std::vector<Parameter>& parameters,
                                                        const std::vector<ReadyGradient>& ready,
                                                        std::int64_t fusion_bytes, Seconds cycle);

}  // namespace stepcast
