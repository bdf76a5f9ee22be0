// The collective cases on the GPUs of this process, as NCCL does them. In place, as DDP's buckets
// are: the sums then run to infinity, which costs the GPU nothing.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <nccl.h>

#include "backend.hpp"
#include "communicators.hpp"
#include "gpu.hpp"
#include "processes.hpp"

namespace stepcast::calibrate {

class Collectives {
 public:
  Collectives(Gpus& gpus, Processes& processes, int world_size);

  /// Whether NCCL has it here: what cannot be told from the outside is tried once.
  [[nodiscard]] std::string obstacle(const CollectiveCase& what);

  /// The others are for the case that was prepared last.
  void prepare(const CollectiveCase& what);
  double time(int calls);
  bool is_correct();
  double own_estimate();

  /// For the GPU number i of this process. Of a GPU that takes no part: nothing.
  [[nodiscard]] bool takes_part(std::size_t i) const { return gpus_[i].rank < what_.ranks; }
  void enqueue(std::size_t i, int calls);
  /// All GPUs continue from here at the same time: the start of a measurement.
  void align(std::size_t i);

  void abort() { communicators_.abort_all(); }

 private:
  [[nodiscard]] std::string known_obstacle(const CollectiveCase& what) const;
  [[nodiscard]] std::string tried(const CollectiveCase& what);
  void make_buffers();
  [[nodiscard]] double time_single_shots(std::size_t i, int calls);

  Gpus& gpus_;
  Processes& processes_;
  const int world_size_;
  int version_ = 0;  ///< of NCCL, as 22809
  int least_capability_ = 0;
  Communicators communicators_;
  CollectiveCase what_;
  const Communicator* communicator_ = nullptr;            ///< for what_
  std::vector<std::unique_ptr<Buffer>> buffers_, small_;  ///< by GPU
  std::map<std::pair<CommunicatorSettings, std::string>, std::string> answers_;
};

}  // namespace stepcast::calibrate
