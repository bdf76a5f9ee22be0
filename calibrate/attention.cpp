#include "attention.hpp"

#include <cmath>
#include <cstddef>
#include <cstdint>

#include "compute_kernels.hpp"
#include "cuda_check.hpp"

namespace stepcast::calibrate {

std::string attention_obstacle(const ComputeCase& what, const cudaDeviceProp& properties) {
  const AttentionShape& shape = what.attention;
  if (shape.batch <= 0 || shape.heads <= 0 || shape.sequence_length <= 0 || shape.head_size <= 0)
    return "sizes of an attention are positive";
  if (what.dtype == "float8") return "no attention of float8";
  if (shape.sequence_length > largest_softmax_width ||
      shape.sequence_length * element_bytes(what.dtype) % vector_bytes != 0)
    return "sequences of an attention have up to 12288 positions, in multiples of 16 bytes";
  if (shape.batch * shape.heads * shape.sequence_length > INT32_MAX)
    return "an attention has below 2^31 rows";
  return dtype_obstacle(what.dtype, properties);
}

void Attention::prepare(const ComputeCase& what) {
  what_ = what;
  scores_.get(static_cast<std::size_t>(what.attention.scores() * element_bytes(what.dtype)));
  if (!handle_) handle_ = make_blas();
}

void Attention::enqueue(const Operands& operands, cudaStream_t stream) {
  const AttentionShape& shape = what_.attention;
  const cudaDataType_t type = data_type(what_.dtype);
  const cublasComputeType_t compute = compute_type(what_.dtype);
  const auto length = static_cast<int>(shape.sequence_length);
  const auto size = static_cast<int>(shape.head_size);
  const auto products = static_cast<int>(shape.batch * shape.heads);
  const std::int64_t one_head = shape.sequence_length * shape.head_size;
  const std::int64_t one_square = shape.sequence_length * shape.sequence_length;
  const void* q = operands.x;
  const void* k = operands.w;
  const void* v =
      static_cast<const char*>(operands.w) + shape.elements() * element_bytes(what_.dtype);
  void* scores = scores_.get(0);
  const float factor = 1 / std::sqrt(static_cast<float>(size));
  const float one = 1;
  const float zero = 0;
  CHECK(cublasSetStream(handle_.get(), stream));
  // In cuBLAS's order, column by column, Q, K, V and the result are size x length, and the scores
  // have one column a query: scores = K^T Q, result = V scores.
  CHECK(cublasGemmStridedBatchedEx(handle_.get(), CUBLAS_OP_T, CUBLAS_OP_N, length, length, size,
                                   &factor, k, type, size, one_head, q, type, size, one_head, &zero,
                                   scores, type, length, one_square, products, compute,
                                   CUBLAS_GEMM_DEFAULT));
  launch_softmax(what_.dtype, scores, products * shape.sequence_length, shape.sequence_length,
                 stream);
  CHECK(cublasGemmStridedBatchedEx(handle_.get(), CUBLAS_OP_N, CUBLAS_OP_N, size, length, length,
                                   &one, v, type, size, one_head, scores, type, length, one_square,
                                   &zero, operands.y, type, size, one_head, products, compute,
                                   CUBLAS_GEMM_DEFAULT));
}

}  // namespace stepcast::calibrate
