// What nccl-tests and rccl-tests print, and what people make of it when they post it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/units.hpp"
#include "workload/program.hpp"

namespace stepcast {

/// One line of the table: what nccl-tests measured for one size.
struct LogRow {
  int line = 0;
  std::int64_t bytes = 0;  ///< the whole buffer, also where the log gives the part of one rank
  std::string dtype;       ///< empty: not told
  Seconds out_of_place;    ///< average of one call
  std::optional<Seconds> in_place;
};

/// One table of a log with what its text says about it; what it does not say is empty.
struct LogRun {
  std::string file;
  int line = 0;  ///< of the first row
  std::optional<Operation> operation;
  std::string other_operation;           ///< `alltoall`: read, but nothing that stepcast simulates
  int ranks = 0;                         ///< 0: not told
  int nodes = 0;                         ///< 0: not told
  std::optional<std::string> algorithm;  ///< ring, double_binary_tree, nvls, nvls_tree
  std::optional<std::string> protocol;   ///< LL, LL128, Simple
  std::string label;  ///< of the columns, where one table compares several: `group a`
  std::string nccl_version, gpu;
  std::vector<LogRow> rows;             ///< as they stand, which is by rising size
  std::vector<std::string> complaints;  ///< `FILE:LINE: what is wrong`, mostly of rows left out
};

/// All tables of one text. The columns are believed before the text around them: algbw must be
/// size / time and busbw algbw times the factor of the collective, to the printed digits. Throws
/// InputError when there is no table or none that can be used, with the reason.
[[nodiscard]] std::vector<LogRun> read_nccl_tests_log(const std::string& text,
                                                      const std::string& file);

}  // namespace stepcast
