#include "processes.hpp"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <netdb.h>
#include <poll.h>
#include <set>
#include <stdexcept>
#include <string>
#include <sys/socket.h>
#include <thread>
#include <unistd.h>
#include <utility>

#include <netinet/in.h>
#include <netinet/tcp.h>

#include "backend.hpp"

namespace stepcast::calibrate {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::seconds start_patience{120};
constexpr std::chrono::seconds answer_patience{600};  ///< a rank may be measuring something long

const char* environment(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr && *value != '\0' ? value : nullptr;
}

int number(const char* name) {
  const char* text = environment(name);
  if (text == nullptr) throw Missing{name, "not set, although other variables of its launcher are"};
  char* end = nullptr;
  const long value = std::strtol(text, &end, 10);
  if (*end != '\0' || value < 0 || value > (1 << 24))
    throw Missing{name, std::string("not a number: ") + text};
  return static_cast<int>(value);
}

std::string system_error(const std::string& what) { return what + ": " + std::strerror(errno); }

struct Socket {
  explicit Socket(int its_fd) : fd(its_fd) {}
  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;
  ~Socket() {
    if (fd >= 0) close(fd);
  }
  int release() { return std::exchange(fd, -1); }
  int fd;
};

void set_up(int fd, std::chrono::seconds patience) {
  const int yes = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
  setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &yes, sizeof yes);
  timeval timeout{};
  timeout.tv_sec = patience.count();
  setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof timeout);
  setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &timeout, sizeof timeout);
}

bool send_all(int fd, const void* data, std::size_t bytes) {
  const auto* next = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t sent = send(fd, next, bytes, MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent <= 0) return false;
    next += sent;
    bytes -= static_cast<std::size_t>(sent);
  }
  return true;
}

bool receive_all(int fd, void* data, std::size_t bytes) {
  auto* next = static_cast<char*>(data);
  while (bytes > 0) {
    const ssize_t received = recv(fd, next, bytes, 0);
    if (received < 0 && errno == EINTR) continue;
    if (received <= 0) return false;
    next += received;
    bytes -= static_cast<std::size_t>(received);
  }
  return true;
}

void must(bool done, int rank) {
  if (!done)
    throw std::runtime_error("rank " + std::to_string(rank) + " is gone or does not answer");
}

/// torchrun's agent listens at MASTER_PORT itself, for torch; the next one is free.
int master_port() {
  const int port = environment("MASTER_PORT") != nullptr ? number("MASTER_PORT") : 29500;
  return environment("TORCHELASTIC_USE_AGENT_STORE") != nullptr ? port + 1 : port;
}

std::string master_address() {
  for (const char* name : {"STEPCAST_MASTER_ADDR", "MASTER_ADDR"})
    if (const char* value = environment(name)) return value;
  throw Missing{"STEPCAST_MASTER_ADDR",
                "not set; the first host of: scontrol show hostnames \"$SLURM_JOB_NODELIST\""};
}

}  // namespace

/// The first thing that a process says to rank 0. All machines have the same byte order.
struct Processes::Hello {
  char magic[8] = {'s', 't', 'e', 'p', 'c', 'a', 's', 't'};
  std::int32_t rank = 0, count = 0;
  char host[256] = {};

  [[nodiscard]] bool fits(const Hello& other) const {
    return std::memcmp(magic, other.magic, sizeof magic) == 0 && count == other.count;
  }
};

Processes::Processes() {
  if (environment("WORLD_SIZE") != nullptr) {
    launched_ = true;
    count_ = number("WORLD_SIZE");
    rank_ = number("RANK");
    local_rank_ = number("LOCAL_RANK");
  } else if (environment("SLURM_STEP_NUM_TASKS") != nullptr &&
             environment("SLURM_PROCID") != nullptr) {
    // Not SLURM_NTASKS: a batch script has that too, outside of srun.
    launched_ = true;
    count_ = number("SLURM_STEP_NUM_TASKS");
    rank_ = number("SLURM_PROCID");
    local_rank_ = number("SLURM_LOCALID");
  }
  if (rank_ >= count_) throw Missing{"RANK", "not below the number of processes"};
  if (count_ == 1) return;
  Hello mine;
  mine.rank = rank_;
  mine.count = count_;
  gethostname(mine.host, sizeof mine.host - 1);
  try {
    if (rank_ == 0)
      accept_all(mine);
    else
      connect_to_rank_0(mine);
    from_rank_0(&nodes_, sizeof nodes_);
  } catch (...) {
    for (const int fd : sockets_)
      if (fd >= 0) close(fd);
    throw;
  }
}

Processes::~Processes() {
  for (const int fd : sockets_)
    if (fd >= 0) close(fd);
}

void Processes::accept_all(const Hello& mine) {
  sockets_.assign(static_cast<std::size_t>(count_), -1);
  Socket listener(socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in6 address6{};
  sockaddr_in address4{};
  const auto port = htons(static_cast<std::uint16_t>(master_port()));
  address6.sin6_family = AF_INET6;
  address6.sin6_port = port;
  address6.sin6_addr = in6addr_any;
  address4.sin_family = AF_INET;
  address4.sin_port = port;
  const auto* address = reinterpret_cast<const sockaddr*>(&address6);
  socklen_t size = sizeof address6;
  const int no = 0;
  const int yes = 1;
  if (listener.fd >= 0) {
    setsockopt(listener.fd, IPPROTO_IPV6, IPV6_V6ONLY, &no, sizeof no);
  } else {  // a host without IPv6
    listener.fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    address = reinterpret_cast<const sockaddr*>(&address4);
    size = sizeof address4;
  }
  setsockopt(listener.fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  if (bind(listener.fd, address, size) != 0 || listen(listener.fd, count_) != 0)
    throw Missing{"MASTER_PORT", system_error("cannot listen at " + std::to_string(master_port()))};

  std::set<std::string> hosts{mine.host};
  const auto deadline = Clock::now() + start_patience;
  for (int missing = count_ - 1; missing > 0;) {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now());
    pollfd waiting{listener.fd, POLLIN, 0};
    const int ready = left.count() > 0 ? poll(&waiting, 1, static_cast<int>(left.count())) : 0;
    if (ready == 0)
      throw Missing{"processes", std::to_string(missing) + " of " + std::to_string(count_) +
                                     " did not report to rank 0 within two minutes"};
    Socket accepted(ready > 0 ? accept4(listener.fd, nullptr, nullptr, SOCK_CLOEXEC) : -1);
    if (accepted.fd < 0) continue;
    // A stranger that connects and says nothing must not stop the others.
    set_up(accepted.fd, std::chrono::seconds(5));
    Hello hello;
    if (!receive_all(accepted.fd, &hello, sizeof hello) || !hello.fits(mine) || hello.rank <= 0 ||
        hello.rank >= count_ || socket_of(hello.rank) >= 0)
      continue;
    set_up(accepted.fd, answer_patience);
    hello.host[sizeof hello.host - 1] = '\0';
    hosts.insert(hello.host);
    sockets_[static_cast<std::size_t>(hello.rank)] = accepted.release();
    --missing;
  }
  nodes_ = static_cast<int>(hosts.size());
}

void Processes::connect_to_rank_0(const Hello& mine) {
  const std::string host = master_address();
  const std::string port = std::to_string(master_port());
  const auto deadline = Clock::now() + start_patience;
  std::string problem;
  while (Clock::now() < deadline) {
    addrinfo hints{};
    hints.ai_socktype = SOCK_STREAM;
    addrinfo* found = nullptr;
    if (const int error = getaddrinfo(host.c_str(), port.c_str(), &hints, &found); error != 0)
      problem = gai_strerror(error);
    for (const addrinfo* next = found; next != nullptr; next = next->ai_next) {
      Socket made(socket(next->ai_family, SOCK_STREAM | SOCK_CLOEXEC, next->ai_protocol));
      if (made.fd < 0) continue;
      set_up(made.fd, answer_patience);
      // Somebody else may listen there: what rank 0 answers at the end is waited for.
      if (connect(made.fd, next->ai_addr, next->ai_addrlen) == 0 &&
          send_all(made.fd, &mine, sizeof mine)) {
        freeaddrinfo(found);
        sockets_.push_back(made.release());
        return;
      }
      problem = std::strerror(errno);
    }
    if (found != nullptr) freeaddrinfo(found);
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
  }
  throw Missing{"rank 0",
                "no connection to " + host + ":" + port + " within two minutes: " + problem};
}

double Processes::largest(double value) {
  if (count_ == 1) return value;
  if (rank_ == 0) {
    for (int rank = 1; rank < count_; ++rank) {
      double other = 0;
      must(receive_all(socket_of(rank), &other, sizeof other), rank);
      value = std::max(value, other);
    }
  } else {
    must(send_all(sockets_[0], &value, sizeof value), 0);
  }
  from_rank_0(&value, sizeof value);
  return value;
}

void Processes::from_rank_0(void* data, std::size_t bytes) {
  if (count_ == 1) return;
  if (rank_ != 0) return must(receive_all(sockets_[0], data, bytes), 0);
  for (int rank = 1; rank < count_; ++rank) must(send_all(socket_of(rank), data, bytes), rank);
}

}  // namespace stepcast::calibrate
