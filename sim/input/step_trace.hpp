// A step trace: what one GPU does for one micro-batch (models/*.json, stepcast.trace/1).
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/json_view.hpp"
#include "base/units.hpp"

namespace stepcast {

struct Parameter {
  std::string name;
  std::int64_t elements = 0;
  std::string dtype;  ///< float32, float16, bfloat16 or float64
  [[nodiscard]] std::int64_t bytes() const;
};

/// State that is no parameter, such as BatchNorm's running statistics: what one broadcast of DDP
/// carries.
struct Buffers {
  std::int64_t elements = 0;
  std::string dtype;
  [[nodiscard]] std::int64_t bytes() const;
};

/// A BatchNorm layer: the spans of that name in forward and backward, and how many channels it has.
struct BatchNorm {
  std::string span;
  std::int64_t channels = 0;
};

/// A piece of work on the compute stream: it starts `gap` after the one before it has ended.
struct Span {
  std::string name;
  Seconds gap;                 ///< the stream stands idle whatever the host does
  Seconds duration;            ///< first kernel start to last kernel end
  std::vector<int> gradients;  ///< parameters whose gradient is ready at the end, in that order
  /// From the host's start to issue this span's work to its start on the next one's, without
  /// waiting for the GPU. Zero: not recorded, or never late.
  Seconds host = {};
  bool host_waits = false;  ///< the host goes on only when the span has ended, as in loss.item()
};

/// One measured micro-batch size.
struct MeasuredStep {
  std::int64_t micro_batch = 0;      ///< samples
  std::int64_t steps = 0;            ///< how many steps the figures come from
  Seconds fastest, median, slowest;  ///< step time over those steps
  std::vector<Span> forward;
  std::vector<Span> backward;
  std::vector<Span>
      finalize;  ///< DDP's copies out of the buckets: after the gradients are averaged
  std::vector<Span> optimizer;
  std::optional<std::int64_t> activation_bytes;

  /// All spans and gaps together.
  [[nodiscard]] Seconds total() const;
};

struct StepTrace {
  std::string name;
  std::string source;
  std::string gpu;
  std::string precision;
  std::vector<Parameter> parameters;        ///< in registration order
  std::vector<Buffers> buffers;             ///< one for each broadcast
  std::vector<BatchNorm> batch_norms = {};  ///< empty: there are none, or they are not known
  std::string optimizer;
  double optimizer_state_bytes_per_element = 0.0;
  bool master_weights = false;  ///< it keeps an fp32 copy of each parameter of two bytes an element
  bool modelled = false;        ///< its times come from a model of the GPU and not from a clock
  bool in_ddp = false;          ///< DDP's copies are among its spans
  Seconds host_per_kernel;      ///< what the host takes to issue one kernel; zero: not known
  std::vector<MeasuredStep> measured;  ///< by rising micro-batch

  /// The smallest and the largest micro-batch that can be asked about.
  [[nodiscard]] std::pair<std::int64_t, std::int64_t> micro_batches() const;
  [[nodiscard]] std::int64_t elements() const;
  [[nodiscard]] std::int64_t gradient_bytes() const;
};

/// Throws InputError; every parameter must become ready in exactly one backward span.
[[nodiscard]] StepTrace read_step_trace(const JsonView& json);

}  // namespace stepcast
