#include "workload/program.hpp"

#include <algorithm>

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

namespace {

template <class Each>
void for_each_compute(const Program& program, Each each) {
  for (const Segment& segment : program.segments)
    for (const Task& task : segment.tasks)
      if (const auto* compute = std::get_if<Compute>(&task))
        each(*compute, static_cast<double>(segment.repeat));
}

}  // namespace

bool Segment::is_local() const {
  return std::none_of(tasks.begin(), tasks.end(), [](const Task& task) {
    return std::holds_alternative<Launch>(task) || std::holds_alternative<Wait>(task);
  });
}

Seconds Program::computation() const {
  Seconds sum;
  for_each_compute(*this,
                   [&](const Compute& compute, double times) { sum += times * compute.duration; });
  return sum;
}

Seconds Program::issue() const {
  Seconds sum;
  for_each_compute(*this,
                   [&](const Compute& compute, double times) { sum += times * compute.host; });
  return sum;
}

void settle_host(Program& program) {
  bool waits = false;
  for_each_compute(program, [&](const Compute& compute, double) { waits |= compute.host_waits; });
  if (waits || program.issue() > program.computation()) return;
  for (Segment& segment : program.segments)
    for (Task& task : segment.tasks)
      if (auto* compute = std::get_if<Compute>(&task)) compute->host = {};
}

Program single_collective(Operation operation, std::int64_t bytes) {
  Program program;
  program.collectives.push_back({bytes, {}, operation});
  program.segments.push_back({1, {Launch{0}, Wait{0}}});
  return program;
}

}  // namespace stepcast
