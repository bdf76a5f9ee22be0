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

const char* to_string(Operation operation) {
  switch (operation) {
    case Operation::all_reduce: return "all_reduce";
    case Operation::reduce_scatter: return "reduce_scatter";
    case Operation::all_gather: return "all_gather";
    case Operation::broadcast: return "broadcast";
  }
  return "";
}

Program single_collective(Operation operation, std::int64_t bytes) {
  Program program;
  program.collectives.push_back({bytes, {}, operation});
  program.segments.push_back({1, {Launch{0}, Wait{0}}});
  return program;
}

}  // namespace stepcast
