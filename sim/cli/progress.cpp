#include "cli/progress.hpp"

#include <cmath>
#include <unistd.h>
#include <utility>

#include <fmt/format.h>

namespace stepcast {
namespace {

using namespace std::chrono_literals;

constexpr auto between_bars = 100ms;
constexpr auto between_lines = 5s;
constexpr std::size_t bar_width = 32;  // characters

}  // namespace

Progress::Progress(std::size_t done, std::size_t total, std::string what)
    : first_(done),
      done_(done),
      total_(total),
      what_(std::move(what)),
      is_terminal_(::isatty(STDERR_FILENO) == 1),
      start_(Clock::now()),
      shown_at_(start_) {}

Progress::~Progress() { clear(); }

void Progress::clear() {
  if (is_shown_) fmt::print(stderr, "\r\x1b[K");
  is_shown_ = false;
}

void Progress::say(const std::string& line) {
  clear();
  fmt::print(stderr, "{}\n", line);
}

void Progress::advance_to(std::size_t done) {
  if (done == done_) return;
  done_ = done;
  const Clock::time_point now = Clock::now();
  if (done_ == total_ || now - shown_at_ < (is_terminal_ ? Clock::duration(between_bars)
                                                         : Clock::duration(between_lines)))
    return;
  shown_at_ = now;
  const double taken = std::chrono::duration<double>(now - start_).count();
  const double left =
      taken * static_cast<double>(total_ - done_) / static_cast<double>(done_ - first_);
  if (!is_terminal_) {
    fmt::print(stderr, "stepcast: {} of {} {}, {} left\n", done_, total_, what_,
               duration_text(left));
    return;
  }
  const std::size_t filled = bar_width * done_ / total_;
  fmt::print(stderr, "\r[{:#>{}}{:->{}}] {} of {} {}, {} left\x1b[K", "", filled, "",
             bar_width - filled, done_, total_, what_, duration_text(left));
  is_shown_ = true;
}

std::string duration_text(double seconds) {
  const auto whole = static_cast<long>(std::ceil(seconds));
  if (whole >= 3600) return fmt::format("{} h {} min", whole / 3600, whole % 3600 / 60);
  if (whole >= 60) return fmt::format("{} min {} s", whole / 60, whole % 60);
  return fmt::format("{} s", whole);
}

}  // namespace stepcast
