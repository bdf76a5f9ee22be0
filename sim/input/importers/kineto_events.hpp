// What the importer keeps of a trace of torch.profiler (Kineto): numbers, and names once each.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace stepcast {

/// Each text once.
class Names {
 public:
  int add(const std::string& text);
  [[nodiscard]] const std::string& operator[](int index) const {
    return *texts_[static_cast<std::size_t>(index)];
  }
  [[nodiscard]] int size() const { return static_cast<int>(texts_.size()); }

 private:
  std::unordered_map<std::string, int> index_;
  std::vector<const std::string*> texts_;
};

/// Times are whole ns: a double cannot hold nanoseconds since 1970, as older traces have them.
using Nanoseconds = std::int64_t;

enum class ActivityKind : std::uint8_t { kernel, copy, set };

/// What the GPU did.
struct Activity {
  Nanoseconds start = 0, end = 0;
  std::int64_t correlation = 0;  ///< names the call that launched it
  std::int64_t bytes = -1;       ///< of a copy; -1: not said
  int name = 0;
  int stream = 0;           ///< (device, stream), numbered
  std::int32_t blocks = 0;  ///< of a kernel's grid in x
  std::int16_t threads = 0;
  ActivityKind kind = ActivityKind::kernel;
  bool communication = false;  ///< by its name or by what is said of its collective
};

/// A call of the runtime that launches or waits.
struct Call {
  Nanoseconds start = 0, end = 0;
  std::int64_t correlation = 0;
  int name = 0, thread = 0;
};

/// An operator or an annotation on the host.
struct Op {
  Nanoseconds start = 0, end = 0;
  std::int64_t elements = 0;   ///< of the first input; 0: not said
  std::int64_t first_dim = 0;  ///< of the first input
  int name = 0, thread = 0;
  int type = -1;        ///< element type of the first input, as the trace spells it
  bool shaped = false;  ///< the trace says the inputs' shapes
};

/// A collective, as record_param_comms describes it.
struct CollectiveCall {
  Nanoseconds start = 0, end = 0;
  int thread = 0;
  std::string operation;  ///< allreduce; empty: not said
  std::int64_t elements = 0;
  std::string dtype;
};

struct KinetoTrace {
  std::string file;
  Names names;
  std::vector<Activity> activities;  ///< by start
  std::vector<Call> calls;           ///< by start
  std::vector<Op> ops;               ///< by thread, start; an outer one before an inner one
  std::vector<Op> annotations;       ///< by start
  std::vector<CollectiveCall> collectives;
  std::vector<std::string> streams;  ///< names of the streams
  std::string gpu, nccl_version;
  int rank = -1, world_size = 0;  ///< 0: not said
  std::int64_t events = 0;
  std::int64_t backwards = 0;     ///< events of the host that end before they start, left out
  Nanoseconds resolution = 1000;  ///< 1 when times have fractions of a microsecond
};

/// `1711964646000000.125` microseconds as ns, from its digits.
[[nodiscard]] std::optional<Nanoseconds> nanoseconds_of(std::string_view text);

/// Whether a kernel of that name is a collective of NCCL or RCCL.
[[nodiscard]] bool is_communication_kernel(std::string_view name);

/// Throws InputError.
[[nodiscard]] KinetoTrace read_kineto(const std::filesystem::path& path,
                                      const std::function<void(double fraction)>& progress);

}  // namespace stepcast
