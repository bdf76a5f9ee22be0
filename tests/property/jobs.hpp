// Machines and jobs for property tests.
#pragma once

#include <memory>
#include <random>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "engine/job.hpp"
#include "engine/timeline.hpp"
#include "input/platform.hpp"
#include "testing.hpp"

namespace stepcast {

inline Platform platform_from(const std::string& text) {
  return read_platform(JsonDocument::parse(text, "platform.json").root());
}

/// One GPU per node behind one non-blocking switch, as platforms/ideal.json.
inline Platform ideal_platform(double bandwidth_Bps, double alpha_s) {
  return platform_from(fmt::format(
      R"({{"format": "stepcast.platform/1", "name": "ideal", "source": "test", "gpu": {{"name": "g"}},
           "node": {{"gpus": 1, "nics": {{"count": 1, "bandwidth_Bps": {}, "alpha_s": {}}}}},
           "fabric": {{"kind": "switch"}}, "nodes": 1024}})",
      bandwidth_Bps, alpha_s));
}

/// Nodes of GPUs on a switch with one NIC for each GPU.
inline Platform switched_platform(int gpus, double intra_Bps, double nic_Bps, double intra_alpha_s,
                                  double nic_alpha_s) {
  return platform_from(fmt::format(
      R"({{"format": "stepcast.platform/1", "name": "switched", "source": "test", "gpu": {{"name": "g"}},
           "node": {{"gpus": {0}, "interconnect": {{"kind": "switch", "bandwidth_Bps": {1}, "alpha_s": {3}}},
                     "nics": {{"count": {0}, "bandwidth_Bps": {2}, "alpha_s": {4}}}}},
           "fabric": {{"kind": "switch"}}, "nodes": 1024}})",
      gpus, intra_Bps, nic_Bps, intra_alpha_s, nic_alpha_s));
}

inline Platform repository_platform(const std::string& name) {
  return read_platform(
      JsonDocument::read_file(repository_file("platforms/" + name + ".json")).root());
}

/// The ring of the textbooks.
inline CollectiveSettings ring_settings(std::optional<int> channels,
                                        std::optional<std::int64_t> chunk_bytes) {
  CollectiveSettings settings;
  settings.algorithm = {"ring", "test"};
  settings.channels = {channels, "test"};
  settings.chunk_bytes = {chunk_bytes, "test"};
  settings.chunking = {Chunking::plain, "test"};
  return settings;
}

/// Nothing but one AllReduce.
inline Job all_reduce_job(const Platform& platform, int ranks, std::int64_t bytes,
                          const CollectiveSettings& settings) {
  return make_job(single_collective(Operation::all_reduce, bytes), settings,
                  Cluster(platform, nullptr, ranks, "test"));
}

inline Seconds duration_of(const Timeline& timeline, std::size_t collective = 0) {
  const auto& times = timeline.collectives[collective];
  return times.last_end() - times.start;
}

/// Of so many random cases those that run: under AddressSanitizer, which takes ten times as long, a
/// third of them.
constexpr int random_cases(int all) {
#ifdef __SANITIZE_ADDRESS__
  return (all + 2) / 3;
#else
  return all;
#endif
}

/// Seeded, so that a failure can be met again.
class Random {
 public:
  explicit Random(unsigned seed) : generator_(seed) {}
  std::int64_t whole(std::int64_t min, std::int64_t max) {
    return std::uniform_int_distribution<std::int64_t>(min, max)(generator_);
  }
  double real(double min, double max) {
    return std::uniform_real_distribution<double>(min, max)(generator_);
  }
  /// Spread evenly over orders of magnitude.
  double magnitude(double min, double max) { return std::exp(real(std::log(min), std::log(max))); }

 private:
  std::mt19937 generator_;
};

}  // namespace stepcast
