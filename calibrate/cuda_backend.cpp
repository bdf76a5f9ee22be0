#include "cuda_backend.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <fstream>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <stdexcept>
#include <string>
#include <tuple>
#include <type_traits>
#include <unistd.h>
#include <vector>

#include <cublasLt.h>
#include <cuda_runtime.h>
#include <nccl.h>

#include "collectives.hpp"
#include "compute.hpp"
#include "convolution.hpp"
#include "cuda_check.hpp"
#include "gpu.hpp"
#include "nvml.hpp"
#include "processes.hpp"

namespace stepcast::calibrate {
namespace {

auto key(const ComputeCase& what) {
  const ConvolutionShape& a = what.convolution;
  const AttentionShape& b = what.attention;
  return std::tie(what.kernel, what.dtype, what.m, what.n, what.k, what.bytes, what.cold_cache,
                  a.layout, a.batch, a.in_channels, a.height, a.width, a.out_channels,
                  a.filter_size, a.stride, a.padding, b.batch, b.heads, b.sequence_length,
                  b.head_size);
}
auto key(const CollectiveCase& what) {
  return std::tie(what.operation, what.bytes, what.ranks, what.algorithm, what.protocol,
                  what.channels, what.buffer_bytes, what.single_shot);
}

std::string pci_address(int device) {
  std::array<char, 32> text{};
  CHECK(cudaDeviceGetPCIBusId(text.data(), static_cast<int>(text.size()), device));
  return text.data();
}

std::string cpu_model() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);)
    if (line.rfind("model name", 0) == 0 && line.find(": ") != std::string::npos)
      return line.substr(line.find(": ") + 2);
  return {};
}

std::string version(int major, int minor) {
  return std::to_string(major) + '.' + std::to_string(minor);
}
/// 13010: 13.1
std::string cuda_version(int number) { return version(number / 1000, number % 1000 / 10); }
/// 22809: 2.28.9
std::string library_version(int number) {
  return version(number / 10000, number / 100 % 100) + '.' + std::to_string(number % 100);
}

int count_devices() {
  int count = 0;
  CHECK(cudaGetDeviceCount(&count));
  if (count == 0) throw Missing{"CUDA", "no GPU"};
  return count;
}

/// Started by a launcher, the one that is this process's; alone, all.
int first_device(const Processes& processes) {
  // Where the launcher shows each process only its own, there is one.
  return processes.launched() ? processes.local_rank() % count_devices() : 0;
}
int device_count(const Processes& processes) {
  const int count = count_devices();
  return processes.launched() ? 1 : count;
}

class CudaBackend final : public Backend {
 public:
  CudaBackend()
      : users_before_(users()),
        gpus_(processes_.rank(), first_device(processes_), device_count(processes_)),
        collectives_(gpus_, processes_, world_size()) {
    own_users_ = users();
    for (const unsigned user : users_before_) own_users_.erase(user);
    own_users_.insert(static_cast<unsigned>(getpid()));
    for (std::size_t i = 0; i < gpus_.size(); ++i)
      computes_.push_back(std::make_unique<Compute>(gpus_[i]));
  }
  CudaBackend(const CudaBackend&) = delete;
  CudaBackend& operator=(const CudaBackend&) = delete;
  ~CudaBackend() override {
    try {
      // A rank that is gone would be waited for.
      if (failed_) collectives_.abort();
      // With its own GPU as the current device.
      gpus_.each([&](std::size_t i) { computes_[i].reset(); });
    } catch (...) {  // what failed first has been reported
    }
  }

  [[nodiscard]] int rank() const override { return processes_.rank(); }
  [[nodiscard]] int world_size() const override {
    return processes_.launched() ? processes_.count() : static_cast<int>(gpus_.size());
  }
  [[nodiscard]] int nodes() const override { return processes_.nodes(); }
  [[nodiscard]] std::map<std::string, std::string> environment() const override;
  [[nodiscard]] Condition condition() const override;

  [[nodiscard]] std::string obstacle(const ComputeCase& what) const override {
    prepared_compute_ = {};
    std::string problem;
    guard([&] {
      gpus_.each([&](std::size_t i) {
        if (i == 0) problem = computes_[i]->obstacle(what);
      });
    });
    return problem;
  }
  [[nodiscard]] std::string obstacle(const CollectiveCase& what) const override {
    prepared_collective_ = {};
    return guard([&] { return collectives_.obstacle(what); });
  }

  void prepare(const ComputeCase& what) override {
    guard([&] { gpus_.each([&](std::size_t i) { computes_[i]->prepare(what); }); });
    prepared_compute_ = what;
  }
  void prepare(const CollectiveCase& what) override {
    guard([&] { collectives_.prepare(what); });
    prepared_collective_ = what;
  }
  double time(const ComputeCase& what, int calls) override {
    if (key(what) != key(prepared_compute_)) prepare(what);
    return guard([&] {
      return processes_.largest(
          gpus_.largest([&](std::size_t i) { return computes_[i]->time(calls); }));
    });
  }
  double time(const CollectiveCase& what, int calls) override {
    if (key(what) != key(prepared_collective_)) prepare(what);
    return guard([&] { return collectives_.time(calls); });
  }
  InterferenceTimes time(const InterferenceCase& what, int calls) override;
  std::optional<bool> is_correct(const ComputeCase& what) override {
    if (key(what) != key(prepared_compute_)) prepare(what);
    bool checked = false;
    const double wrong = guard([&] {
      return processes_.largest(gpus_.largest([&](std::size_t i) {
        const std::optional<bool> correct = computes_[i]->is_correct();
        if (i == 0) checked = correct.has_value();
        return correct.value_or(true) ? 0.0 : 1.0;
      }));
    });
    return checked ? std::optional<bool>(wrong == 0) : std::nullopt;
  }
  bool is_correct(const CollectiveCase& what) override {
    if (key(what) != key(prepared_collective_)) prepare(what);
    return guard([&] { return collectives_.is_correct(); });
  }
  double own_estimate(const CollectiveCase& what) override {
    if (key(what) != key(prepared_collective_)) prepare(what);
    return guard([&] { return collectives_.own_estimate(); });
  }
  double from_rank_0(double value) override {
    processes_.from_rank_0(&value, sizeof value);
    return value;
  }

 private:
  enum class Measured { compute, collective };
  struct Beside {
    double own_s = 0;      ///< of all calls measured
    double missing_s = 0;  ///< for how long the others had already ended
  };
  double time_beside(Measured measured, int calls, double alone_s, double other_alone_s);
  [[nodiscard]] Beside run_beside(std::size_t i, Measured measured, int calls, int others);

  [[nodiscard]] std::set<unsigned> users() const {
    std::set<unsigned> all;
    const int first = first_device(processes_);
    for (int i = 0; i < device_count(processes_); ++i)
      for (const unsigned user : nvml_.users(pci_address(first + i))) all.insert(user);
    return all;
  }

  /// Remembers that something failed.
  template <class F>
  std::invoke_result_t<F> guard(const F& work) const {
    try {
      return work();
    } catch (...) {
      failed_ = true;
      throw;
    }
  }

  Nvml nvml_;
  mutable Processes processes_;
  std::set<unsigned> users_before_, own_users_;
  mutable Gpus gpus_;
  mutable Collectives collectives_;  // obstacle() tries what it does not know
  std::vector<std::unique_ptr<Compute>> computes_;
  mutable ComputeCase prepared_compute_;
  mutable CollectiveCase prepared_collective_;
  mutable bool failed_ = false;
};

std::map<std::string, std::string> CudaBackend::environment() const {
  int driver = 0;
  int runtime = 0;
  int nccl = 0;
  CHECK(cudaDriverGetVersion(&driver));
  CHECK(cudaRuntimeGetVersion(&runtime));
  CHECK(ncclGetVersion(&nccl));
  const cudaDeviceProp& gpu = gpus_[0].properties;
  const std::string driver_name = nvml_.driver();
  std::map<std::string, std::string> found{
      {"gpu", gpu.name},
      {"compute_capability", version(gpu.major, gpu.minor)},
      {"memory_bytes", std::to_string(gpu.totalGlobalMem)},
      {"sms", std::to_string(gpu.multiProcessorCount)},
      {"l2_cache_bytes", std::to_string(gpu.l2CacheSize)},
      {"driver", driver_name.empty() ? "for CUDA " + cuda_version(driver) : driver_name},
      {"cuda", cuda_version(runtime)},
      {"cublas", library_version(static_cast<int>(cublasLtGetVersion()))},
      {"nccl", library_version(nccl)},
      {"cpu", cpu_model()},
  };
  if (const std::string cudnn = cudnn_version(); !cudnn.empty()) found["cudnn"] = cudnn;
  if (const std::int64_t bytes = process_buffer_bytes(); bytes > 0)
    found["nccl_buffsize"] = std::to_string(bytes);
  return found;
}

/// The worst of this process's GPUs.
Condition CudaBackend::condition() const {
  Condition worst;
  for (std::size_t i = 0; i < gpus_.size(); ++i) {
    const Condition one = nvml_.condition(pci_address(gpus_[i].device));
    if (worst.clock_Hz < 0 || (one.clock_Hz >= 0 && one.clock_Hz < worst.clock_Hz))
      worst.clock_Hz = one.clock_Hz;
    worst.temperature_C = std::max(worst.temperature_C, one.temperature_C);
    worst.throttled = worst.throttled || one.throttled;
  }
  for (const unsigned user : users())
    worst.used_by_others = worst.used_by_others || own_users_.count(user) == 0;
  return worst;
}

InterferenceTimes CudaBackend::time(const InterferenceCase& asked, int calls) {
  InterferenceCase what = asked;
  // Beside something else there is no moment to flush the cache in, and nothing to wait for.
  what.compute.cold_cache = false;
  what.collective.single_shot = false;
  if (what.compute.kernel == "empty_graph_node")
    throw std::invalid_argument("empty graph nodes are not measured beside a collective");
  if (key(what.compute) != key(prepared_compute_)) prepare(what.compute);
  if (key(what.collective) != key(prepared_collective_)) prepare(what.collective);
  InterferenceTimes times;
  times.compute_alone_s = time(what.compute, calls);
  times.collective_alone_s = time(what.collective, calls);
  guard([&] {
    times.compute_beside_s =
        time_beside(Measured::compute, calls, times.compute_alone_s, times.collective_alone_s);
    times.collective_beside_s =
        time_beside(Measured::collective, calls, times.collective_alone_s, times.compute_alone_s);
  });
  return times;
}

/// So many calls of the one while the other is called from before their start until after their
/// end. How often that must be is guessed from the times alone, and doubled until it was enough;
/// all processes see the same times and call the collective equally often.
double CudaBackend::time_beside(Measured measured, int calls, double alone_s,
                                double other_alone_s) {
  constexpr int most_others = 1 << 14;
  int others = static_cast<int>(std::min<double>(
      most_others, 2 + std::ceil(2 * calls * alone_s / std::max(other_alone_s, 1e-7))));
  for (;;) {
    std::vector<Beside> results(gpus_.size());
    gpus_.each([&](std::size_t i) {
      if (collectives_.takes_part(i)) results[i] = run_beside(i, measured, calls, others);
    });
    Beside worst;
    for (const Beside& result : results) {
      worst.own_s = std::max(worst.own_s, result.own_s);
      worst.missing_s = std::max(worst.missing_s, result.missing_s);
    }
    worst.own_s = processes_.largest(worst.own_s);
    worst.missing_s = processes_.largest(worst.missing_s);
    if (worst.missing_s <= 0 || others >= most_others) return worst.own_s / calls;
    others *= 2;
  }
}

CudaBackend::Beside CudaBackend::run_beside(std::size_t i, Measured measured, int calls,
                                            int others) {
  const Gpu& gpu = gpus_[i];
  const bool computing = measured == Measured::compute;
  const cudaStream_t own = computing ? gpu.compute_stream.get() : gpu.collective_stream.get();
  const cudaStream_t other = computing ? gpu.collective_stream.get() : gpu.compute_stream.get();
  const auto call_own = [&] {
    if (computing)
      computes_[i]->enqueue(1);
    else
      collectives_.enqueue(i, 1);
  };
  const auto call_other = [&] {
    if (computing)
      collectives_.enqueue(i, 1);
    else
      computes_[i]->enqueue(1);
  };
  const Event aligned = make_event();
  const Event other_stop = make_event();
  collectives_.align(i);
  CHECK(cudaEventRecord(aligned.get(), gpu.collective_stream.get()));
  CHECK(cudaStreamWaitEvent(gpu.compute_stream.get(), aligned.get(), 0));
  call_other();
  CHECK(cudaEventRecord(gpu.start.get(), own));
  int called = 1;
  for (int done = 1; done <= calls; ++done) {
    call_own();
    // Spread evenly, so that neither stream waits for the host to fill the other.
    for (; static_cast<double>(called) * calls < static_cast<double>(others) * done; ++called)
      call_other();
  }
  CHECK(cudaEventRecord(gpu.stop.get(), own));
  CHECK(cudaEventRecord(other_stop.get(), other));
  gpu.wait(gpu.stop);
  gpu.wait(other_stop);
  const double own_s = seconds_between(gpu.start, gpu.stop);
  return {own_s, own_s - seconds_between(gpu.start, other_stop)};
}

}  // namespace

std::unique_ptr<Backend> make_cuda_backend() {
  // First of all: without a GPU, nobody need wait for other processes.
  static_cast<void>(count_devices());
  return std::make_unique<CudaBackend>();
}

}  // namespace stepcast::calibrate
