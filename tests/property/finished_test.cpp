#include "engine/finished.hpp"

#include <array>
#include <csignal>
#include <functional>
#include <sys/wait.h>
#include <unistd.h>

#include "base/error.hpp"
#include "base/process.hpp"
#include "jobs.hpp"
#include "simulate.hpp"

namespace stepcast {
namespace {

const std::vector<Seconds> some_times = {Seconds{1.0}, Seconds{0.1}, Seconds{-0.0}};

/// In a child, until the end of which the parent waits.
void in_child(const std::function<void()>& work) {
  const pid_t pid = fork_child();
  if (pid == 0) {
    work();
    ::_exit(0);
  }
  EXPECT_EQ(wait_for(pid), 0);
}

TEST(FinishedCollectives, WhatAChildAddsEverybodyFinds) {
  FinishedCollectives finished(1000);
  const CollectiveKey key{1, 2};
  EXPECT_FALSE(finished.find(key));
  in_child([&] { finished.add(key, some_times); });
  EXPECT_EQ(finished.find(key), some_times);
  in_child([&] { ::_exit(finished.find(key) == some_times ? 0 : 1); });
  EXPECT_FALSE(finished.find({2, 2}));  // the same slot
  finished.add({2, 2}, {});
  EXPECT_EQ(finished.find({2, 2}), std::vector<Seconds>{});
  EXPECT_EQ(finished.find(key), some_times);
}

TEST(FinishedCollectives, AreNotAddedWhereThereIsNoRoom) {
  FinishedCollectives finished(10 * sizeof(double));  // two of three times and how many they are
  for (std::uint64_t i = 1; i <= 3; ++i) finished.add({i, i}, some_times);
  EXPECT_TRUE(finished.find({1, 1}));
  EXPECT_TRUE(finished.find({2, 2}));
  EXPECT_FALSE(finished.find({3, 3}));
  finished.add({4, 4}, {some_times.data(), 1});
  EXPECT_TRUE(finished.find({4, 4}));
}

TEST(FinishedCollectives, AClaimIsOfOneProcessAndEndsWithIt) {
  FinishedCollectives finished(1000);
  const CollectiveKey key{std::uint64_t{1} << 63, 7}, another{1, 7};
  const std::array<int, 2> claimed = open_pipe(), end = open_pipe();
  const pid_t child = fork_child();
  char word = 0;
  if (child == 0) {
    word = finished.claim(key, 1) ? 'y' : 'n';
    write_all(claimed[1], &word, 1);
    static_cast<void>(::read(end[0], &word, 1));
    ::kill(::getpid(), SIGKILL);
  }
  ASSERT_EQ(::read(claimed[0], &word, 1), 1);
  EXPECT_EQ(word, 'y');
  EXPECT_FALSE(finished.claim(key, 1));
  EXPECT_TRUE(finished.claim(another, 1));
  write_all(end[1], &word, 1);
  finished.wait_for(key);
  EXPECT_TRUE(finished.claim(key, 1));
  EXPECT_TRUE(WIFSIGNALED(wait_for(child)));
  in_child([&] { ::_exit(finished.claim(key, 1) ? 1 : 0); });
  finished.release(key);
  in_child([&] { ::_exit(finished.claim(key, 1) ? 0 : 1); });
}

TEST(FinishedCollectives, NobodyWaitsForWhatThereIsNoRoomFor) {
  FinishedCollectives finished(10 * sizeof(double));
  const CollectiveKey key{1, 2};
  EXPECT_TRUE(finished.claim(key, 9));
  in_child([&] { ::_exit(!finished.claim(key, 9) && finished.claim(key, 10) ? 0 : 1); });
  finished.add({3, 4}, {some_times.data(), 1});
  in_child([&] { ::_exit(finished.claim(key, 9) ? 0 : 1); });
}

/// Several sizes and algorithms on links that are shared.
struct Several {
  /// With other ones nothing is finished yet.
  explicit Several(double more_bytes = 0.0) : more(more_bytes) {}

  double more;
  Cluster cluster{switched_platform(4, 100e9, 20e9, 1e-6, 5e-6), nullptr, 12, "test"};
  std::vector<LoweredCollective> collectives = [this] {
    std::vector<LoweredCollective> lowered;
    for (const char* algorithm : {"double_binary_tree", "ring", "recursive_halving_doubling"})
      for (const double bytes : {1000.0, 77'777.0, 3e6}) {
        CollectiveSettings settings = ring_settings(2, 10'000);
        settings.algorithm.value = algorithm;
        lowered.push_back(lower(Operation::all_reduce, Bytes{bytes + more}, settings, cluster,
                                find_rings(cluster)));
      }
    return lowered;
  }();
};

/// What SimGrid says of it in a process that has simulated nothing else.
std::vector<double> alone(const LoweredCollective& collective, const Cluster& cluster) {
  return isolated_numbers([&] {
    const Job job{cluster, single_collective(collective.operation, 1), {collective}, {0}};
    const Timeline timeline = simulate_with_simgrid(job);
    std::vector<double> ends;
    for (const Seconds end : timeline.collectives.front().end) ends.push_back(end.value());
    return ends;
  });
}

TEST(DoneOnSimgrid, DoesNotDependOnWhatElseIsAskedForToTheLastBit) {
  const Several several;
  std::vector<const LoweredCollective*> order;
  for (const LoweredCollective& collective : several.collectives) order.push_back(&collective);
  order.push_back(order.front());  // twice
  const std::vector<std::vector<Seconds>> done = done_on_simgrid(order, several.cluster);
  ASSERT_EQ(done.size(), order.size());
  for (std::size_t i = 0; i < order.size(); ++i) {
    std::vector<double> ends;
    for (const Seconds end : done[i]) ends.push_back(end.value());
    EXPECT_EQ(ends, alone(*order[i], several.cluster)) << i;
    EXPECT_EQ(finished_collectives().find(key_of(*order[i], several.cluster)), done[i]) << i;
  }
}

/// Processes that all want the same, at the same time and in different orders.
TEST(DoneOnSimgrid, ProcessesThatWantTheSameGetTheSame) {
  const Several several(8.0);
  const std::size_t count = several.collectives.size();
  const std::vector<Outcome> outcomes = run_isolated(2 * count, 6, [&](std::size_t first) {
    std::vector<const LoweredCollective*> order;
    for (std::size_t i = 0; i < count; ++i)
      order.push_back(&several.collectives[(first + i) % count]);
    const auto done = done_on_simgrid(order, several.cluster);
    std::string text;
    for (std::size_t i = 0; i < count; ++i)
      for (const Seconds time : done[(count - first % count + i) % count])
        text += fmt::format("{} ", time.value());
    return text;
  });
  for (const Outcome& outcome : outcomes) {
    EXPECT_EQ(outcome.kind, Outcome::Kind::done) << outcome.text;
    EXPECT_EQ(outcome.text, outcomes.front().text);
  }
  for (const LoweredCollective& collective : several.collectives)
    EXPECT_TRUE(finished_collectives().find(key_of(collective, several.cluster)));
}

TEST(DoneOnSimgrid, SaysWhatSimgridSaysOfACollectiveThatCannotEnd) {
  Several several;
  LoweredCollective& stuck = several.collectives.front();
  const auto first = static_cast<std::size_t>(stuck.schedule.dependencies_begin[1]);
  ASSERT_EQ(first, 0U);  // nothing is before the first transfer
  stuck.schedule.dependencies.insert(stuck.schedule.dependencies.begin(), 0);
  for (std::size_t i = 1; i < stuck.schedule.dependencies_begin.size(); ++i)
    ++stuck.schedule.dependencies_begin[i];
  const Job job{several.cluster, single_collective(Operation::all_reduce, 1000), {stuck}, {0}};
  const Outcome outcome = simgrid_outcome(job);
  EXPECT_EQ(outcome.kind, Outcome::Kind::failed);
  try {
    static_cast<void>(done_on_simgrid({&several.collectives[1], &stuck, &several.collectives[2]},
                                      several.cluster));
    ADD_FAILURE() << "it ended";
  } catch (const SimulationError& error) {
    EXPECT_EQ(error.what(), outcome.text);
  }
  EXPECT_TRUE(finished_collectives().claim(key_of(stuck, several.cluster), 1));
}

TEST(CollectiveKey, IsOfAllThatDecidesTheTime) {
  const Several several;
  const LoweredCollective& listed_one = several.collectives[2];
  const LoweredCollective& ring = several.collectives[5];
  ASSERT_FALSE(listed_one.schedule.ring);
  ASSERT_TRUE(ring.schedule.ring);
  using Change = std::function<void(LoweredCollective&)>;
  const std::vector<Change> of_any = {
      [](LoweredCollective& it) { it.launch += Seconds{1e-9}; },
      [](LoweredCollective& it) { it.channel_rate = BytesPerSecond{5e9}; },
      [](LoweredCollective& it) { it.work_per_byte *= 1.0 + 1e-15; },
      [](LoweredCollective& it) { it.alpha.back() += Seconds{1e-9}; },
      [](LoweredCollective& it) { it.latency.front() += Seconds{1e-9}; },
      [](LoweredCollective& it) { std::swap(it.alpha, it.latency); },
      [](LoweredCollective& it) { it.routes.front().links.pop_back(); },
      [](LoweredCollective& it) { std::swap(it.routes.front(), it.routes.back()); },
      [](LoweredCollective& it) { it.schedule.chunk_bytes.back() += Bytes{1.0}; },
      [](LoweredCollective& it) { it.schedule.chunk_bytes.push_back(Bytes{}); },
      [](LoweredCollective& it) { ++it.schedule.ranks; },
      [](LoweredCollective& it) { ++it.schedule.switches; },
      [](LoweredCollective& it) { ++it.schedule.connections.back().src; },
      [](LoweredCollective& it) { ++it.schedule.connections.back().dst; },
      [](LoweredCollective& it) { ++it.schedule.connections.back().stage; },
      [](LoweredCollective& it) { it.may_fold = !it.may_fold; },
      [](LoweredCollective& it) {
        it.fold = NodeFold{1, 2};
      },
  };
  const std::vector<Change> of_list = {
      [](LoweredCollective& it) { ++it.schedule.transfers.back().first_chunk; },
      [](LoweredCollective& it) { ++it.schedule.transfers.back().chunks; },
      [](LoweredCollective& it) { ++it.schedule.transfers.back().connection; },
      [](LoweredCollective& it) { it.schedule.transfers.pop_back(); },
      [](LoweredCollective& it) { --it.schedule.dependencies.back(); },
      [](LoweredCollective& it) { it.schedule.dependencies.pop_back(); },
      [](LoweredCollective& it) { ++it.schedule.dependencies_begin[1]; },
  };
  std::vector<Change> of_ring;
  for (int RingSteps::*member :
       {&RingSteps::places, &RingSteps::blocks, &RingSteps::loops, &RingSteps::pieces,
        &RingSteps::first, &RingSteps::last, &RingSteps::reducing, &RingSteps::in_flight})
    of_ring.push_back([member](LoweredCollective& it) { ++((*it.schedule.ring).*member); });

  std::vector<CollectiveKey> keys;
  const auto add = [&](LoweredCollective it, const Change& change) {
    change(it);
    keys.push_back(key_of(it, several.cluster));
  };
  for (const LoweredCollective* one : {&listed_one, &ring}) {
    add(*one, [](LoweredCollective&) {});
    for (const Change& change : of_any) add(*one, change);
  }
  for (const Change& change : of_list) add(listed_one, change);
  for (const Change& change : of_ring) add(ring, change);
  keys.push_back(key_of(ring, several.cluster.with_network_rate(1.0 + 1e-15)));
  for (std::size_t i = 0; i < keys.size(); ++i)
    for (std::size_t j = 0; j < i; ++j) {
      EXPECT_NE(keys[i].high, keys[j].high) << i << ' ' << j;
      EXPECT_NE(keys[i].low, keys[j].low) << i << ' ' << j;
    }
}

TEST(CollectiveKey, IsNotOfWhatIsForPeople) {
  const Several several;
  LoweredCollective it = several.collectives.front();
  it.chooser = "somebody";
  it.basis = Basis::measured;
  it.relative_error = 0.5;
  it.why_not_folded = "so";
  it.algorithm = "another name";
  EXPECT_EQ(key_of(it, several.cluster), key_of(several.collectives.front(), several.cluster));
}

}  // namespace
}  // namespace stepcast
