// Whether the columns of a table agree with each other, and what they give away.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "fit/log_cells.hpp"
#include "fit/nccl_tests_log.hpp"

namespace stepcast {

/// Half a row: out of place or in place.
struct PrintedHalf {
  std::optional<Printed> time, algbw, busbw;  ///< s, B/s
  bool checked = false;                       ///< the results were compared: no N/A
  double wrong = 0.0;                         ///< values that came out wrong
};

struct PrintedRow {
  int line = 0;
  SizeCell size;
  std::int64_t count = 0;
  std::string dtype, redop;
  std::optional<std::int64_t> root;
  PrintedHalf out_of_place;
  std::optional<PrintedHalf> in_place;
};

struct PrintedTable {
  LogRun run;  ///< what the text says; no rows yet
  std::vector<PrintedRow> rows;
};

/// The run of this table: rows that hold, complaints about the others. `reason` says why there is
/// none.
struct CheckedTable {
  std::optional<LogRun> run;
  std::string reason;
};
[[nodiscard]] CheckedTable check_table(PrintedTable table);

}  // namespace stepcast
