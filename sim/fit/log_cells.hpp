// The cells of a table that people posted: numbers with their printed precision and unit, and what
// the name of a column means.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/units.hpp"
#include "workload/program.hpp"

namespace stepcast {

/// A number and half a unit of its last printed digit: the true value lies within.
struct Printed {
  double value = 0.0;
  double half_digit = 0.0;
};

/// `12.61 us`, `1.44GBps`, `1e+06`: the number at the front, times what its unit makes of it, or
/// times `unit` when none stands there. Empty when there is no number.
[[nodiscard]] std::optional<Printed> time_cell(std::string_view text, double unit);       ///< s
[[nodiscard]] std::optional<Printed> bandwidth_cell(std::string_view text, double unit);  ///< B/s
[[nodiscard]] std::optional<Printed> number_cell(std::string_view text);

/// `1048576`, `17_179_869_184`, `32KiB`, `1 MB`. KB, MB and GB (and K, M, G) are powers of two, as
/// in nccl-tests' own options; `decimal` is what they would be as powers of ten.
struct SizeCell {
  std::int64_t bytes = 0;
  std::int64_t decimal = 0;
};
[[nodiscard]] std::optional<SizeCell> size_cell(std::string_view text, double unit);

[[nodiscard]] std::optional<std::int64_t> whole_number(std::string_view text);

/// Of one element; 0 for a word that names no dtype of nccl-tests.
[[nodiscard]] int dtype_bytes_in_log(std::string_view name);
[[nodiscard]] bool is_reduction_name(std::string_view name);

/// The collective that `all_reduce_perf`, `AllReduce` or `all-reduce` means.
struct NamedOperation {
  std::optional<Operation> operation;
  std::string other;  ///< one that stepcast does not simulate
};
[[nodiscard]] std::optional<NamedOperation> operation_named(std::string_view name);

/// stepcast's name of what NCCL_ALGO or NCCL_PROTO holds; empty for what it does not know.
[[nodiscard]] std::optional<std::string> algorithm_named(std::string_view name);
[[nodiscard]] std::optional<std::string> protocol_named(std::string_view name);

/// The columns of one measurement. -1: there is none.
struct Measure {
  int time = -1, algbw = -1, busbw = -1, wrong = -1;
  double time_unit = 1e-6;  ///< s
  double algbw_unit = 1e9, busbw_unit = 1e9;
  bool in_place = false;
  std::string label;  ///< what tells it from others of the same table
  std::optional<NamedOperation> operation;
  std::optional<std::string> algorithm, protocol;
};

struct Columns {
  int count_of_columns = 0;
  int size = -1, count = -1, type = -1, redop = -1, root = -1, in_place = -1;
  int ranks = -1, operation = -1, algorithm = -1, protocol = -1;
  int unknown = 0;  ///< how many names mean nothing here
  double size_unit = 1.0;
  std::vector<Measure> measures;

  [[nodiscard]] bool has_measure() const;
};
[[nodiscard]] Columns columns_named(const std::vector<std::string_view>& names);

[[nodiscard]] std::string lower_case(std::string_view text);
[[nodiscard]] std::string_view trim(std::string_view text);

}  // namespace stepcast
