// The small interface to SimGrid: links, flows on explicit lists of links, and timers. Nothing of
// SimGrid is seen above it.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "base/units.hpp"

namespace stepcast {

/// Release of the SimGrid that this build uses.
[[nodiscard]] std::string simgrid_version();

/// Told what happens, at Network::now(). Must not throw: the call comes through SimGrid.
class Sink {
 public:
  virtual ~Sink() = default;
  virtual void flow_done(std::uint64_t tag) = 0;
  virtual void timer(std::uint64_t tag) = 0;
};

/// Flows share links max-min fairly. One per process, for good: SimGrid cannot be started afresh.
class Network {
 public:
  /// How finely bytes are counted, in 1/B: SimGrid's flows carry whole numbers only.
  static constexpr double resolution_per_byte = 1 << 20;

  Network();
  ~Network();
  Network(const Network&) = delete;
  Network& operator=(const Network&) = delete;

  int add_link(BytesPerSecond bandwidth);
  /// No link can be added afterwards.
  void seal();

  [[nodiscard]] Seconds now() const;
  /// After `delay` the flow starts; the links must stay valid until it is done.
  void start_flow(std::span<const int> links, Bytes bytes, Seconds delay, std::uint64_t tag);
  void at(Seconds delay, std::uint64_t tag);

  /// Returns when nothing is left to happen, also if somebody still waits for something.
  void run(Sink& sink);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace stepcast
