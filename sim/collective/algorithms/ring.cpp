// Ring: n-1 steps of reduce-scatter, then n-1 steps of all-gather, on each channel; either half
// alone is an operation of its own. Broadcast hands the buffer along the ring from rank 0.
//
// Each rank of an AllReduce sends 2(n-1)/n S bytes, the least it can, and with equal links and one
// piece per block it takes 2(n-1) (alpha + S/(nB)) (Patarasuk & Yuan, JPDC 69(2), 2009).
#include <algorithm>
#include <cmath>

#include "collective/algorithms.hpp"

namespace stepcast {
namespace {

/// A block for each rank, each in as many pieces; the ring goes round once for all of them.
struct Loop {
  int pieces = 1;
  std::vector<Bytes> sizes;  ///< [block * pieces + piece]
};

double most_pieces_of_all_loops(const CollectiveSpec& spec, double n) {
  if (!spec.ring_chunks) return Pieces::count_of(spec, n);
  const RingChunks& cut = *spec.ring_chunks;
  const double full_loops = std::floor(spec.bytes / (n * spec.channels()) / cut.chunk);
  return (full_loops + 1.0) * cut.slices;
}

Loop make_loop(Bytes left, int n, const RingChunks& cut) {
  const Bytes chunk = cut.chunk_of(left, n);
  // An empty slice is waited for and posted like any other (prims_simple.h, genericOp).
  const Bytes slice = std::max(chunk / static_cast<double>(cut.slices), cut.least_slice);
  Loop loop;
  loop.pieces = cut.slices;
  for (int block = 0; block < n; ++block) {
    const Bytes size = std::clamp(left - chunk * static_cast<double>(block), Bytes{0.0}, chunk);
    for (int piece = 0; piece < loop.pieces; ++piece) {
      const Bytes before = slice * static_cast<double>(piece);
      loop.sizes.push_back(piece + 1 == loop.pieces ? std::max(size - before, Bytes{0.0})
                                                    : std::clamp(size - before, Bytes{0.0}, slice));
    }
  }
  return loop;
}

std::vector<Loop> loops_of(const CollectiveSpec& spec) {
  const int n = spec.all_ranks();
  std::vector<Loop> loops;
  if (!spec.ring_chunks) {
    const Pieces block(spec, n);
    Loop& loop = loops.emplace_back(Loop{block.count, {}});
    for (int owner = 0; owner < n; ++owner)
      loop.sizes.insert(loop.sizes.end(), block.sizes.begin(), block.sizes.end());
    return loops;
  }
  const Bytes part = spec.bytes / static_cast<double>(spec.channels());
  Bytes left = part;
  do {
    loops.push_back(make_loop(left, n, *spec.ring_chunks));
    left -= spec.ring_chunks->chunk * static_cast<double>(n);
  } while (left > part * 1e-12);
  return loops;
}

/// NCCL's last loop may have smaller chunks at its end.
bool blocks_are_alike(const CollectiveSpec& spec) {
  if (!spec.ring_chunks) return true;
  const std::vector<Loop> loops = loops_of(spec);
  return std::all_of(loops.begin(), loops.end(), [](const Loop& loop) {
    for (std::size_t i = static_cast<std::size_t>(loop.pieces); i < loop.sizes.size(); ++i)
      if (loop.sizes[i] != loop.sizes[i - static_cast<std::size_t>(loop.pieces)]) return false;
    return true;
  });
}

/// Steps `first` to `last` of an AllReduce, whose first n-1 reduce. The block that bears the number
/// of a rank is complete on that rank after n-1 steps.
Schedule ring_steps(const CollectiveSpec& spec, int first, int last) {
  const int places = spec.ranks();
  const std::vector<Loop> loops = loops_of(spec);
  Schedule schedule;
  schedule.ranks = spec.all_ranks();
  for (int channel = 0; channel < spec.channels(); ++channel) {
    for (const Loop& loop : loops)
      schedule.chunk_bytes.insert(schedule.chunk_bytes.end(), loop.sizes.begin(), loop.sizes.end());
    const std::vector<int>& order = spec.rings[static_cast<std::size_t>(channel)];
    for (int place = 0; place < places; ++place)
      schedule.connections.push_back({order[static_cast<std::size_t>(place)],
                                      order[static_cast<std::size_t>((place + 1) % places)],
                                      channel});
  }
  schedule.ring = RingSteps{.places = places,
                            .blocks = spec.all_ranks(),
                            .loops = static_cast<int>(loops.size()),
                            .pieces = loops.front().pieces,  // the same in all
                            .first = first,
                            .last = last,
                            .reducing = spec.all_ranks() - 1};
  return schedule;
}

double count_step_transfers(const CollectiveSpec& spec, double steps) {
  return spec.channels() * steps * spec.ranks() * most_pieces_of_all_loops(spec, spec.all_ranks());
}

Schedule all_reduce(const CollectiveSpec& spec) {
  return ring_steps(spec, 0, 2 * (spec.all_ranks() - 1));
}
Schedule reduce_scatter(const CollectiveSpec& spec) {
  return ring_steps(spec, 0, spec.all_ranks() - 1);
}
Schedule all_gather(const CollectiveSpec& spec) {
  return ring_steps(spec, spec.all_ranks() - 1, 2 * (spec.all_ranks() - 1));
}
template <Schedule (*ByIndex)(const CollectiveSpec&)>
Schedule in_full(const CollectiveSpec& spec) {
  return listed(ByIndex(spec));
}

Schedule broadcast(const CollectiveSpec& spec) {
  const int n = spec.ranks();
  const Pieces buffer(spec, 1);
  ScheduleBuilder builder(n, buffer.of_whole_buffer());
  for (int channel = 0; channel < spec.channels(); ++channel) {
    std::vector<int> order = spec.rings[static_cast<std::size_t>(channel)];
    std::rotate(order.begin(), std::find(order.begin(), order.end(), 0), order.end());
    for (int piece = 0; piece < buffer.count; ++piece) {
      std::vector<int> arrived;
      for (std::size_t place = 0; place + 1 < order.size(); ++place)
        arrived = {builder.add({order[place], order[place + 1], channel},
                               channel * buffer.count + piece, 1, false, arrived)};
    }
  }
  return builder.take();
}

const bool all_reduce_registered =
    collective_algorithms(Operation::all_reduce)
        .add("ring",
             {.generate = in_full<all_reduce>,
              .by_index = all_reduce,
              .turns = blocks_are_alike,
              .count_transfers =
                  [](const CollectiveSpec& spec) {
                    return count_step_transfers(spec, 2.0 * (spec.all_ranks() - 1));
                  },
              .steps = [](Shape on) { return 2.0 * (on.ranks - 1.0); },
              .critical_bytes = [](Shape on) { return 2.0 * (on.ranks - 1.0) / on.ranks; },
              .in_nccl = true,
              .bytes_per_rank = "2(n-1)/n S",
              .steps_taken = "2(n-1)",
              .time = "2(n-1) (alpha + S/(nB))",
              .when = "large messages: every link carries the same, and no algorithm sends less"});

/// Reduce-scatter and all-gather are alike but for the direction of time.
template <Schedule (*ByIndex)(const CollectiveSpec&)>
CollectiveAlgorithm half_a_ring() {
  return {.generate = in_full<ByIndex>,
          .by_index = ByIndex,
          .turns = blocks_are_alike,
          .count_transfers =
              [](const CollectiveSpec& spec) {
                return count_step_transfers(spec, spec.all_ranks() - 1.0);
              },
          .steps = [](Shape on) { return on.ranks - 1.0; },
          .critical_bytes = [](Shape on) { return (on.ranks - 1.0) / on.ranks; },
          .in_nccl = true,
          .bytes_per_rank = "(n-1)/n S",
          .steps_taken = "n-1",
          .time = "(n-1) (alpha + S/(nB))",
          .when = "always: there is no other"};
}
const bool reduce_scatter_registered =
    collective_algorithms(Operation::reduce_scatter).add("ring", half_a_ring<reduce_scatter>());
const bool all_gather_registered =
    collective_algorithms(Operation::all_gather).add("ring", half_a_ring<all_gather>());
const bool broadcast_registered =
    collective_algorithms(Operation::broadcast)
        .add("ring", {.generate = broadcast,
                      .count_transfers =
                          [](const CollectiveSpec& spec) {
                            return spec.channels() * (spec.ranks() - 1.0) *
                                   Pieces::count_of(spec, 1);
                          },
                      .steps = [](Shape on) { return on.ranks - 1.0; },
                      .critical_bytes = [](Shape on) { return on.ranks - 1.0; },
                      .default_chunk = nccl_slot,
                      .in_nccl = true,
                      .bytes_per_rank = "S",
                      .steps_taken = "n-1",
                      .time = "~ (n-2) (alpha + c/B) + S/B",
                      .when = "always: there is no other"});

}  // namespace
}  // namespace stepcast
