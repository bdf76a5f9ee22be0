#include "convolution.hpp"

#include <cstddef>
#include <cudnn.h>
#include <dlfcn.h>
#include <stdexcept>
#include <type_traits>
#include <vector>

#include "cuda_check.hpp"
#include "gpu.hpp"

namespace stepcast::calibrate {
namespace {

/// An algorithm that wants more is passed over, as it would not fit beside a network either.
constexpr std::size_t most_workspace_bytes = std::size_t{1} << 30;

struct CudnnError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// The functions needed. The library stays loaded: it does not like to be unloaded.
struct Cudnn {
  std::string problem;  ///< empty when it was loaded
  decltype(&cudnnGetVersion) version = nullptr;
  decltype(&cudnnGetErrorString) error_text = nullptr;
  decltype(&cudnnCreate) create = nullptr;
  decltype(&cudnnDestroy) destroy = nullptr;
  decltype(&cudnnSetStream) set_stream = nullptr;
  decltype(&cudnnCreateTensorDescriptor) create_tensor = nullptr;
  decltype(&cudnnSetTensor4dDescriptor) set_tensor = nullptr;
  decltype(&cudnnDestroyTensorDescriptor) destroy_tensor = nullptr;
  decltype(&cudnnCreateFilterDescriptor) create_filter = nullptr;
  decltype(&cudnnSetFilter4dDescriptor) set_filter = nullptr;
  decltype(&cudnnDestroyFilterDescriptor) destroy_filter = nullptr;
  decltype(&cudnnCreateConvolutionDescriptor) create_convolution = nullptr;
  decltype(&cudnnSetConvolution2dDescriptor) set_convolution = nullptr;
  decltype(&cudnnSetConvolutionMathType) set_math = nullptr;
  decltype(&cudnnDestroyConvolutionDescriptor) destroy_convolution = nullptr;
  decltype(&cudnnGetConvolutionForwardAlgorithm_v7) find_forward = nullptr;
  decltype(&cudnnGetConvolutionBackwardDataAlgorithm_v7) find_backward_data = nullptr;
  decltype(&cudnnGetConvolutionBackwardFilterAlgorithm_v7) find_backward_filter = nullptr;
  decltype(&cudnnConvolutionForward) forward = nullptr;
  decltype(&cudnnConvolutionBackwardData) backward_data = nullptr;
  decltype(&cudnnConvolutionBackwardFilter) backward_filter = nullptr;

  Cudnn() {
    const std::string name = "libcudnn.so." + std::to_string(CUDNN_MAJOR);
    library_ = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library_ == nullptr) {
      const char* reason = dlerror();
      problem = reason != nullptr ? reason : "no " + name;
      return;
    }
    load(version, "cudnnGetVersion");
    load(error_text, "cudnnGetErrorString");
    load(create, "cudnnCreate");
    load(destroy, "cudnnDestroy");
    load(set_stream, "cudnnSetStream");
    load(create_tensor, "cudnnCreateTensorDescriptor");
    load(set_tensor, "cudnnSetTensor4dDescriptor");
    load(destroy_tensor, "cudnnDestroyTensorDescriptor");
    load(create_filter, "cudnnCreateFilterDescriptor");
    load(set_filter, "cudnnSetFilter4dDescriptor");
    load(destroy_filter, "cudnnDestroyFilterDescriptor");
    load(create_convolution, "cudnnCreateConvolutionDescriptor");
    load(set_convolution, "cudnnSetConvolution2dDescriptor");
    load(set_math, "cudnnSetConvolutionMathType");
    load(destroy_convolution, "cudnnDestroyConvolutionDescriptor");
    load(find_forward, "cudnnGetConvolutionForwardAlgorithm_v7");
    load(find_backward_data, "cudnnGetConvolutionBackwardDataAlgorithm_v7");
    load(find_backward_filter, "cudnnGetConvolutionBackwardFilterAlgorithm_v7");
    load(forward, "cudnnConvolutionForward");
    load(backward_data, "cudnnConvolutionBackwardData");
    load(backward_filter, "cudnnConvolutionBackwardFilter");
  }

 private:
  template <class F>
  void load(F& function, const char* name) {
    function = reinterpret_cast<F>(dlsym(library_, name));
    if (function == nullptr) problem = std::string("cuDNN has no ") + name;
  }

  void* library_ = nullptr;
};

const Cudnn& cudnn() {
  static const Cudnn loaded;
  return loaded;
}

template <class T>
using Owned = std::unique_ptr<std::remove_pointer_t<T>, cudnnStatus_t (*)(T)>;

}  // namespace

static void check(cudnnStatus_t status, const char* call, const char* file, int line) {
  if (status != CUDNN_STATUS_SUCCESS)
    throw CudnnError(at(file, line, call) + cudnn().error_text(status));
}

namespace {

template <class T>
Owned<T> make(cudnnStatus_t (*create)(T*), cudnnStatus_t (*destroy)(T)) {
  T made = nullptr;
  CHECK(create(&made));
  return Owned<T>(made, destroy);
}

cudnnDataType_t cudnn_type(const std::string& dtype) {
  if (dtype == "float16") return CUDNN_DATA_HALF;
  if (dtype == "bfloat16") return CUDNN_DATA_BFLOAT16;
  return CUDNN_DATA_FLOAT;
}

}  // namespace

struct Convolution::Plan {
  ComputeCase what;
  Owned<cudnnHandle_t> handle = make(cudnn().create, cudnn().destroy);
  Owned<cudnnTensorDescriptor_t> images = make(cudnn().create_tensor, cudnn().destroy_tensor);
  Owned<cudnnTensorDescriptor_t> result = make(cudnn().create_tensor, cudnn().destroy_tensor);
  Owned<cudnnFilterDescriptor_t> filters = make(cudnn().create_filter, cudnn().destroy_filter);
  Owned<cudnnConvolutionDescriptor_t> convolution =
      make(cudnn().create_convolution, cudnn().destroy_convolution);
  int algorithm = 0;
  std::size_t workspace_bytes = 0;
  Buffer workspace;

  void describe();
  /// As PyTorch does where it does not try all (torch.backends.cudnn.benchmark is off).
  void choose();

 private:
  /// The first that cuDNN's heuristics name. The descriptors are in the order that `find` wants.
  template <class Performance, class Find, class... Descriptors>
  void choose(Find find, Descriptors... descriptors) {
    std::vector<Performance> found(16);  // there are 10 at most
    int count = 0;
    CHECK(find(handle.get(), descriptors..., static_cast<int>(found.size()), &count, found.data()));
    found.resize(static_cast<std::size_t>(count));
    for (const Performance& one : found) {
      if (one.status != CUDNN_STATUS_SUCCESS || one.memory > most_workspace_bytes) continue;
      algorithm = static_cast<int>(one.algo);
      workspace_bytes = one.memory;
      // What was forbidden for float32 stays forbidden.
      if (what.dtype != "float32") CHECK(cudnn().set_math(convolution.get(), one.mathType));
      return;
    }
    throw CudnnError("no algorithm for it");
  }
};

void Convolution::Plan::describe() {
  const ConvolutionShape& shape = what.convolution;
  const auto format = shape.layout == "NHWC" ? CUDNN_TENSOR_NHWC : CUDNN_TENSOR_NCHW;
  const cudnnDataType_t type = cudnn_type(what.dtype);
  const auto number = [](std::int64_t value) { return static_cast<int>(value); };
  const auto padding = number(shape.padding);
  const auto stride = number(shape.stride);
  const auto size = number(shape.filter_size);
  CHECK(cudnn().set_tensor(images.get(), format, type, number(shape.batch),
                           number(shape.in_channels), number(shape.height), number(shape.width)));
  CHECK(cudnn().set_tensor(result.get(), format, type, number(shape.batch),
                           number(shape.out_channels), number(shape.out_height()),
                           number(shape.out_width())));
  CHECK(cudnn().set_filter(filters.get(), type, format, number(shape.out_channels),
                           number(shape.in_channels), size, size));
  CHECK(cudnn().set_convolution(convolution.get(), padding, padding, stride, stride, 1, 1,
                                CUDNN_CROSS_CORRELATION, CUDNN_DATA_FLOAT));
  // The default lets float32 be multiplied as tf32.
  CHECK(cudnn().set_math(convolution.get(), what.dtype == "float32" ? CUDNN_FMA_MATH
                                            : what.dtype == "tf32"  ? CUDNN_DEFAULT_MATH
                                                                    : CUDNN_TENSOR_OP_MATH));
}

void Convolution::Plan::choose() {
  if (what.kernel == "convolution_forward")
    choose<cudnnConvolutionFwdAlgoPerf_t>(cudnn().find_forward, images.get(), filters.get(),
                                          convolution.get(), result.get());
  else if (what.kernel == "convolution_backward_data")
    choose<cudnnConvolutionBwdDataAlgoPerf_t>(cudnn().find_backward_data, filters.get(),
                                              result.get(), convolution.get(), images.get());
  else
    choose<cudnnConvolutionBwdFilterAlgoPerf_t>(cudnn().find_backward_filter, images.get(),
                                                result.get(), convolution.get(), filters.get());
}

std::string cudnn_version() {
  if (!cudnn().problem.empty()) return {};
  const std::size_t number = cudnn().version();
  const std::size_t major = CUDNN_MAJOR < 9 ? 1000 : 10000;  // 8907: 8.9.7; 91002: 9.10.2
  return std::to_string(number / major) + '.' + std::to_string(number % major / 100) + '.' +
         std::to_string(number % 100);
}

Convolution::Convolution() = default;
Convolution::~Convolution() = default;

std::string Convolution::prepare(const ComputeCase& what) {
  if (!cudnn().problem.empty()) return cudnn().problem;
  try {
    if (!plan_) plan_ = std::make_unique<Plan>();
    plan_->what = what;
    plan_->describe();
    plan_->choose();
  } catch (const CudnnError& error) {
    return std::string("cuDNN: ") + error.what();
  }
  plan_->workspace.get(plan_->workspace_bytes);
  return {};
}

void Convolution::enqueue(const Operands& operands, cudaStream_t stream) {
  Plan& plan = *plan_;
  const float one = 1;
  const float zero = 0;
  const auto [x, w, y] = operands;
  void* workspace = plan.workspace.get(0);
  CHECK(cudnn().set_stream(plan.handle.get(), stream));
  if (plan.what.kernel == "convolution_forward")
    CHECK(cudnn().forward(plan.handle.get(), &one, plan.images.get(), x, plan.filters.get(), w,
                          plan.convolution.get(),
                          static_cast<cudnnConvolutionFwdAlgo_t>(plan.algorithm), workspace,
                          plan.workspace_bytes, &zero, plan.result.get(), y));
  else if (plan.what.kernel == "convolution_backward_data")
    CHECK(cudnn().backward_data(plan.handle.get(), &one, plan.filters.get(), w, plan.result.get(),
                                x, plan.convolution.get(),
                                static_cast<cudnnConvolutionBwdDataAlgo_t>(plan.algorithm),
                                workspace, plan.workspace_bytes, &zero, plan.images.get(), y));
  else
    CHECK(cudnn().backward_filter(plan.handle.get(), &one, plan.images.get(), x, plan.result.get(),
                                  w, plan.convolution.get(),
                                  static_cast<cudnnConvolutionBwdFilterAlgo_t>(plan.algorithm),
                                  workspace, plan.workspace_bytes, &zero, plan.filters.get(), y));
}

}  // namespace stepcast::calibrate
