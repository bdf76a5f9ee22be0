#include "communicators.hpp"

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <optional>

#include "cuda_check.hpp"

namespace stepcast::calibrate {
namespace {

constexpr std::size_t most_open = 4;

/// Sets an environment variable for as long as it lives; an empty value leaves it as it is.
class Setting {
 public:
  Setting(const char* name, const std::string& value) : name_(value.empty() ? nullptr : name) {
    if (name_ == nullptr) return;
    if (const char* old = std::getenv(name)) old_ = old;
    setenv(name_, value.c_str(), 1);
  }
  Setting(const Setting&) = delete;
  Setting& operator=(const Setting&) = delete;
  ~Setting() {
    if (name_ == nullptr) return;
    if (old_)
      setenv(name_, old_->c_str(), 1);
    else
      unsetenv(name_);
  }

 private:
  const char* name_;
  std::optional<std::string> old_;
};

}  // namespace

std::int64_t process_buffer_bytes() {
  const char* value = std::getenv("NCCL_BUFFSIZE");
  return value != nullptr ? std::strtoll(value, nullptr, 0) : 0;
}

std::string nccl_name(const std::string& algorithm) {
  if (algorithm == "ring") return "Ring";
  if (algorithm == "double_binary_tree") return "Tree";
  if (algorithm == "nvls") return "NVLS";
  if (algorithm == "nvls_tree") return "NVLSTree";
  return {};
}

Communicators::~Communicators() {
  try {
    for (Open& open : open_) close(open);
  } catch (...) {  // the process ends: nothing is left to be done about it
  }
}

const Communicator& Communicators::get(const CommunicatorSettings& settings) {
  for (auto open = open_.begin(); open != open_.end(); ++open)
    if (open->settings == settings) {
      open_.splice(open_.begin(), open_, open);
      return open->communicator;
    }
  if (open_.size() >= most_open) {
    Open oldest = open_.back();
    open_.pop_back();
    close(oldest);
  }
  open_.push_front({settings, Communicator(gpus_.size(), nullptr)});
  try {
    make(open_.front());
  } catch (...) {
    abort(settings);
    throw;
  }
  return open_.front().communicator;
}

void Communicators::make(Open& open) {
  const CommunicatorSettings& settings = open.settings;
  ncclUniqueId id{};
  // All processes take this from rank 0, also those whose GPUs take no part.
  if (processes_.rank() == 0) CHECK(ncclGetUniqueId(&id));
  processes_.from_rank_0(&id, sizeof id);
  const Setting algorithm("NCCL_ALGO", nccl_name(settings.algorithm));
  const Setting protocol("NCCL_PROTO", settings.protocol);
  gpus_.each([&](std::size_t i) {
    if (gpus_[i].rank >= settings.ranks) return;
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 1;
    if (settings.channels > 0) config.minCTAs = config.maxCTAs = settings.channels;
    CHECK(
        ncclCommInitRankConfig(&open.communicator[i], settings.ranks, id, gpus_[i].rank, &config));
  });
}

void Communicators::close(Open& open) {
  gpus_.each([&](std::size_t i) {
    ncclComm_t& communicator = open.communicator[i];
    if (communicator == nullptr) return;
    CHECK(cudaDeviceSynchronize());
    CHECK(ncclCommDestroy(communicator));
    communicator = nullptr;
  });
}

void Communicators::abort(const CommunicatorSettings& settings) {
  open_.remove_if([&](Open& open) {
    if (!(open.settings == settings)) return false;
    gpus_.each([&](std::size_t i) {
      if (open.communicator[i] != nullptr) ncclCommAbort(open.communicator[i]);
    });
    return true;
  });
}

void Communicators::abort_all() {
  while (!open_.empty()) abort(CommunicatorSettings(open_.front().settings));
}

}  // namespace stepcast::calibrate
