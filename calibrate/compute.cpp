#include "compute.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <set>
#include <stdexcept>
#include <utility>
#include <vector>

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "compute_kernels.hpp"
#include "cuda_check.hpp"
#include "reference.hpp"

namespace stepcast::calibrate {
namespace {

constexpr int graph_nodes = 256;
constexpr int first_calls = 3;  ///< loaded, tuned and thrown away
constexpr int cold_calls_at_once = 64;

bool is_empty(const ComputeCase& what) {
  return what.kernel == "empty_kernel" || what.kernel == "empty_graph_node";
}
bool is_host_copy(const ComputeCase& what) {
  return what.kernel == "host_to_device" || what.kernel == "device_to_host";
}

/// In each of the three buffers.
struct Sizes {
  std::int64_t x = 0, w = 0, y = 0;
};
Sizes sizes(const ComputeCase& what) {
  if (what.kernel == "gemm") {
    const std::int64_t element = element_bytes(what.dtype);
    return {what.m * what.k * element, what.n * what.k * element,
            what.m * what.n * Gemm::product_bytes(what.dtype)};
  }
  if (is_convolution(what) || what.kernel == "attention") {
    const Counts elements = counts(what);
    const std::int64_t element = element_bytes(what.dtype);
    return {elements.x * element, elements.w * element, elements.y * element};
  }
  if (is_empty(what)) return {};
  if (is_host_copy(what)) return {what.bytes, 0, 0};
  if (what.kernel == "reduction") return {what.bytes, 0, sizeof(float)};
  return {what.bytes, what.kernel == "add" ? what.bytes : 0, what.bytes};
}

std::string convolution_obstacle(const ComputeCase& what, const cudaDeviceProp& properties) {
  const ConvolutionShape& shape = what.convolution;
  if (shape.layout != "NCHW" && shape.layout != "NHWC") return "no layout " + shape.layout;
  if (shape.batch <= 0 || shape.in_channels <= 0 || shape.out_channels <= 0 || shape.stride <= 0 ||
      shape.padding < 0 || shape.filter_size <= 0 ||
      shape.filter_size > std::min(shape.height, shape.width) + 2 * shape.padding)
    return "sizes of a convolution are positive, and its filter no larger than the image";
  if (std::max({shape.in_elements(), shape.filter_elements(), shape.out_elements()}) > INT32_MAX)
    return "a convolution has tensors of below 2^31 elements";
  if (what.dtype == "float8") return "no convolution of float8";
  return dtype_obstacle(what.dtype, properties);
}

std::string compute_obstacle(const ComputeCase& what, const cudaDeviceProp& properties) {
  static const std::set<std::string> tensor_kernels{"copy", "add", "reduction", "layer_norm"};
  static const std::set<std::string> convolutions{
      "convolution_forward", "convolution_backward_data", "convolution_backward_filter"};
  if (convolutions.count(what.kernel) > 0) {
    if (std::string problem = convolution_obstacle(what, properties); !problem.empty())
      return problem;
  } else if (what.kernel == "attention") {
    if (std::string problem = attention_obstacle(what, properties); !problem.empty())
      return problem;
  } else if (what.kernel == "gemm") {
    if (std::string problem = gemm_obstacle(what, properties); !problem.empty()) return problem;
  } else if (tensor_kernels.count(what.kernel) > 0) {
    if (what.dtype != "float32" && what.dtype != "float16" && what.dtype != "bfloat16")
      return "no kernel for elements of type " + what.dtype;
    if (what.bytes <= 0 || what.bytes % vector_bytes != 0)
      return "sizes of a " + what.kernel + " are multiples of 16 bytes";
    if (what.kernel == "layer_norm" &&
        what.bytes % (layer_norm_width * element_bytes(what.dtype)) != 0)
      return "a layer norm has rows of 1024 elements";
  } else if (is_host_copy(what)) {
    if (what.bytes <= 0) return "nothing to copy";
  } else if (!is_empty(what)) {
    return "no kernel " + what.kernel;
  }
  if (what.cold_cache && (is_empty(what) || is_host_copy(what)))
    return "there is no cache for a " + what.kernel + " to find cold";
  const Sizes needed = sizes(what);
  const std::int64_t scores =
      what.kernel == "attention" ? what.attention.scores() * element_bytes(what.dtype) : 0;
  // Half of it: the collectives have a buffer too, and the largest buffers so far are kept.
  if (static_cast<double>(needed.x) + static_cast<double>(needed.w) +
          static_cast<double>(needed.y) + static_cast<double>(scores) >
      0.5 * static_cast<double>(properties.totalGlobalMem))
    return "the GPU has not enough memory";
  return {};
}

/// A tensor as it lies in the memory of the GPU, copied to the host.
template <class T>
Elements copied(const void* data, std::int64_t count) {
  std::vector<T> elements(static_cast<std::size_t>(count));
  CHECK(cudaMemcpy(elements.data(), data, elements.size() * sizeof(T), cudaMemcpyDeviceToHost));
  return [elements = std::move(elements)](std::int64_t i) {
    return static_cast<double>(static_cast<float>(elements[static_cast<std::size_t>(i)]));
  };
}
Elements copied(const void* data, std::int64_t count, const std::string& dtype) {
  if (dtype == "float16") return copied<__half>(data, count);
  if (dtype == "bfloat16") return copied<__nv_bfloat16>(data, count);
  return copied<float>(data, count);
}

}  // namespace

std::string Compute::obstacle(const ComputeCase& what) {
  if (std::string problem = compute_obstacle(what, gpu_.properties); !problem.empty())
    return problem;
  return is_convolution(what) ? convolution_.prepare(what) : "";
}

void Compute::prepare(const ComputeCase& what) {
  what_ = what;
  const cudaStream_t stream = gpu_.compute_stream.get();
  const Sizes needed = sizes(what);
  const auto bytes = [](std::int64_t size) { return static_cast<std::size_t>(size); };
  buffers_ = {a_.get(bytes(needed.x)), b_.get(bytes(needed.w)), c_.get(bytes(needed.y))};
  const std::string dtype = what.dtype.empty() ? "float32" : what.dtype;
  if (needed.x > 0) fill(dtype, a_.get(0), needed.x, 1, stream);
  if (needed.w > 0) fill(dtype, b_.get(0), needed.w, 2, stream);
  if (what.kernel == "reduction") CHECK(cudaMemsetAsync(buffers_.y, 0, sizeof(float), stream));
  if (is_host_copy(what)) {
    host_data_ = host_.get(bytes(what.bytes));
    std::fill_n(static_cast<char*>(host_data_), what.bytes, char{1});
  }
  if (what.kernel == "gemm") gemm_.prepare(what);
  if (what.kernel == "attention") attention_.prepare(what);
  if (is_convolution(what))
    if (const std::string problem = convolution_.prepare(what); !problem.empty())
      throw std::runtime_error(problem);
  if (what.kernel == "empty_graph_node" && !empty_nodes_) make_graph();
  if (what.cold_cache) {
    // Twice the L2 cache, so that nothing of a call is left in it.
    flush_bytes_ = 2 * bytes(std::max(gpu_.properties.l2CacheSize, 16 << 20));
    flush_.get(flush_bytes_);
    while (events_.size() < 2 * cold_calls_at_once) events_.push_back(make_event());
  }
  launch_delay(stream);
  static_cast<void>(time(first_calls));
}

void Compute::make_graph() {
  const cudaStream_t stream = gpu_.compute_stream.get();
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t executable = nullptr;
  launch_empty(stream);  // loads the kernel: not while a graph is made
  // Of this thread alone: the threads of other GPUs go on.
  CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  for (int i = 0; i < graph_nodes; ++i) launch_empty(stream);
  CHECK(cudaStreamEndCapture(stream, &graph));
  const cudaError_t made = cudaGraphInstantiate(&executable, graph, 0);
  cudaGraphDestroy(graph);
  CHECK(made);
  empty_nodes_.reset(executable);
  CHECK(cudaGraphUpload(executable, stream));
}

void Compute::call() {
  const cudaStream_t stream = gpu_.compute_stream.get();
  const std::string& kernel = what_.kernel;
  const auto [x, w, y] = buffers_;
  if (kernel == "gemm")
    gemm_.enqueue(buffers_, stream);
  else if (kernel == "attention")
    attention_.enqueue(buffers_, stream);
  else if (is_convolution(what_))
    convolution_.enqueue(buffers_, stream);
  else if (kernel == "copy")
    CHECK(cudaMemcpyAsync(y, x, static_cast<std::size_t>(what_.bytes), cudaMemcpyDeviceToDevice,
                          stream));
  else if (kernel == "add")
    launch_add(what_.dtype, x, w, y, what_.bytes, stream);
  else if (kernel == "reduction")
    launch_reduction(what_.dtype, x, static_cast<float*>(y), what_.bytes,
                     gpu_.properties.multiProcessorCount, stream);
  else if (kernel == "layer_norm")
    launch_layer_norm(what_.dtype, x, y, what_.bytes, stream);
  else if (kernel == "host_to_device")
    CHECK(cudaMemcpyAsync(a_.get(0), host_data_, static_cast<std::size_t>(what_.bytes),
                          cudaMemcpyHostToDevice, stream));
  else  // device_to_host
    CHECK(cudaMemcpyAsync(host_data_, x, static_cast<std::size_t>(what_.bytes),
                          cudaMemcpyDeviceToHost, stream));
}

int Compute::enqueue(int calls) {
  if (what_.kernel == "empty_graph_node") {
    const int graphs = (calls + graph_nodes - 1) / graph_nodes;
    for (int i = 0; i < graphs; ++i)
      CHECK(cudaGraphLaunch(empty_nodes_.get(), gpu_.compute_stream.get()));
    return graphs * graph_nodes;
  }
  if (what_.kernel == "empty_kernel")  // nothing else that takes the host time
    for (int i = 0; i < calls; ++i) launch_empty(gpu_.compute_stream.get());
  else
    for (int i = 0; i < calls; ++i) call();
  CHECK(cudaGetLastError());
  return calls;
}

std::optional<bool> Compute::is_correct() const {
  if (!is_convolution(what_) && what_.kernel != "attention") return {};
  const Counts elements = counts(what_);
  const double error = relative_error(what_, copied(buffers_.x, elements.x, what_.dtype),
                                      copied(buffers_.w, elements.w, what_.dtype),
                                      copied(buffers_.y, elements.y, what_.dtype));
  return error <= tolerance(what_);  // not so where there is no number
}

double Compute::time(int calls) {
  if (what_.cold_cache) return time_cold(calls);
  const cudaStream_t stream = gpu_.compute_stream.get();
  // The first call would wait for the host. Empty kernels all do: that is what they measure.
  if (what_.kernel != "empty_kernel") launch_delay(stream);
  CHECK(cudaEventRecord(gpu_.start.get(), stream));
  const int done = enqueue(calls);
  CHECK(cudaEventRecord(gpu_.stop.get(), stream));
  gpu_.wait(gpu_.stop);
  return seconds_between(gpu_.start, gpu_.stop) / done;
}

/// Each call between its own events; while the GPU flushes the cache, the host queues the call.
double Compute::time_cold(int calls) {
  const cudaStream_t stream = gpu_.compute_stream.get();
  double sum = 0;
  for (int done = 0; done < calls; done += cold_calls_at_once) {
    const auto now = static_cast<std::size_t>(std::min(calls - done, cold_calls_at_once));
    for (std::size_t i = 0; i < now; ++i) {
      CHECK(cudaMemsetAsync(flush_.get(0), 0, flush_bytes_, stream));
      CHECK(cudaEventRecord(events_[2 * i].get(), stream));
      enqueue(1);
      CHECK(cudaEventRecord(events_[2 * i + 1].get(), stream));
    }
    gpu_.wait(events_[2 * now - 1]);
    for (std::size_t i = 0; i < now; ++i)
      sum += seconds_between(events_[2 * i], events_[2 * i + 1]);
  }
  return sum / calls;
}

}  // namespace stepcast::calibrate
