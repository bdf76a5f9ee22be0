// DDP's buckets of gradients.
#pragma once

#include <cstdint>
#include <vector>

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

}  // namespace stepcast
