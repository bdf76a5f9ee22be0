// Ring AllReduce: n-1 steps of reduce-scatter, then n-1 steps of all-gather, on each channel.
//
// Each rank sends 2(n-1)/n S bytes, the least any AllReduce can, and with equal links and one piece
// per block it takes 2(n-1) (alpha + S/(nB)) (Patarasuk & Yuan, JPDC 69(2), 2009).
#include "collective/algorithms.hpp"

namespace stepcast {
namespace {

double count_ring_transfers(const CollectiveSpec& spec) {
  const double n = spec.ranks();
  return spec.channels() * 2.0 * (n - 1.0) * n * Pieces::count_of(spec, n);
}

Schedule ring(const CollectiveSpec& spec) {
  const int n = spec.ranks();
  const int channels = spec.channels();
  const Pieces block(spec, n);
  const int pieces = block.count;

  Schedule schedule;
  schedule.ranks = n;
  schedule.chunk_bytes = block.of_whole_buffer();
  for (int channel = 0; channel < channels; ++channel) {
    const std::vector<int>& order = spec.rings[static_cast<std::size_t>(channel)];
    for (int place = 0; place < n; ++place) {
      schedule.connections.push_back({order[static_cast<std::size_t>(place)],
                                      order[static_cast<std::size_t>((place + 1) % n)], channel});
    }
  }

  const auto count = static_cast<std::size_t>(count_ring_transfers(spec));
  schedule.transfers.reserve(count);
  schedule.dependencies.reserve(count);
  schedule.dependencies_begin.reserve(count + 1);
  const int per_step = n * pieces;
  for (int channel = 0; channel < channels; ++channel) {
    for (int step = 0; step < 2 * (n - 1); ++step) {
      const int step_begin = static_cast<int>(schedule.transfers.size());
      for (int place = 0; place < n; ++place) {
        const int owner = ((place - step) % n + n) % n;
        for (int piece = 0; piece < pieces; ++piece) {
          schedule.dependencies_begin.push_back(static_cast<int>(schedule.dependencies.size()));
          // A rank forwards what its predecessor sent it one step earlier.
          if (step > 0)
            schedule.dependencies.push_back(step_begin - per_step + (place - 1 + n) % n * pieces +
                                            piece);
          schedule.transfers.push_back({.connection = channel * n + place,
                                        .first_chunk = (channel * n + owner) * pieces + piece,
                                        .reduce = step < n - 1});
        }
      }
    }
  }
  schedule.dependencies_begin.push_back(static_cast<int>(schedule.dependencies.size()));
  return schedule;
}

const bool registered = all_reduce_algorithms().add(
    "ring", {.generate = ring,
             .count_transfers = count_ring_transfers,
             .steps = [](double n) { return 2.0 * (n - 1.0); },
             .critical_bytes = [](double n) { return 2.0 * (n - 1.0) / n; },
             .bytes_per_rank = "2(n-1)/n S",
             .time = "2(n-1) (alpha + S/(nB))",
             .when = "large messages: every link carries the same, and no algorithm sends less"});

}  // namespace
}  // namespace stepcast
