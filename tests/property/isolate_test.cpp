#include "engine/isolate.hpp"

#include <atomic>
#include <chrono>
#include <csignal>
#include <sys/mman.h>
#include <thread>
#include <unistd.h>

#include <fmt/format.h>
#include <gtest/gtest.h>

namespace stepcast {
namespace {

using namespace std::chrono_literals;

/// Counted by all processes.
class Busy {
 public:
  Busy()
      : counts_(static_cast<int*>(::mmap(nullptr, 2 * sizeof(int), PROT_READ | PROT_WRITE,
                                         MAP_SHARED | MAP_ANONYMOUS, -1, 0))) {}
  ~Busy() { ::munmap(counts_, 2 * sizeof(int)); }
  Busy(const Busy&) = delete;
  Busy& operator=(const Busy&) = delete;

  void begin() {
    const int now = ++std::atomic_ref(counts_[0]);
    int most = std::atomic_ref(counts_[1]).load();
    while (most < now && !std::atomic_ref(counts_[1]).compare_exchange_weak(most, now)) {
    }
  }
  void end() { --std::atomic_ref(counts_[0]); }
  [[nodiscard]] int now() const { return std::atomic_ref(counts_[0]).load(); }
  [[nodiscard]] int most() const { return std::atomic_ref(counts_[1]).load(); }

 private:
  int* counts_;
};

/// `inner` pieces of work side by side as far as there are places, in the work of another.
std::string work_inside(std::size_t inner, const std::function<std::string(std::size_t)>& work) {
  std::size_t next = 0, done = 0;
  run_isolated(
      [&]() -> std::optional<std::size_t> {
        if (next == inner) return std::nullopt;
        return next++;
      },
      {.count = 1, .borrow = true}, work,
      [&](std::size_t, const Outcome& outcome) { done += outcome.text == "well"; });
  return std::to_string(done);
}

/// Each waits until all three are at work, which takes all three places of the outer one.
std::string three_inside(bool is_killed) {
  Busy busy;
  return run_isolated(1, 3,
                      [&](std::size_t) {
                        const pid_t middle = ::getpid();
                        return work_inside(3, [&](std::size_t) {
                          busy.begin();
                          for (int i = 0; i < 2000 && busy.now() < 3; ++i)
                            std::this_thread::sleep_for(5ms);
                          if (is_killed) ::kill(middle, SIGKILL);
                          return busy.now() == 3 ? "well" : "alone";
                        });
                      })
      .front()
      .text;
}

TEST(RunIsolated, WorkInsideOfWorkTakesPlacesThatAreLeft) { EXPECT_EQ(three_inside(false), "3"); }

TEST(RunIsolated, WhoIsKilledTakesNoPlacesFromTheNextRun) {
  EXPECT_EQ(three_inside(true), "the simulation was killed by signal 9 (Killed)");
  EXPECT_EQ(three_inside(false), "3");
}

TEST(RunIsolated, AllTogetherKeepToThePlacesOfTheOuterOne) {
  for (const int workers : {1, 2, 3}) {
    Busy busy;
    const std::vector<Outcome> outcomes = run_isolated(5, workers, [&](std::size_t) {
      return work_inside(4, [&](std::size_t) {
        busy.begin();
        std::this_thread::sleep_for(5ms);
        busy.end();
        return std::string("well");
      });
    });
    for (const Outcome& outcome : outcomes) EXPECT_EQ(outcome.text, "4");
    EXPECT_EQ(busy.now(), 0);
    EXPECT_LE(busy.most(), workers);
  }
}

TEST(RunIsolated, AsksForMoreAfterAChildHasEnded) {
  std::vector<std::size_t> ended;
  bool given = false;
  run_isolated(
      [&]() -> std::optional<std::size_t> {
        if (given || ended.size() == 3) return std::nullopt;
        given = true;  // one at a time
        return ended.size();
      },
      {.count = 2}, [](std::size_t index) { return std::to_string(index); },
      [&](std::size_t index, const Outcome& outcome) {
        EXPECT_EQ(outcome.text, std::to_string(index));
        ended.push_back(index);
        given = false;
      });
  EXPECT_EQ(ended, (std::vector<std::size_t>{0, 1, 2}));
}

TEST(RunIsolated, ADeadChildIsAnOutcome) {
  const std::vector<Outcome> outcomes = run_isolated(2, 2, [](std::size_t index) {
    if (index == 1) ::raise(SIGKILL);
    return std::string("fine");
  });
  EXPECT_EQ(outcomes[0].text, "fine");
  EXPECT_EQ(outcomes[1].kind, Outcome::Kind::failed);
  EXPECT_EQ(outcomes[1].text, "the simulation was killed by signal 9 (Killed)");
}

}  // namespace
}  // namespace stepcast
