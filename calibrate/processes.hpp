// The processes of one measurement, started by torchrun or srun, and a few bytes between them over
// TCP: what NCCL needs before it can communicate, and what must not disturb it afterwards.
#pragma once

#include <cstddef>
#include <vector>

namespace stepcast::calibrate {

class Processes {
 public:
  /// From the environment: WORLD_SIZE, RANK, LOCAL_RANK, MASTER_ADDR and MASTER_PORT of torchrun,
  /// or SLURM_STEP_NUM_TASKS, SLURM_PROCID and SLURM_LOCALID of srun with STEPCAST_MASTER_ADDR, the
  /// host of rank 0. Without them, this process is alone. Returns when all are connected.
  Processes();
  Processes(const Processes&) = delete;
  Processes& operator=(const Processes&) = delete;
  ~Processes();

  /// Whether a launcher has started a process for each GPU; else one process drives all.
  [[nodiscard]] bool launched() const { return launched_; }
  [[nodiscard]] int rank() const { return rank_; }
  [[nodiscard]] int count() const { return count_; }
  [[nodiscard]] int local_rank() const { return local_rank_; }
  [[nodiscard]] int nodes() const { return nodes_; }

  /// All processes call these in the same order.
  double largest(double value);
  void from_rank_0(void* data, std::size_t bytes);

 private:
  struct Hello;
  void accept_all(const Hello& mine);
  void connect_to_rank_0(const Hello& mine);
  [[nodiscard]] int socket_of(int rank) const { return sockets_[static_cast<std::size_t>(rank)]; }

  bool launched_ = false;
  int rank_ = 0, count_ = 1, local_rank_ = 0, nodes_ = 1;
  std::vector<int> sockets_;  ///< on rank 0 by rank, else only that to rank 0
};

}  // namespace stepcast::calibrate
