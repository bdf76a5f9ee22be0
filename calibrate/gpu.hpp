// The GPUs of this process, and the host threads that drive them.
#pragma once

#include <atomic>
#include <cstddef>
#include <functional>
#include <memory>
#include <type_traits>
#include <vector>

#include <cuda_runtime.h>

namespace stepcast::calibrate {

struct DestroyStream {
  void operator()(cudaStream_t stream) const { cudaStreamDestroy(stream); }
};
struct DestroyEvent {
  void operator()(cudaEvent_t event) const { cudaEventDestroy(event); }
};
using Stream = std::unique_ptr<std::remove_pointer_t<cudaStream_t>, DestroyStream>;
using Event = std::unique_ptr<std::remove_pointer_t<cudaEvent_t>, DestroyEvent>;
[[nodiscard]] Event make_event();

/// Memory of the GPU, or of the host where the GPU can copy from it at full speed. It only grows.
class Buffer {
 public:
  explicit Buffer(bool on_host = false) : on_host_(on_host) {}
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  ~Buffer() { release(); }

  /// At least so much; what was in it is lost when it grows.
  void* get(std::size_t bytes);

 private:
  void release();

  bool on_host_;
  void* data_ = nullptr;
  std::size_t bytes_ = 0;
};

/// One GPU. All of its functions need it to be the current device of the thread.
struct Gpu {
  Gpu(int rank, int device, const std::atomic<bool>& given_up);

  /// Until the event has happened. Throws when another GPU of this process has failed, or after
  /// two minutes: a collective waits forever for a rank that is gone.
  void wait(const Event& event) const;

  const int rank;    ///< among all GPUs
  const int device;  ///< among those of this process
  cudaDeviceProp properties;
  Stream compute_stream, collective_stream;
  Event start, stop;

 private:
  const std::atomic<bool>& given_up_;
};

/// Time on the GPU between two events that have happened.
[[nodiscard]] double seconds_between(const Event& start, const Event& stop);

class Gpus {
 public:
  /// The devices from the first on; their ranks follow each other too.
  Gpus(int first_rank, int first_device, int count);

  [[nodiscard]] std::size_t size() const { return gpus_.size(); }
  [[nodiscard]] Gpu& operator[](std::size_t i) const { return *gpus_[i]; }

  /// Does the work on every GPU, each in a thread of its own with the GPU as its current device,
  /// and returns the largest result. `i` counts the GPUs of this process.
  double largest(const std::function<double(std::size_t i)>& work);
  void each(const std::function<void(std::size_t i)>& work);

 private:
  std::atomic<bool> given_up_{false};
  std::vector<std::unique_ptr<Gpu>> gpus_;
};

}  // namespace stepcast::calibrate
