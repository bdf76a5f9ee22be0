// Text in columns.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace stepcast {

using Row = std::vector<std::string>;

/// Right-aligned columns under their heads, but for the first `left` ones.
[[nodiscard]] std::string render(const std::vector<Row>& rows, std::size_t left = 0);

}  // namespace stepcast
