// Plain tree: reduce along a binomial tree to rank 0 in log2 n rounds, then broadcast back the same
// way. Each round moves all of S, so 2 S log2 n pass along the critical path: short messages only
// (Thakur, Rabenseifner & Gropp, IJHPCA 19(1), 2005). Pieces follow each other through the tree.
#include <bit>

#include "collective/algorithms.hpp"

namespace stepcast {
namespace {

double count_tree_transfers(const CollectiveSpec& spec) {
  // Up, down, and the dependencies of both: a rank's sends wait for all that it got and sent
  // before.
  const double rounds = std::bit_width(static_cast<unsigned>(spec.ranks()));
  return spec.channels() * (spec.ranks() - 1.0) * 2.0 * rounds * Pieces::count_of(spec, 1);
}

Schedule binary_tree(const CollectiveSpec& spec) {
  const int n = spec.ranks();
  const Pieces buffer(spec, 1);
  ScheduleBuilder builder(n, buffer.of_whole_buffer());
  const int widest = n > 1 ? static_cast<int>(std::bit_ceil(static_cast<unsigned>(n))) / 2 : 0;
  for (int channel = 0; channel < spec.channels(); ++channel) {
    for (int piece = 0; piece < buffer.count; ++piece) {
      const int chunk = channel * buffer.count + piece;
      std::vector<std::vector<int>> arrived(static_cast<std::size_t>(n));  // by rank
      for (int distance = 1; distance <= widest; distance *= 2)
        for (int rank = distance; rank < n; rank += 2 * distance)
          arrived[static_cast<std::size_t>(rank - distance)].push_back(
              builder.add({rank, rank - distance, channel}, chunk, 1, true,
                          arrived[static_cast<std::size_t>(rank)]));
      // A rank sends to one child at a time, the one with the largest subtree first.
      for (int distance = widest; distance >= 1; distance /= 2)
        for (int rank = distance; rank < n; rank += 2 * distance) {
          std::vector<int>& at_parent = arrived[static_cast<std::size_t>(rank - distance)];
          const int down =
              builder.add({rank - distance, rank, channel}, chunk, 1, false, at_parent);
          arrived[static_cast<std::size_t>(rank)] = {down};
          at_parent.push_back(down);
        }
    }
  }
  return builder.take();
}

const bool registered =
    collective_algorithms(Operation::all_reduce)
        .add("binary_tree", {.generate = binary_tree,
                             .count_transfers = count_tree_transfers,
                             .steps = [](Shape on) { return 2.0 * halvings(on.ranks); },
                             .critical_bytes = [](Shape on) { return 2.0 * halvings(on.ranks); },
                             .bytes_per_rank = "S log2 n at the root",
                             .steps_taken = "2 log2 n",
                             .time = "2 log2 n (alpha + S/B)",
                             .when = "short messages on many ranks"});

}  // namespace
}  // namespace stepcast
