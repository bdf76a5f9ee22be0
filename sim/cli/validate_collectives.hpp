// Part of what was measured of collectives is left out and predicted from the rest.
#pragma once

#include <string>
#include <vector>

#include "result/validation.hpp"

namespace stepcast {

/// What was predicted of a curve, or of a part of it.
struct PredictedCurve {
  std::string name;
  std::vector<Bytes> sizes;
  std::vector<CaseResult> cases;  ///< one for each size
};

/// One way to leave something out, on all machines.
struct CollectivesResult {
  FileResult result;  ///< the cases of all curves
  std::vector<PredictedCurve> curves;
};

/// Of calibrations, and of logs of nccl-tests, whose machine is not known, so that only sizes are
/// left out. What is left out is not among what is fitted.
[[nodiscard]] std::vector<CollectivesResult> validate_collectives(
    const std::vector<std::string>& paths, int jobs);

/// A line for each curve, then the errors of all.
[[nodiscard]] std::string collectives_table(const CollectivesResult& result);

}  // namespace stepcast
