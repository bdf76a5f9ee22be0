#include "nvml.hpp"

#include <cstddef>
#include <dlfcn.h>
#include <utility>

namespace stepcast::calibrate {
namespace {

// From nvml.h.
using Device = void*;
struct ProcessInfo {  // nvmlProcessInfo_v2_t
  unsigned pid;
  unsigned long long used_memory;
  unsigned gpu_instance, compute_instance;
};
constexpr int success = 0;
constexpr int clock_sm = 1;
constexpr int temperature_gpu = 0;
// A cap of the power is no throttling here: a training step runs under it as well.
constexpr unsigned long long hardware_slowdown = 0x8, software_thermal = 0x20,
                             hardware_thermal = 0x40, power_brake = 0x80;

}  // namespace

struct Nvml::Functions {
  void* library = nullptr;
  int (*init)() = nullptr;
  int (*shutdown)() = nullptr;
  int (*driver_version)(char*, unsigned) = nullptr;
  int (*handle)(const char*, Device*) = nullptr;
  int (*clock)(Device, int, unsigned*) = nullptr;
  int (*temperature)(Device, int, unsigned*) = nullptr;
  int (*throttle_reasons)(Device, unsigned long long*) = nullptr;
  int (*processes)(Device, unsigned*, ProcessInfo*) = nullptr;

  template <class F>
  void load(F& function, const char* name) {
    function = reinterpret_cast<F>(dlsym(library, name));
  }
};

Nvml::Nvml() {
  void* library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return;
  auto loaded = std::make_unique<Functions>();
  loaded->library = library;
  loaded->load(loaded->init, "nvmlInit_v2");
  loaded->load(loaded->shutdown, "nvmlShutdown");
  loaded->load(loaded->driver_version, "nvmlSystemGetDriverVersion");
  loaded->load(loaded->handle, "nvmlDeviceGetHandleByPciBusId_v2");
  loaded->load(loaded->clock, "nvmlDeviceGetClockInfo");
  loaded->load(loaded->temperature, "nvmlDeviceGetTemperature");
  loaded->load(loaded->throttle_reasons, "nvmlDeviceGetCurrentClocksThrottleReasons");
  loaded->load(loaded->processes, "nvmlDeviceGetComputeRunningProcesses_v3");
  if (loaded->init != nullptr && loaded->shutdown != nullptr && loaded->handle != nullptr &&
      loaded->init() == success)
    functions_ = std::move(loaded);
  else
    dlclose(library);
}

Nvml::~Nvml() {
  if (!functions_) return;
  functions_->shutdown();
  dlclose(functions_->library);
}

void* Nvml::device(const std::string& pci_address) const {
  Device found = nullptr;
  if (functions_ && functions_->handle(pci_address.c_str(), &found) == success) return found;
  return nullptr;
}

std::string Nvml::driver() const {
  char version[96] = {};
  if (!functions_ || functions_->driver_version == nullptr ||
      functions_->driver_version(version, sizeof version) != success)
    return {};
  return version;
}

std::set<unsigned> Nvml::users(const std::string& pci_address) const {
  std::set<unsigned> users;
  const Device gpu = device(pci_address);
  if (gpu == nullptr || functions_->processes == nullptr) return users;
  std::vector<ProcessInfo> processes(256);
  auto count = static_cast<unsigned>(processes.size());
  if (functions_->processes(gpu, &count, processes.data()) != success) return users;
  for (std::size_t i = 0; i < count; ++i) users.insert(processes[i].pid);
  return users;
}

Condition Nvml::condition(const std::string& pci_address) const {
  Condition now;
  const Device gpu = device(pci_address);
  if (gpu == nullptr) return now;
  unsigned value = 0;
  if (functions_->clock != nullptr && functions_->clock(gpu, clock_sm, &value) == success)
    now.clock_Hz = 1e6 * value;
  if (functions_->temperature != nullptr &&
      functions_->temperature(gpu, temperature_gpu, &value) == success)
    now.temperature_C = value;
  unsigned long long reasons = 0;
  if (functions_->throttle_reasons != nullptr &&
      functions_->throttle_reasons(gpu, &reasons) == success)
    now.throttled =
        (reasons & (hardware_slowdown | software_thermal | hardware_thermal | power_brake)) != 0;
  return now;
}

}  // namespace stepcast::calibrate
