// Which algorithm, protocol, channels and chunks a collective gets: NCCL's own choice where the
// machine is NVIDIA's, within what the scenario leaves open.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "collective/algorithms.hpp"
#include "collective/cluster.hpp"
#include "collective/nccl_tuner.hpp"
#include "collective/protocols.hpp"
#include "collective/rings.hpp"
#include "input/collective_settings.hpp"

namespace stepcast {

/// One way to run the collective and what the chooser expects it to take.
struct ConsideredChoice {
  std::string algorithm;
  std::string protocol;
  std::optional<Seconds> estimate;  ///< empty when it is not possible
  std::string why_not;              ///< empty for the one that is taken
};

struct CollectiveChoice {
  std::string algorithm_name;
  const CollectiveAlgorithm* algorithm = nullptr;
  ProtocolFigures protocol;
  int channels = 1;
  Chunking chunking = Chunking::plain;
  std::string chooser;                       ///< who chose, for people
  std::vector<ConsideredChoice> considered;  ///< the one taken first, then by estimate
  /// What NCCL would know; empty where the platform does not say what its GPUs are.
  std::optional<nccl::Communicator> communicator;
};

/// Throws InputError when no algorithm or protocol has a name that is asked for.
void check_names(Operation operation, const CollectiveSettings& settings, const Cluster& cluster);

/// Throws InputError when what is asked for cannot run on the cluster.
[[nodiscard]] CollectiveChoice choose(Operation operation, Bytes bytes,
                                      const CollectiveSettings& settings, const Cluster& cluster,
                                      const std::vector<Ring>& rings);

}  // namespace stepcast
