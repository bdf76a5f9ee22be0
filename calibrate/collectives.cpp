#include "collectives.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <set>

#include "compute_kernels.hpp"
#include "cuda_check.hpp"

namespace stepcast::calibrate {
namespace {

constexpr int first_calls = 3;  ///< connections are made then
constexpr std::int64_t element = sizeof(float);
constexpr std::size_t small_bytes = sizeof(unsigned long long);

CommunicatorSettings settings_of(const CollectiveCase& what) {
  return {what.ranks, what.algorithm, what.protocol, what.channels};
}

bool is_scattered(const CollectiveCase& what) {
  return what.operation == "reduce_scatter" || what.operation == "all_gather";
}

std::int64_t elements(const CollectiveCase& what) { return what.bytes / element; }
std::int64_t elements_per_rank(const CollectiveCase& what) { return elements(what) / what.ranks; }

void call(const CollectiveCase& what, float* data, int rank, ncclComm_t communicator,
          cudaStream_t stream) {
  const auto all = static_cast<std::size_t>(elements(what));
  const auto part = static_cast<std::size_t>(elements_per_rank(what));
  float* own = data + static_cast<std::size_t>(rank) * part;
  if (what.operation == "all_reduce")
    CHECK(ncclAllReduce(data, data, all, ncclFloat, ncclSum, communicator, stream));
  else if (what.operation == "reduce_scatter")
    CHECK(ncclReduceScatter(data, own, part, ncclFloat, ncclSum, communicator, stream));
  else if (what.operation == "all_gather")
    CHECK(ncclAllGather(own, data, part, ncclFloat, communicator, stream));
  else
    CHECK(ncclBroadcast(data, data, all, ncclFloat, 0, communicator, stream));
}

}  // namespace

Collectives::Collectives(Gpus& gpus, Processes& processes, int world_size)
    : gpus_(gpus), processes_(processes), world_size_(world_size), communicators_(gpus, processes) {
  CHECK(ncclGetVersion(&version_));
  least_capability_ = static_cast<int>(-processes_.largest(gpus_.largest([&](std::size_t i) {
    return -(10.0 * gpus_[i].properties.major + gpus_[i].properties.minor);
  })));
  for (std::size_t i = 0; i < gpus_.size(); ++i) {
    buffers_.push_back(std::make_unique<Buffer>());
    small_.push_back(std::make_unique<Buffer>());
  }
}

std::string Collectives::known_obstacle(const CollectiveCase& what) const {
  static const std::set<std::string> operations{"all_reduce", "reduce_scatter", "all_gather",
                                                "broadcast"};
  static const std::set<std::string> protocols{"", "LL", "LL128", "Simple"};
  if (what.ranks < 2) return "one rank has nobody to communicate with";
  if (what.ranks > world_size_) return "there are " + std::to_string(world_size_) + " GPUs";
  if (operations.count(what.operation) == 0) return "NCCL has no " + what.operation;
  if (what.bytes < element * (is_scattered(what) ? what.ranks : 1))
    return "less than one element a rank";
  if (!what.algorithm.empty() && nccl_name(what.algorithm).empty())
    return "NCCL has no " + what.algorithm;
  if (protocols.count(what.protocol) == 0) return "NCCL has no protocol " + what.protocol;
  const bool is_tree = what.algorithm == "double_binary_tree" || what.algorithm == "nvls_tree";
  const bool is_nvls = what.algorithm == "nvls" || what.algorithm == "nvls_tree";
  if (is_tree && what.operation != "all_reduce")
    return "NCCL has " + what.algorithm + " for all_reduce only";
  if (is_nvls && what.operation == "broadcast") return "NCCL has no broadcast by " + what.algorithm;
  if (is_nvls && !what.protocol.empty() && what.protocol != "Simple")
    return what.algorithm + " has the protocol Simple only";
  if (is_nvls && least_capability_ < 90) return what.algorithm + " needs compute capability 9.0";
  if (what.algorithm == "nvls_tree" && processes_.nodes() == 1)
    return "NCCL has nvls_tree on several nodes only";
  if (is_nvls && version_ < NCCL_VERSION(2, 24, 0))
    return "before 2.24, NCCL takes another algorithm without a word where it has no NVLS";
  if (what.channels < 0 || what.channels > 64) return "NCCL has 1 to 64 channels";
  if (what.buffer_bytes != 0 && what.buffer_bytes != process_buffer_bytes())
    return "NCCL reads NCCL_BUFFSIZE once a process: start this one with NCCL_BUFFSIZE=" +
           std::to_string(what.buffer_bytes);
  if (what.buffer_bytes == 0 && process_buffer_bytes() != 0)
    return "NCCL_BUFFSIZE is set: the library's own choice is measured without it";
  if (static_cast<double>(what.bytes) >
      0.25 * static_cast<double>(gpus_[0].properties.totalGlobalMem))
    return "the GPU has not enough memory";
  return {};
}

/// One small call. All processes get the same answer, else one would wait for another.
std::string Collectives::tried(const CollectiveCase& what) {
  std::string problem;
  CollectiveCase small = what;
  small.bytes = 1024 * element * what.ranks;
  try {
    what_ = small;
    communicator_ = &communicators_.get(settings_of(what));
    make_buffers();
    gpus_.each([&](std::size_t i) {
      enqueue(i, 1);
      CHECK(cudaEventRecord(gpus_[i].stop.get(), gpus_[i].collective_stream.get()));
      gpus_[i].wait(gpus_[i].stop);
    });
  } catch (const NcclError& error) {
    problem = error.reason;
  }
  const bool failed = processes_.largest(problem.empty() ? 0 : 1) > 0;
  if (!failed) return {};
  communicators_.abort(settings_of(what));
  return problem.empty() ? "NCCL cannot do it on another rank" : problem;
}

std::string Collectives::obstacle(const CollectiveCase& asked) {
  CollectiveCase what = asked;
  if (what.ranks == 0) what.ranks = world_size_;
  if (std::string problem = known_obstacle(what); !problem.empty()) return problem;
  if (what.algorithm.empty() && what.protocol.empty() && what.channels == 0) return {};
  const auto question = std::make_pair(settings_of(what), what.operation);
  const auto known = answers_.find(question);
  if (known != answers_.end()) return known->second;
  return answers_[question] = tried(what);
}

/// On all GPUs before any of them communicates: making memory may wait for the other GPUs.
void Collectives::make_buffers() {
  gpus_.each([&](std::size_t i) {
    buffers_[i]->get(static_cast<std::size_t>(what_.bytes));
    small_[i]->get(small_bytes);
  });
}

void Collectives::prepare(const CollectiveCase& what) {
  what_ = what;
  if (what_.ranks == 0) what_.ranks = world_size_;
  communicator_ = &communicators_.get(settings_of(what_));
  make_buffers();
  gpus_.each([&](std::size_t i) {
    if (!takes_part(i)) return;
    const Gpu& gpu = gpus_[i];
    auto* data = static_cast<float*>(buffers_[i]->get(0));
    fill_contribution(data, elements(what_), gpu.rank, gpu.collective_stream.get());
    align(i);
    enqueue(i, first_calls);
    CHECK(cudaEventRecord(gpu.stop.get(), gpu.collective_stream.get()));
    gpu.wait(gpu.stop);
  });
}

void Collectives::enqueue(std::size_t i, int calls) {
  if (!takes_part(i)) return;
  auto* data = static_cast<float*>(buffers_[i]->get(0));
  for (int done = 0; done < calls; ++done)
    call(what_, data, gpus_[i].rank, (*communicator_)[i], gpus_[i].collective_stream.get());
}

/// An all-reduce of four bytes ends on all ranks within microseconds. The host has launched what
/// comes next before that, so its launch is not measured.
void Collectives::align(std::size_t i) {
  if (!takes_part(i)) return;
  auto* data = static_cast<float*>(small_[i]->get(small_bytes));
  CHECK(ncclAllReduce(data, data, 1, ncclFloat, ncclSum, (*communicator_)[i],
                      gpus_[i].collective_stream.get()));
}

double Collectives::time_single_shots(std::size_t i, int calls) {
  const Gpu& gpu = gpus_[i];
  const cudaStream_t stream = gpu.collective_stream.get();
  double sum = 0;
  for (int done = 0; done < calls; ++done) {
    align(i);
    CHECK(cudaEventRecord(gpu.start.get(), stream));
    enqueue(i, 1);
    CHECK(cudaEventRecord(gpu.stop.get(), stream));
    gpu.wait(gpu.stop);
    sum += seconds_between(gpu.start, gpu.stop);
  }
  return sum / calls;
}

double Collectives::time(int calls) {
  return processes_.largest(gpus_.largest([&](std::size_t i) {
    if (!takes_part(i)) return 0.0;
    if (what_.single_shot) return time_single_shots(i, calls);
    const Gpu& gpu = gpus_[i];
    const cudaStream_t stream = gpu.collective_stream.get();
    align(i);
    CHECK(cudaEventRecord(gpu.start.get(), stream));
    enqueue(i, calls);
    CHECK(cudaEventRecord(gpu.stop.get(), stream));
    gpu.wait(gpu.stop);
    return seconds_between(gpu.start, gpu.stop) / calls;
  }));
}

bool Collectives::is_correct() {
  Expected expected;
  if (what_.operation == "all_reduce" || what_.operation == "reduce_scatter")
    expected.summed_ranks = what_.ranks;
  if (what_.operation == "all_gather") expected.per_owner = elements_per_rank(what_);
  const double wrong = processes_.largest(gpus_.largest([&](std::size_t i) {
    if (!takes_part(i)) return 0.0;
    const Gpu& gpu = gpus_[i];
    const cudaStream_t stream = gpu.collective_stream.get();
    auto* data = static_cast<float*>(buffers_[i]->get(0));
    auto* count = static_cast<unsigned long long*>(small_[i]->get(small_bytes));
    // Scattered parts may leave a rest at the end, which nobody touches.
    std::int64_t first = 0;
    std::int64_t size = elements(what_);
    if (is_scattered(what_)) size = elements_per_rank(what_) * what_.ranks;
    fill_contribution(data, elements(what_), gpu.rank, stream);
    enqueue(i, 1);
    if (what_.operation == "reduce_scatter") {
      size = elements_per_rank(what_);
      first = gpu.rank * size;
    }
    CHECK(cudaMemsetAsync(count, 0, sizeof *count, stream));
    count_wrong(data, first, size, expected, count, stream);
    CHECK(cudaEventRecord(gpu.stop.get(), stream));
    gpu.wait(gpu.stop);
    unsigned long long found = 0;
    CHECK(cudaMemcpy(&found, count, sizeof found, cudaMemcpyDeviceToHost));
    return static_cast<double>(found);
  }));
  return wrong == 0;
}

double Collectives::own_estimate() {
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 22, 0)
  if (version_ < NCCL_VERSION(2, 22, 0)) return -1;
  return processes_.largest(gpus_.largest([&](std::size_t i) {
    if (!takes_part(i)) return -1.0;
    const Gpu& gpu = gpus_[i];
    ncclSimInfo_t info = NCCL_SIM_INFO_INITIALIZER;
    CHECK(ncclGroupStart());
    enqueue(i, 1);
    CHECK(ncclGroupSimulateEnd(&info));
    // Should the simulation leave anything queued, a real call takes it along.
    enqueue(i, 1);
    CHECK(cudaEventRecord(gpu.stop.get(), gpu.collective_stream.get()));
    gpu.wait(gpu.stop);
    return info.estimatedTime >= 0 ? 1e-6 * static_cast<double>(info.estimatedTime) : -1.0;
  }));
#else
  return -1;
#endif
}

}  // namespace stepcast::calibrate
