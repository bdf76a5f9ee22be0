#include <algorithm>
#include <stdexcept>

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

#include "compute_kernels.hpp"
#include "cuda_check.hpp"

namespace stepcast::calibrate {
namespace {

constexpr int block_threads = 256;
constexpr int warp_threads = 32;
constexpr unsigned whole_warp = 0xffffffffu;

/// What one load or store moves.
template <class T>
struct alignas(vector_bytes) Vector {
  static constexpr int size = vector_bytes / sizeof(T);
  T values[size];
};

__device__ std::int64_t global_index() {
  return static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
}
__device__ std::int64_t grid_threads() { return static_cast<std::int64_t>(gridDim.x) * blockDim.x; }

__global__ void empty_kernel() {}

__global__ void delay_kernel(long long cycles) {
  const long long start = clock64();
  while (clock64() - start < cycles) {
  }
}

template <class T>
__global__ void fill_kernel(T* data, std::int64_t count, unsigned seed) {
  for (std::int64_t i = global_index(); i < count; i += grid_threads()) {
    unsigned bits = static_cast<unsigned>(i) * 2654435761u + seed;
    bits = (bits ^ (bits >> 16)) * 0x45d9f3bu;
    bits = (bits ^ (bits >> 16)) * 0x45d9f3bu;
    bits ^= bits >> 16;
    data[i] = T(static_cast<float>(bits >> 8) * 0x1p-23f - 1.0f);
  }
}

template <class T>
__global__ void add_kernel(const Vector<T>* a, const Vector<T>* b, Vector<T>* sum,
                           std::int64_t count) {
  const std::int64_t i = global_index();
  if (i >= count) return;
  Vector<T> x = a[i];
  const Vector<T> y = b[i];
  for (int k = 0; k < Vector<T>::size; ++k)
    x.values[k] = T(static_cast<float>(x.values[k]) + static_cast<float>(y.values[k]));
  sum[i] = x;
}

/// What `combine` makes of the values of a block, known to all of its threads.
template <class Combine>
__device__ float over_block(float value, Combine combine) {
  __shared__ float of_warp[warp_threads];
  for (int step = warp_threads / 2; step > 0; step /= 2)
    value = combine(value, __shfl_xor_sync(whole_warp, value, step));
  __syncthreads();  // an earlier result may still be read
  if (threadIdx.x % warp_threads == 0) of_warp[threadIdx.x / warp_threads] = value;
  __syncthreads();
  value = of_warp[0];
  for (int warp = 1; warp < static_cast<int>(blockDim.x) / warp_threads; ++warp)
    value = combine(value, of_warp[warp]);
  return value;
}
__device__ float block_sum(float value) {
  return over_block(value, [](float a, float b) { return a + b; });
}
__device__ float block_largest(float value) {
  return over_block(value, [](float a, float b) { return fmaxf(a, b); });
}

template <class T>
__global__ void reduction_kernel(const Vector<T>* data, float* sum, std::int64_t count) {
  float mine = 0;
#pragma unroll 4
  for (std::int64_t i = global_index(); i < count; i += grid_threads()) {
    const Vector<T> x = data[i];
    for (int k = 0; k < Vector<T>::size; ++k) mine += static_cast<float>(x.values[k]);
  }
  mine = block_sum(mine);
  if (threadIdx.x == 0) atomicAdd(sum, mine);
}

/// One block a row, one vector a thread.
template <class T>
__global__ void layer_norm_kernel(const Vector<T>* in, Vector<T>* out) {
  const std::int64_t i = global_index();
  Vector<T> x = in[i];
  float sum = 0;
  for (int k = 0; k < Vector<T>::size; ++k) sum += static_cast<float>(x.values[k]);
  const float mean = block_sum(sum) / layer_norm_width;
  float squares = 0;
  for (int k = 0; k < Vector<T>::size; ++k) {
    const float difference = static_cast<float>(x.values[k]) - mean;
    squares += difference * difference;
  }
  const float scale = rsqrtf(block_sum(squares) / layer_norm_width + 1e-5f);
  for (int k = 0; k < Vector<T>::size; ++k)
    x.values[k] = T((static_cast<float>(x.values[k]) - mean) * scale);
  out[i] = x;
}

/// One block a row, which it keeps in shared memory. Each thread uses what it stored itself.
template <class T>
__global__ void softmax_kernel(Vector<T>* data, int row_vectors) {
  extern __shared__ float kept[];
  Vector<T>* const row = data + static_cast<std::int64_t>(blockIdx.x) * row_vectors;
  float largest = -INFINITY;
  for (int i = threadIdx.x; i < row_vectors; i += blockDim.x) {
    const Vector<T> x = row[i];
    for (int k = 0; k < Vector<T>::size; ++k) {
      const float value = static_cast<float>(x.values[k]);
      kept[k * row_vectors + i] = value;  // neighbours in other banks
      largest = fmaxf(largest, value);
    }
  }
  largest = block_largest(largest);
  float sum = 0;
  for (int i = threadIdx.x; i < row_vectors; i += blockDim.x)
    for (int k = 0; k < Vector<T>::size; ++k) {
      const float weight = __expf(kept[k * row_vectors + i] - largest);
      kept[k * row_vectors + i] = weight;
      sum += weight;
    }
  const float scale = 1 / block_sum(sum);
  for (int i = threadIdx.x; i < row_vectors; i += blockDim.x) {
    Vector<T> x;
    for (int k = 0; k < Vector<T>::size; ++k) x.values[k] = T(kept[k * row_vectors + i] * scale);
    row[i] = x;
  }
}

constexpr int contributions = 61;  // prime, so that no shift by a power of two goes unnoticed

__global__ void fill_contribution_kernel(float* data, std::int64_t count, int rank) {
  for (std::int64_t i = global_index(); i < count; i += grid_threads())
    data[i] = static_cast<float>(i % contributions + rank + 1);
}

__global__ void count_wrong_kernel(const float* data, std::int64_t first, std::int64_t count,
                                   Expected expected, unsigned long long* wrong) {
  unsigned long long mine = 0;
  for (std::int64_t i = global_index(); i < count; i += grid_threads()) {
    const std::int64_t element = first + i;
    const std::int64_t n = expected.summed_ranks;
    const std::int64_t owner = expected.per_owner > 0 ? element / expected.per_owner : 0;
    const std::int64_t right = n > 0 ? n * (element % contributions) + n * (n + 1) / 2
                                     : element % contributions + owner + 1;
    mine += data[element] != static_cast<float>(right);
  }
  if (mine > 0) atomicAdd(wrong, mine);
}

/// Calls `use` with a value of the C++ type of that name.
template <class F>
void with_type(const std::string& dtype, const F& use) {
  if (dtype == "float32" || dtype == "tf32") return use(float{});
  if (dtype == "float16") return use(__half{});
  if (dtype == "bfloat16") return use(__nv_bfloat16{});
  throw std::invalid_argument("no kernel for elements of type " + dtype);
}

unsigned blocks_for(std::int64_t threads) {
  return static_cast<unsigned>(
      std::max<std::int64_t>(1, (threads + block_threads - 1) / block_threads));
}

/// For loops over the whole grid: enough to fill any GPU.
unsigned some_blocks(std::int64_t count) {
  return blocks_for(std::min<std::int64_t>(count, 4096 * block_threads));
}

}  // namespace

int element_bytes(const std::string& dtype) {
  if (dtype == "float32" || dtype == "tf32") return 4;
  if (dtype == "float16" || dtype == "bfloat16") return 2;
  if (dtype == "float8") return 1;
  throw std::invalid_argument("no element type " + dtype);
}

void launch_empty(cudaStream_t stream) { empty_kernel<<<1, 1, 0, stream>>>(); }

void launch_delay(cudaStream_t stream) {
  delay_kernel<<<1, 1, 0, stream>>>(35000);
  CHECK(cudaGetLastError());
}

void fill(const std::string& dtype, void* data, std::int64_t bytes, unsigned seed,
          cudaStream_t stream) {
  const std::int64_t count = bytes / element_bytes(dtype);
  if (dtype == "float8")
    fill_kernel<<<some_blocks(count), block_threads, 0, stream>>>(static_cast<__nv_fp8_e4m3*>(data),
                                                                  count, seed);
  else
    with_type(dtype, [&](auto zero) {
      fill_kernel<<<some_blocks(count), block_threads, 0, stream>>>(
          static_cast<decltype(zero)*>(data), count, seed);
    });
  CHECK(cudaGetLastError());
}

void launch_add(const std::string& dtype, const void* a, const void* b, void* sum,
                std::int64_t bytes, cudaStream_t stream) {
  const std::int64_t count = bytes / vector_bytes;
  with_type(dtype, [&](auto zero) {
    using V = Vector<decltype(zero)>;
    add_kernel<<<blocks_for(count), block_threads, 0, stream>>>(
        static_cast<const V*>(a), static_cast<const V*>(b), static_cast<V*>(sum), count);
  });
}

void launch_reduction(const std::string& dtype, const void* data, float* sum, std::int64_t bytes,
                      int sms, cudaStream_t stream) {
  const std::int64_t count = bytes / vector_bytes;
  const unsigned blocks = std::min(blocks_for(count), 8 * static_cast<unsigned>(sms));
  with_type(dtype, [&](auto zero) {
    using V = Vector<decltype(zero)>;
    reduction_kernel<<<blocks, block_threads, 0, stream>>>(static_cast<const V*>(data), sum, count);
  });
}

void launch_layer_norm(const std::string& dtype, const void* in, void* out, std::int64_t bytes,
                       cudaStream_t stream) {
  const std::int64_t row_bytes = layer_norm_width * element_bytes(dtype);
  const auto rows = static_cast<unsigned>(bytes / row_bytes);
  const auto threads = static_cast<unsigned>(row_bytes / vector_bytes);
  with_type(dtype, [&](auto zero) {
    using V = Vector<decltype(zero)>;
    layer_norm_kernel<<<rows, threads, 0, stream>>>(static_cast<const V*>(in),
                                                    static_cast<V*>(out));
  });
}

void launch_softmax(const std::string& dtype, void* data, std::int64_t rows, std::int64_t width,
                    cudaStream_t stream) {
  const std::size_t kept_bytes = static_cast<std::size_t>(width) * sizeof(float);
  with_type(dtype, [&](auto zero) {
    using V = Vector<decltype(zero)>;
    softmax_kernel<<<static_cast<unsigned>(rows), block_threads, kept_bytes, stream>>>(
        static_cast<V*>(data), static_cast<int>(width / V::size));
  });
}

void fill_contribution(float* data, std::int64_t count, int rank, cudaStream_t stream) {
  fill_contribution_kernel<<<some_blocks(count), block_threads, 0, stream>>>(data, count, rank);
  CHECK(cudaGetLastError());
}

void count_wrong(const float* data, std::int64_t first, std::int64_t count, Expected expected,
                 unsigned long long* wrong, cudaStream_t stream) {
  count_wrong_kernel<<<some_blocks(count), block_threads, 0, stream>>>(data, first, count, expected,
                                                                       wrong);
  CHECK(cudaGetLastError());
}

}  // namespace stepcast::calibrate
