// The finished stepcast.calibration/1 file.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "journal.hpp"

namespace stepcast::calibrate {

/// The platform file that describes what is measured: it goes into the calibration whole, so that
/// what is asked later can be told from what was measured.
struct Machine {
  std::string name;
  Json document;
};
/// Throws std::runtime_error naming the file.
[[nodiscard]] Machine read_machine(const std::string& path);

struct Heading {
  Machine machine;
  std::string source, date, command;
  std::map<std::string, std::string> versions;
};

/// A repetition that differs by more from the first time becomes a warning.
constexpr double largest_drift = 0.05;

/// One line of the text for each measurement.
[[nodiscard]] std::string document(const Heading& heading, const std::vector<Outcome>& outcomes);

}  // namespace stepcast::calibrate
