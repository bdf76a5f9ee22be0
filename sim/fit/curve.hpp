// What was measured of one collective on one set of ranks, as a function of its size.
#pragma once

#include <string>
#include <vector>

#include "base/units.hpp"
#include "input/samples.hpp"
#include "workload/program.hpp"

namespace stepcast {

/// Which measurements belong together.
struct CurveKey {
  Operation operation = Operation::all_reduce;
  int ranks = 1;
  int nodes = 1;
  std::string algorithm;  ///< empty: as the library chose, also of the protocol
  std::string protocol;

  auto operator<=>(const CurveKey&) const = default;
};

struct CurvePoint {
  Bytes bytes;
  Seconds time;
};

/// Between two points the time is affine in the size, alpha + S / B, as it is while the library
/// keeps its algorithm (docs/model.md §3.2).
class Curve {
 public:
  /// Several times of one size count as their median. At least one point.
  Curve(CurveKey key, const std::vector<CurvePoint>& points);

  [[nodiscard]] const CurveKey& key() const { return key_; }
  [[nodiscard]] const std::vector<CurvePoint>& points() const { return points_; }
  [[nodiscard]] Bytes smallest() const { return points_.front().bytes; }
  [[nodiscard]] Bytes largest() const { return points_.back().bytes; }
  [[nodiscard]] bool holds(Bytes bytes) const { return smallest() <= bytes && bytes <= largest(); }
  [[nodiscard]] bool has_point(Bytes bytes) const;
  /// The size nearest to it that the curve holds.
  [[nodiscard]] Bytes nearest(Bytes bytes) const;
  /// Of a size that the curve holds.
  [[nodiscard]] Seconds at(Bytes bytes) const;
  /// How far a point lies from what its neighbours say, relative: the median over all points,
  /// scaled to a standard error of a normal distribution. 0 with less than three points.
  [[nodiscard]] double relative_error() const;

 private:
  CurveKey key_;
  std::vector<CurvePoint> points_;  ///< by rising size, each once
};

/// Every second point left out, but never the last one.
struct Halves {
  explicit Halves(const std::vector<CurvePoint>& points);
  std::vector<CurvePoint> kept, left_out;
};

/// The curves of samples that were measured as a user's program would meet them.
[[nodiscard]] std::vector<Curve> curves_of(const std::vector<CollectiveSample>& samples);

}  // namespace stepcast
