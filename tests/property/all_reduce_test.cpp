// Every registered AllReduce, whatever it is: it sums on every rank, moves what it says it moves.
#include <algorithm>
#include <numeric>

#include "collective/algorithms.hpp"
#include "jobs.hpp"

namespace stepcast {
namespace {

/// `ranks_per_node` ranks in each node and the rest in the last.
CollectiveSpec spec_of(int ranks, double bytes, int channels, double largest_chunk,
                       int ranks_per_node = 1) {
  CollectiveSpec spec{.bytes = Bytes{bytes}, .largest_chunk = Bytes{largest_chunk}};
  for (int rank = 0; rank < ranks; ++rank) {
    if (rank % ranks_per_node == 0) spec.nodes.emplace_back();
    spec.nodes.back().push_back(rank);
  }
  for (int channel = 0; channel < channels; ++channel) {
    std::vector<int> order(static_cast<std::size_t>(ranks));
    std::iota(order.begin(), order.end(), 0);
    std::rotate(order.begin(), order.begin() + channel % ranks, order.end());
    if (channel % 2 == 1) std::reverse(order.begin(), order.end());
    spec.rings.push_back(std::move(order));
  }
  return spec;
}

/// How often each rank's gradient is in something.
using Counts = std::vector<int>;

void add_to(Counts& sum, const Counts& part) {
  std::transform(sum.begin(), sum.end(), part.begin(), sum.begin(), std::plus<>());
}

/// Works out what each transfer carries from its dependencies alone (schedule.hpp), so that a
/// forgotten one leaves a gap, and returns what each rank ends with from all that it gets,
/// [rank][chunk].
std::vector<std::vector<Counts>> interpret(const Schedule& schedule) {
  const auto ranks = static_cast<std::size_t>(schedule.ranks);
  // carried[i][c]: what transfer i carries of its c-th chunk.
  std::vector<std::vector<Counts>> carried(schedule.transfers.size());
  const auto ends_of = [&](std::size_t i) {
    return schedule.connections[static_cast<std::size_t>(schedule.transfers[i].connection)];
  };
  /// What a rank has of a chunk after the given transfers, in the order of their index.
  const auto held = [&](int rank, int chunk, const auto& transfers) {
    Counts sum(ranks, 0);
    if (rank < schedule.ranks) sum[static_cast<std::size_t>(rank)] = 1;
    std::vector<std::size_t> in_order(transfers.begin(), transfers.end());
    std::sort(in_order.begin(), in_order.end());
    for (const std::size_t i : in_order) {
      const Transfer& transfer = schedule.transfers[i];
      const int place = chunk - transfer.first_chunk;
      if (ends_of(i).dst != rank || place < 0 || place >= transfer.chunks) continue;
      const Counts& part = carried[i][static_cast<std::size_t>(place)];
      if (transfer.reduce)
        add_to(sum, part);
      else
        sum = part;
    }
    return sum;
  };
  std::vector<std::vector<std::size_t>> into(static_cast<std::size_t>(schedule.ends()));
  for (std::size_t i = 0; i < schedule.transfers.size(); ++i) {
    const Transfer& transfer = schedule.transfers[i];
    for (int chunk = transfer.first_chunk; chunk < transfer.first_chunk + transfer.chunks; ++chunk)
      carried[i].push_back(held(ends_of(i).src, chunk, schedule.dependencies_of(i)));
    into[static_cast<std::size_t>(ends_of(i).dst)].push_back(i);
  }
  std::vector<std::vector<Counts>> result(ranks);
  for (std::size_t rank = 0; rank < ranks; ++rank)
    for (std::size_t chunk = 0; chunk < schedule.chunk_bytes.size(); ++chunk)
      result[rank].push_back(held(static_cast<int>(rank), static_cast<int>(chunk), into[rank]));
  return result;
}

/// What is wrong with an AllReduce, or nothing.
std::string flaw_of_sum(const Schedule& schedule) {
  const auto result = interpret(schedule);
  for (std::size_t rank = 0; rank < result.size(); ++rank)
    for (std::size_t chunk = 0; chunk < result[rank].size(); ++chunk)
      if (result[rank][chunk] != Counts(result.size(), 1))
        return fmt::format("rank {} does not hold the sum of chunk {}", rank, chunk);
  return "";
}

class EveryAllReduce : public testing::TestWithParam<std::string> {
 protected:
  [[nodiscard]] static const CollectiveAlgorithm& algorithm() {
    return *collective_algorithms(Operation::all_reduce).find(GetParam());
  }
  /// Ranks in a node, for an algorithm that works in one only.
  [[nodiscard]] static int per_node(int wanted, int ranks) {
    return algorithm().one_node_only ? ranks : wanted;
  }
};

TEST_P(EveryAllReduce, GivesEveryRankTheSumOfAllRanks) {
  for (int n = 1; n <= 20; ++n)
    for (const int channels : {1, 3})
      for (const int ranks_per_node : {1, 3, 8})
        for (const double chunk : {1e18, 1e5})
          EXPECT_EQ(flaw_of_sum(algorithm().generate(
                        spec_of(n, 1'000'003, channels, chunk, per_node(ranks_per_node, n)))),
                    "")
              << "n = " << n << ", channels = " << channels << ", " << ranks_per_node
              << " ranks per node, chunk = " << chunk;
}

TEST_P(EveryAllReduce, GivesTheSumToAnyNumberOfRanks) {
  // All to all among 128 ranks takes the interpreter minutes.
  const bool all_to_all = GetParam().starts_with("direct") || GetParam() == "nvls";
  for (int n = 21; n <= 70; ++n)
    EXPECT_EQ(flaw_of_sum(algorithm().generate(spec_of(n, 1'000'003, 1, 1e18, per_node(8, n)))), "")
        << n;
  if (!all_to_all) {
    EXPECT_EQ(flaw_of_sum(algorithm().generate(spec_of(128, 1'000'003, 1, 1e18, 8))), "");
  }
}

TEST_P(EveryAllReduce, GivesTheSumOfAlmostNothing) {
  // No byte, one byte, fewer bytes than ranks.
  for (const double bytes : {0.0, 1.0, 5.0})
    for (const int n : {1, 2, 7, 16})
      EXPECT_EQ(flaw_of_sum(algorithm().generate(spec_of(n, bytes, 2, 1e18, per_node(4, n)))), "")
          << bytes << " bytes on " << n;
}

TEST_P(EveryAllReduce, GivesTheSumOnUnevenNodes) {
  for (const std::vector<int>& sizes :
       {std::vector<int>{8, 8, 4}, {1, 8}, {3, 1, 2}, {5}, {2, 7, 7, 1}}) {
    const int n = std::accumulate(sizes.begin(), sizes.end(), 0);
    CollectiveSpec spec = spec_of(n, 1'000'003, 2, 1e5, n);
    if (!algorithm().one_node_only) {
      spec.nodes.clear();
      int rank = 0;
      for (const int size : sizes) {
        spec.nodes.emplace_back();
        for (int i = 0; i < size; ++i) spec.nodes.back().push_back(rank++);
      }
    }
    EXPECT_EQ(flaw_of_sum(algorithm().generate(spec)), "")
        << fmt::format("{}", fmt::join(sizes, "+"));
  }
}

TEST_P(EveryAllReduce, ServesAConnectionInTheOrderOfItsDependencies) {
  // A connection serves transfers by index; one that depends on a later one of the same would hang.
  const Schedule schedule = algorithm().generate(spec_of(11, 1e6, 2, 5e4, per_node(4, 11)));
  for (std::size_t i = 0; i < schedule.transfers.size(); ++i)
    for (const int before : schedule.dependencies_of(i)) {
      const auto& from = schedule.connections[static_cast<std::size_t>(
          schedule.transfers[static_cast<std::size_t>(before)].connection)];
      const auto& to =
          schedule.connections[static_cast<std::size_t>(schedule.transfers[i].connection)];
      EXPECT_TRUE(from.dst == to.src || from.src == to.src)
          << "waits for what its sender never sees";
    }
}

TEST_P(EveryAllReduce, CutsTheBufferWithoutLossOrOverlap) {
  for (const double bytes : {0.0, 1.0, 4096.0, 1'000'003.0})
    for (const int n : {1, 2, 7, 64})
      for (const double chunk : {1e18, 1000.0}) {
        const Schedule schedule = algorithm().generate(spec_of(n, bytes, 2, chunk, per_node(4, n)));
        double sum = 0.0;
        for (const Bytes size : schedule.chunk_bytes) {
          EXPECT_GE(size.value(), 0.0);
          EXPECT_LE(size.value(), chunk);
          sum += size.value();
        }
        EXPECT_NEAR(sum, bytes, 1e-12 * bytes) << "n = " << n << ", chunk = " << chunk;
      }
}

TEST_P(EveryAllReduce, CountsItsTransfersBeforehand) {
  for (const int n : {1, 2, 5, 16})
    for (const double chunk : {1e18, 7777.0}) {
      const CollectiveSpec spec = spec_of(n, 1e6, 3, chunk, per_node(3, n));
      const Schedule schedule = algorithm().generate(spec);
      EXPECT_GE(algorithm().count_transfers(spec), static_cast<double>(schedule.transfers.size()));
      EXPECT_GE(algorithm().count_transfers(spec),
                static_cast<double>(schedule.dependencies.size()));
    }
}

TEST_P(EveryAllReduce, NamesOnlyEarlierDependencies) {
  const Schedule schedule = algorithm().generate(spec_of(9, 1e6, 2, 5e4, per_node(4, 9)));
  for (std::size_t i = 0; i < schedule.transfers.size(); ++i)
    for (const int before : schedule.dependencies_of(i))
      EXPECT_LT(static_cast<std::size_t>(before), i);
}

TEST_P(EveryAllReduce, SendsNoLessThanTheBoundAllows) {
  // Without help from a switch none can send less than 2(n-1)/n S per rank on average (Patarasuk &
  // Yuan 2009); with it each rank still has to send what it has, S (n-1)/n at least.
  for (const int n : {2, 3, 8, 33}) {
    const std::vector<Bytes> sent =
        sent_bytes(algorithm().generate(spec_of(n, 1e6, 1, 1e18, per_node(4, n))));
    const Bytes total = std::accumulate(sent.begin(), sent.end(), Bytes{0.0});
    const double least = algorithm().needs_switch_sum ? 1.0 : 2.0;
    EXPECT_GE(total.value(), least * (n - 1) * 1e6 * (1 - 1e-12));
  }
}

INSTANTIATE_TEST_SUITE_P(Registered, EveryAllReduce,
                         testing::ValuesIn(collective_algorithms(Operation::all_reduce).names()),
                         [](const auto& test) { return test.param; });

Schedule generate(Operation operation, const std::string& name, const CollectiveSpec& spec) {
  return collective_algorithms(operation).find(name)->generate(spec);
}

struct SentBytes {
  std::string algorithm;
  double per_rank;  ///< of the rank that sends most, in units of S, on 8 ranks in nodes of 4
};

TEST(AllReduce, SendsWhatItsFormulaSays) {
  // n = 8, N = 2, g = 4, log2 n = 3; nvls is on one node of 8.
  for (const SentBytes& one : std::vector<SentBytes>{{"ring", 2.0 * 7 / 8},
                                                     {"recursive_halving_doubling", 2.0 * 7 / 8},
                                                     {"direct", 2.0 * 7 / 8},
                                                     {"direct_one_shot", 7.0},
                                                     {"recursive_doubling", 3.0},
                                                     {"binary_tree", 3.0},
                                                     {"hierarchical", 2.0 * 3 / 4 + 1.0 / 4},
                                                     {"nvls", 9.0 / 8}}) {
    for (const int channels : {1, 4}) {
      const int per_node = one.algorithm == "nvls" ? 8 : 4;
      const std::vector<Bytes> sent = sent_bytes(generate(
          Operation::all_reduce, one.algorithm, spec_of(8, 67'108'864, channels, 1e6, per_node)));
      EXPECT_NEAR(std::max_element(sent.begin(), sent.end())->value() / 67'108'864.0, one.per_rank,
                  1e-12)
          << one.algorithm;
    }
  }
}

TEST(AllReduce, SendsAlikeFromAllRanksWhereTheFormulaIsOfAll) {
  for (const char* name : {"ring", "direct", "direct_one_shot", "nvls"})
    for (const int n : {2, 3, 8, 64}) {
      const std::vector<Bytes> sent =
          sent_bytes(generate(Operation::all_reduce, name, spec_of(n, 67'108'864, 4, 1e6, n)));
      for (const Bytes bytes : sent) EXPECT_NEAR(bytes / sent.front(), 1.0, 1e-12) << name << n;
    }
}

TEST(AllReduce, CanUseAnyAlgorithmOnEitherLevel) {
  for (const std::string& between : collective_algorithms(Operation::all_reduce).names()) {
    const CollectiveAlgorithm& level = *collective_algorithms(Operation::all_reduce).find(between);
    if (level.one_node_only) continue;
    for (const bool direct : {false, true})
      for (const int n : {4, 9, 16, 23}) {
        CollectiveSpec spec = spec_of(n, 1'000'003, 2, 1e5, 4);
        spec.between_nodes = &level;
        spec.direct_in_node = direct;
        if (level.needs_switch_sum) continue;  // a node has one rank there and nothing to sum
        EXPECT_EQ(flaw_of_sum(generate(Operation::all_reduce, "hierarchical", spec)), "")
            << between << " on " << n;
      }
  }
}

/// As NCCL cuts a ring: loops of n chunks of `chunk`, each in two slices.
CollectiveSpec nccl_spec_of(int ranks, double bytes, int channels, double chunk) {
  CollectiveSpec spec = spec_of(ranks, bytes, channels, 1e18);
  spec.ring_chunks = RingChunks{
      .chunk = Bytes{chunk}, .least_slice = Bytes{chunk / 64}, .grain = Bytes{16}, .slices = 2};
  return spec;
}

TEST(NcclRing, SumsOverLoopsAndSlices) {
  for (const int n : {1, 2, 5, 8})
    for (const double bytes : {0.0, 1.0, 100.0, 40'000.0, 1'000'003.0}) {
      const Schedule schedule =
          generate(Operation::all_reduce, "ring", nccl_spec_of(n, bytes, 2, 16'384));
      EXPECT_EQ(flaw_of_sum(schedule), "") << n << " ranks, " << bytes << " bytes";
      const Bytes sum =
          std::accumulate(schedule.chunk_bytes.begin(), schedule.chunk_bytes.end(), Bytes{0.0});
      EXPECT_NEAR(sum.value(), bytes, 1e-9);
    }
}

TEST(NcclRing, CutsTheLastLoopToItsGrain) {
  // 100 KB on one channel of 4: 65,536 B in a loop of 4 chunks of 16 KiB in slices of 8 KiB, then
  // 34,464 B: 8,616 B each, a multiple of 16 by 8,624, in slices of 4,312.
  const Schedule schedule =
      generate(Operation::all_reduce, "ring", nccl_spec_of(4, 100'000, 1, 16'384));
  ASSERT_EQ(schedule.chunk_bytes.size(), 16u);
  for (std::size_t i = 0; i < 8; ++i) EXPECT_EQ(schedule.chunk_bytes[i], Bytes{8192});
  for (std::size_t i = 8; i < 15; ++i) EXPECT_EQ(schedule.chunk_bytes[i], Bytes{4312});
  EXPECT_NEAR(schedule.chunk_bytes[15].value(), 34'464 - 7 * 4312, 1e-6);
  EXPECT_EQ(schedule.transfers.size(), 6u * 4 * 2 * 2);
}

TEST(LimitInFlight, KeepsEverySumAndWaitsForEarlierTransfersOnly) {
  // With the fewest slots that NCCL's own order of transfers can do with: two chunks of a ring.
  for (const std::string& name : collective_algorithms(Operation::all_reduce).names()) {
    const CollectiveAlgorithm& algorithm = *collective_algorithms(Operation::all_reduce).find(name);
    if (!algorithm.in_nccl) continue;
    for (const int n : {2, 3, 8, 16}) {
      const bool ring = name == "ring";
      Schedule schedule =
          algorithm.generate(ring ? nccl_spec_of(n, 1e6, 2, 16'384)
                                  : spec_of(n, 1e6, 2, 1e4, algorithm.one_node_only ? n : 4));
      const std::size_t before = schedule.dependencies.size();
      limit_in_flight(schedule, ring ? 4 : 2);
      EXPECT_GT(schedule.dependencies.size(), before) << name;
      EXPECT_EQ(flaw_of_sum(schedule), "") << name << " on " << n;
      for (std::size_t i = 0; i < schedule.transfers.size(); ++i)
        for (const int dependency : schedule.dependencies_of(i))
          EXPECT_LT(static_cast<std::size_t>(dependency), i) << name << " on " << n;
    }
  }
}

TEST(ReduceScatter, LeavesEachRankItsBlockOfTheSum) {
  for (const int n : {1, 2, 7, 16})
    for (const int channels : {1, 3}) {
      const CollectiveSpec spec = spec_of(n, 1e6, channels, 3e4);
      const Schedule schedule = generate(Operation::reduce_scatter, "ring", spec);
      const auto result = interpret(schedule);
      for (int rank = 0; rank < n; ++rank) {
        Bytes complete;
        for (std::size_t chunk = 0; chunk < schedule.chunk_bytes.size(); ++chunk)
          if (result[static_cast<std::size_t>(rank)][chunk] ==
              Counts(static_cast<std::size_t>(n), 1))
            complete += schedule.chunk_bytes[chunk];
        EXPECT_NEAR(complete.value(), 1e6 / n, 1e-6) << n;
      }
      for (const Bytes sent : sent_bytes(schedule))
        EXPECT_NEAR(sent.value(), (n - 1.0) / n * 1e6, 1e-6);
    }
}

TEST(AllGather, GivesEveryRankEachRanksBlock) {
  for (const int n : {1, 2, 7, 16})
    for (const int channels : {1, 3}) {
      const Schedule schedule =
          generate(Operation::all_gather, "ring", spec_of(n, 1e6, channels, 3e4));
      const auto result = interpret(schedule);
      std::vector<Bytes> from(static_cast<std::size_t>(n));
      for (std::size_t chunk = 0; chunk < schedule.chunk_bytes.size(); ++chunk) {
        const Counts& of_all = result.front()[chunk];
        EXPECT_EQ(std::accumulate(of_all.begin(), of_all.end(), 0), 1);
        for (const auto& rank : result) EXPECT_EQ(rank[chunk], of_all);
        from[static_cast<std::size_t>(std::find(of_all.begin(), of_all.end(), 1) -
                                      of_all.begin())] += schedule.chunk_bytes[chunk];
      }
      for (const Bytes bytes : from) EXPECT_NEAR(bytes.value(), 1e6 / n, 1e-6);
    }
}

TEST(Broadcast, GivesEveryRankWhatRankZeroHas) {
  for (const int n : {1, 2, 7, 16}) {
    const Schedule schedule = generate(Operation::broadcast, "ring", spec_of(n, 1e6, 3, 3e4));
    Counts of_root(static_cast<std::size_t>(n), 0);
    of_root.front() = 1;
    for (const auto& rank : interpret(schedule))
      for (const Counts& held : rank) EXPECT_EQ(held, of_root);
  }
}

TEST(DoubleBinaryTree, MovesHalfOfWhatARingMovesThroughTheNicsOfTwoNodes) {
  // Over two nodes each tree is one edge: half of S up and half of S down, so S each way with both;
  // a ring's edge between nodes carries 2(n-1)/n S.
  const auto over_the_network = [](const char* name) {
    const Schedule schedule = generate(Operation::all_reduce, name, spec_of(16, 1e6, 1, 1e4, 8));
    Bytes from_first_node;
    for (const Transfer& transfer : schedule.transfers) {
      const Connection& ends = schedule.connections[static_cast<std::size_t>(transfer.connection)];
      if (ends.src < 8 && ends.dst >= 8) from_first_node += schedule.bytes_of(transfer);
    }
    return from_first_node.value();
  };
  EXPECT_NEAR(over_the_network("double_binary_tree"), 1e6, 1e-3);
  EXPECT_NEAR(over_the_network("ring"), 2.0 * 15 / 16 * 1e6, 1e-3);
}

}  // namespace
}  // namespace stepcast
