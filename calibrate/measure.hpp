// Measures the cases of a plan, one after the other.
#pragma once

#include <csignal>
#include <functional>
#include <string>
#include <vector>

#include "backend.hpp"
#include "journal.hpp"
#include "plan.hpp"

namespace stepcast::calibrate {

/// Why it cannot be measured here; empty when it can.
[[nodiscard]] std::string obstacle(const Case& what, const Backend& backend);

/// One case, or why it cannot be measured. Every process calls it.
[[nodiscard]] Outcome measure(const PlannedCase& planned, Backend& backend,
                              const Accuracy& accuracy);

/// All that the journal has not yet. Rank 0 has a journal, the others have none. False when `stop`
/// was set; the case that was being measured is finished then.
/// `show` is called before each case with its place in the plan.
bool measure_all(const std::vector<PlannedCase>& plan, Backend& backend, const Accuracy& accuracy,
                 Journal* journal, const volatile std::sig_atomic_t& stop,
                 const std::function<void(std::size_t)>& show);

}  // namespace stepcast::calibrate
