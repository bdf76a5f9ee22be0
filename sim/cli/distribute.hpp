// A sweep on all processes that mpirun started, on as many machines as there are.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "engine/isolate.hpp"

namespace stepcast {

/// What a rank brings along.
struct RankWork {
  int jobs = 1;       ///< points it simulates at the same time
  std::string study;  ///< equal on all ranks: what the points belong to
  std::function<std::string(std::size_t)> simulate;
};

/// On rank 0: run_isolated() with the other ranks. Each of them gets points as it finishes others;
/// rank 0 simulates too. Points of a rank that died are given to others. MPI ends with it, so it
/// can be called once. `say` prints a line on stderr. Throws InputError when another rank has read
/// something else, SimulationError when nobody is left.
void distribute(const std::vector<std::size_t>& indices, const RankWork& mine,
                const std::function<void(std::size_t, const Outcome&)>& done,
                const std::function<void(const std::string&)>& say);

/// On rank 0, when there is nothing to do for the others.
void dismiss_ranks();

/// On the other ranks: simulates what rank 0 says until it says no more. False when rank 0 fell
/// silent.
[[nodiscard]] bool serve_rank(const RankWork& mine);
/// The same when this rank cannot: rank 0 ends with `text`.
[[nodiscard]] bool refuse_rank(const std::string& text);

}  // namespace stepcast
