// Direct (two-shot): every rank sends every other its block to reduce, then the reduced block to
// everybody: two steps, 2(n-1)/n S per rank. One-shot: every rank sends everybody all it has and
// reduces by itself: one step, (n-1) S per rank. Both want a way from each rank to each other.
#include "collective/algorithms.hpp"

namespace stepcast {
namespace {

double count_two_shot_transfers(const CollectiveSpec& spec) {
  const double n = spec.ranks();
  return spec.channels() * n * (n - 1.0) * std::max(2.0, n - 1.0) * Pieces::count_of(spec, n);
}

Schedule two_shot(const CollectiveSpec& spec) {
  const int n = spec.ranks();
  const Pieces block(spec, n);
  ScheduleBuilder builder(n, block.of_whole_buffer());
  for (int channel = 0; channel < spec.channels(); ++channel) {
    for (int piece = 0; piece < block.count; ++piece) {
      const auto chunk_of = [&](int owner) { return (channel * n + owner) * block.count + piece; };
      std::vector<std::vector<int>> arrived(static_cast<std::size_t>(n));  // by rank
      for (int distance = 1; distance < n; ++distance)
        for (int rank = 0; rank < n; ++rank) {
          const int owner = (rank + distance) % n;
          arrived[static_cast<std::size_t>(owner)].push_back(
              builder.add({rank, owner, channel}, chunk_of(owner), 1, true, {}));
        }
      for (int distance = 1; distance < n; ++distance)
        for (int owner = 0; owner < n; ++owner)
          builder.add({owner, (owner + distance) % n, channel}, chunk_of(owner), 1, false,
                      arrived[static_cast<std::size_t>(owner)]);
    }
  }
  return builder.take();
}

double count_one_shot_transfers(const CollectiveSpec& spec) {
  const double n = spec.ranks();
  return spec.channels() * n * (n - 1.0) * Pieces::count_of(spec, 1);
}

Schedule one_shot(const CollectiveSpec& spec) {
  const int n = spec.ranks();
  const Pieces buffer(spec, 1);
  ScheduleBuilder builder(n, buffer.of_whole_buffer());
  for (int channel = 0; channel < spec.channels(); ++channel)
    for (int piece = 0; piece < buffer.count; ++piece)
      for (int distance = 1; distance < n; ++distance)
        for (int rank = 0; rank < n; ++rank)
          builder.add({rank, (rank + distance) % n, channel}, channel * buffer.count + piece, 1,
                      true, {});
  return builder.take();
}

const bool two_shot_registered =
    collective_algorithms(Operation::all_reduce)
        .add("direct",
             {.generate = two_shot,
              .count_transfers = count_two_shot_transfers,
              .steps = [](Shape on) { return on.ranks > 1.0 ? 2.0 : 0.0; },
              .critical_bytes = [](Shape on) { return 2.0 * (on.ranks - 1.0) / on.ranks; },
              .bytes_per_rank = "2(n-1)/n S",
              .steps_taken = "2",
              .time = "2 alpha + 2(n-1)/n S/B",
              .when = "few ranks with a way from each to each"});
const bool one_shot_registered =
    collective_algorithms(Operation::all_reduce)
        .add("direct_one_shot", {.generate = one_shot,
                                 .count_transfers = count_one_shot_transfers,
                                 .steps = [](Shape on) { return on.ranks > 1.0 ? 1.0 : 0.0; },
                                 .critical_bytes = [](Shape on) { return on.ranks - 1.0; },
                                 .bytes_per_rank = "(n-1) S",
                                 .steps_taken = "1",
                                 .time = "alpha + (n-1) S/B",
                                 .when = "the shortest messages on few ranks"});

}  // namespace
}  // namespace stepcast
