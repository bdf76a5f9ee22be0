// The two engines: closed forms, agreement where nothing contends, honest refusal where something
// does.
#include <algorithm>

#include "collective/algorithms.hpp"
#include "jobs.hpp"
#include "simulate.hpp"

namespace stepcast {
namespace {

constexpr double alpha_s = 2e-6;
constexpr double bandwidth_Bps = 25e9;

TEST(Engines, RingOfEqualLinksTakesItsClosedForm) {
  // 2(n-1) steps of alpha + block / B with block = S/n (Patarasuk & Yuan 2009).
  const Platform platform = ideal_platform(bandwidth_Bps, alpha_s);
  constexpr std::int64_t bytes = std::int64_t{64} << 20;
  for (const int n : {2, 3, 7, 8, 64}) {
    const double expected =
        2.0 * (n - 1) * (alpha_s + static_cast<double>(bytes) / n / bandwidth_Bps);
    const Job job = all_reduce_job(platform, n, bytes, ring_settings(1, infinite_chunk));
    EXPECT_NEAR(duration_of(simulate_analytically(job)).value() / expected, 1.0, 1e-9) << n;
    EXPECT_NEAR(simgrid_duration(job) / expected, 1.0, 1e-9) << n;
  }
  const Job large = all_reduce_job(platform, 1024, bytes, ring_settings(1, infinite_chunk));
  EXPECT_NEAR(duration_of(simulate_analytically(large)).value() /
                  (2046.0 * (alpha_s + 65536.0 / bandwidth_Bps)),
              1.0, 1e-9);
}

struct ClosedForm {
  std::string algorithm;
  int ranks;
  double alphas;  ///< on the critical path
  double bytes;   ///< on it, in units of S
};

void PrintTo(const ClosedForm& form, std::ostream* out) {  // NOLINT: GoogleTest's name
  *out << form.algorithm << " of " << form.ranks << " ranks";
}

/// Thakur, Rabenseifner & Gropp, IJHPCA 19(1), 2005, for powers of two.
class TextbookAlgorithms : public testing::TestWithParam<ClosedForm> {};

TEST_P(TextbookAlgorithms, TakeTheirClosedForm) {
  const ClosedForm& form = GetParam();
  CollectiveSettings settings = ring_settings(1, infinite_chunk);
  settings.algorithm.value = form.algorithm;
  constexpr std::int64_t bytes = std::int64_t{64} << 20;
  const Job job =
      all_reduce_job(ideal_platform(bandwidth_Bps, alpha_s), form.ranks, bytes, settings);
  const double expected =
      form.alphas * alpha_s + form.bytes * static_cast<double>(bytes) / bandwidth_Bps;
  EXPECT_NEAR(duration_of(simulate_analytically(job)).value() / expected, 1.0, 1e-9);
  EXPECT_NEAR(simgrid_duration(job) / expected, 1.0, 1e-9);
}

INSTANTIATE_TEST_SUITE_P(
    All, TextbookAlgorithms,
    testing::Values(
        ClosedForm{"binary_tree", 8, 6, 6}, ClosedForm{"binary_tree", 64, 12, 12},
        ClosedForm{"recursive_doubling", 8, 3, 3}, ClosedForm{"recursive_doubling", 64, 6, 6},
        ClosedForm{"recursive_halving_doubling", 8, 6, 2.0 * 7 / 8},
        ClosedForm{"recursive_halving_doubling", 64, 12, 2.0 * 63 / 64},
        ClosedForm{"hierarchical", 8, 14, 2.0 * 7 / 8}, ClosedForm{"direct", 8, 2, 2.0 * 7 / 8},
        ClosedForm{"direct", 13, 2, 2.0 * 12 / 13}, ClosedForm{"direct_one_shot", 8, 1, 7},
        ClosedForm{"double_binary_tree", 2, 2, 1}),
    [](const auto& test) { return test.param.algorithm + "_" + std::to_string(test.param.ranks); });

TEST(Engines, HierarchicalOnOneNodeIsAReduceScatterAndAnAllGather) {
  // 2 (g - 1) (alpha + S/(gB)) in a ring; directly 2 (alpha + ...) with g - 1 pieces over each
  // port.
  const Platform platform = switched_platform(8, 100e9, 10e9, 1e-6, 5e-6);
  CollectiveSettings settings = ring_settings(1, infinite_chunk);
  settings.algorithm.value = "hierarchical";
  EXPECT_NEAR(simgrid_duration(all_reduce_job(platform, 8, 80'000'000, settings)),
              14.0 * (1e-6 + 10e6 / 100e9), 1e-12);
  settings.intra_node_algorithm.value = "direct";
  EXPECT_NEAR(simgrid_duration(all_reduce_job(platform, 8, 80'000'000, settings)),
              2.0 * (1e-6 + 7.0 * 10e6 / 100e9), 1e-12);
}

TEST(Engines, PiecesOfABlockEachPayAlpha) {
  // A connection is busy for alpha + c/B with each piece, and a ring of equal links never waits:
  // 2(n-1) C (alpha + c/B), c = block / C. Here n = 4, S = 4 MiB, C = 8 pieces of 128 KiB.
  const Job job = all_reduce_job(ideal_platform(bandwidth_Bps, alpha_s), 4, std::int64_t{4} << 20,
                                 ring_settings(1, 131072));
  const double expected = 6.0 * 8.0 * (alpha_s + 131072.0 / bandwidth_Bps);
  EXPECT_NEAR(duration_of(simulate_analytically(job)).value() / expected, 1.0, 1e-9);
  EXPECT_NEAR(simgrid_duration(job) / expected, 1.0, 1e-9);
}

TEST(Engines, ChannelsOnOneLinkShareItsBandwidth) {
  // K channels move S/K each at B/K: the same time as one channel, in both engines.
  const Platform platform = ideal_platform(bandwidth_Bps, alpha_s);
  const double expected = 2.0 * 7 * (alpha_s + 8e6 / 8 / bandwidth_Bps);
  for (const int channels : {1, 2, 5}) {
    const Job job = all_reduce_job(platform, 8, 8'000'000, ring_settings(channels, infinite_chunk));
    EXPECT_NEAR(duration_of(simulate_analytically(job)).value() / expected, 1.0, 1e-9) << channels;
    EXPECT_NEAR(simgrid_duration(job) / expected, 1.0, 1e-9) << channels;
  }
}

TEST(Engines, TheSlowestHopSetsThePaceOfARing) {
  // Two nodes of four: six hops inside at 100 GB/s, two over NICs at 10 GB/s. One channel has four
  // NICs to choose from and takes the first: 2(n-1) (alpha_nic + S/(nB_nic)), as the slow hops are
  // never starved and the last transfer is one of theirs or earlier.
  const Platform platform = switched_platform(4, 100e9, 10e9, 1e-6, 5e-6);
  const Job job = all_reduce_job(platform, 8, 80'000'000, ring_settings(1, infinite_chunk));
  const double expected = 14.0 * (5e-6 + 10e6 / 10e9);
  EXPECT_NEAR(duration_of(simulate_analytically(job)).value() / expected, 1.0, 1e-9);
  EXPECT_NEAR(simgrid_duration(job) / expected, 1.0, 1e-9);
}

/// A step with computation before, between and after its buckets, repeated segments included.
Program random_program(Random& random) {
  Program program;
  const auto compute = [&](Phase phase) {
    return Compute{phase, "span", Seconds{random.magnitude(1e-6, 1e-2)}};
  };
  const std::int64_t segments = random.whole(1, 2);
  for (std::int64_t s = 0; s < segments; ++s) {
    Segment segment{s + 1 < segments ? random.whole(1, 5) : 1, {compute(Phase::forward)}};
    const auto first = static_cast<int>(program.collectives.size());
    const bool blocking = random.whole(0, 1) == 1;
    const std::int64_t buckets = random.whole(0, 3);
    for (std::int64_t b = 0; b < buckets; ++b) {
      segment.tasks.emplace_back(compute(Phase::backward));
      const int index = first + static_cast<int>(b);
      program.collectives.push_back({static_cast<std::int64_t>(random.magnitude(1.0, 1e8)), {}});
      segment.tasks.emplace_back(Launch{index});
      if (blocking) segment.tasks.emplace_back(Wait{index});
    }
    if (!blocking)
      for (std::int64_t b = 0; b < buckets; ++b)
        segment.tasks.emplace_back(Wait{first + static_cast<int>(b)});
    segment.tasks.emplace_back(compute(Phase::optimizer));
    program.segments.push_back(std::move(segment));
  }
  return program;
}

Platform random_platform(Random& random) {
  switch (random.whole(0, 3)) {
    case 0: return ideal_platform(random.magnitude(1e9, 1e12), random.magnitude(1e-7, 1e-4));
    case 1:
      return switched_platform(static_cast<int>(random.whole(2, 9)), random.magnitude(1e10, 1e12),
                               random.magnitude(1e9, 1e11), random.magnitude(1e-7, 1e-5),
                               random.magnitude(1e-7, 1e-4));
    case 2: return repository_platform("dgx1v");
    default: return repository_platform("abci_v100");
  }
}

TEST(Engines, AgreeWhereverTheAnalyticOneAnswers) {
  Random random(20261130);
  int answered = 0;
  int refused = 0;
  for (int trial = 0; trial < random_cases(160); ++trial) {
    const Platform platform = random_platform(random);
    int ranks = static_cast<int>(random.whole(2, 70));
    if (platform.name == "DGX-1V" && ranks == 5) ++ranks;  // no ring joins 5 GPUs of one node
    const Program program = random_program(random);
    const bool cut = random.whole(0, 1) == 1;
    CollectiveSettings settings =
        ring_settings(static_cast<int>(random.whole(1, 6)), infinite_chunk);
    if (cut) settings.chunk_bytes.value = static_cast<std::int64_t>(random.magnitude(2e6, 1e8));
    std::vector<std::string> algorithms = collective_algorithms(Operation::all_reduce).names();
    if (!platform.node_graph.nvlink_sharp)
      std::erase_if(algorithms, [](const std::string& name) { return name.starts_with("nvls"); });
    // SimGrid solves for all flows that meet on a link, so all-to-all among many takes its time;
    // and only rings know a way between all GPUs of a DGX-1V.
    if (ranks <= 20 && platform.name != "DGX-1V")
      settings.algorithm.value = algorithms[static_cast<std::size_t>(
          random.whole(0, static_cast<std::int64_t>(algorithms.size()) - 1))];
    const Job job = make_job(program, settings, Cluster(platform, nullptr, ranks, "test"));
    std::vector<double> analytic;
    try {
      analytic = numbers_of(simulate_analytically(job));
    } catch (const SimulationError& error) {
      EXPECT_NE(std::string(error.what()).find("use --engine simgrid"), std::string::npos)
          << error.what();
      ++refused;
      continue;
    }
    ++answered;
    EXPECT_LE(worst_difference(analytic, simgrid_numbers(job)), 1e-9)
        << "trial " << trial << ": " << ranks << " ranks on " << platform.name << ", "
        << *settings.algorithm.value << ", " << *settings.channels.value << " channels";
  }
  EXPECT_GE(answered, random_cases(100)) << refused << " refused";
}

TEST(Engines, AskingSimgridOnlyWhereLinksAreSharedIsTheSame) {
  Random random(99);
  int asked = 0;
  for (int trial = 0; trial < 60; ++trial) {
    const Platform platform = random_platform(random);
    int ranks = static_cast<int>(random.whole(2, 24));
    if (platform.name == "DGX-1V" && ranks == 5) ++ranks;  // no ring joins 5 GPUs of one node
    CollectiveSettings settings =
        ring_settings(static_cast<int>(random.whole(1, 6)), infinite_chunk);
    if (platform.name != "DGX-1V" && random.whole(0, 1) == 1)
      settings.algorithm.value = random.whole(0, 1) == 1 ? "double_binary_tree" : "hierarchical";
    Job job = make_job(random_program(random), settings, Cluster(platform, nullptr, ranks, "test"));
    job.interference.assign(job.lowered.size(), {1.5, 1.25, Interference::Basis::set});
    const std::vector<double> automatic = isolated_numbers([&] {
      const Simulation simulation = simulate(job);
      std::vector<double> numbers = numbers_of(simulation.timeline);
      numbers.push_back(simulation.used_simgrid ? 1.0 : 0.0);
      return numbers;
    });
    asked += automatic.back() == 1.0;
    EXPECT_LE(worst_difference({automatic.begin(), automatic.end() - 1}, simgrid_numbers(job)),
              1e-9)
        << "trial " << trial << ": " << ranks << " ranks on " << platform.name << ", "
        << *settings.algorithm.value;
  }
  EXPECT_GE(asked, 5);
}

/// Two connections over one link: rank 0 to 1 with `first` bytes, 2 to 1 with `second`, all alpha
/// 0.
Job shared_link_job(const Platform& platform, double first, double second) {
  Job job = all_reduce_job(platform, 3, 3, ring_settings(1, infinite_chunk));
  LoweredCollective& lowered = job.lowered.front();
  const int down = lowered.routes[0].links[1];  // into rank 1
  lowered.schedule.connections = {{0, 1, 0}, {2, 1, 0}};
  lowered.schedule.transfers = {{.connection = 0, .first_chunk = 0, .reduce = true},
                                {.connection = 1, .first_chunk = 1, .reduce = true}};
  lowered.schedule.dependencies = {};
  lowered.schedule.dependencies_begin = {0, 0, 0};
  lowered.schedule.chunk_bytes = {Bytes{first}, Bytes{second}};
  lowered.schedule.ring.reset();
  const int up_of_0 = lowered.routes[0].links[0];
  const int up_of_2 = lowered.routes[2].links[0];
  lowered.routes = {{{up_of_0, down}, true}, {{up_of_2, down}, true}};
  lowered.alpha = {Seconds{0.0}, Seconds{0.0}};
  lowered.latency = lowered.alpha;
  return job;
}

/// `pieces` of 1 MB over three ranks in a row, a hop of 10 GB/s (100 us) and one `slower` times as
/// slow, with room for two pieces on rank 1.
Job line_job(int pieces, double slower, double latency_s) {
  Job job = all_reduce_job(ideal_platform(10e9, 0.0), 3, 3, ring_settings(1, infinite_chunk));
  LoweredCollective& lowered = job.lowered.front();
  ScheduleBuilder builder(3, std::vector<Bytes>(static_cast<std::size_t>(2 * pieces), Bytes{1e6}));
  for (int piece = 0; piece < pieces; ++piece) {
    const int arrived = builder.add({0, 1, 0}, piece, 1, false, {});
    builder.add({1, 2, 0}, piece, 1, false, {arrived});
  }
  lowered.schedule = builder.take();
  limit_in_flight(lowered.schedule, 2);
  lowered.routes.resize(2);
  lowered.alpha = {Seconds{0.0}, Seconds{(slower - 1.0) * 100e-6}};  // as slow as that
  lowered.latency = {Seconds{latency_s}, Seconds{latency_s}};
  return job;
}

TEST(Engines, AFullReceiverHoldsItsSender) {
  // Piece k >= 2 leaves rank 0 when piece k - 2 has left rank 1, at 100 + 300 (k - 1) us: the sixth
  // and last at 1300 us, and it is sent at 1400; rank 2 has it all at 100 + 6 * 300 us.
  const Job job = line_job(6, 3.0, 0.0);
  const Timeline timeline = simulate_analytically(job);
  const auto end_on = [&](int rank) {
    return timeline.collectives[0].end[timeline.class_of(rank)].value();
  };
  EXPECT_NEAR(end_on(0), 1400e-6, 1e-12);
  EXPECT_NEAR(end_on(2), 1900e-6, 1e-12);
  EXPECT_LE(worst_difference(numbers_of(timeline), simgrid_numbers(job)), 1e-9);
}

TEST(Engines, WhatIsInFlightBoundsTheRateOverALongWay) {
  // Both hops take 100 us, a word 1 ms: two pieces per round of 2 (100 + 1000) us. The last of six
  // begins at 2 * 2200 + 100 us and takes two hops of 1100 us.
  const Job job = line_job(6, 1.0, 1e-3);
  EXPECT_NEAR(duration_of(simulate_analytically(job)).value(), 6700e-6, 1e-12);
  EXPECT_NEAR(simgrid_duration(job), 6700e-6, 1e-12);
}

TEST(Engines, SimgridSharesAContendedLinkAndTheAnalyticOneRefuses) {
  // 10 MB and 30 MB at 10 GB/s: both at 5 GB/s until 4 ms, when 20 MB of the second are left at
  // 10 GB/s: 2 ms more. Total bytes / bandwidth = 4 ms... the link is never idle: 40 MB / 10 GB/s.
  const Job job = shared_link_job(ideal_platform(10e9, 0.0), 10e6, 30e6);
  EXPECT_NEAR(simgrid_duration(job), 4e-3, 1e-12);
  try {
    static_cast<void>(simulate_analytically(job));
    FAIL() << "answered";
  } catch (const SimulationError& error) {
    EXPECT_STREQ(error.what(),
                 "the analytic engine cannot answer: 2 connections share node1.nic0.down at "
                 "changing rates; use --engine simgrid");
  }
}

TEST(Engines, AnalyticAnswersWhenTheSharingIsEven) {
  // 10 MB each at 5 GB/s: 2 ms.
  const Job job = shared_link_job(ideal_platform(10e9, 0.0), 10e6, 10e6);
  EXPECT_NEAR(duration_of(simulate_analytically(job)).value(), 2e-3, 1e-12);
  EXPECT_NEAR(simgrid_duration(job), 2e-3, 1e-12);
}

TEST(Engines, ACircleOfDependenciesIsADeadlockThatNamesWhatWaits) {
  Job job = all_reduce_job(ideal_platform(bandwidth_Bps, alpha_s), 2, 1000,
                           ring_settings(1, infinite_chunk));
  // Transfers 0 (rank 0 to 1) and 1 (1 to 0) of the first step now wait for each other.
  Schedule& schedule = job.lowered.front().schedule = listed(job.lowered.front().schedule);
  ASSERT_EQ(schedule.transfers.size(), 4u);
  schedule.dependencies = {1, 0, 1, 0};
  schedule.dependencies_begin = {0, 1, 2, 3, 4};
  const Outcome outcome = simgrid_outcome(job);
  EXPECT_EQ(outcome.kind, Outcome::Kind::failed);
  // Both ranks do the same, so two of the four are simulated.
  EXPECT_EQ(outcome.text,
            "deadlock: rank 0 waits at task 1 of segment 0, for collective 0; collective 0 runs: 0 "
            "of 2 transfers done; "
            "chunk 1 from rank 0 to rank 1 on channel 0 waits for 1 earlier transfers");
  try {
    static_cast<void>(simulate_analytically(job));
    FAIL() << "answered";
  } catch (const SimulationError& error) {
    EXPECT_STREQ(
        error.what(),
        "deadlock: transfer 0 of the ring schedule waits for transfer 1, which comes later");
  }
}

TEST(Engines, WaitingForWhatNobodyLaunchesIsADeadlock) {
  Job job = all_reduce_job(ideal_platform(bandwidth_Bps, alpha_s), 2, 1000,
                           ring_settings(1, infinite_chunk));
  job.program.segments.front().tasks = {Wait{0}, Launch{0}};
  EXPECT_EQ(simgrid_outcome(job).text,
            "deadlock: rank 0 waits at task 0 of segment 0, for collective 0 that 2 of 2 ranks "
            "have not launched");
  EXPECT_THROW(static_cast<void>(simulate_analytically(job)), SimulationError);
}

TEST(Engines, RepeatTheSameStepBitByBit) {
  Random random(7);
  const Platform platform = repository_platform("dgx1v");
  const Job job = make_job(random_program(random), ring_settings(std::nullopt, 300'000),
                           Cluster(platform, nullptr, 16, "test"));
  EXPECT_EQ(simgrid_numbers(job), simgrid_numbers(job));
  EXPECT_EQ(numbers_of(simulate_analytically(job)), numbers_of(simulate_analytically(job)));
}

TEST(Engines, RepeatingAMicroStepTakesItsPeriodEachTime) {
  // One micro-step: 1 ms of compute, then a blocking AllReduce of 2 ranks: 2 (2 us + 0.5 MB / 25
  // GB/s) = 44 us.
  Program program;
  program.collectives = {{1'000'000, {}}, {1'000'000, {}}};
  const auto micro_step = [](int collective) {
    return std::vector<Task>{Compute{Phase::backward, "b", Seconds{1e-3}}, Launch{collective},
                             Wait{collective}};
  };
  program.segments = {{7, micro_step(0)}, {1, micro_step(1)}};
  const Platform platform = ideal_platform(bandwidth_Bps, alpha_s);
  const Job job =
      make_job(program, ring_settings(1, infinite_chunk), Cluster(platform, nullptr, 2, "test"));
  const Timeline timeline = simulate_analytically(job);
  EXPECT_NEAR(timeline.segments[0].period.value(), 1.044e-3, 1e-12);
  EXPECT_NEAR(timeline.segments[1].first_end[0].value(), 8 * 1.044e-3, 1e-12);
  EXPECT_LE(worst_difference(numbers_of(timeline), simgrid_numbers(job)), 1e-9);
}

TEST(Engines, AgreeLateInALongStep) {
  // 3000 s into the step the clock counts in steps of 4.5e-13 s, coarser than SimGrid's precision.
  Program program;
  program.collectives = {{1'000'003, {}}};
  program.segments = {{1, {Compute{Phase::backward, "b", Seconds{3000.0}}, Launch{0}, Wait{0}}}};
  const Platform platform = switched_platform(4, 1e11, 1e10, 1e-6, 5e-6);
  const Job job =
      make_job(program, ring_settings(1, 10'000), Cluster(platform, nullptr, 12, "test"));
  EXPECT_LE(worst_difference(numbers_of(simulate_analytically(job)), simgrid_numbers(job)), 1e-9);
}

}  // namespace
}  // namespace stepcast
