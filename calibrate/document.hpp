// The finished stepcast.calibration/1 file.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "journal.hpp"

namespace stepcast::calibrate {

struct Heading {
  std::string platform, source, date, command;
  std::map<std::string, std::string> versions;
};

/// A repetition that differs by more from the first time becomes a warning.
constexpr double largest_drift = 0.05;

/// One line of the text for each measurement.
[[nodiscard]] std::string document(const Heading& heading, const std::vector<Outcome>& outcomes);

}  // namespace stepcast::calibrate
