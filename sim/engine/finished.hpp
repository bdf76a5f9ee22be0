// What SimGrid has found of collectives, for all processes of a run: what one of them has simulated
// the others need not simulate again.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "collective/cluster.hpp"
#include "collective/lower.hpp"

namespace stepcast {

/// 128 bits of all that decides when each rank is done with a collective.
struct CollectiveKey {
  std::uint64_t high = 0;
  std::uint64_t low = 0;
  auto operator<=>(const CollectiveKey&) const = default;
};
[[nodiscard]] CollectiveKey key_of(const LoweredCollective& collective, const Cluster& cluster);

/// A table in memory that a process shares with those that it forks. Nothing is ever changed or
/// removed, and nothing is added where there is no room: what is missing is simulated again, to the
/// same bits. No process can leave it in disorder or hold others up, wherever it is killed.
class FinishedCollectives {
 public:
  /// `bytes` are taken from the system only as they are used.
  explicit FinishedCollectives(std::size_t bytes) noexcept;
  FinishedCollectives(const FinishedCollectives&) = delete;
  FinishedCollectives& operator=(const FinishedCollectives&) = delete;
  ~FinishedCollectives();

  /// When each rank is done, after the start.
  [[nodiscard]] std::optional<std::vector<Seconds>> find(const CollectiveKey& key) const;
  void add(const CollectiveKey& key, std::span<const Seconds> done);

  /// False when another process is about to simulate it and there is room for so many times, or
  /// nothing would be gained by waiting. A claim ends with the process, too.
  [[nodiscard]] bool claim(const CollectiveKey& key, std::size_t times);
  void release(const CollectiveKey& key);
  /// Until no other process has claimed it.
  void wait_for(const CollectiveKey& key);

 private:
  std::size_t words_ = 0;            ///< for what is found; 0: the system gave no memory
  std::uint64_t* memory_ = nullptr;  ///< how many words are in use, the slots, the words
  int file_ = -1;                    ///< a byte that is locked is a claim
};

/// Of this program.
[[nodiscard]] FinishedCollectives& finished_collectives();

}  // namespace stepcast
