// The AllReduce algorithms, by name. Each is a pure function in a file of its own under
// algorithms/.
#pragma once

#include <vector>

#include "base/registry.hpp"
#include "base/units.hpp"
#include "collective/schedule.hpp"

namespace stepcast {

/// What an algorithm is asked for. Every channel moves an equal part of the buffer.
struct CollectiveSpec {
  Bytes bytes;          ///< S, the whole buffer
  Bytes largest_chunk;  ///< a block is cut into pieces of this size and a rest
  std::vector<std::vector<int>>
      rings;  ///< [channel], the ranks in the order of that channel's ring
};

struct AllReduceAlgorithm {
  Schedule (*generate)(const CollectiveSpec&);
  /// How many transfers `generate` makes, so that an absurd chunk size is refused before it is
  /// tried.
  double (*count_transfers)(const CollectiveSpec&);
  const char* bytes_per_rank;  ///< formula, for `stepcast list algorithms`
  const char* steps;
  const char* when;  ///< when it wins
};

Registry<AllReduceAlgorithm>& all_reduce_algorithms();

}  // namespace stepcast
