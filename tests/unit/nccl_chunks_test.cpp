// Against the sources that nccl_chunks.cpp cites (NCCL v2.28.9), worked out by hand.
#include "collective/nccl_chunks.hpp"

#include "testing.hpp"

namespace stepcast::nccl {
namespace {

constexpr double kib = 1024.0;
constexpr Bytes plenty{1e12};

ChunkQuestion question(const std::string& algorithm, const std::string& protocol,
                       Bytes bytes = plenty) {
  return {.operation = Operation::all_reduce,
          .version = {2, 28, 9},
          .algorithm = algorithm,
          .protocol = protocol,
          .bytes = bytes,
          .channels = 1,
          .on = {16, 2}};
}

TEST(RingChunk, IsFourOfEightSlotsInTwoSlicesUnderSimple) {
  ChunkQuestion asked = question("ring", "Simple");
  EXPECT_EQ(chunks_of(asked).chunk, Bytes{2048 * kib});
  EXPECT_EQ(chunks_of(asked).slices, 2);
  EXPECT_EQ(chunks_of(asked).in_flight, 4);  // eight slots hold four slices of two
  EXPECT_EQ(chunks_of(asked).least_slice, Bytes{1024 * kib / 32});
  asked.buffer = Bytes{64 * kib};
  EXPECT_EQ(chunks_of(asked).chunk, Bytes{32 * kib});
  EXPECT_EQ(chunks_of(asked).least_slice, Bytes{16 * kib / 32});
}

TEST(RingChunk, IsOneSlotOfTheOtherProtocolsWhateverTheBuffer) {
  for (const double buffer : {64 * kib, 4096 * kib}) {
    ChunkQuestion asked = question("ring", "LL");
    asked.buffer = Bytes{buffer};
    EXPECT_EQ(chunks_of(asked).chunk, Bytes{32 * kib});  // 512 KiB / 8, half of it flags
    EXPECT_EQ(chunks_of(asked).in_flight, 8);
    asked.protocol = "LL128";
    EXPECT_EQ(chunks_of(asked).chunk, Bytes{4'915'200.0 / 8 * 120 / 128});
    EXPECT_EQ(chunks_of(asked).grain, Bytes{1920});
    EXPECT_EQ(chunks_of(asked).slices, 1);
  }
}

TEST(BroadcastChunk, IsOneSlot) {
  ChunkQuestion asked = question("ring", "Simple");
  asked.operation = Operation::broadcast;
  EXPECT_EQ(chunks_of(asked).chunk, Bytes{512 * kib});
  EXPECT_EQ(chunks_of(asked).slices, 1);
  EXPECT_EQ(chunks_of(asked).in_flight, 8);
}

TEST(TreeChunk, IsOneSlotThatOnlyOldReleasesShrinkUnderSimple) {
  // 16 ranks on 2 nodes: depth 1 + 7 = 8. Before 2.20, at 4 MiB on one channel: 512 KiB makes 8
  // chunks, less than 8 * 8, so it is halved down to 128 KiB (32 chunks, and no further than that);
  // 32 chunks are not less than 4 * 8.
  const Bytes bytes{4096 * kib};
  EXPECT_EQ(chunks_of(question("double_binary_tree", "Simple", bytes)).chunk, Bytes{512 * kib});
  ChunkQuestion old = question("double_binary_tree", "Simple", bytes);
  old.version = {2, 19, 3};
  EXPECT_EQ(chunks_of(old).chunk, Bytes{128 * kib});
  old.bytes = plenty;
  EXPECT_EQ(chunks_of(old).chunk, Bytes{512 * kib});
}

TEST(NvlsChunk, ShrinksWithTheMessage) {
  // 8 heads on 4 channels: 32 chunks. 64 times as much of 128 KiB are 256 MiB; below, a chunk is 64
  // KiB, of which 8 times as much are 16 MiB; below, it is 32 KiB, of which twice as much are 2
  // MiB.
  ChunkQuestion asked = question("nvls", "Simple");
  asked.on = {8, 1};
  asked.channels = 4;
  const auto chunk_at = [&](double mib) {
    asked.bytes = Bytes{mib * 1024 * kib};
    return chunks_of(asked).chunk;
  };
  EXPECT_EQ(chunk_at(256), Bytes{128 * kib});
  EXPECT_EQ(chunk_at(255), Bytes{64 * kib});
  EXPECT_EQ(chunk_at(16), Bytes{64 * kib});
  EXPECT_EQ(chunk_at(15), Bytes{32 * kib});
  EXPECT_EQ(chunk_at(2), Bytes{32 * kib});
  EXPECT_EQ(chunk_at(1), Bytes{16 * kib});
}

TEST(NvlsTreeChunk, IsHalfFromFourNodesOnSince220) {
  ChunkQuestion asked = question("nvls_tree", "Simple");
  EXPECT_EQ(chunks_of(asked).chunk, Bytes{128 * kib});
  asked.on = {32, 4};
  EXPECT_EQ(chunks_of(asked).chunk, Bytes{64 * kib});
  asked.version = {2, 19, 3};
  EXPECT_EQ(chunks_of(asked).chunk, Bytes{128 * kib});
}

}  // namespace
}  // namespace stepcast::nccl
