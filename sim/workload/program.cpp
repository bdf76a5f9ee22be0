#include "workload/program.hpp"

namespace stepcast {

const char* to_string(Phase phase) {
  switch (phase) {
    case Phase::forward: return "forward";
    case Phase::backward: return "backward";
    case Phase::finalize: return "finalize";
    case Phase::optimizer: return "optimizer";
    case Phase::host: return "host";
  }
  return "";
}

}  // namespace stepcast
