// Logs of nccl-tests, and calibrations that stepcast-calibrate wrote, as samples.
#pragma once

#include <string>
#include <vector>

#include "base/json_view.hpp"
#include "cli/options.hpp"
#include "input/samples.hpp"

namespace stepcast {

struct LogSample {
  CollectiveSample sample;
  std::string source;  ///< file name and line
  std::string json;    ///< the sample as a calibration has it, empty for a log
};

/// What a log holds once the options have said what it does not tell itself.
struct LogContents {
  std::string name;  ///< of the file, without its folder
  std::vector<LogSample> samples;
  std::vector<std::string> complaints;  ///< of rows and tables that were left out
  std::string nccl_version;
  std::string calibration;  ///< the whole text of one, empty for a log
};

/// The calibration of these logs as text, with curves, link rates and overheads fitted to them.
[[nodiscard]] std::string calibration_from(const FitOptions& options,
                                           const std::vector<LogContents>& logs,
                                           const JsonDocument& platform);

[[nodiscard]] std::vector<CollectiveSample> samples_of(const LogContents& contents);

/// Throws InputError for a file that cannot be read or holds nothing that can be used. A number of
/// nodes that nobody tells is 1 while `needs_nodes` is false.
[[nodiscard]] LogContents read_log(const LogOptions& log, bool needs_nodes);

}  // namespace stepcast
