// Runs work in child processes, because SimGrid allows one simulation per process: the parent never
// touches it, and a child that dies takes only its own answer with it.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

namespace stepcast {

/// What one child brought back.
struct Outcome {
  enum class Kind { done, input_error, failed } kind = Kind::failed;
  std::string text;  ///< the answer, or what went wrong
};

/// Calls work(0) ... work(count - 1), each in a child of its own, at most `workers` at a time.
/// Answers stand in order whatever `workers` is. Errors that the work throws come back as outcomes.
[[nodiscard]] std::vector<Outcome> run_isolated(
    std::size_t count, int workers, const std::function<std::string(std::size_t)>& work);

}  // namespace stepcast
