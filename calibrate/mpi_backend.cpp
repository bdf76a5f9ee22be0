// Measures processors and OpenMPI in the place of GPUs and NCCL: for machines without GPUs, and for
// the tests.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <memory>
#include <optional>
#include <random>
#include <stdexcept>
#include <unistd.h>
#include <vector>

#include <mpi.h>

#include "factory.hpp"
#include "reference.hpp"

namespace stepcast::calibrate {
namespace {

/// Values of OpenMPI's coll_tuned_allreduce_algorithm (`ompi_info --param coll tuned --level 9`).
const std::map<std::string, int> algorithm_numbers{
    {"", 0}, {"recursive_doubling", 3}, {"ring", 4}, {"recursive_halving_doubling", 6}};

constexpr double most_multiplications = 1 << 30;  ///< of one call

std::string cpu_name() {
  std::ifstream stream("/proc/cpuinfo");
  for (std::string line; std::getline(stream, line);)
    if (line.rfind("model name", 0) == 0) return line.substr(line.find(": ") + 2);
  return "unknown";
}

std::int64_t memory_bytes() {
  return static_cast<std::int64_t>(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGESIZE);
}

/// C = A B, all n x n, in blocks that stay in the first-level cache.
template <class T>
void gemm(const ComputeCase& size, const T* a, const T* b, T* c) {
  constexpr std::int64_t block = 32;
  std::fill(c, c + size.m * size.n, T(0));
  for (std::int64_t i0 = 0; i0 < size.m; i0 += block)
    for (std::int64_t k0 = 0; k0 < size.k; k0 += block)
      for (std::int64_t i = i0; i < std::min(i0 + block, size.m); ++i)
        for (std::int64_t k = k0; k < std::min(k0 + block, size.k); ++k)
          for (std::int64_t j = 0; j < size.n; ++j)
            c[i * size.n + j] += a[i * size.k + k] * b[k * size.n + j];
}

/// In eight sums, so that no addition waits for the last.
template <class T>
T inner_product(const T* a, const T* b, std::int64_t count) {
  T sums[8] = {};
  std::int64_t i = 0;
  for (; i + 8 <= count; i += 8)
    for (std::int64_t j = 0; j < 8; ++j) sums[j] += a[i + j] * b[i + j];
  for (; i < count; ++i) sums[0] += a[i] * b[i];
  return ((sums[0] + sums[1]) + (sums[2] + sums[3])) + ((sums[4] + sums[5]) + (sums[6] + sums[7]));
}

/// softmax(Q K^T / sqrt(size)) V, head by head; the scores are those of one head.
template <class T>
void attention(const AttentionShape& shape, const T* q, const T* k, const T* v, T* scores, T* out) {
  const std::int64_t length = shape.sequence_length;
  const std::int64_t size = shape.head_size;
  const T factor = 1 / std::sqrt(static_cast<T>(size));
  std::fill(out, out + shape.elements(), T(0));
  for (std::int64_t head = 0; head < shape.batch * shape.heads; ++head) {
    for (std::int64_t i = 0; i < length; ++i)
      for (std::int64_t j = 0; j < length; ++j)
        scores[i * length + j] = factor * inner_product(q + i * size, k + j * size, size);
    for (T* row = scores; row < scores + length * length; row += length) {
      const T largest = *std::max_element(row, row + length);
      T sum = 0;
      for (std::int64_t j = 0; j < length; ++j) sum += row[j] = std::exp(row[j] - largest);
      for (std::int64_t j = 0; j < length; ++j) row[j] /= sum;
    }
    for (std::int64_t i = 0; i < length; ++i)
      for (std::int64_t j = 0; j < length; ++j)
        for (std::int64_t d = 0; d < size; ++d)
          out[i * size + d] += scores[i * length + j] * v[j * size + d];
    q += length * size;
    k += length * size;
    v += length * size;
    out += length * size;
  }
}

class MpiBackend : public Backend {
 public:
  MpiBackend() {
    // Read when MPI starts; without it coll_tuned ignores the algorithm that is asked for.
    setenv("OMPI_MCA_coll_tuned_use_dynamic_rules", "1", 1);
    int provided = 0;
    MPI_T_init_thread(MPI_THREAD_SINGLE, &provided);
    MPI_Init(nullptr, nullptr);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
    MPI_Comm_size(MPI_COMM_WORLD, &world_size_);

    MPI_Comm node = MPI_COMM_NULL;
    MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, rank_, MPI_INFO_NULL, &node);
    int rank_in_node = 0;
    MPI_Comm_rank(node, &rank_in_node);
    MPI_Comm_free(&node);
    const int is_first = rank_in_node == 0 ? 1 : 0;
    MPI_Allreduce(&is_first, &nodes_, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  }
  ~MpiBackend() override {
    free_group();
    MPI_T_finalize();  // the other way round OpenMPI 4.1 tears its shared memory down twice
    MPI_Finalize();
  }
  MpiBackend(const MpiBackend&) = delete;
  MpiBackend& operator=(const MpiBackend&) = delete;

  [[nodiscard]] int rank() const override { return rank_; }
  [[nodiscard]] int world_size() const override { return world_size_; }
  [[nodiscard]] int nodes() const override { return nodes_; }

  [[nodiscard]] std::map<std::string, std::string> environment() const override {
    char version[MPI_MAX_LIBRARY_VERSION_STRING];
    int length = 0;
    MPI_Get_library_version(version, &length);
    const std::string text(version, static_cast<std::size_t>(length));
    return {{"cpu", cpu_name()}, {"mpi", text.substr(0, text.find(','))}};
  }

  [[nodiscard]] Condition condition() const override { return {}; }

  [[nodiscard]] std::string obstacle(const ComputeCase& what) const override {
    if (what.kernel == "gemm") {
      if (what.dtype != "float32" && what.dtype != "float64") return "no such gemm on a processor";
      return multiplications(what) > most_multiplications ? "takes seconds on a processor" : "";
    }
    if (what.kernel == "attention") {
      if (what.dtype != "float32" && what.dtype != "float64")
        return "no such attention on a processor";
      return multiplications(what) > most_multiplications ? "takes seconds on a processor" : "";
    }
    if (is_convolution(what)) return "no convolutions on a processor";
    if (what.kernel != "copy" && what.kernel != "add" && what.kernel != "reduction")
      return "no such kernel on a processor";
    if (what.cold_cache) return "caches of a processor are not flushed";
    return too_large(3 * what.bytes);
  }

  [[nodiscard]] std::string obstacle(const CollectiveCase& what) const override {
    if (!what.algorithm.empty() &&
        (what.operation != "all_reduce" || algorithm_numbers.count(what.algorithm) == 0))
      return "not an algorithm of OpenMPI's coll_tuned";
    if (!what.protocol.empty() || what.channels > 0 || what.buffer_bytes > 0)
      return "MPI has no protocols, channels or buffers to choose from";
    if (what.bytes % 4 != 0) return "not a whole number of floats";
    return too_large(2 * what.bytes);
  }

  void prepare(const ComputeCase& what) override {
    if (what.kernel == "gemm") {
      const std::size_t size = what.dtype == "float64" ? 8 : 4;
      resize(size * std::max(what.m * what.k, what.k * what.n), size * what.m * what.n);
      other_.assign(send_.size(), 0);
    } else if (what.kernel == "attention") {
      if (what.dtype == "float64")
        prepare_attention<double>(what.attention);
      else
        prepare_attention<float>(what.attention);
    } else {
      resize(what.bytes, what.bytes);
      other_.assign(what.kernel == "add" ? send_.size() : 0, 0);
    }
  }

  void prepare(const CollectiveCase& what) override {
    if (what.ranks != group_ranks_ || what.algorithm != group_algorithm_) make_group(what);
    resize(what.bytes, what.bytes);
  }

  double time(const ComputeCase& what, int calls) override {
    MPI_Barrier(MPI_COMM_WORLD);
    const double begin = MPI_Wtime();
    for (int i = 0; i < calls; ++i) call(what);
    return slowest((MPI_Wtime() - begin) / calls);
  }

  double time(const CollectiveCase& what, int calls) override {
    if (group_ == MPI_COMM_NULL) return slowest(0);
    double total_s = 0;
    for (int i = 0; i < calls;) {
      const int in_a_row = what.single_shot ? 1 : calls;
      MPI_Barrier(group_);
      const double begin = MPI_Wtime();
      for (const int end = i + in_a_row; i < end; ++i) call(what);
      total_s += MPI_Wtime() - begin;
    }
    return slowest(total_s / calls);
  }

  /// MPI moves data only inside its own calls, so a kernel between start and wait shows what is
  /// hidden.
  InterferenceTimes time(const InterferenceCase& what, int calls) override {
    prepare(what.compute);
    InterferenceTimes times;
    times.compute_alone_s = time(what.compute, calls);
    std::vector<float> in(what.collective.bytes / 4);
    std::vector<float> out(in.size());
    const auto both = [&](bool with_compute, double& compute_s) {
      if (group_ == MPI_COMM_NULL) return 0.0;
      MPI_Barrier(group_);
      const double begin = MPI_Wtime();
      for (int i = 0; i < calls; ++i) {
        MPI_Request request = MPI_REQUEST_NULL;
        MPI_Iallreduce(in.data(), out.data(), static_cast<int>(in.size()), MPI_FLOAT, MPI_SUM,
                       group_, &request);
        const double start = MPI_Wtime();
        if (with_compute) call(what.compute);
        compute_s += (MPI_Wtime() - start) / calls;
        MPI_Wait(&request, MPI_STATUS_IGNORE);
      }
      return (MPI_Wtime() - begin) / calls;
    };
    double unused = 0;
    double beside_s = 0;
    times.collective_alone_s = slowest(both(false, unused));
    times.collective_beside_s = slowest(both(true, beside_s));
    times.compute_beside_s = slowest(beside_s);
    return times;
  }

  std::optional<bool> is_correct(const ComputeCase& what) override {
    if (what.kernel != "attention") return {};
    call(what);
    const auto elements = [&](const std::vector<float>& buffer) -> Elements {
      if (what.dtype == "float64")
        return [data = reinterpret_cast<const double*>(buffer.data())](std::int64_t i) {
          return data[i];
        };
      return [data = buffer.data()](std::int64_t i) { return static_cast<double>(data[i]); };
    };
    const double error =
        relative_error(what, elements(send_), elements(other_), elements(receive_));
    return slowest(error <= tolerance(what) ? 0 : 1) == 0;
  }

  /// Small whole numbers, whose sums are exact.
  bool is_correct(const CollectiveCase& what) override {
    bool correct = true;
    if (group_ != MPI_COMM_NULL) {
      const auto value = [](int of_rank, std::size_t i) {
        return static_cast<float>(of_rank + i % 7);
      };
      const std::size_t part = send_.size() / what.ranks;
      const std::size_t first = rank_ * part;
      for (std::size_t i = 0; i < send_.size(); ++i) send_[i] = value(rank_, i);
      std::fill(receive_.begin(), receive_.end(), -1.0F);
      call(what);
      const auto sum = [&](std::size_t i) {
        return static_cast<float>(what.ranks * (what.ranks - 1) / 2 + what.ranks * (i % 7));
      };
      for (std::size_t i = 0; i < send_.size() && correct; ++i) {
        if (what.operation == "all_reduce") correct = receive_[i] == sum(i);
        if (what.operation == "broadcast") correct = send_[i] == value(0, i);
        if (what.operation == "all_gather" && i < part * what.ranks)
          correct = receive_[i] == value(static_cast<int>(i / part), i % part);
        if (what.operation == "reduce_scatter" && i < part) correct = receive_[i] == sum(first + i);
      }
      std::fill(send_.begin(), send_.end(), 0.0F);
    }
    return slowest(correct ? 0 : 1) == 0;
  }

  double own_estimate(const CollectiveCase&) override { return -1; }

  double from_rank_0(double value) override {
    MPI_Bcast(&value, 1, MPI_DOUBLE, 0, MPI_COMM_WORLD);
    return value;
  }

 private:
  [[nodiscard]] std::string too_large(std::int64_t bytes) const {
    const int here = (world_size_ + nodes_ - 1) / nodes_;
    return bytes * here > memory_bytes() / 2 ? "takes more than half of the memory" : "";
  }

  void resize(std::int64_t send_bytes, std::int64_t receive_bytes) {
    send_.assign((send_bytes + 3) / 4, 0);
    receive_.assign((receive_bytes + 3) / 4, 0);
  }

  /// Numbers between -1 and 1 in Q, and in K and V.
  template <class T>
  void prepare_attention(const AttentionShape& shape) {
    const auto bytes = static_cast<std::int64_t>(sizeof(T)) * shape.elements();
    resize(bytes, bytes);
    other_.assign(2 * send_.size(), 0);
    scores_.assign(sizeof(T) / 4 * shape.sequence_length * shape.sequence_length, 0);
    std::minstd_rand random(1);
    for (std::vector<float>* buffer : {&send_, &other_})
      for (std::size_t i = 0; i < buffer->size() * 4 / sizeof(T); ++i)
        reinterpret_cast<T*>(buffer->data())[i] =
            static_cast<T>(random()) / static_cast<T>(std::minstd_rand::max()) * 2 - 1;
  }

  [[nodiscard]] static double slowest(double value) {
    MPI_Allreduce(MPI_IN_PLACE, &value, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    return value;
  }

  void free_group() {
    if (group_ != MPI_COMM_NULL) MPI_Comm_free(&group_);
  }

  /// A communicator takes over the algorithm that is set when it is made.
  void make_group(const CollectiveCase& what) {
    free_group();
    set_all_reduce_algorithm(algorithm_numbers.at(what.algorithm));
    MPI_Comm_split(MPI_COMM_WORLD, rank_ < what.ranks ? 0 : MPI_UNDEFINED, rank_, &group_);
    set_all_reduce_algorithm(0);
    group_ranks_ = what.ranks;
    group_algorithm_ = what.algorithm;
  }

  static void set_all_reduce_algorithm(int number) {
    constexpr char name[] = "coll_tuned_allreduce_algorithm";
    int index = 0;
    int count = 0;
    int read_back = -1;
    MPI_T_cvar_handle handle = MPI_T_CVAR_HANDLE_NULL;
    if (MPI_T_cvar_get_index(name, &index) != MPI_SUCCESS ||
        MPI_T_cvar_handle_alloc(index, nullptr, &handle, &count) != MPI_SUCCESS)
      throw Missing{"OpenMPI", std::string("has no ") + name};
    MPI_T_cvar_write(handle, &number);
    MPI_T_cvar_read(handle, &read_back);
    MPI_T_cvar_handle_free(&handle);
    if (read_back != number) throw Missing{"OpenMPI", std::string("does not let set ") + name};
  }

  void call(const CollectiveCase& what) {
    const int count = static_cast<int>(send_.size());
    const int part = count / what.ranks;
    if (what.operation == "all_reduce")
      MPI_Allreduce(send_.data(), receive_.data(), count, MPI_FLOAT, MPI_SUM, group_);
    else if (what.operation == "reduce_scatter")
      MPI_Reduce_scatter_block(send_.data(), receive_.data(), part, MPI_FLOAT, MPI_SUM, group_);
    else if (what.operation == "all_gather")
      MPI_Allgather(send_.data(), part, MPI_FLOAT, receive_.data(), part, MPI_FLOAT, group_);
    else
      MPI_Bcast(send_.data(), count, MPI_FLOAT, 0, group_);
  }

  void call(const ComputeCase& what) {
    if (what.kernel == "gemm" && what.dtype == "float32") {
      gemm(what, send_.data(), other_.data(), receive_.data());
    } else if (what.kernel == "gemm") {
      gemm(what, reinterpret_cast<const double*>(send_.data()),
           reinterpret_cast<const double*>(other_.data()),
           reinterpret_cast<double*>(receive_.data()));
    } else if (what.kernel == "attention" && what.dtype == "float32") {
      call_attention<float>(what.attention);
    } else if (what.kernel == "attention") {
      call_attention<double>(what.attention);
    } else if (what.kernel == "copy") {
      std::memcpy(receive_.data(), send_.data(), send_.size() * sizeof(float));
    } else if (what.kernel == "add") {
      for (std::size_t i = 0; i < send_.size(); ++i) receive_[i] = send_[i] + other_[i];
    } else {
      float sums[8] = {};
      for (std::size_t i = 0; i + 8 <= send_.size(); i += 8)
        for (std::size_t j = 0; j < 8; ++j) sums[j] += send_[i + j];
      for (std::size_t j = 0; j < 8; ++j) receive_[j % receive_.size()] = sums[j];
    }
    // The compiler may not drop a call whose result nobody reads.
    asm volatile("" : : "g"(receive_.data()) : "memory");
  }

  template <class T>
  void call_attention(const AttentionShape& shape) {
    const T* k = reinterpret_cast<const T*>(other_.data());
    attention(shape, reinterpret_cast<const T*>(send_.data()), k, k + shape.elements(),
              reinterpret_cast<T*>(scores_.data()), reinterpret_cast<T*>(receive_.data()));
  }

  int rank_ = 0, world_size_ = 1, nodes_ = 1;
  MPI_Comm group_ = MPI_COMM_NULL;  ///< the ranks of the case at hand
  int group_ranks_ = 0;
  std::string group_algorithm_;
  std::vector<float> send_, other_, receive_, scores_;
};

}  // namespace

std::unique_ptr<Backend> make_mpi_backend() { return std::make_unique<MpiBackend>(); }

}  // namespace stepcast::calibrate
