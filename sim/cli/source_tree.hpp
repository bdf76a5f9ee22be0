// Where the files of stepcast are that are no part of the program: plots/, tests/validation/.
#pragma once

#include <filesystem>

namespace stepcast {

/// STEPCAST_HOME where it is set, else the source tree that the program was built from.
[[nodiscard]] std::filesystem::path source_tree();

}  // namespace stepcast
