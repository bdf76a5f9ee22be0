// The errors a user can meet. Each is caught once, in cli/main.cpp, and printed as one line.
#pragma once

#include <stdexcept>
#include <string>

namespace stepcast {

/// What the user gave is wrong (exit code 2). The text says where, what was found and what is
/// allowed: `scenario.json:/cluster/gpus: must be a whole number in [1, 1048576], got 3.7`.
class InputError : public std::runtime_error {
 public:
  explicit InputError(const std::string& problem) : std::runtime_error(problem) {}
  /// `where` is a file with an RFC 6901 pointer, or a command-line option.
  InputError(const std::string& where, const std::string& problem)
      : std::runtime_error(where + ": " + problem) {}
};

/// The simulation could not finish (exit code 1); names what was still waiting.
class SimulationError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

}  // namespace stepcast
