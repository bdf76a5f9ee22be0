// The AllReduce algorithms, by name. Each is a pure function in a file of its own under
// algorithms/.
#pragma once

#include <bit>
#include <limits>
#include <vector>

#include "base/registry.hpp"
#include "base/units.hpp"
#include "collective/schedule.hpp"

namespace stepcast {

/// What an algorithm is asked for. Every channel moves an equal part of the buffer.
struct CollectiveSpec {
  Bytes bytes;          ///< S, the whole buffer
  Bytes largest_chunk;  ///< no piece of the buffer is larger
  std::vector<std::vector<int>>
      rings;  ///< [channel], the ranks in the order of that channel's ring
  std::vector<std::vector<int>> nodes;  ///< the ranks of each node

  [[nodiscard]] int ranks() const { return static_cast<int>(rings.front().size()); }
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

struct AllReduceAlgorithm {
  Schedule (*generate)(const CollectiveSpec&);
  /// How many transfers or dependencies `generate` makes, whichever is more, so that an absurd
  /// chunk size is refused before it is tried.
  double (*count_transfers)(const CollectiveSpec&);
  double (*steps)(double ranks);           ///< transfers one after the other on the critical path
  double (*critical_bytes)(double ranks);  ///< bytes on that path, in units of S
  /// What `chunk_bytes: auto` cuts to: algorithms whose pieces follow each other need some.
  Bytes default_chunk = Bytes{std::numeric_limits<double>::max()};
  const char* bytes_per_rank;  ///< formula of what a rank sends, for `stepcast list algorithms`
  const char* time;            ///< closed form on equal links of rate B, one piece, one channel
  const char* when;            ///< when it wins
};

Registry<AllReduceAlgorithm>& all_reduce_algorithms();

}  // namespace stepcast
