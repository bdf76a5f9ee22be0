// The processes that mpirun starts together, and the messages between them. Only mpi_ranks.cpp
// sees MPI.
#pragma once

#include <memory>
#include <optional>
#include <string>

namespace stepcast {

/// How many were started with this one, and which one it is, from what launchers leave in the
/// environment: 1 and 0 without one.
struct Team {
  int size = 1;
  int rank = 0;
};
[[nodiscard]] Team team();

/// False when this program was built without MPI, and Ranks cannot be made.
extern const bool mpi_is_built;

/// MPI, from the constructor to leave(). Nothing here waits for another rank but leave(): ranks
/// may die at any time.
class Ranks {
 public:
  struct Message {
    int from = 0;
    char kind = 0;
    std::string text;
  };

  Ranks();
  Ranks(const Ranks&) = delete;
  Ranks& operator=(const Ranks&) = delete;
  ~Ranks();

  void send(int to, char kind, const std::string& text);
  /// The next message that has come.
  [[nodiscard]] std::optional<Message> receive();
  /// Ends MPI, for which all ranks must be alive.
  void leave();
  /// Where one is not: when this process ends, what is left of the others is ended too. Until then
  /// mpirun would wait for a machine that is gone.
  void abort_at_exit();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace stepcast
