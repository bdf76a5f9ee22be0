// What stepcast-calibrate measures, and what measures it. Plain C++17 without other headers of the
// project: it is compiled by nvcc as well, and the program must run where nothing is installed but
// CUDA and NCCL. Every time is in seconds.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace stepcast::calibrate {

/// Something on the machine is missing or does not work: the program says so and exits with 3.
struct Missing {
  std::string what;  ///< library or device
  std::string problem;
};

/// A convolution of square filters over the images of a batch, as a layer of a network has it.
struct ConvolutionShape {
  std::string layout =
      {};  ///< of images and filters in memory: NCHW or NHWC, the last runs fastest
  std::int64_t batch = 0;
  std::int64_t in_channels = 0, height = 0, width = 0;  ///< of one image that goes in
  std::int64_t out_channels = 0, filter_size = 0;       ///< so many filters of filter_size^2
  std::int64_t stride = 0, padding = 0;                 ///< in both directions, on all four sides

  [[nodiscard]] std::int64_t out_height() const { return out_size(height); }
  [[nodiscard]] std::int64_t out_width() const { return out_size(width); }
  [[nodiscard]] std::int64_t in_elements() const { return batch * in_channels * height * width; }
  [[nodiscard]] std::int64_t filter_elements() const {
    return out_channels * in_channels * filter_size * filter_size;
  }
  [[nodiscard]] std::int64_t out_elements() const {
    return batch * out_channels * out_height() * out_width();
  }

 private:
  [[nodiscard]] std::int64_t out_size(std::int64_t size) const {
    return (size + 2 * padding - filter_size) / stride + 1;
  }
};

/// softmax(Q K^T / sqrt(head_size)) V for each sequence and head, not fused and not causal: a
/// multiplication, a softmax over rows, a multiplication.
struct AttentionShape {
  std::int64_t batch = 0;  ///< sequences
  std::int64_t heads = 0, sequence_length = 0, head_size = 0;

  /// Of Q, and of K, V and the result.
  [[nodiscard]] std::int64_t elements() const {
    return batch * heads * sequence_length * head_size;
  }
  [[nodiscard]] std::int64_t scores() const {
    return batch * heads * sequence_length * sequence_length;
  }
};

/// One kernel or copy.
struct ComputeCase {
  /// gemm, copy, add, reduction, layer_norm, convolution_forward, convolution_backward_data,
  /// convolution_backward_filter, attention, empty_kernel, empty_graph_node, host_to_device,
  /// device_to_host
  std::string kernel = {};
  std::string dtype = {};  ///< float32, tf32, float16, bfloat16, float8; empty for empty ones
  std::int64_t m = 0, n = 0, k = 0;  ///< of a gemm
  std::int64_t bytes = 0;            ///< read or written by the others, counted once
  bool cold_cache = false;           ///< the L2 cache is flushed before each call
  ConvolutionShape convolution = {};
  AttentionShape attention = {};
};

/// One collective over all ranks. Zero and empty: as the library chooses.
struct CollectiveCase {
  std::string operation = {};  ///< all_reduce, reduce_scatter, all_gather, broadcast
  std::int64_t bytes = 0;      ///< the whole buffer, as nccl-tests counts
  int ranks = 0;               ///< the first so many
  std::string algorithm = {};  ///< ring, double_binary_tree, nvls, nvls_tree; of MPI also others
  std::string protocol = {};   ///< LL, LL128, Simple
  int channels = 0;
  std::int64_t buffer_bytes = 0;  ///< NCCL_BUFFSIZE
  bool single_shot = false;       ///< each call is waited for; else they are queued back to back
};

/// A kernel and a collective, each alone and both at once.
struct InterferenceCase {
  ComputeCase compute = {};
  CollectiveCase collective = {};
};
struct InterferenceTimes {
  double compute_alone_s = 0, compute_beside_s = 0;
  double collective_alone_s = 0, collective_beside_s = 0;
};

/// State of the device at one moment, where it can be read; -1 where it cannot.
struct Condition {
  double clock_Hz = -1;
  double temperature_C = -1;
  bool throttled = false;
  bool used_by_others = false;
};

/// Every process calls the same functions with the same arguments in the same order.
class Backend {
 public:
  virtual ~Backend() = default;

  [[nodiscard]] virtual int rank() const = 0;        ///< of this process; rank 0 writes the file
  [[nodiscard]] virtual int world_size() const = 0;  ///< GPUs, or processes
  [[nodiscard]] virtual int nodes() const = 0;
  /// Names and versions: "gpu", "driver", "cuda", "nccl", "mpi", "cpu" ...
  [[nodiscard]] virtual std::map<std::string, std::string> environment() const = 0;
  [[nodiscard]] virtual Condition condition() const = 0;

  /// Why it cannot be measured here; empty when it can.
  [[nodiscard]] virtual std::string obstacle(const ComputeCase& what) const = 0;
  [[nodiscard]] virtual std::string obstacle(const CollectiveCase& what) const = 0;

  /// Before a case is timed: buffers and communicators are made, first calls are discarded.
  virtual void prepare(const ComputeCase& what) = 0;
  virtual void prepare(const CollectiveCase& what) = 0;
  /// Mean time of one call over `calls` of them, on the slowest rank, the same on all processes.
  virtual double time(const ComputeCase& what, int calls) = 0;
  virtual double time(const CollectiveCase& what, int calls) = 0;
  virtual InterferenceTimes time(const InterferenceCase& what, int calls) = 0;
  /// Whether the kernel leaves the right numbers on every rank; nothing where that is not checked.
  virtual std::optional<bool> is_correct(const ComputeCase& what) = 0;
  /// Whether the collective leaves the right numbers on every rank.
  virtual bool is_correct(const CollectiveCase& what) = 0;
  /// What the library itself expects it to take; negative where it cannot be asked.
  virtual double own_estimate(const CollectiveCase& what) = 0;

  /// The value of rank 0 on every rank: decisions must be the same on all.
  virtual double from_rank_0(double value) = 0;
};

}  // namespace stepcast::calibrate
