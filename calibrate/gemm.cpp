#include "gemm.hpp"

#include <cstddef>
#include <cstdint>
#include <stdexcept>

#include "compute_kernels.hpp"
#include "cuda_check.hpp"

namespace stepcast::calibrate {
namespace {

constexpr std::size_t workspace_bytes = std::size_t{32} << 20;  // what NVIDIA advises for Hopper

}  // namespace

cudaDataType_t data_type(const std::string& dtype) {
  if (dtype == "float16") return CUDA_R_16F;
  if (dtype == "bfloat16") return CUDA_R_16BF;
  return CUDA_R_32F;
}

cublasComputeType_t compute_type(const std::string& dtype) {
  return dtype == "tf32" ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
}

Blas make_blas() {
  cublasHandle_t made = nullptr;
  CHECK(cublasCreate(&made));
  return Blas(made);
}

std::string dtype_obstacle(const std::string& dtype, const cudaDeviceProp& properties) {
  const int capability = 10 * properties.major + properties.minor;
  if (dtype == "float32" || dtype == "float16") return {};
  if (dtype == "tf32" || dtype == "bfloat16")
    return capability >= 80 ? "" : dtype + " needs compute capability 8.0";
  if (dtype == "float8") return capability >= 89 ? "" : "float8 needs compute capability 8.9";
  return "no multiplications of " + dtype;
}

std::string gemm_obstacle(const ComputeCase& what, const cudaDeviceProp& properties) {
  if (what.m <= 0 || what.n <= 0 || what.k <= 0 || what.m > INT32_MAX || what.n > INT32_MAX ||
      what.k > INT32_MAX)
    return "sizes of a gemm are positive and below 2^31";
  if (std::string problem = dtype_obstacle(what.dtype, properties); !problem.empty())
    return problem;
  if (what.dtype == "float8" && (what.m % 16 != 0 || what.n % 16 != 0 || what.k % 16 != 0))
    return "cuBLAS multiplies float8 only in multiples of 16";
  return {};
}

/// What cuBLASLt wants to know of a float8 product, and the algorithm that it chose.
struct Gemm::Float8 {
  cublasLtHandle_t handle = nullptr;
  cublasLtMatmulDesc_t operation = nullptr;
  cublasLtMatrixLayout_t w = nullptr, x = nullptr, y = nullptr;
  cublasLtMatmulHeuristicResult_t chosen{};
  Buffer workspace;
};

void Gemm::DestroyFloat8::operator()(Float8* plan) const {
  for (const cublasLtMatrixLayout_t layout : {plan->w, plan->x, plan->y})
    if (layout != nullptr) cublasLtMatrixLayoutDestroy(layout);
  if (plan->operation != nullptr) cublasLtMatmulDescDestroy(plan->operation);
  if (plan->handle != nullptr) cublasLtDestroy(plan->handle);
  delete plan;
}

int Gemm::product_bytes(const std::string& dtype) {
  return dtype == "float8" ? element_bytes("bfloat16") : element_bytes(dtype);
}

void Gemm::prepare(const ComputeCase& what) {
  what_ = what;
  if (what.dtype == "float8") return prepare_float8();
  if (!handle_) handle_ = make_blas();
}

void Gemm::prepare_float8() {
  float8_.reset(new Float8);
  Float8& plan = *float8_;
  CHECK(cublasLtCreate(&plan.handle));
  CHECK(cublasLtMatmulDescCreate(&plan.operation, CUBLAS_COMPUTE_32F, CUDA_R_32F));
  const auto set = [&](cublasLtMatmulDescAttributes_t attribute, const auto& value) {
    CHECK(cublasLtMatmulDescSetAttribute(plan.operation, attribute, &value, sizeof value));
  };
  set(CUBLASLT_MATMUL_DESC_TRANSA, CUBLAS_OP_T);
  set(CUBLASLT_MATMUL_DESC_TRANSB, CUBLAS_OP_N);
  // Sums of few bits, as Transformer Engine and PyTorch use them in the forward pass.
  set(CUBLASLT_MATMUL_DESC_FAST_ACCUM, std::int8_t{1});
  const auto m = static_cast<std::uint64_t>(what_.m);
  const auto n = static_cast<std::uint64_t>(what_.n);
  const auto k = static_cast<std::uint64_t>(what_.k);
  // In cuBLAS's order, column by column, the product is n x m and W comes first.
  CHECK(cublasLtMatrixLayoutCreate(&plan.w, CUDA_R_8F_E4M3, k, n, what_.k));
  CHECK(cublasLtMatrixLayoutCreate(&plan.x, CUDA_R_8F_E4M3, k, m, what_.k));
  CHECK(cublasLtMatrixLayoutCreate(&plan.y, CUDA_R_16BF, n, m, what_.n));

  cublasLtMatmulPreference_t preference = nullptr;
  CHECK(cublasLtMatmulPreferenceCreate(&preference));
  int found = 0;
  cublasStatus_t status =
      cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                           &workspace_bytes, sizeof workspace_bytes);
  if (status == CUBLAS_STATUS_SUCCESS)
    status = cublasLtMatmulAlgoGetHeuristic(plan.handle, plan.operation, plan.w, plan.x, plan.y,
                                            plan.y, preference, 1, &plan.chosen, &found);
  cublasLtMatmulPreferenceDestroy(preference);
  CHECK(status);
  if (found == 0) throw std::runtime_error("cuBLASLt has no algorithm for this float8 product");
  plan.workspace.get(workspace_bytes);
}

void Gemm::enqueue(const Operands& operands, cudaStream_t stream) {
  const float one = 1;
  const float zero = 0;
  if (what_.dtype == "float8") {
    Float8& plan = *float8_;
    CHECK(cublasLtMatmul(plan.handle, plan.operation, &one, operands.w, plan.w, operands.x, plan.x,
                         &zero, operands.y, plan.y, operands.y, plan.y, &plan.chosen.algo,
                         plan.workspace.get(workspace_bytes), workspace_bytes, stream));
    return;
  }
  const cudaDataType_t type = data_type(what_.dtype);
  const auto m = static_cast<int>(what_.m);
  const auto n = static_cast<int>(what_.n);
  const auto k = static_cast<int>(what_.k);
  CHECK(cublasSetStream(handle_.get(), stream));
  CHECK(cublasGemmEx(handle_.get(), CUBLAS_OP_T, CUBLAS_OP_N, n, m, k, &one, operands.w, type, k,
                     operands.x, type, k, &zero, operands.y, type, n, compute_type(what_.dtype),
                     CUBLAS_GEMM_DEFAULT));
}

}  // namespace stepcast::calibrate
