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
  CollectiveSpec spec{
      .bytes = Bytes{bytes}, .largest_chunk = Bytes{largest_chunk}, .rings = {}, .nodes = {}};
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
/// forgotten one leaves a gap, and what each rank ends with from all that it gets. Returns what is
/// wrong, or nothing.
std::string interpret(const Schedule& schedule) {
  const auto ranks = static_cast<std::size_t>(schedule.ranks);
  const std::size_t chunks = schedule.chunk_bytes.size();
  // carried[i][c]: what transfer i carries of its c-th chunk.
  std::vector<std::vector<Counts>> carried(schedule.transfers.size());
  const auto ends_of = [&](std::size_t i) {
    return schedule.connections[static_cast<std::size_t>(schedule.transfers[i].connection)];
  };
  /// What a rank has of a chunk after the given transfers.
  const auto held = [&](int rank, int chunk, const auto& transfers) {
    Counts sum(ranks, 0);
    sum[static_cast<std::size_t>(rank)] = 1;
    const Counts* copy = nullptr;
    for (const auto index : transfers) {
      const auto i = static_cast<std::size_t>(index);
      const Transfer& transfer = schedule.transfers[i];
      const int place = chunk - transfer.first_chunk;
      if (ends_of(i).dst != rank || place < 0 || place >= transfer.chunks) continue;
      const Counts& part = carried[i][static_cast<std::size_t>(place)];
      if (transfer.reduce)
        add_to(sum, part);
      else
        copy = &part;
    }
    return copy != nullptr ? *copy : sum;
  };
  std::vector<std::vector<std::size_t>> into(ranks);
  for (std::size_t i = 0; i < schedule.transfers.size(); ++i) {
    const Transfer& transfer = schedule.transfers[i];
    for (int chunk = transfer.first_chunk; chunk < transfer.first_chunk + transfer.chunks; ++chunk)
      carried[i].push_back(held(ends_of(i).src, chunk, schedule.dependencies_of(i)));
    into[static_cast<std::size_t>(ends_of(i).dst)].push_back(i);
  }
  for (std::size_t rank = 0; rank < ranks; ++rank)
    for (std::size_t chunk = 0; chunk < chunks; ++chunk)
      if (held(static_cast<int>(rank), static_cast<int>(chunk), into[rank]) != Counts(ranks, 1))
        return fmt::format("rank {} does not hold the sum of chunk {}", rank, chunk);
  return "";
}

class EveryAllReduce : public testing::TestWithParam<std::string> {
 protected:
  [[nodiscard]] static const AllReduceAlgorithm& algorithm() {
    return *all_reduce_algorithms().find(GetParam());
  }
};

TEST_P(EveryAllReduce, GivesEveryRankTheSumOfAllRanks) {
  for (int n = 1; n <= 20; ++n)
    for (const int channels : {1, 3})
      for (const int ranks_per_node : {1, 3, 8})
        for (const double chunk : {1e18, 1e5})
          EXPECT_EQ(interpret(algorithm().generate(
                        spec_of(n, 1'000'003, channels, chunk, ranks_per_node))),
                    "")
              << "n = " << n << ", channels = " << channels << ", " << ranks_per_node
              << " ranks per node, chunk = " << chunk;
  for (const int n : {31, 33, 70})
    EXPECT_EQ(interpret(algorithm().generate(spec_of(n, 1'000'003, 1, 1e18, 8))), "") << n;
}

TEST_P(EveryAllReduce, ServesAConnectionInTheOrderOfItsDependencies) {
  // A connection serves transfers by index; one that depends on a later one of the same would hang.
  const Schedule schedule = algorithm().generate(spec_of(11, 1e6, 2, 5e4, 4));
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
        const Schedule schedule = algorithm().generate(spec_of(n, bytes, 2, chunk));
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
      const CollectiveSpec spec = spec_of(n, 1e6, 3, chunk);
      const Schedule schedule = algorithm().generate(spec);
      EXPECT_GE(algorithm().count_transfers(spec), static_cast<double>(schedule.transfers.size()));
      EXPECT_GE(algorithm().count_transfers(spec),
                static_cast<double>(schedule.dependencies.size()));
    }
}

TEST_P(EveryAllReduce, NamesOnlyEarlierDependencies) {
  const Schedule schedule = algorithm().generate(spec_of(9, 1e6, 2, 5e4));
  for (std::size_t i = 0; i < schedule.transfers.size(); ++i)
    for (const int before : schedule.dependencies_of(i))
      EXPECT_LT(static_cast<std::size_t>(before), i);
}

TEST_P(EveryAllReduce, SendsNoLessThanTheBoundAllows) {
  // No AllReduce can send less than 2(n-1)/n S per rank on average (Patarasuk & Yuan 2009).
  for (const int n : {2, 3, 8, 33}) {
    const std::vector<Bytes> sent = sent_bytes(algorithm().generate(spec_of(n, 1e6, 1, 1e18)));
    const Bytes total = std::accumulate(sent.begin(), sent.end(), Bytes{0.0});
    EXPECT_GE(total.value(), 2.0 * (n - 1) * 1e6 * (1 - 1e-12));
  }
}

INSTANTIATE_TEST_SUITE_P(Registered, EveryAllReduce,
                         testing::ValuesIn(all_reduce_algorithms().names()),
                         [](const auto& test) { return test.param; });

TEST(RingAllReduce, SendsTheBusBandwidthFactorTimesSFromEachRank) {
  const AllReduceAlgorithm& ring = *all_reduce_algorithms().find("ring");
  for (const int n : {2, 3, 8, 64})
    for (const int channels : {1, 4})
      for (const Bytes sent : sent_bytes(ring.generate(spec_of(n, 67'108'864, channels, 1e6))))
        // 2(n-1)/n S: nccl-tests doc/PERFORMANCE.md
        EXPECT_NEAR(sent.value() / (2.0 * (n - 1) / n * 67'108'864), 1.0, 1e-12);
}

}  // namespace
}  // namespace stepcast
