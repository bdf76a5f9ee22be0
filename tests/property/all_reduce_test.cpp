// Every registered AllReduce, whatever it is: it sums on every rank, moves what it says it moves.
#include <algorithm>
#include <numeric>

#include "collective/algorithms.hpp"
#include "jobs.hpp"

namespace stepcast {
namespace {

CollectiveSpec spec_of(int ranks, double bytes, int channels, double largest_chunk) {
  CollectiveSpec spec{.bytes = Bytes{bytes}, .largest_chunk = Bytes{largest_chunk}, .rings = {}};
  for (int channel = 0; channel < channels; ++channel) {
    std::vector<int> order(static_cast<std::size_t>(ranks));
    std::iota(order.begin(), order.end(), 0);
    std::rotate(order.begin(), order.begin() + channel % ranks, order.end());
    if (channel % 2 == 1) std::reverse(order.begin(), order.end());
    spec.rings.push_back(std::move(order));
  }
  return spec;
}

/// Runs a schedule on counts instead of numbers: how often each rank's gradient is in each rank's
/// copy of each chunk. Of all orders that dependencies and connections allow it takes a hostile
/// one, newest transfer first, so that a forgotten dependency shows. Returns what is wrong, or
/// nothing.
std::string interpret(const Schedule& schedule) {
  const auto ranks = static_cast<std::size_t>(schedule.ranks);
  const std::size_t chunks = schedule.chunk_bytes.size();
  std::vector<std::vector<int>> copies(ranks * chunks, std::vector<int>(ranks, 0));
  const auto copy = [&](int rank, int chunk) -> std::vector<int>& {
    return copies[static_cast<std::size_t>(rank) * chunks + static_cast<std::size_t>(chunk)];
  };
  for (std::size_t rank = 0; rank < ranks; ++rank)
    for (std::size_t chunk = 0; chunk < chunks; ++chunk) copies[rank * chunks + chunk][rank] = 1;

  std::vector<std::vector<std::size_t>> queues(schedule.connections.size());
  for (std::size_t i = 0; i < schedule.transfers.size(); ++i)
    queues[static_cast<std::size_t>(schedule.transfers[i].connection)].push_back(i);
  std::vector<std::size_t> served(queues.size(), 0);
  std::vector<bool> done(schedule.transfers.size(), false);
  for (std::size_t left = schedule.transfers.size(); left > 0; --left) {
    std::optional<std::size_t> newest;
    for (std::size_t c = 0; c < queues.size(); ++c) {
      if (served[c] == queues[c].size()) continue;
      const std::size_t head = queues[c][served[c]];
      const auto before = schedule.dependencies_of(head);
      const bool may = std::all_of(before.begin(), before.end(),
                                   [&](int i) { return done[static_cast<std::size_t>(i)]; });
      if (may && (!newest || head > *newest)) newest = head;
    }
    if (!newest) return "deadlock";
    const Transfer& transfer = schedule.transfers[*newest];
    const Connection& ends = schedule.connections[static_cast<std::size_t>(transfer.connection)];
    const std::vector<int> sent = copy(ends.src, transfer.chunk);
    std::vector<int>& received = copy(ends.dst, transfer.chunk);
    if (transfer.reduce)
      std::transform(sent.begin(), sent.end(), received.begin(), received.begin(), std::plus<>());
    else
      received = sent;
    done[*newest] = true;
    ++served[static_cast<std::size_t>(transfer.connection)];
  }
  for (std::size_t i = 0; i < copies.size(); ++i)
    if (copies[i] != std::vector<int>(ranks, 1))
      return fmt::format("rank {} does not hold the sum of chunk {}", i / chunks, i % chunks);
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
      for (const double chunk : {1e18, 1e4})
        EXPECT_EQ(interpret(algorithm().generate(spec_of(n, 1'000'003, channels, chunk))), "")
            << "n = " << n << ", channels = " << channels << ", chunk = " << chunk;
  EXPECT_EQ(interpret(algorithm().generate(spec_of(70, 1'000'003, 1, 1e18))), "");
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
      EXPECT_EQ(algorithm().count_transfers(spec),
                static_cast<double>(algorithm().generate(spec).transfers.size()));
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
