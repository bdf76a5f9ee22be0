// What is measured, in which order, and how long that takes.
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "backend.hpp"
#include "statistics.hpp"

namespace stepcast::calibrate {

using Case = std::variant<ComputeCase, CollectiveCase, InterferenceCase>;

struct PlannedCase {
  Case what;
  bool again = false;  ///< compared with its first time, to find out whether the machine drifts
};

/// An algorithm that can be forced, and the protocols it has; one empty name where it has none.
struct Algorithm {
  std::string name;
  std::vector<std::string> protocols;
};

/// What the compiled-in backend knows by name.
struct Vocabulary {
  std::vector<std::string> dtypes;
  std::vector<Algorithm> algorithms;
  bool has_channels = false;  ///< channels and buffer sizes can be forced
};
[[nodiscard]] Vocabulary nccl_vocabulary();
[[nodiscard]] Vocabulary mpi_vocabulary();

struct PlanOptions {
  bool full = false;  ///< else the short list
  bool collectives_only = false;
  std::int64_t min_bytes = 8, max_bytes = std::int64_t{1} << 30;  ///< of the collectives
  std::vector<int> ranks;                                         ///< empty: 2, 4, 8 ... and all
  std::vector<std::string> operations;                            ///< empty: all
  std::vector<std::string> algorithms;  ///< empty: all; else only collectives that force these
  std::vector<std::string> kernels;  ///< empty: all; else only these, alone and beside all_reduce
};

[[nodiscard]] std::vector<PlannedCase> make_plan(const PlanOptions& options,
                                                 const Vocabulary& vocabulary, int world_size);

/// All kernels that there are in a plan.
[[nodiscard]] std::vector<std::string> known_kernels();

/// What the plan, the journal and the warnings call it: all_reduce 64 KiB, 4 ranks, ring, Simple
[[nodiscard]] std::string name(const Case& what);
[[nodiscard]] std::string name(const PlannedCase& planned);

[[nodiscard]] Accuracy accuracy(const PlanOptions& options);
/// A guess, for --dry-run and the start of the progress bar.
[[nodiscard]] double estimated_s(const Case& what, const Accuracy& accuracy);

}  // namespace stepcast::calibrate
