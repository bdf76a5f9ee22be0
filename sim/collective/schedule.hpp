// A collective as transfers and their dependencies, with no network and no clock.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <tuple>
#include <vector>

#include "base/units.hpp"

namespace stepcast {

constexpr double most_listed_transfers = 1e8;  // about 5 GB of schedule

/// A sender, a receiver and the channel that joins them. It serves its transfers one after the
/// other, in the order of their index. An end from Schedule::ranks on is a switch that reduces and
/// multicasts.
struct Connection {
  int src = 0;
  int dst = 0;
  int channel = 0;
  int stage = 0;  ///< stages of one channel do not wait for each other
};

/// A run of pieces of the buffer on its way over one connection.
struct Transfer {
  int connection = 0;
  int first_chunk = 0;
  int chunks = 1;
  bool reduce = false;  ///< the receiver adds it to its own copy; else it replaces the copy
};

/// The steps of rings, whose transfers need no list: in each step every place sends what its
/// predecessor sent it one step earlier. Place i of channel c sends over connection c * places + i
/// to the next one; step after step, and in a step piece after piece; a loop begins when the
/// predecessor is done with the one before.
struct RingSteps {
  int places = 0;
  int blocks = 0;  ///< one for each rank; of more than there are places all are alike
  int loops = 1;
  int pieces = 1;           ///< of a block
  int first = 0, last = 0;  ///< steps first to last - 1 of an AllReduce
  int reducing = 0;         ///< those below reduce
  int in_flight = 0;        ///< limit_in_flight; 0: none

  [[nodiscard]] int steps() const { return last - first; }
  [[nodiscard]] double transfers() const;  ///< of a channel
};

/// Invariants: a transfer depends only on transfers of lower index, so the list is a topological
/// order; the chunks of a schedule partition the buffer.
///
/// What a transfer carries of a chunk: the sender's own input, changed by what its dependencies
/// have brought to the sender, in the order of their index: added to it or in its place. A switch
/// has no input.
struct Schedule {
  int ranks = 0;
  int switches = 0;
  std::vector<Connection> connections;
  std::vector<Transfer> transfers;
  /// What must have arrived at the sender, or left it, or left the receiver and so made room there,
  /// before transfer i may start: dependencies[dependencies_begin[i] .. dependencies_begin[i + 1]).
  std::vector<int> dependencies;
  std::vector<int> dependencies_begin;
  std::vector<Bytes> chunk_bytes;  ///< size of each piece: a fluid amount, S/n need not be whole
  /// Stands for transfers and dependencies, which are empty then.
  std::optional<RingSteps> ring = {};

  [[nodiscard]] int ends() const { return ranks + switches; }
  [[nodiscard]] std::span<const int> dependencies_of(std::size_t transfer) const {
    const auto begin = static_cast<std::size_t>(dependencies_begin[transfer]);
    const auto end = static_cast<std::size_t>(dependencies_begin[transfer + 1]);
    return {dependencies.data() + begin, end - begin};
  }
  [[nodiscard]] const Connection& connection_of(std::size_t transfer) const {
    return connections[static_cast<std::size_t>(transfers[transfer].connection)];
  }
  [[nodiscard]] Bytes bytes_of(const Transfer& transfer) const {
    const auto first = chunk_bytes.begin() + transfer.first_chunk;
    Bytes sum;
    for (int i = 0; i < transfer.chunks; ++i) sum += first[i];
    return sum;
  }
  [[nodiscard]] bool is_empty() const {
    return ring ? ring->transfers() == 0.0 : transfers.empty();
  }
  /// Of a ring: the first piece of what a place of a channel sends in a step of a loop.
  [[nodiscard]] std::size_t first_chunk_of(int channel, int loop, int step, int place) const;
};

/// With the transfers of a ring written out. Throws SimulationError where they would not fit in
/// memory.
[[nodiscard]] Schedule listed(Schedule schedule);

/// Bytes over each connection.
[[nodiscard]] std::vector<Bytes> bytes_of_connections(const Schedule& schedule);
[[nodiscard]] Bytes largest_transfer(const Schedule& schedule);
/// Bytes that each rank sends; what a switch sends is not a rank's.
[[nodiscard]] std::vector<Bytes> sent_bytes(const Schedule& schedule);

/// Gives each receiver room for so many transfers of a connection: the next one waits until the
/// receiver has handed on the one that far before it. What is not handed on is taken out of the way
/// at once.
void limit_in_flight(Schedule& schedule, int most);

/// Puts a schedule together transfer by transfer.
class ScheduleBuilder {
 public:
  ScheduleBuilder(int ranks, std::vector<Bytes> chunk_bytes, int switches = 0);

  /// Appends a transfer that may start when all of `after` have arrived, and returns its index.
  int add(const Connection& over, int first_chunk, int chunks, bool reduce,
          const std::vector<int>& after);
  [[nodiscard]] Schedule take();

 private:
  Schedule schedule_;
  std::map<std::tuple<int, int, int, int>, int> connections_;  // (src, dst, channel, stage)
};

}  // namespace stepcast
