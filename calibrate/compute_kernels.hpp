// The kernels themselves, and how to launch them. All are queued on a stream and not waited for.
// `dtype` is float32, tf32 (as float32), float16, bfloat16 or, for fill only, float8.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include <cuda_runtime.h>

namespace stepcast::calibrate {

/// Bytes of one element.
[[nodiscard]] int element_bytes(const std::string& dtype);

constexpr std::int64_t vector_bytes = 16;        ///< loaded and stored by one thread at a time
constexpr std::int64_t layer_norm_width = 1024;  ///< elements of one normalised row
/// Elements of a row whose softmax is taken: so many floats fit into the 48 KiB of shared memory
/// that every block may have.
constexpr std::int64_t largest_softmax_width = 12288;

void launch_empty(cudaStream_t stream);
/// Keeps the GPU busy for some 20 us, so that what is launched next does not wait for the host.
void launch_delay(cudaStream_t stream);

/// Random numbers between -1 and 1: how much power a multiplication takes depends on its numbers.
void fill(const std::string& dtype, void* data, std::int64_t bytes, unsigned seed,
          cudaStream_t stream);
/// sum = a + b, each of so many bytes.
void launch_add(const std::string& dtype, const void* a, const void* b, void* sum,
                std::int64_t bytes, cudaStream_t stream);
/// Adds all elements to *sum.
void launch_reduction(const std::string& dtype, const void* data, float* sum, std::int64_t bytes,
                      int sms, cudaStream_t stream);
/// Each row to mean 0 and variance 1.
void launch_layer_norm(const std::string& dtype, const void* in, void* out, std::int64_t bytes,
                       cudaStream_t stream);
/// The softmax of each row in its place. Rows are multiples of 16 bytes.
void launch_softmax(const std::string& dtype, void* data, std::int64_t rows, std::int64_t width,
                    cudaStream_t stream);

/// Element i of what one rank contributes to a collective: small integers, whose sums are exact up
/// to 5000 ranks.
void fill_contribution(float* data, std::int64_t count, int rank, cudaStream_t stream);

/// What a collective should leave in element i.
struct Expected {
  int summed_ranks = 0;        ///< the sum over so many; 0: what its owner contributed
  std::int64_t per_owner = 0;  ///< rank i / per_owner; 0: rank 0
};
/// Adds the number of wrong elements among first ... first + count - 1 to *wrong.
void count_wrong(const float* data, std::int64_t first, std::int64_t count, Expected expected,
                 unsigned long long* wrong, cudaStream_t stream);

}  // namespace stepcast::calibrate
