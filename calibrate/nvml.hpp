// Clocks, temperatures and other users of a GPU, from NVML where the machine has it. It is loaded
// at run time, and the few functions needed are declared by hand: it is no part of the CUDA
// toolkit.
#pragma once

#include <memory>
#include <set>
#include <string>
#include <vector>

#include "backend.hpp"

namespace stepcast::calibrate {

class Nvml {
 public:
  Nvml();
  ~Nvml();
  Nvml(const Nvml&) = delete;
  Nvml& operator=(const Nvml&) = delete;

  /// 580.95.05; empty without NVML.
  [[nodiscard]] std::string driver() const;
  /// The processes that use the GPU with this PCI address. In a container their numbers are those
  /// of the host, and may be hidden.
  [[nodiscard]] std::set<unsigned> users(const std::string& pci_address) const;
  /// All but used_by_others.
  [[nodiscard]] Condition condition(const std::string& pci_address) const;

 private:
  struct Functions;
  [[nodiscard]] void* device(const std::string& pci_address) const;

  std::unique_ptr<Functions> functions_;  ///< null without NVML
};

}  // namespace stepcast::calibrate
