#include "statistics.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <limits>

namespace stepcast::calibrate {
namespace {

double median(const std::vector<double>& sorted) {
  const std::size_t half = sorted.size() / 2;
  return sorted.size() % 2 == 1 ? sorted[half] : (sorted[half - 1] + sorted[half]) / 2;
}

/// The smallest number of calls that makes a sample long enough.
int calls_for(double call_s, const Accuracy& accuracy) {
  if (call_s * accuracy.most_calls <= accuracy.least_sample_s) return accuracy.most_calls;
  return std::max(1, static_cast<int>(std::ceil(accuracy.least_sample_s / call_s)));
}

}  // namespace

double median_spread(const std::vector<double>& sorted) {
  const std::size_t n = sorted.size();
  double term = std::pow(0.5, n);  // P(Binomial(n, 1/2) = i)
  double at_most = term;
  if (n < 2 || at_most > 0.025) return std::numeric_limits<double>::infinity();
  std::size_t i = 0;
  while (true) {
    term *= static_cast<double>(n - i) / static_cast<double>(i + 1);
    if (at_most + term > 0.025) break;
    at_most += term;
    ++i;
  }
  return (sorted[n - 1 - i] - sorted[i]) / 2 / median(sorted);
}

Statistics sample(const Measured& measured, const Accuracy& accuracy) {
  const double start = measured.now();
  // The first call may load code or connect; the second is long enough to tell the number of calls.
  int calls = calls_for(measured.from_rank_0(measured.time(1)), accuracy);
  calls = calls_for(measured.from_rank_0(measured.time(calls)), accuracy);

  std::vector<double> times;
  Statistics result;
  bool more = true;
  while (more) {
    times.push_back(measured.time(calls));
    std::sort(times.begin(), times.end());
    const int samples = static_cast<int>(times.size());
    result.spread = median_spread(times);
    result.reached = samples >= accuracy.least_samples && result.spread <= accuracy.precision;
    const bool give_up =
        samples >= accuracy.most_samples || measured.now() - start >= accuracy.most_time_s;
    more = measured.from_rank_0(result.reached || give_up ? 0 : 1) != 0;
  }
  result.median_s = median(times);
  result.min_s = times.front();
  result.p90_s = times[(times.size() * 9 + 9) / 10 - 1];
  result.samples = static_cast<int>(times.size());
  result.calls = result.samples * calls;
  return result;
}

double steady_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace stepcast::calibrate
