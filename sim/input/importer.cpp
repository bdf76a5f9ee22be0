#include "input/importer.hpp"

namespace stepcast {

Registry<Importer>& importers() {
  static Registry<Importer> registry;
  return registry;
}

}  // namespace stepcast
