#include "engine/pace.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>

#include <fmt/format.h>

#include "base/error.hpp"

namespace stepcast {
namespace {

/// Where the standard normal distribution has this probability below it, by bisection on erfc.
double normal_quantile(double probability) {
  double low = -40.0;
  double high = 40.0;
  for (int i = 0; i < 100; ++i) {
    const double middle = 0.5 * (low + high);
    (0.5 * std::erfc(-middle / std::sqrt(2.0)) < probability ? low : high) = middle;
  }
  return 0.5 * (low + high);
}

/// Of steps whose fastest and slowest are known: the expected range of n normal samples is what
/// Blom's positions say of the largest, both ways.
double relative_sd_of(const MeasuredStep& measured) {
  const auto n = static_cast<double>(measured.steps);
  if (n < 2.0 || measured.median <= Seconds{}) return 0.0;
  const double largest = normal_quantile((n - 0.375) / (n + 0.25));
  return (measured.slowest - measured.fastest) / measured.median / (2.0 * largest);
}

void slow_down(std::vector<double>& pace, const Imperfections::Slow& slow) {
  if (static_cast<std::size_t>(slow.index) >= pace.size())
    throw InputError(slow.origin,
                     fmt::format("there are {} ranks, got rank {}", pace.size(), slow.index));
  pace[static_cast<std::size_t>(slow.index)] *= slow.time_factor;
}

}  // namespace

std::vector<double> lognormal_order_statistics(std::size_t ranks, double relative_sd) {
  const double variance = std::log1p(relative_sd * relative_sd);
  std::vector<double> factors;
  for (std::size_t i = 0; i < ranks; ++i) {
    const double position =
        (static_cast<double>(i) + 1.0 - 0.375) / (static_cast<double>(ranks) + 0.25);
    factors.push_back(std::exp(-0.5 * variance + std::sqrt(variance) * normal_quantile(position)));
  }
  // All order statistics together are all draws, whose mean is 1.
  const double sum = std::accumulate(factors.begin(), factors.end(), 0.0);
  for (double& factor : factors) factor *= static_cast<double>(ranks) / sum;
  return factors;
}

std::vector<double> paces(const Imperfections& imperfections, const Cluster& cluster,
                          const MeasuredStep& measured) {
  if (imperfections.slow_ranks.empty() && imperfections.slow_nodes.empty() && !imperfections.jitter)
    return {};
  const auto ranks = static_cast<std::size_t>(cluster.ranks());
  std::vector<double> pace(ranks, 1.0);
  if (const auto& jitter = imperfections.jitter) {
    pace = lognormal_order_statistics(
        ranks, jitter->from_trace ? relative_sd_of(measured) : jitter->relative_sd);
    // std::shuffle may differ between libraries; this does not.
    std::mt19937_64 random(jitter->seed);
    for (std::size_t i = ranks; i > 1; --i) std::swap(pace[i - 1], pace[random() % i]);
  }
  for (const Imperfections::Slow& slow : imperfections.slow_ranks) slow_down(pace, slow);
  for (const Imperfections::Slow& slow : imperfections.slow_nodes) {
    if (slow.index >= cluster.nodes())
      throw InputError(slow.origin, fmt::format("{} GPUs are on {} nodes, got node {}",
                                                cluster.ranks(), cluster.nodes(), slow.index));
    for (const int rank : cluster.ranks_of(slow.index))
      pace[static_cast<std::size_t>(rank)] *= slow.time_factor;
  }
  return pace;
}

std::vector<double> paces_when_late(const Imperfections::Straggler& straggler,
                                    std::vector<double> pace, std::size_t ranks) {
  pace.resize(ranks, 1.0);
  slow_down(pace, straggler.slow);
  return pace;
}

}  // namespace stepcast
