// Which rings a machine has: the order of the ranks on each channel and the links it uses.
#pragma once

#include <vector>

#include "collective/cluster.hpp"

namespace stepcast {

struct Ring {
  std::vector<int> ranks;
  std::vector<Route>
      hops;     ///< hops[i] leads from ranks[i] to ranks[i + 1], the last back to the first
  int nic = 0;  ///< through which it leaves and enters the nodes
};

/// Inside one node: as many rings as can be found that share no link (six on a DGX-1, which has six
/// NVLinks per GPU each way). Over several nodes: each NIC carries the least number of rings whose
/// NVLinks can fill it; a ring enters and leaves each node once, through a NIC near the GPU, and
/// channels take the NICs in turn, as NCCL's do (facts: NCCL src/graph/search.cc, connect.cc).
/// Throws InputError when the GPUs in use cannot be joined in a ring.
[[nodiscard]] std::vector<Ring> find_rings(const Cluster& cluster);
/// The same rings as if there were only the first so many nodes, but over the links of all.
[[nodiscard]] std::vector<Ring> through_first_nodes(const std::vector<Ring>& rings, int nodes,
                                                    const Cluster& cluster);

}  // namespace stepcast
