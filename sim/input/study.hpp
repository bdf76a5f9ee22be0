// A scenario file with the files it names, the command line's `--set` and the points of its `vary`.
#pragma once

#include <cstdint>
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

/// A named set of values; it is one value of the column `case`.
struct Case {
  std::string name;
  std::vector<Setting> set;
};

/// One combination of the varied keys, ready to be simulated. Points share what they do not vary.
struct Point {
  std::vector<Setting> settings;  ///< `case` and the varied keys only
  Scenario scenario;
  std::shared_ptr<const StepTrace> model;
  std::shared_ptr<const Platform> platform;
  std::shared_ptr<const Calibration> calibration;  ///< null when there is none
};

struct InputFile {
  std::string path;
  JsonDocument document;
};

/// The points of a study, made when they are asked for: a million of them take no more room than
/// one but for an index.
class Points {
 public:
  class Iterator {
   public:
    Iterator(const Points& points, std::size_t index) : points_(&points), index_(index) {}
    Point operator*() const { return (*points_)[index_]; }
    Iterator& operator++() {
      ++index_;
      return *this;
    }
    bool operator==(const Iterator& other) const { return index_ == other.index_; }

   private:
    const Points* points_;
    std::size_t index_;
  };

  struct Maker;
  explicit Points(std::shared_ptr<Maker> maker) : maker_(std::move(maker)) {}
  [[nodiscard]] std::size_t size() const;
  [[nodiscard]] Point operator[](std::size_t index) const;
  [[nodiscard]] Iterator begin() const { return {*this, 0}; }
  [[nodiscard]] Iterator end() const { return {*this, size()}; }

 private:
  std::shared_ptr<Maker> maker_;
};

struct Study {
  InputFile scenario;                      ///< with its bases and every `--set` in place
  std::map<std::string, InputFile> files;  ///< model, platform and calibration as `--set` left them
  /// The keys that vary and their values as JSON text; the last one turns fastest.
  std::vector<std::pair<std::string, std::vector<std::string>>> vary;
  std::vector<Case> cases;  ///< each with all that `vary` gives
  std::vector<std::string> constraints;
  Points points;  ///< those that meet the constraints
  /// Changes with anything that was read: all files, all `--set`.
  std::uint64_t fingerprint = 0;
};

/// A key and its value as JSON text or a bare word.
struct Assignment {
  std::string key;
  std::string value;
  std::string origin;  ///< what errors name
};

/// `sets` are `key=value` texts. A key is a scenario key (`cluster.gpus`), or one of a file that
/// the scenario names (`platform.node.nics.bandwidth_Bps`). Setting a key that `vary` or a case
/// varies fixes it. All points are checked. Throws InputError.
[[nodiscard]] Study load_study(const std::filesystem::path& path,
                               const std::vector<std::string>& sets);
/// A scenario that stands in another file: the files it names are relative to `path`.
[[nodiscard]] Study load_study(const std::filesystem::path& path, JsonDocument whole,
                               const std::vector<Assignment>& assignments);

/// Continues `hash` (FNV-1a, 64 bits) over a text and its end.
[[nodiscard]] std::uint64_t fingerprint_of(const std::string& text,
                                           std::uint64_t hash = 0xcbf29ce484222325);

}  // namespace stepcast
