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

/// Occupies the compute stream. Phase::host is the stream standing idle, whatever the host does.
struct Compute {
  Phase phase;
  std::string name;
  Seconds duration;
  /// What the host takes to issue it. It cannot start before the host has come to it, and the host
  /// comes to the next task so much later.
  Seconds host = {};
  bool host_waits = false;  ///< the host goes on when it has ended
};
/// Hands a collective to the communication stream, when the compute stream and the host have come
/// to it; the compute stream goes on.
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

  /// No rank has to do with any other.
  [[nodiscard]] bool is_local() const;
};

struct Program {
  std::vector<Collective> collectives;
  std::vector<Segment> segments;

  /// Time on the compute stream of one step, with nothing to wait for.
  [[nodiscard]] Seconds computation() const;
  /// What the host takes to issue one step.
  [[nodiscard]] Seconds issue() const;
};

/// Forgets the host of a step that is one of many where it needs less time than the GPU: it is
/// ahead for good (docs/model.md §1.1).
void settle_host(Program& program);

/// Nothing but one collective.
[[nodiscard]] Program single_collective(Operation operation, std::int64_t bytes);

}  // namespace stepcast
