// A scenario file with the files it names, the command line's `--set` and the points of its `vary`.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/json_view.hpp"
#include "input/calibration.hpp"
#include "input/platform.hpp"
#include "input/scenario.hpp"
#include "input/step_trace.hpp"

namespace stepcast {

/// A key and its value as JSON text, such as `cluster.gpus` and `8`.
using Setting = std::pair<std::string, std::string>;

/// One combination of the varied keys, ready to be simulated. Points share what they do not vary.
struct Point {
  std::vector<Setting> settings;  ///< the varied keys only
  Scenario scenario;
  std::shared_ptr<const StepTrace> model;
  std::shared_ptr<const Platform> platform;
  std::shared_ptr<const Calibration> calibration;  ///< null when there is none
};

struct InputFile {
  std::string path;
  JsonDocument document;
};

struct Study {
  InputFile scenario;                      ///< with every `--set` in place
  std::map<std::string, InputFile> files;  ///< model, platform and calibration as `--set` left them
  /// The keys that vary and their values as JSON text; the last one turns fastest.
  std::vector<std::pair<std::string, std::vector<std::string>>> vary;
  std::vector<Point> points;
};

/// A key and its value as JSON text or a bare word.
struct Assignment {
  std::string key;
  std::string value;
  std::string origin;  ///< what errors name
};

/// `sets` are `key=value` texts. A key is a scenario key (`cluster.gpus`), or one of a file that
/// the scenario names (`platform.node.nics.bandwidth_Bps`). Setting a key that `vary` varies fixes
/// it. Throws InputError.
[[nodiscard]] Study load_study(const std::filesystem::path& path,
                               const std::vector<std::string>& sets);
/// A scenario that stands in another file: the files it names are relative to `path`.
[[nodiscard]] Study load_study(const std::filesystem::path& path, JsonDocument scenario,
                               const std::vector<Assignment>& sets);

}  // namespace stepcast
