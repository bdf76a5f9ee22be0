#include "collective/nccl_chunks.hpp"

#include <algorithm>
#include <cmath>

namespace stepcast::nccl {
namespace {

constexpr Bytes kib(double count) { return Bytes{1024.0 * count}; }
constexpr int slots = 8;  // NCCL_STEPS, src/include/device.h

/// Payload of one slot. LL's buffer is 512 KiB of which half are flags, LL128's 4,915,200 B with
/// 120 B of data in 128 (src/init.cc computeBuffSizes); NCCL_BUFFSIZE is Simple's alone.
Bytes slot_of(const ChunkQuestion& question) {
  if (question.protocol == "LL") return kib(512) / (2.0 * slots);
  if (question.protocol == "LL128") return Bytes{4'915'200.0 / slots * 120.0 / 128.0};
  return question.buffer / double{slots};
}

/// Halves while there are too few chunks to fill the pipeline and they stay above `least`.
void halve(Bytes& chunk, const ChunkQuestion& question, double wanted, Bytes least) {
  while (question.bytes / (chunk * static_cast<double>(question.channels)) < wanted &&
         chunk > least)
    chunk = chunk / 2.0;
}

Bytes tree_chunk(const ChunkQuestion& question, Bytes chunk) {
  const double per_node = question.on.per_node();
  const double depth = halvings(question.on.nodes) + per_node - 1.0;
  if (question.protocol == "LL128") {
    // enqueue.cc:2070-2077; the depth that NCCL reckons with counts 0.1 for each local rank.
    const double steps = 1.0 + std::log2(question.on.nodes) + 0.1 * per_node;
    halve(chunk, question, 64.0 * steps / per_node, kib(128));
    halve(chunk, question, 16.0 * steps / per_node, kib(32));
  } else if (question.protocol == "Simple" && question.version < Version{2, 20, 0}) {
    halve(chunk, question, 8.0 * depth, kib(128));
    halve(chunk, question, 4.0 * depth, kib(64));
    halve(chunk, question, depth, kib(32));
  }
  return chunk;
}

/// NCCL_NVLS_CHUNKSIZE, less where there are few (enqueue.cc:2043-2068).
Bytes nvls_chunk_of(const ChunkQuestion& question, Bytes chunk) {
  chunk = std::min(chunk, nvls_chunk);
  const double heads = question.on.per_node();
  const bool tree = question.algorithm == "nvls_tree";
  // NCCL_NVLSTREE_MAX_CHUNKSIZE, since 2.20.
  if (tree && question.on.nodes >= 4 && question.version >= Version{2, 20, 0})
    chunk = std::min(chunk, kib(64));
  const double concurrent = static_cast<double>(question.channels) * heads;
  const auto below = [&](double times, double most) {
    if (question.bytes < chunk * concurrent * times) chunk = std::min(chunk, kib(most));
  };
  if (tree) {
    below(32, 256);
    below(16, 128);
    below(4, 64);
    below(1, 32);
  } else {
    below(64, 64);
    below(8, 32);
    below(2, 16);
  }
  return chunk;
}

}  // namespace

RingChunks chunks_of(const ChunkQuestion& question) {
  const Bytes slot = slot_of(question);
  if (question.algorithm == "double_binary_tree") return {.chunk = tree_chunk(question, slot)};
  if (question.algorithm == "nvls" || question.algorithm == "nvls_tree")
    return {.chunk = nvls_chunk_of(question, slot)};
  if (question.operation == Operation::broadcast) return {.chunk = slot};
  // The last loop of a ring is cut to 16 B (device/all_reduce.h), or to LL128's unit: the data of
  // one warp's 16 lines of 128 B (ncclProtoGrainSize, src/include/comm.h).
  if (question.protocol != "Simple")
    return {.chunk = slot,
            .least_slice = slot,
            .grain = question.protocol == "LL128" ? Bytes{1920} : Bytes{16}};
  // ALLREDUCE_CHUNKSTEPS and _SLICESTEPS (src/include/collectives.h): a chunk of four slots in two
  // slices, of which none is below 1/32 of a full one (prims_simple.h).
  return {.chunk = 4.0 * slot,
          .least_slice = 2.0 * slot / 32.0,
          .grain = Bytes{16},
          .slices = 2,
          .in_flight = slots / 2};
}

}  // namespace stepcast::nccl
