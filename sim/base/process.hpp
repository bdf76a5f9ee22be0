// Children of this process and the pipes to them.
#pragma once

#include <array>
#include <cstddef>
#include <sys/types.h>

namespace stepcast {

/// What is written into the second end comes out of the first.
[[nodiscard]] std::array<int, 2> open_pipe();
/// Zero in the child, which ends when its parent does. Both this and the above throw
/// SimulationError where there is no more room.
[[nodiscard]] pid_t fork_child();
/// The status of waitpid.
int wait_for(pid_t child);
/// False where there is less.
bool read_all(int file, void* data, std::size_t size);
/// False where nobody reads any more.
bool write_all(int file, const void* data, std::size_t size);

}  // namespace stepcast
