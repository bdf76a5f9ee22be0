// Recursive doubling: in round k each rank swaps all of S with the one 2^k away, log2 n rounds
// (Thakur, Rabenseifner & Gropp, IJHPCA 19(1), 2005). When n is no power of two, the first 2(n - p)
// ranks, p the power below, pair up: the even one hands its input to the odd one before and gets
// the result after.
#include <bit>

#include "collective/algorithms.hpp"

namespace stepcast {
namespace {

double count_doubling_transfers(const CollectiveSpec& spec) {
  const double p = Fold(spec.ranks()).members;
  const double rounds = std::bit_width(static_cast<unsigned>(p)) - 1.0;
  // Each transfer of round k waits for the k before it, and a fold.
  return spec.channels() *
             (p * rounds * (rounds + 1.0) + 2.0 * (spec.ranks() - p) * (rounds + 2.0)) *
             Pieces::count_of(spec, 1) +
         1.0;
}

Schedule recursive_doubling(const CollectiveSpec& spec) {
  const int n = spec.ranks();
  const Fold fold(n);
  const int p = fold.members;
  const Pieces buffer(spec, 1);
  ScheduleBuilder builder(n, buffer.of_whole_buffer());
  for (int channel = 0; channel < spec.channels(); ++channel) {
    for (int piece = 0; piece < buffer.count; ++piece) {
      const int chunk = channel * buffer.count + piece;
      std::vector<std::vector<int>> arrived(static_cast<std::size_t>(p));  // by member
      for (int pair = 0; pair < fold.pairs; ++pair)
        arrived[static_cast<std::size_t>(pair)].push_back(
            builder.add({2 * pair, 2 * pair + 1, channel}, chunk, 1, true, {}));
      for (int distance = 1; distance < p; distance *= 2) {
        const auto before = arrived;  // both partners send what they held before the round
        for (int member = 0; member < p; ++member)
          arrived[static_cast<std::size_t>(member ^ distance)].push_back(
              builder.add({fold.rank_of(member), fold.rank_of(member ^ distance), channel}, chunk,
                          1, true, before[static_cast<std::size_t>(member)]));
      }
      for (int pair = 0; pair < fold.pairs; ++pair)
        builder.add({2 * pair + 1, 2 * pair, channel}, chunk, 1, false,
                    arrived[static_cast<std::size_t>(pair)]);
    }
  }
  return builder.take();
}

double steps(Shape on) {
  const double n = on.ranks;
  const double p = Fold(static_cast<int>(n)).members;
  return std::bit_width(static_cast<unsigned>(p)) - 1.0 + (n > p ? 2.0 : 0.0);
}

const bool registered =
    collective_algorithms(Operation::all_reduce)
        .add("recursive_doubling", {.generate = recursive_doubling,
                                    .count_transfers = count_doubling_transfers,
                                    .steps = steps,
                                    .critical_bytes = steps,
                                    .bytes_per_rank = "S log2 n",
                                    .steps_taken = "log2 n",
                                    .time = "log2 n (alpha + S/B)",
                                    .when = "the shortest messages: fewest steps"});

}  // namespace
}  // namespace stepcast
