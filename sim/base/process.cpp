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
namespace {

/// Calls `some`, with how much is done, until all is; false when it has no more.
template <class Some>
bool repeat(std::size_t size, Some some) {
  for (std::size_t done = 0; done < size;) {
    const ssize_t count = some(done);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return false;
    done += static_cast<std::size_t>(count);
  }
  return true;
}

}  // namespace

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

bool read_all(int file, void* data, std::size_t size) {
  char* bytes = static_cast<char*>(data);
  return repeat(size, [&](std::size_t done) { return ::read(file, bytes + done, size - done); });
}

bool write_all(int file, const void* data, std::size_t size) {
  const char* bytes = static_cast<const char*>(data);
  return repeat(size, [&](std::size_t done) { return ::write(file, bytes + done, size - done); });
}

}  // namespace stepcast
