// Tables with one row for each layer of a model, as people keep them: CSV, JSON and the graph.txt
// that PipeDream's profiler writes.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace stepcast {

struct LayerRow {
  std::string where;  ///< file and line, or file and RFC 6901 pointer
  std::string name;
  std::map<std::string, double> figures;  ///< by column, in the unit of its name
  [[nodiscard]] std::optional<double> figure(const std::string& column) const;
};

struct LayerTable {
  std::vector<LayerRow> rows;  ///< in the order of the forward pass
  /// BatchNorm's running statistics, where the table says what its layers are.
  std::int64_t float_buffer_elements = 0;
  std::int64_t counter_buffers = 0;
  std::vector<std::string> notes;
};

/// By its content: a profile of PipeDream, JSON, or CSV with a line of column names. Throws
/// InputError.
[[nodiscard]] LayerTable read_layer_table(const std::filesystem::path& path);

}  // namespace stepcast
