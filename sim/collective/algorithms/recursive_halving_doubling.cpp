// Recursive halving-doubling (Rabenseifner): reduce-scatter by swapping half of what is left with
// the rank n/2, n/4, ... away, all-gather back the same way: 2(n-1)/n S in 2 log2 n steps (Thakur,
// Rabenseifner & Gropp, IJHPCA 19(1), 2005). When n is no power of two, the first 2(n - p) ranks, p
// the power below, pair up: the even one hands all its input to the odd one before and gets the
// whole result after, which costs them S more each way.
#include <bit>

#include "collective/algorithms.hpp"

namespace stepcast {
namespace {

double count_halving_transfers(const CollectiveSpec& spec) {
  const double p = Fold(spec.ranks()).members;
  const double rounds = 2.0 * (std::bit_width(static_cast<unsigned>(p)) - 1.0);
  return spec.channels() *
             (p * rounds * (rounds + 1.0) + 2.0 * (spec.ranks() - p) * (rounds + 2.0)) *
             Pieces::count_of(spec, p) +
         1.0;
}

Schedule recursive_halving_doubling(const CollectiveSpec& spec) {
  const int n = spec.ranks();
  const Fold fold(n);
  const int p = fold.members;
  // Piece i of all blocks makes one run of chunks, so that any run of blocks is a run of chunks.
  const Pieces block(spec, p);
  std::vector<Bytes> chunks;
  for (int channel = 0; channel < spec.channels(); ++channel)
    for (const Bytes size : block.sizes)
      chunks.insert(chunks.end(), static_cast<std::size_t>(p), size);
  ScheduleBuilder builder(n, std::move(chunks));
  for (int channel = 0; channel < spec.channels(); ++channel) {
    for (int piece = 0; piece < block.count; ++piece) {
      const int first = (channel * block.count + piece) * p;
      std::vector<std::vector<int>> arrived(static_cast<std::size_t>(p));  // by member
      const auto swap_blocks = [&](int distance, bool reduce) {
        const auto before = arrived;  // both partners send what they held before the round
        for (int member = 0; member < p; ++member) {
          const int partner = member ^ distance;
          // Of the 2 * distance blocks that both work on, halving sends the partner's half and
          // doubling the own one.
          const int begin = (reduce ? partner : member) / distance * distance;
          arrived[static_cast<std::size_t>(partner)].push_back(
              builder.add({fold.rank_of(member), fold.rank_of(partner), channel}, first + begin,
                          distance, reduce, before[static_cast<std::size_t>(member)]));
        }
      };
      for (int pair = 0; pair < fold.pairs; ++pair)
        arrived[static_cast<std::size_t>(pair)].push_back(
            builder.add({2 * pair, 2 * pair + 1, channel}, first, p, true, {}));
      for (int distance = p / 2; distance >= 1; distance /= 2) swap_blocks(distance, true);
      for (int distance = 1; distance < p; distance *= 2) swap_blocks(distance, false);
      for (int pair = 0; pair < fold.pairs; ++pair)
        builder.add({2 * pair + 1, 2 * pair, channel}, first, p, false,
                    arrived[static_cast<std::size_t>(pair)]);
    }
  }
  return builder.take();
}

double rounds(double n) {
  return std::bit_width(static_cast<unsigned>(Fold(static_cast<int>(n)).members)) - 1.0;
}
bool folds(double n) { return Fold(static_cast<int>(n)).members < static_cast<int>(n); }

const bool registered =
    collective_algorithms(Operation::all_reduce)
        .add("recursive_halving_doubling",
             {.generate = recursive_halving_doubling,
              .count_transfers = count_halving_transfers,
              .steps =
                  [](Shape on) { return 2.0 * rounds(on.ranks) + (folds(on.ranks) ? 2.0 : 0.0); },
              .critical_bytes =
                  [](Shape on) {
                    const double p = Fold(static_cast<int>(on.ranks)).members;
                    return 2.0 * (p - 1.0) / p + (folds(on.ranks) ? 2.0 : 0.0);
                  },
              .bytes_per_rank = "2(n-1)/n S",
              .steps_taken = "2 log2 n",
              .time = "2 log2 n alpha + 2(n-1)/n S/B",
              .when = "mid sizes on a fabric that serves all distances alike"});

}  // namespace
}  // namespace stepcast
