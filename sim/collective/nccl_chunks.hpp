// How NCCL cuts what one channel moves (src/enqueue.cc calcCollChunking, src/device/all_reduce.h):
// buffers, slots, chunks, slices. docs/model.md §2.1 has the rules in words.
#pragma once

#include <string>

#include "base/units.hpp"
#include "collective/algorithms.hpp"
#include "collective/nccl_graphs.hpp"

namespace stepcast::nccl {

/// NCCL_BUFFSIZE's default (src/init.cc).
constexpr Bytes default_buffer{4.0 * 1024.0 * 1024.0};

struct ChunkQuestion {
  Operation operation = Operation::all_reduce;
  Version version;
  std::string algorithm;  ///< one of NCCL's, under stepcast's name
  std::string protocol;   ///< LL, LL128 or Simple
  Bytes bytes;            ///< S, the whole buffer
  int channels = 1;
  Shape on{1, 1};
  Bytes buffer = default_buffer;  ///< of a connection under Simple
};

/// For one channel, in bytes of payload: `chunk` is what a step moves of a large buffer. The rest
/// is for rings only.
[[nodiscard]] RingChunks chunks_of(const ChunkQuestion& question);

}  // namespace stepcast::nccl
