// How much longer each rank computes than the trace says (docs/model.md §1.3).
#pragma once

#include <vector>

#include "collective/cluster.hpp"
#include "input/imperfections.hpp"
#include "input/step_trace.hpp"

namespace stepcast {

/// By rank; empty where all keep the trace's pace. `measured` gives the spread of a jitter that is
/// taken from the trace. Throws InputError for a rank or a node that is not there.
[[nodiscard]] std::vector<double> paces(const Imperfections& imperfections, const Cluster& cluster,
                                        const MeasuredStep& measured);

/// In the steps in which the straggler is slow. Throws InputError for a rank that is not there.
[[nodiscard]] std::vector<double> paces_when_late(const Imperfections::Straggler& straggler,
                                                  std::vector<double> pace, std::size_t ranks);

/// Expected factors of so many ranks by rising size: the lognormal distribution of mean 1 and this
/// relative standard deviation at Blom's plotting positions (i - 3/8) / (n + 1/4).
[[nodiscard]] std::vector<double> lognormal_order_statistics(std::size_t ranks, double relative_sd);

}  // namespace stepcast
