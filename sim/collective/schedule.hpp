// A collective as transfers and their dependencies, with no network and no clock.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/units.hpp"

namespace stepcast {

/// A sender, a receiver and the channel that joins them. It serves its transfers one after the
/// other, in the order of their index.
struct Connection {
  int src = 0;
  int dst = 0;
  int channel = 0;
};

/// One piece of the buffer on its way over one connection.
struct Transfer {
  int connection = 0;
  int chunk = 0;        ///< which piece of the buffer
  bool reduce = false;  ///< the receiver adds it to its own copy; else it replaces the copy
};

/// Invariants: a transfer depends only on transfers of lower index, so the list is a topological
/// order; the chunks of a schedule partition the buffer.
struct Schedule {
  int ranks = 0;
  std::vector<Connection> connections;
  std::vector<Transfer> transfers;
  /// What must have arrived at the sender before transfer i may start:
  /// dependencies[dependencies_begin[i] .. dependencies_begin[i + 1]).
  std::vector<int> dependencies;
  std::vector<int> dependencies_begin;
  std::vector<Bytes> chunk_bytes;  ///< size of each piece: a fluid amount, S/n need not be whole

  [[nodiscard]] std::span<const int> dependencies_of(std::size_t transfer) const {
    const auto begin = static_cast<std::size_t>(dependencies_begin[transfer]);
    const auto end = static_cast<std::size_t>(dependencies_begin[transfer + 1]);
    return {dependencies.data() + begin, end - begin};
  }
  [[nodiscard]] Bytes bytes_of(const Transfer& transfer) const {
    return chunk_bytes[static_cast<std::size_t>(transfer.chunk)];
  }
};

/// Bytes that each rank sends.
[[nodiscard]] std::vector<Bytes> sent_bytes(const Schedule& schedule);

}  // namespace stepcast
