#include "engine/isolate.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <numeric>
#include <poll.h>
#include <stdexcept>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
#include <utility>

#include <fmt/format.h>

#include "base/error.hpp"
#include "base/process.hpp"

namespace stepcast {
namespace {

struct Child {
  std::size_t index = 0;
  pid_t pid = 0;
  int pipe = -1;
  std::string received;
};

/// In the child: the first character says how the work ended.
[[noreturn]] void answer(int file, std::size_t index,
                         const std::function<std::string(std::size_t)>& work) {
  std::string text;
  try {
    text = "d" + work(index);
  } catch (const InputError& error) {
    text = std::string("i") + error.what();
  } catch (const std::exception& error) {
    text = std::string("f") + error.what();
  }
  write_all(file, text.data(), text.size());
  ::_exit(0);  // no destructors: SimGrid's run at exit and take time
}

Child start(std::size_t index, const std::function<std::string(std::size_t)>& work) {
  const std::array<int, 2> ends = open_pipe();
  const pid_t pid = fork_child();
  if (pid == 0) {
    ::close(ends[0]);
    answer(ends[1], index, work);
  }
  ::close(ends[1]);
  return {index, pid, ends[0], {}};
}

Outcome collect(const Child& child) {
  ::close(child.pipe);
  const int status = wait_for(child.pid);
  if (WIFSIGNALED(status))
    return {Outcome::Kind::failed, fmt::format("the simulation was killed by signal {} ({})",
                                               WTERMSIG(status), ::strsignal(WTERMSIG(status)))};
  if (child.received.empty())
    return {Outcome::Kind::failed,
            fmt::format("the simulation ended without an answer (status {})", WEXITSTATUS(status))};
  const char kind = child.received.front();
  return {kind == 'd'   ? Outcome::Kind::done
          : kind == 'i' ? Outcome::Kind::input_error
                        : Outcome::Kind::failed,
          child.received.substr(1)};
}

/// How many places of outer run_isolated() nobody uses, in memory that all processes share.
class SparePlaces {
 public:
  SparePlaces() noexcept {
    void* memory =
        ::mmap(nullptr, sizeof(int), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory != MAP_FAILED) count_ = static_cast<int*>(memory);
  }
  void add(int places) {
    if (count_ != nullptr) std::atomic_ref(*count_) += places;
  }
  void clear() {
    if (count_ != nullptr) std::atomic_ref<int>(*count_).store(0);
  }
  [[nodiscard]] bool take_one() {
    if (count_ == nullptr) return false;
    int count = std::atomic_ref(*count_).load();
    while (count > 0)
      if (std::atomic_ref(*count_).compare_exchange_weak(count, count - 1)) return true;
    return false;
  }

 private:
  int* count_ = nullptr;
};
SparePlaces spare_places;  // made before the program forks

/// Those that one run_isolated() has.
class Places {
 public:
  explicit Places(Workers workers) : workers_(workers) {}
  Places(const Places&) = delete;
  Places& operator=(const Places&) = delete;
  /// Only an outermost one lends. All who borrowed have ended, some perhaps with what they had.
  ~Places() {
    if (lent_ > 0)
      spare_places.clear();
    else
      spare_places.add(borrowed_);
  }

  [[nodiscard]] bool has_one(std::size_t running) {
    if (static_cast<int>(running) < workers_.count + borrowed_) return true;
    if (!workers_.borrow || !spare_places.take_one()) return false;
    ++borrowed_;
    return true;
  }
  /// Gives away what is not used.
  void settle(std::size_t running, bool is_more) {
    const int unused = std::max(0, workers_.count + borrowed_ - static_cast<int>(running));
    if (workers_.borrow) {
      const int back = std::min(unused, borrowed_);
      borrowed_ -= back;
      spare_places.add(back);
    } else if (!is_more && running > 0 && unused > lent_) {  // else nobody is left to use them
      spare_places.add(unused - lent_);
      lent_ = unused;
    }
  }

 private:
  Workers workers_;
  int borrowed_ = 0;
  int lent_ = 0;
};

constexpr int look_for_place_ms = 10;

}  // namespace

void run_isolated(const std::function<std::optional<std::size_t>()>& next, Workers workers,
                  const std::function<std::string(std::size_t)>& work,
                  const std::function<void(std::size_t, const Outcome&)>& done) {
  std::vector<Child> running, ended;
  Places places(workers);
  for (;;) {
    bool is_more = true;
    while (is_more && places.has_one(running.size())) {
      const std::optional<std::size_t> index = next();
      if (index) running.push_back(start(*index, work));
      is_more = index.has_value();
    }
    places.settle(running.size(), is_more);
    if (running.empty() && ended.empty()) return;
    for (const Child& child : std::exchange(ended, {})) done(child.index, collect(child));
    if (running.empty()) continue;
    std::vector<pollfd> polled;
    for (const Child& child : running) polled.push_back({child.pipe, POLLIN, 0});
    const bool may_get_place = workers.borrow && is_more;
    if (::poll(polled.data(), polled.size(), may_get_place ? look_for_place_ms : -1) < 0) {
      if (errno == EINTR) continue;
      throw SimulationError(fmt::format("cannot wait for a process: {}", std::strerror(errno)));
    }
    for (std::size_t i = running.size(); i-- > 0;) {
      if (polled[i].revents == 0) continue;
      char buffer[65536];
      const ssize_t got = ::read(running[i].pipe, buffer, sizeof buffer);
      if (got < 0 && errno == EINTR) continue;
      if (got > 0) {
        running[i].received.append(buffer, static_cast<std::size_t>(got));
        continue;
      }
      ended.push_back(std::move(running[i]));
      running.erase(running.begin() + static_cast<std::ptrdiff_t>(i));
    }
  }
}

void run_isolated(const std::vector<std::size_t>& indices, int workers,
                  const std::function<std::string(std::size_t)>& work,
                  const std::function<void(std::size_t, const Outcome&)>& done) {
  std::size_t next = 0;
  run_isolated(
      [&]() -> std::optional<std::size_t> {
        if (next == indices.size()) return std::nullopt;
        return indices[next++];
      },
      Workers{workers, false}, work, done);
}

std::vector<Outcome> run_isolated(std::size_t count, int workers,
                                  const std::function<std::string(std::size_t)>& work) {
  std::vector<std::size_t> indices(count);
  std::iota(indices.begin(), indices.end(), std::size_t{0});
  std::vector<Outcome> outcomes(count);
  run_isolated(indices, workers, work,
               [&](std::size_t index, const Outcome& outcome) { outcomes[index] = outcome; });
  return outcomes;
}

std::vector<double> isolated_numbers(const std::function<std::vector<double>()>& work) {
  const Outcome outcome =
      run_isolated(1, 1, [&](std::size_t) { return text_of_values(work()); }).front();
  if (outcome.kind != Outcome::Kind::done) throw SimulationError(outcome.text);
  return values_in<double>(outcome.text);
}

}  // namespace stepcast
