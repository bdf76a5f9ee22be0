// What each NCCL protocol costs on a cluster: measured figures where the calibration has them.
#pragma once

#include <string>
#include <vector>

#include "collective/cluster.hpp"

namespace stepcast {

/// The protocols that a collective can be timed with. Without a calibration, and for a protocol it
/// lacks, the overheads are NCCL's own (nominal); a machine that is not NVIDIA's has Simple alone,
/// and what its calibration fitted.
[[nodiscard]] std::vector<ProtocolFigures> protocols_of(const Cluster& cluster);
/// NCCL's own figures of LL, LL128 or Simple, on the links of the platform.
[[nodiscard]] ProtocolFigures nominal_protocol(const std::string& name, const Platform& platform);

/// LL sends 4 B of flag with each 4 B of data, LL128 8 B in 128 (NCCL src/device/prims_ll.h,
/// prims_ll128.h).
[[nodiscard]] double wire_bytes_per_byte(const std::string& protocol);

}  // namespace stepcast
