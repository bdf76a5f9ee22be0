#include "fit/curve.hpp"

#include <algorithm>
#include <cmath>
#include <map>

#include "fit/median.hpp"

namespace stepcast {
namespace {

Seconds between(const CurvePoint& a, const CurvePoint& b, Bytes bytes) {
  return a.time + ((bytes - a.bytes) / (b.bytes - a.bytes)) * (b.time - a.time);
}

Operation operation_named(const std::string& name) {
  return *std::find_if(all_operations.begin(), all_operations.end(),
                       [&](Operation operation) { return to_string(operation) == name; });
}

}  // namespace

Curve::Curve(CurveKey key, const std::vector<CurvePoint>& points) : key_(std::move(key)) {
  std::map<double, std::vector<double>> times;
  for (const CurvePoint& point : points) times[point.bytes.value()].push_back(point.time.value());
  for (auto& [bytes, of_size] : times)
    points_.push_back({Bytes{bytes}, Seconds{median(std::move(of_size))}});
}

bool Curve::has_point(Bytes bytes) const {
  return std::any_of(points_.begin(), points_.end(),
                     [&](const CurvePoint& point) { return point.bytes == bytes; });
}

Bytes Curve::nearest(Bytes bytes) const { return std::clamp(bytes, smallest(), largest()); }

Seconds Curve::at(Bytes bytes) const {
  const auto above =
      std::lower_bound(points_.begin(), points_.end(), bytes,
                       [](const CurvePoint& point, Bytes size) { return point.bytes < size; });
  if (above == points_.end()) return points_.back().time;
  if (above == points_.begin() || above->bytes == bytes) return above->time;
  return between(*(above - 1), *above, bytes);
}

double Curve::relative_error() const {
  constexpr double per_median = 1.4826;  // standard deviation / median of |x|, normal distribution
  std::vector<double> errors;
  for (std::size_t i = 1; i + 1 < points_.size(); ++i)
    errors.push_back(std::abs(
        between(points_[i - 1], points_[i + 1], points_[i].bytes) / points_[i].time - 1.0));
  return errors.empty() ? 0.0 : per_median * median(std::move(errors));
}

Halves::Halves(const std::vector<CurvePoint>& points) {
  for (std::size_t i = 0; i < points.size(); ++i)
    (i % 2 == 0 || i + 1 == points.size() ? kept : left_out).push_back(points[i]);
}

std::vector<Curve> curves_of(const std::vector<CollectiveSample>& samples) {
  std::map<CurveKey, std::vector<CurvePoint>> points;
  for (const CollectiveSample& sample : samples)
    if (sample.is_plain() && sample.time > Seconds{0.0})
      points[{operation_named(sample.operation), sample.ranks, sample.nodes, sample.algorithm,
              sample.protocol}]
          .push_back({Bytes{static_cast<double>(sample.bytes)}, sample.time});
  std::vector<Curve> curves;
  for (const auto& [key, of_key] : points) curves.emplace_back(key, of_key);
  return curves;
}

}  // namespace stepcast
