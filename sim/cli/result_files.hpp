// The files of a sweep, written from points that are on disk: one point in memory at a time.
#pragma once

#include <optional>
#include <string>

#include "cli/output_file.hpp"
#include "cli/point_store.hpp"

namespace stepcast {

struct ResultFiles {
  std::optional<OutputFile> json, csv, trace;
  [[nodiscard]] bool use_stdout() const;
};

/// `begin` is result_json_begin() of the study.
void write_results(const ResultFiles& files, const std::string& begin, const PointStore& store);

}  // namespace stepcast
