#include "cli/point_servers.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstring>
#include <poll.h>
#include <unistd.h>

#include "base/process.hpp"

namespace stepcast {
namespace {

/// An answer: how long its text is, Outcome::Kind, the text.
using Length = std::uint64_t;
constexpr std::size_t head_size = sizeof(Length) + 1;

/// Each point in a child of its own, as without MPI: the server itself never touches SimGrid.
[[noreturn]] void serve(int orders, int answers,
                        const std::function<std::string(std::size_t)>& work) {
  ::signal(SIGPIPE, SIG_IGN);
  std::size_t index = 0;
  while (read_all(orders, &index, sizeof index)) {
    Outcome outcome;
    try {
      run_isolated({index}, 1, work, [&](std::size_t, const Outcome& found) { outcome = found; });
    } catch (const std::exception& error) {
      outcome = {Outcome::Kind::failed, error.what()};
    }
    const Length length = outcome.text.size();
    std::string answer(head_size, static_cast<char>(outcome.kind));
    std::memcpy(answer.data(), &length, sizeof length);
    answer += outcome.text;
    if (!write_all(answers, answer.data(), answer.size())) break;
  }
  ::_exit(0);
}

}  // namespace

PointServers::PointServers(int count, const std::function<std::string(std::size_t)>& work) {
  for (int i = 0; i < count; ++i) {
    const std::array<int, 2> in = open_pipe(), out = open_pipe();
    const pid_t pid = fork_child();
    if (pid == 0) {
      ::close(in[1]);
      ::close(out[0]);
      for (const Server& other : servers_) {  // its end is seen when this process alone closes it
        ::close(other.orders);
        ::close(other.answers);
      }
      serve(in[0], out[1], work);
    }
    ::close(in[0]);
    ::close(out[1]);
    servers_.push_back({pid, in[1], out[0], {}, {}});
  }
  ::signal(SIGPIPE, SIG_IGN);  // or one that died would take this process along
}

PointServers::~PointServers() {
  for (const Server& server : servers_) end(server);
}

void PointServers::end(const Server& server) {
  ::kill(server.pid, SIGKILL);  // and with it its child
  ::close(server.orders);
  ::close(server.answers);
  wait_for(server.pid);
}

bool PointServers::has_idle() const {
  return std::any_of(servers_.begin(), servers_.end(),
                     [](const Server& server) { return !server.index; });
}

void PointServers::start(std::size_t index) {
  const auto idle = std::find_if(servers_.begin(), servers_.end(),
                                 [](const Server& server) { return !server.index; });
  idle->index = index;
  write_all(idle->orders, &index, sizeof index);  // one that died is found when it is read from
}

std::vector<PointServers::Finished> PointServers::finished(std::chrono::milliseconds timeout) {
  std::vector<pollfd> polled;
  for (const Server& server : servers_) polled.push_back({server.answers, POLLIN, 0});
  std::vector<Finished> finished;
  if (::poll(polled.data(), polled.size(), static_cast<int>(timeout.count())) <= 0) return finished;
  for (std::size_t i = servers_.size(); i-- > 0;) {
    if (polled[i].revents == 0) continue;
    Server& server = servers_[i];
    char buffer[65536];
    const ssize_t got = ::read(server.answers, buffer, sizeof buffer);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) {
      if (server.index) finished.push_back({*server.index, std::nullopt});
      end(server);
      servers_.erase(servers_.begin() + static_cast<std::ptrdiff_t>(i));
      continue;
    }
    server.received.append(buffer, static_cast<std::size_t>(got));
    if (server.received.size() < head_size) continue;
    Length length = 0;
    std::memcpy(&length, server.received.data(), sizeof length);
    if (server.received.size() < head_size + length) continue;
    const auto kind = static_cast<Outcome::Kind>(server.received[sizeof length]);
    finished.push_back({*server.index, Outcome{kind, server.received.substr(head_size)}});
    server.received.clear();
    server.index.reset();
  }
  return finished;
}

}  // namespace stepcast
