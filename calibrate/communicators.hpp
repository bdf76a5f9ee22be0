// NCCL communicators with forced settings.
//
// NCCL reads NCCL_ALGO and NCCL_PROTO whenever it makes a communicator, so they are set around
// that; channels go in through ncclConfig_t. NCCL_BUFFSIZE it reads once per process and keeps:
// buffers of another size than the process was started with cannot be had, and obstacle() says so.
#pragma once

#include <list>
#include <string>
#include <tuple>
#include <vector>

#include <nccl.h>

#include "backend.hpp"
#include "gpu.hpp"
#include "processes.hpp"

namespace stepcast::calibrate {

/// What a communicator is made for. Buffers are the same in the whole process.
struct CommunicatorSettings {
  int ranks = 0;
  std::string algorithm, protocol;
  int channels = 0;

  [[nodiscard]] auto key() const { return std::tie(ranks, algorithm, protocol, channels); }
  friend bool operator==(const CommunicatorSettings& a, const CommunicatorSettings& b) {
    return a.key() == b.key();
  }
  friend bool operator<(const CommunicatorSettings& a, const CommunicatorSettings& b) {
    return a.key() < b.key();
  }
};

/// By the GPUs of this process; null for those that take no part.
using Communicator = std::vector<ncclComm_t>;

class Communicators {
 public:
  Communicators(Gpus& gpus, Processes& processes) : gpus_(gpus), processes_(processes) {}
  Communicators(const Communicators&) = delete;
  Communicators& operator=(const Communicators&) = delete;
  ~Communicators();

  /// Made if there is none; then another may be closed, so that few are open.
  const Communicator& get(const CommunicatorSettings& settings);
  /// After an error: closes it without waiting for the other ranks.
  void abort(const CommunicatorSettings& settings);
  void abort_all();

 private:
  struct Open {
    CommunicatorSettings settings;
    Communicator communicator;
  };
  void make(Open& open);
  void close(Open& open);

  Gpus& gpus_;
  Processes& processes_;
  std::list<Open> open_;  ///< the last used first
};

/// NCCL_BUFFSIZE of this process; 0 where NCCL chooses.
[[nodiscard]] std::int64_t process_buffer_bytes();

/// NCCL's name of an algorithm of ours; empty where it has none.
[[nodiscard]] std::string nccl_name(const std::string& algorithm);

}  // namespace stepcast::calibrate
