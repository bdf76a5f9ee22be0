// The raw part of a calibration: what stepcast-calibrate or an nccl-tests log measured.
#pragma once

#include <cstdint>
#include <string>

#include "base/json_view.hpp"
#include "base/units.hpp"

namespace stepcast {

/// One collective of one size. Empty and zero: as the library chose.
struct CollectiveSample {
  std::string operation;
  int nodes = 1;
  int ranks = 1;
  std::int64_t bytes = 0;  ///< the whole buffer, as nccl-tests counts
  Seconds time;            ///< of one call, median
  std::string algorithm;
  std::string protocol;
  int channels = 0;
  std::int64_t buffer_bytes = 0;
  bool single_shot = false;  ///< each call waited for; else queued back to back

  /// Measured as a user's program would meet it.
  [[nodiscard]] bool is_plain() const { return channels == 0 && buffer_bytes == 0 && !single_shot; }
};

[[nodiscard]] CollectiveSample read_collective_sample(const JsonView& json);

/// A kernel and a collective, each alone and both at the same time.
struct InterferenceSample {
  std::string kernel;
  std::string operation;
  int channels = 0;                 ///< 0: as many as the library chose
  double computation_factor = 1.0;  ///< the kernel's time beside the collective / alone
  double communication_factor = 1.0;
};
[[nodiscard]] InterferenceSample read_interference_sample(const JsonView& json);

/// What a fit made of a curve, and a kernel alone: they are kept for people, nothing reads them
/// yet. Throw InputError.
void check_curve(const JsonView& json);
void check_compute_sample(const JsonView& json);

}  // namespace stepcast
