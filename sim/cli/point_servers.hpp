// Processes that simulate points when they are told to. They are made before MPI starts, as a
// process that has started MPI must not fork: its network cards read and write memory behind the
// kernel's back.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <sys/types.h>
#include <vector>

#include "engine/isolate.hpp"

namespace stepcast {

class PointServers {
 public:
  /// `work` simulates a point; it is called in children of the servers only.
  PointServers(int count, const std::function<std::string(std::size_t)>& work);
  PointServers(const PointServers&) = delete;
  PointServers& operator=(const PointServers&) = delete;
  ~PointServers();

  struct Finished {
    std::size_t index = 0;
    std::optional<Outcome> outcome;  ///< none: the server died
  };
  [[nodiscard]] std::size_t count() const { return servers_.size(); }
  [[nodiscard]] bool has_idle() const;
  /// On one that is idle.
  void start(std::size_t index);
  /// What has finished; waits for at most `timeout`.
  [[nodiscard]] std::vector<Finished> finished(std::chrono::milliseconds timeout);

 private:
  struct Server {
    pid_t pid = 0;
    int orders = -1;   // indices go in
    int answers = -1;  // outcomes come out
    std::optional<std::size_t> index;
    std::string received;
  };
  void end(const Server& server);

  std::vector<Server> servers_;
};

}  // namespace stepcast
