#include "engine/job.hpp"

#include <algorithm>
#include <map>

#include "engine/measured.hpp"

namespace stepcast {

namespace {

CollectiveSettings settings_for(const Collective& collective, CollectiveSettings settings) {
  if (!collective.as_library_chooses) return settings;
  settings.algorithm = {};
  settings.allowed_algorithms = {};
  settings.chunk_bytes = {};
  settings.chunking = {};
  return settings;
}

}  // namespace

Job make_job(Program program, const CollectiveSettings& settings, const Cluster& cluster) {
  check_names(Operation::all_reduce, settings, cluster);
  Job job{cluster, std::move(program), {}, {}};
  job.fold = settings.fold;
  if (job.program.collectives.empty()) return job;
  const std::vector<Ring> rings = find_rings(cluster);
  Measurements measurements(cluster);
  std::map<std::pair<Operation, std::int64_t>, std::size_t> known;  // by size
  for (const Collective& collective : job.program.collectives) {
    const auto [entry, is_new] =
        known.try_emplace({collective.operation, collective.bytes}, job.lowered.size());
    if (is_new) {
      const CollectiveSettings its = settings_for(collective, settings);
      const Bytes bytes{static_cast<double>(collective.bytes)};
      LoweredCollective& lowered =
          job.lowered.emplace_back(lower(collective.operation, bytes, its, cluster, rings));
      if (const auto level =
              measured_level(collective.operation, bytes, its, cluster, rings, measurements)) {
        scale_time(lowered, level->factor);
        lowered.basis = cluster.is_degraded() ? Basis::extrapolated : level->basis;
        lowered.relative_error = level->relative_error;
      }
    }
    job.lowered_of.push_back(entry->second);
  }
  return job;
}

const char* to_string(Interference::Basis basis) {
  switch (basis) {
    case Interference::Basis::none: return "none";
    case Interference::Basis::set: return "set";
    case Interference::Basis::measured: return "measured";
    case Interference::Basis::modelled: return "modelled";
  }
  return "";
}

int Job::warm_ups() const {
  const bool host = program.issue() > Seconds{};
  const bool slowed = std::any_of(interference.begin(), interference.end(),
                                  [](const Interference& its) { return its.communication > 1.0; });
  return host || slowed ? 1 : 0;
}

std::vector<std::int64_t> runs_per_step(const Program& program) {
  std::vector<std::int64_t> runs(program.collectives.size(), 0);
  for (const Segment& segment : program.segments)
    for (const Task& task : segment.tasks)
      if (const auto* launch = std::get_if<Launch>(&task))
        runs[static_cast<std::size_t>(launch->collective)] += segment.repeat;
  return runs;
}

std::vector<Bytes> wire_bytes_per_link(const Job& job) {
  std::vector<Bytes> total(job.cluster.bandwidths().size());
  const std::vector<std::int64_t> runs = runs_per_step(job.program);
  for (std::size_t c = 0; c < runs.size(); ++c) {
    const LoweredCollective& collective = job.collective(c);
    const std::vector<Bytes> of_connection = bytes_of_connections(collective.schedule);
    std::vector<Bytes> wire(total.size());
    for (std::size_t i = 0; i < of_connection.size(); ++i)
      for (const int link : collective.routes[i].links)
        wire[static_cast<std::size_t>(link)] +=
            of_connection[i] * (collective.wire_bytes_per_byte * static_cast<double>(runs[c]));
    for (std::size_t link = 0; link < total.size(); ++link) {
      const auto index = static_cast<int>(link);
      total[link] += wire[static_cast<std::size_t>(
          collective.fold
              ? job.cluster.folded_link(index, collective.fold->period, collective.fold->nodes)
              : index)];
    }
  }
  return total;
}

std::vector<Bytes> sent_bytes_per_rank(const Job& job) {
  std::vector<Bytes> total(static_cast<std::size_t>(job.cluster.ranks()));
  const std::vector<std::int64_t> runs = runs_per_step(job.program);
  for (std::size_t c = 0; c < runs.size(); ++c) {
    const LoweredCollective& collective = job.collective(c);
    const std::vector<Bytes> sent = sent_bytes(collective.schedule);
    for (std::size_t rank = 0; rank < sent.size(); ++rank)
      total[rank] += sent[static_cast<std::size_t>(
                         collective.representative(static_cast<int>(rank), job.cluster))] *
                     static_cast<double>(runs[c]);
  }
  return total;
}

}  // namespace stepcast
