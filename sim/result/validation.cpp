#include "result/validation.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>
#include <tuple>

#include <fmt/format.h>

namespace stepcast {
namespace {

constexpr double usual_noise = 0.02;  // of a step time, where a source gives none

/// The least value that a share of the others does not exceed.
double quantile(const std::vector<double>& sorted, double share) {
  const double place = std::ceil(share * static_cast<double>(sorted.size())) - 1.0;
  return sorted[static_cast<std::size_t>(std::max(0.0, place))];
}

double middle(const std::vector<double>& sorted) {
  const std::size_t half = sorted.size() / 2;
  return sorted.size() % 2 == 1 ? sorted[half] : (sorted[half - 1] + sorted[half]) / 2.0;
}

}  // namespace

ErrorSummary summarize(const std::vector<const CaseResult*>& cases) {
  ErrorSummary summary;
  summary.cases = cases.size();
  if (cases.empty()) return summary;
  const auto count = static_cast<double>(cases.size());
  std::vector<double> sizes;
  for (const CaseResult* one : cases) {
    sizes.push_back(std::abs(one->error()));
    summary.bias += one->error() / count;
    summary.inside += (one->is_inside() ? 1.0 : 0.0) / count;
  }
  std::sort(sizes.begin(), sizes.end());
  summary.median_abs = middle(sizes);
  summary.mean_abs = std::accumulate(sizes.begin(), sizes.end(), 0.0) / count;
  summary.p90_abs = quantile(sizes, 0.9);
  summary.max_abs = sizes.back();
  return summary;
}

ErrorSummary FileResult::summary(bool of_fitted) const {
  std::vector<const CaseResult*> chosen;
  for (const CaseResult& one : cases)
    if (one.is_fitted == of_fitted) chosen.push_back(&one);
  return summarize(chosen);
}

std::vector<std::string> FileResult::missed() const {
  std::vector<std::string> missed;
  if (!skipped.empty()) return missed;
  const ErrorSummary test = summary(false);
  const auto check = [&](const char* what, const std::optional<double>& most, double found) {
    if (most && found > *most)
      missed.push_back(
          fmt::format("{} {:.1f} %, at most {:.1f} % wanted", what, 100 * found, 100 * *most));
  };
  check("mean error", bars.mean_abs_error, test.mean_abs);
  check("median error", bars.median_abs_error, test.median_abs);
  if (bars.order_right &&
      static_cast<double>(orders_right) < *bars.order_right * static_cast<double>(orders))
    missed.push_back(fmt::format("{} of {} orders right, at least {:.0f} % wanted", orders_right,
                                 orders, 100 * *bars.order_right));
  return missed;
}

namespace {

PooledErrors pool_of(const std::string& suite, const std::vector<const FileResult*>& files) {
  std::set<std::tuple<std::string, double, double>> seen;
  std::vector<const CaseResult*> cases;
  for (const FileResult* file : files)
    for (const CaseResult& one : file->cases)
      if (!one.is_fitted &&
          seen.emplace(one.id, one.predicted.time.value(), one.measured.value()).second)
        cases.push_back(&one);
  return {suite, files.size(), summarize(cases)};
}

}  // namespace

std::vector<PooledErrors> pool(const std::vector<FileResult>& results) {
  std::vector<std::string> suites;
  std::vector<const FileResult*> all;
  for (const FileResult& file : results) {
    if (!file.skipped.empty()) continue;
    all.push_back(&file);
    if (std::find(suites.begin(), suites.end(), file.suite) == suites.end())
      suites.push_back(file.suite);
  }
  std::vector<PooledErrors> pooled;
  for (const std::string& suite : suites) {
    std::vector<const FileResult*> files;
    for (const FileResult* file : all)
      if (file->suite == suite) files.push_back(file);
    pooled.push_back(pool_of(suite, files));
  }
  std::erase_if(all, [](const FileResult* file) { return file->derived; });
  pooled.push_back(pool_of("", all));
  return pooled;
}

bool is_order_right(const std::vector<const CaseResult*>& cases) {
  for (const CaseResult* one : cases)
    for (const CaseResult* other : cases) {
      const double noise =
          std::max(one->noise.value_or(usual_noise), other->noise.value_or(usual_noise));
      const bool is_faster = (1.0 + noise) * one->measured < other->measured;
      if (is_faster && one->predicted.time > (1.0 + noise) * other->predicted.time) return false;
    }
  return true;
}

}  // namespace stepcast
