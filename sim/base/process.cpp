#include "base/process.hpp"

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fmt/format.h>

#include "base/error.hpp"

namespace stepcast {

std::array<int, 2> open_pipe() {
  std::array<int, 2> ends{};
  if (::pipe(ends.data()) != 0)
    throw SimulationError(fmt::format("cannot open a pipe: {}", std::strerror(errno)));
  return ends;
}

pid_t fork_child() {
  std::fflush(nullptr);  // or the child would print the parent's buffer again
  const pid_t parent = ::getpid();
  const pid_t pid = ::fork();
  if (pid == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != parent) ::_exit(1);  // it ended before it could be told
  }
  if (pid < 0)
    throw SimulationError(fmt::format("cannot start a process: {}", std::strerror(errno)));
  return pid;
}

int wait_for(pid_t child) {
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return status;
}

bool write_all(int file, const void* data, std::size_t size) {
  const char* bytes = static_cast<const char*>(data);
  while (size > 0) {
    const ssize_t count = ::write(file, bytes, size);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return false;
    bytes += count;
    size -= static_cast<std::size_t>(count);
  }
  return true;
}

}  // namespace stepcast
