// stepcast-calibrate: what there is to measure on this machine. It does not measure yet.
#include <cstdio>
#include <cstring>

#include <cuda_runtime.h>
#include <nccl.h>

namespace {

constexpr int something_is_missing = 3;

int missing(const char* what, const char* problem) {
  std::fprintf(stderr, "stepcast-calibrate: %s: %s\n", what, problem);
  return something_is_missing;
}

/// One line of JSON a GPU, with what a platform file needs to know.
int list_devices() {
  int count = 0;
  if (const cudaError_t error = cudaGetDeviceCount(&count); error != cudaSuccess)
    return missing("CUDA", cudaGetErrorString(error));
  if (count == 0) return missing("CUDA", "no GPU");
  int driver = 0;
  int nccl = 0;
  cudaDriverGetVersion(&driver);
  if (const ncclResult_t error = ncclGetVersion(&nccl); error != ncclSuccess)
    return missing("NCCL", ncclGetErrorString(error));
  for (int device = 0; device < count; ++device) {
    cudaDeviceProp properties;
    if (const cudaError_t error = cudaGetDeviceProperties(&properties, device);
        error != cudaSuccess)
      return missing("CUDA", cudaGetErrorString(error));
    std::printf(
        "{\"device\": %d, \"name\": \"%s\", \"memory_bytes\": %zu, \"sms\": %d, "
        "\"compute_capability\": \"%d.%d\", "
        "\"cuda_driver\": %d, \"nccl\": %d}\n",
        device, properties.name, properties.totalGlobalMem, properties.multiProcessorCount,
        properties.major, properties.minor, driver, nccl);
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 2 && std::strcmp(argv[1], "--devices") == 0) return list_devices();
  std::fprintf(stderr,
               "usage: stepcast-calibrate --devices\n  prints the GPUs of this machine and the "
               "versions of CUDA and NCCL, one JSON line a GPU\n");
  return argc == 2 && std::strcmp(argv[1], "--help") == 0 ? 0 : 2;
}
