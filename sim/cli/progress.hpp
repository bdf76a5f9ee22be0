// How far a command is, on stderr: a bar on a terminal, a line now and then elsewhere.
#pragma once

#include <chrono>
#include <cstddef>
#include <string>

namespace stepcast {

class Progress {
 public:
  /// `done` of `total` are there already; `what` names them.
  Progress(std::size_t done, std::size_t total, std::string what);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  /// So many are done.
  void advance_to(std::size_t done);
  /// One more is.
  void advance() { advance_to(done_ + 1); }
  /// Prints a line of its own.
  void say(const std::string& line);

 private:
  using Clock = std::chrono::steady_clock;
  void clear();

  std::size_t first_, done_, total_;
  std::string what_;
  bool is_terminal_;
  bool is_shown_ = false;
  Clock::time_point start_, shown_at_;
};

/// `1 h 5 min`, `2 min 5 s`, `40 s`.
[[nodiscard]] std::string duration_text(double seconds);

}  // namespace stepcast
