// Cases and results as JSON.
#pragma once

#include <nlohmann/json.hpp>

#include "plan.hpp"
#include "statistics.hpp"

namespace stepcast::calibrate {

/// Keys in the order in which they are written.
using Json = nlohmann::ordered_json;

/// What says which case it is; what is left to the library is left out.
[[nodiscard]] Json to_json(const ComputeCase& what);
[[nodiscard]] Json to_json(const CollectiveCase& what);
/// Adds time_s, min_s, p90_s and calls.
void add_times(Json& entry, const Statistics& times);

}  // namespace stepcast::calibrate
