#include "gpu.hpp"

#include <algorithm>
#include <chrono>
#include <exception>
#include <mutex>
#include <stdexcept>
#include <thread>

#include "cuda_check.hpp"

namespace stepcast::calibrate {
namespace {

constexpr std::chrono::seconds patience{120};

Stream make_stream() {
  cudaStream_t stream = nullptr;
  CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  return Stream(stream);
}

}  // namespace

Event make_event() {
  cudaEvent_t event = nullptr;
  CHECK(cudaEventCreate(&event));
  return Event(event);
}

void* Buffer::get(std::size_t bytes) {
  if (bytes > bytes_) {
    release();
    if (on_host_)
      CHECK(cudaMallocHost(&data_, bytes));
    else
      CHECK(cudaMalloc(&data_, bytes));
    bytes_ = bytes;
  }
  return data_;
}

void Buffer::release() {
  if (on_host_)
    cudaFreeHost(data_);
  else
    cudaFree(data_);
  data_ = nullptr;
  bytes_ = 0;
}

Gpu::Gpu(int its_rank, int its_device, const std::atomic<bool>& given_up)
    : rank(its_rank), device(its_device), given_up_(given_up) {
  CHECK(cudaSetDevice(device));
  CHECK(cudaGetDeviceProperties(&properties, device));
  compute_stream = make_stream();
  collective_stream = make_stream();
  start = make_event();
  stop = make_event();
}

void Gpu::wait(const Event& event) const {
  const auto deadline = std::chrono::steady_clock::now() + patience;
  for (;;) {
    const cudaError_t state = cudaEventQuery(event.get());
    if (state == cudaSuccess) return;
    // "Not ready" would otherwise be what the next cudaGetLastError returns.
    if (state == cudaErrorNotReady)
      static_cast<void>(cudaGetLastError());
    else
      CHECK(state);
    if (given_up_) throw std::runtime_error("another GPU failed");
    if (std::chrono::steady_clock::now() > deadline)
      throw std::runtime_error("the GPU of rank " + std::to_string(rank) +
                               " did not finish within two minutes");
    std::this_thread::yield();
  }
}

double seconds_between(const Event& start, const Event& stop) {
  float ms = 0;
  CHECK(cudaEventElapsedTime(&ms, start.get(), stop.get()));
  return 1e-3 * static_cast<double>(ms);
}

Gpus::Gpus(int first_rank, int first_device, int count) {
  for (int i = 0; i < count; ++i)
    gpus_.push_back(std::make_unique<Gpu>(first_rank + i, first_device + i, given_up_));
}

double Gpus::largest(const std::function<double(std::size_t)>& work) {
  std::vector<double> results(gpus_.size());
  std::exception_ptr first_failure;
  std::mutex mutex;
  given_up_ = false;
  const auto run = [&](std::size_t i) {
    try {
      CHECK(cudaSetDevice(gpus_[i]->device));
      results[i] = work(i);
    } catch (...) {
      const std::lock_guard lock(mutex);
      if (!first_failure) first_failure = std::current_exception();
      given_up_ = true;
    }
  };
  std::vector<std::thread> threads;
  for (std::size_t i = 1; i < gpus_.size(); ++i) threads.emplace_back(run, i);
  run(0);
  for (std::thread& thread : threads) thread.join();
  if (first_failure) std::rethrow_exception(first_failure);
  return *std::max_element(results.begin(), results.end());
}

void Gpus::each(const std::function<void(std::size_t)>& work) {
  largest([&](std::size_t i) {
    work(i);
    return 0.0;
  });
}

}  // namespace stepcast::calibrate
