// What is measured already, on disk: a run that was interrupted or killed goes on where it stopped.
#pragma once

#include <cstdio>
#include <memory>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include "json_text.hpp"

namespace stepcast::calibrate {

/// The user asked for something that cannot be: one line, exit 2.
struct UsageError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// What became of one case.
struct Outcome {
  std::string name;   ///< of the planned case
  std::string array;  ///< samples, compute, interference or skipped of the file; or repeats
  Json entry;
  std::vector<std::string> problems;  ///< texts of warnings
};

/// OUTPUT.partial: a line that tells the plan, then one line for each outcome.
class Journal {
 public:
  /// Goes on with OUTPUT.partial if there is one. Throws UsageError when OUTPUT exists, cannot be
  /// written, or when its journal is of another plan.
  Journal(std::string output, const std::string& plan);

  [[nodiscard]] const std::vector<Outcome>& outcomes() const { return outcomes_; }
  [[nodiscard]] bool has(const std::string& name) const { return names_.count(name) > 0; }
  void append(const Outcome& outcome);
  /// Puts the finished file in place and removes the journal.
  void finish(const std::string& text);

 private:
  void read(const std::string& plan);
  void write_line(const Json& line);

  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  std::string output_, path_;
  std::vector<Outcome> outcomes_;
  std::set<std::string> names_;
  std::unique_ptr<std::FILE, Close> file_;
};

/// 64 bits of FNV-1a: the same on every machine.
[[nodiscard]] std::string fingerprint(const std::string& text);

}  // namespace stepcast::calibrate
