// The algorithms of each collective operation, by name. Each is a pure function in a file of its
// own under algorithms/.
#pragma once

#include <bit>
#include <limits>
#include <optional>
#include <vector>

#include "base/registry.hpp"
#include "base/units.hpp"
#include "collective/schedule.hpp"
#include "workload/program.hpp"

namespace stepcast {

constexpr Bytes unlimited{std::numeric_limits<double>::infinity()};
/// An eighth of NCCL's default buffer (src/include/device.h), and NCCL_NVLS_CHUNKSIZE
/// (src/transport/nvls.cc).
constexpr Bytes nccl_slot{512.0 * 1024.0};
constexpr Bytes nvls_chunk{128.0 * 1024.0};

/// How NCCL's ring cuts a channel's part of the buffer (docs/model.md §2.1): in loops of n chunks,
/// each chunk in two slices. The last loop has smaller chunks.
struct RingChunks {
  Bytes chunk;          ///< the largest
  Bytes least_slice{};  ///< in a small chunk the last slices are smaller than the first, or empty
  Bytes grain{};        ///< chunks of the last loop are multiples of it
  int slices = 1;       ///< of a chunk
  int in_flight = 8;    ///< slices that a receiver has room for, NCCL_STEPS slots

  /// The chunks of a loop that has so much left to move.
  [[nodiscard]] Bytes chunk_of(Bytes left, double ranks) const;
};

struct CollectiveAlgorithm;

/// What an algorithm is asked for. Every channel moves an equal part of the buffer.
struct CollectiveSpec {
  Operation operation = Operation::all_reduce;
  Bytes bytes;                                 ///< S, the whole buffer
  Bytes largest_chunk = unlimited;             ///< no piece of the buffer is larger
  std::optional<RingChunks> ring_chunks = {};  ///< instead of largest_chunk, for rings
  std::vector<std::vector<int>> rings =
      {};  ///< [channel], the ranks in the order of that channel's ring
  std::vector<std::vector<int>> nodes = {};  ///< the ranks of each node
  // What the two levels of `hierarchical` are.
  const CollectiveAlgorithm* between_nodes = nullptr;  ///< null: ring
  bool direct_in_node = false;                         ///< else a ring
  /// Where rings and nodes above are the first ones of many that are alike (docs/model.md §4.1):
  /// all ranks and all nodes. 0: they are all.
  int ranks_in_all = 0, nodes_in_all = 0;

  [[nodiscard]] int ranks() const { return static_cast<int>(rings.front().size()); }
  [[nodiscard]] int all_ranks() const { return ranks_in_all > 0 ? ranks_in_all : ranks(); }
  [[nodiscard]] int all_nodes() const {
    return nodes_in_all > 0 ? nodes_in_all : static_cast<int>(nodes.size());
  }
  [[nodiscard]] bool is_folded() const { return ranks_in_all > 0; }
  [[nodiscard]] int channels() const { return static_cast<int>(rings.size()); }
};

/// Each channel's part of the buffer in equal blocks, and a block in pieces of `largest_chunk` of
/// which the last takes what is left.
struct Pieces {
  Pieces(const CollectiveSpec& spec, double blocks);
  static double count_of(const CollectiveSpec& spec, double blocks);

  /// The sizes of all pieces, block after block.
  [[nodiscard]] std::vector<Bytes> of_whole_buffer() const;

  int count = 1;             ///< in a block
  std::vector<Bytes> sizes;  ///< of one block
  int total_blocks = 1;      ///< of all channels
};

/// [node], its ranks in the order of a channel's ring.
[[nodiscard]] std::vector<std::vector<int>> nodes_along_ring(const CollectiveSpec& spec,
                                                             int channel);

/// The rounds in which n ranks can halve: ceil(log2 n).
[[nodiscard]] double halvings(double ranks);

/// Makes any number of ranks a power of two: the first 2 * `pairs` ranks pair up, and the odd one
/// of each pair works for both.
struct Fold {
  explicit Fold(int ranks)
      : members(static_cast<int>(std::bit_floor(static_cast<unsigned>(ranks)))),
        pairs(ranks - members) {}
  [[nodiscard]] int rank_of(int member) const {
    return member < pairs ? 2 * member + 1 : member + pairs;
  }

  int members;
  int pairs;
};

/// How many ranks, on how many nodes.
struct Shape {
  double ranks;
  double nodes;
  [[nodiscard]] double per_node() const { return ranks / nodes; }
};

struct CollectiveAlgorithm {
  Schedule (*generate)(const CollectiveSpec&);
  /// The same without lists; null: there is no such way.
  Schedule (*by_index)(const CollectiveSpec&) = nullptr;
  /// Whether every node does the same as the next one, so that those that are alike can be folded.
  bool (*turns)(const CollectiveSpec&) = nullptr;  ///< null: no
  /// How many transfers or dependencies `generate` makes, whichever is more, so that an absurd
  /// chunk size is refused before it is tried.
  double (*count_transfers)(const CollectiveSpec&);
  double (*steps)(Shape);           ///< transfers one after the other on the critical path
  double (*critical_bytes)(Shape);  ///< bytes on that path, in units of S
  /// What `chunk_bytes: auto` cuts to: algorithms whose pieces follow each other need some.
  Bytes default_chunk = unlimited;
  bool in_nccl = false;           ///< NCCL has it, and cuts its buffers its own way
  bool needs_switch_sum = false;  ///< only where a switch of the node can reduce (NVLink SHARP)
  bool one_node_only = false;
  // Formulas for `stepcast list algorithms`.
  const char* bytes_per_rank;  ///< what a rank sends
  const char* steps_taken;     ///< steps()
  const char* time;            ///< closed form on equal links of rate B, one piece, one channel
  const char* when;            ///< when it wins
};

Registry<CollectiveAlgorithm>& collective_algorithms(Operation operation);

}  // namespace stepcast
