#include "cli/source_tree.hpp"

#include <cstdlib>

namespace stepcast {

std::filesystem::path source_tree() {
  const char* home = std::getenv("STEPCAST_HOME");
  return home != nullptr && *home != '\0' ? home : STEPCAST_SOURCE_DIR;
}

}  // namespace stepcast
