// What a scenario says about its collectives ("collective" in scenarios/*.json). NCCL's own names
// of the same knobs are read too.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/json_view.hpp"

namespace stepcast {

/// A choice that is checked later, with the place that errors about it name.
template <class T>
struct Choice {
  std::optional<T> value;  ///< empty: stepcast chooses ("auto")
  std::string origin;
};

/// How a channel's part of the buffer is cut.
enum class Chunking {
  nccl,   ///< as NCCL cuts it; chunk_bytes is NCCL_BUFFSIZE
  plain,  ///< into chunks of exactly chunk_bytes, as most papers mean it
};
[[nodiscard]] std::string to_string(Chunking chunking);

constexpr int most_channels = 64;  ///< NCCL's own limit (MAXCHANNELS since 2.25)
/// "max": a block is never cut.
constexpr std::int64_t infinite_chunk = std::int64_t{1} << 62;

struct CollectiveSettings {
  Choice<std::string> algorithm;
  Choice<std::string> protocol;
  Choice<int> channels;
  Choice<std::int64_t> chunk_bytes;  ///< infinite_chunk for "max"
  Choice<Chunking> chunking;
  Choice<std::string> nccl_version;
  int min_channels = 1;
  int max_channels = most_channels;
  bool nvls = true;  ///< NVLink SHARP may be used where the switch has it
  // The two levels of `hierarchical`.
  Choice<std::string> intra_node_algorithm;  ///< ring or direct
  Choice<std::string> inter_node_algorithm;  ///< any AllReduce
  // What NCCL_ALGO and NCCL_PROTO leave to choose from; empty: everything.
  std::vector<std::string> allowed_algorithms;
  std::vector<std::string> allowed_protocols;
  std::optional<std::string> nccl_algo, nccl_proto;  ///< as written
  bool fold = true;  ///< what is alike is simulated once; the command line's, not a scenario's
};

[[nodiscard]] CollectiveSettings read_collective_settings(const JsonView& json);

}  // namespace stepcast
