// What each rank does in one training step, with no network and no clock. In data parallelism all
// ranks run the same program on their own data.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "base/units.hpp"

namespace stepcast {

enum class Phase { forward, backward, finalize, optimizer, host };
[[nodiscard]] const char* to_string(Phase phase);

/// Occupies the compute stream. Phase::host is the stream standing idle because the host is late.
struct Compute {
  Phase phase;
  std::string name;
  Seconds duration;
};
/// Hands a collective to the communication stream; the compute stream goes on.
struct Launch {
  int collective;
};
/// The compute stream waits until a collective is done on this rank.
struct Wait {
  int collective;
};
using Task = std::variant<Compute, Launch, Wait>;

/// Sizes of all of them are those of nccl-tests: the whole buffer, of which reduce-scatter leaves
/// and all-gather takes 1/n on each rank.
enum class Operation { all_reduce, reduce_scatter, all_gather, broadcast };
inline constexpr std::array all_operations = {Operation::all_reduce, Operation::reduce_scatter,
                                              Operation::all_gather, Operation::broadcast};
[[nodiscard]] const char* to_string(Operation operation);

/// The AllReduce of one bucket of gradients, or another collective, launched once by each rank each
/// time its segment is done. Collectives run one after the other on each rank's communication
/// stream, and each starts when the last rank has arrived.
struct Collective {
  std::int64_t bytes = 0;
  std::vector<int> parameters;  ///< whose gradients are in it, in bucket order
  Operation operation = Operation::all_reduce;
  /// What a scenario says of algorithm and chunks is about gradients, not about this one.
  bool as_library_chooses = false;
};

/// Tasks in order on the compute stream, done `repeat` times over (equal micro-steps).
struct Segment {
  std::int64_t repeat = 1;
  std::vector<Task> tasks;
};

struct Program {
  std::vector<Collective> collectives;
  std::vector<Segment> segments;
};

/// Nothing but one collective.
[[nodiscard]] Program single_collective(Operation operation, std::int64_t bytes);

}  // namespace stepcast
