// What the command line says, as values.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "input/collective_settings.hpp"
#include "input/scenario.hpp"
#include "workload/program.hpp"

namespace stepcast {

enum class EngineKind { automatic, simgrid, analytic };

/// Every `count`-th point, beginning with `number`, which counts from 1.
struct Shard {
  std::size_t number = 1;
  std::size_t count = 1;
};

struct RunOptions {
  bool help = false;
  std::vector<std::string> scenarios;
  std::optional<std::string> json, csv, trace;  ///< output paths; "-" is stdout
  std::vector<std::string> sets;
  EngineKind engine = EngineKind::automatic;
  int jobs = 1;
  int trace_ranks = 0;
  bool resume = false;   ///< go on with what an interrupted run left
  bool dry_run = false;  ///< print the points only
  bool fold = true;      ///< what is alike is simulated once
  bool answer = false;   ///< say in words what the points say
  double threshold = 0.75;
  std::optional<Shard> shard;
};

struct MergeOptions {
  bool help = false;
  std::vector<std::string> parts;
  std::optional<std::string> json, csv;
};

struct CollectiveOptions {
  bool help = false;
  std::string platform;
  std::optional<std::string> calibration;
  Operation operation = Operation::all_reduce;
  bool explain = false;
  int gpus = 0;
  std::vector<std::int64_t> bytes;
  CollectiveSettings settings;
  Placement placement;
  EngineKind engine = EngineKind::automatic;
  int jobs = 1;
  std::optional<std::string> json;
};

/// A log of nccl-tests and what it does not tell itself: `FILE@ranks=16,protocol=LL`.
struct LogOptions {
  std::string path;
  std::optional<Operation> operation;
  std::optional<int> ranks, nodes;
  std::optional<std::string> algorithm, protocol;
};

struct FitOptions {
  bool help = false;
  std::vector<LogOptions> logs;
  std::optional<std::string> platform;     ///< the machine that was measured
  std::string name, source, nccl_version;  ///< empty: from the logs
  bool report = false;
  std::optional<std::string> output;
};

struct CompareOptions {
  bool help = false;
  std::vector<std::string> files;  ///< one or two results
  std::optional<std::pair<std::size_t, std::size_t>> points;
};

struct ValidateOptions {
  bool help = false;
  std::vector<std::string> suites;        ///< their names, or files; empty: all
  std::vector<std::string> files;         ///< calibrations and logs of collectives
  std::optional<std::string> json, html;  ///< output paths; "-" is stdout
  int jobs = 1;
};

struct ImportOptions {
  bool help = false;
  std::string format;
  std::vector<std::string> files;
  std::string output;
  std::optional<std::string> calibration;  ///< file to write
  std::optional<std::string> platform;     ///< the machine that the calibration is of
  std::map<std::string, std::string> settings;
};

struct TraceOptions {
  bool help = false;
  std::string action;  ///< show or check
  std::string file;
};

/// Of `stepcast plot` and `stepcast report`, whose work is done in Python.
struct DrawOptions {
  bool help = false;
  std::vector<std::string> files;  ///< a result, and what else there is to draw with it
  std::string output;              ///< folder of the figures, file of the report
};

struct ListOptions {
  bool help = false;
  std::string what;
};

/// `arguments` are those behind the command's name. Throw InputError.
[[nodiscard]] RunOptions parse_run(const std::vector<std::string>& arguments);
[[nodiscard]] MergeOptions parse_merge(const std::vector<std::string>& arguments);
[[nodiscard]] CollectiveOptions parse_collective(const std::vector<std::string>& arguments);
[[nodiscard]] CompareOptions parse_compare(const std::vector<std::string>& arguments);
[[nodiscard]] FitOptions parse_fit(const std::vector<std::string>& arguments);
[[nodiscard]] ValidateOptions parse_validate(const std::vector<std::string>& arguments);
[[nodiscard]] ImportOptions parse_import(const std::vector<std::string>& arguments);
[[nodiscard]] TraceOptions parse_trace(const std::vector<std::string>& arguments);
/// `command` is plot or report.
[[nodiscard]] DrawOptions parse_draw(const std::string& command,
                                     const std::vector<std::string>& arguments);
[[nodiscard]] ListOptions parse_list(const std::vector<std::string>& arguments);

}  // namespace stepcast
