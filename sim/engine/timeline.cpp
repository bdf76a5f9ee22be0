#include "engine/timeline.hpp"

#include <numeric>
#include <utility>

namespace stepcast {

std::vector<int> Timeline::class_sizes() const {
  if (class_of_rank.empty()) return std::vector<int>(static_cast<std::size_t>(ranks), 1);
  std::vector<int> sizes;
  for (const std::size_t index : class_of_rank) {
    if (index >= sizes.size()) sizes.resize(index + 1, 0);
    ++sizes[index];
  }
  return sizes;
}

double mean_over_ranks(const std::vector<double>& of_class, const std::vector<int>& sizes) {
  std::vector<std::pair<double, int>> values;
  for (std::size_t i = 0; i < sizes.size(); ++i) values.emplace_back(of_class[i], sizes[i]);
  std::sort(values.begin(), values.end());
  double sum = 0.0;
  for (std::size_t first = 0; first < values.size();) {
    std::int64_t ranks = 0;
    std::size_t last = first;
    for (; last < values.size() && values[last].first == values[first].first; ++last)
      ranks += values[last].second;
    sum += values[first].first * static_cast<double>(ranks);
    first = last;
  }
  return sum / static_cast<double>(std::accumulate(sizes.begin(), sizes.end(), std::int64_t{0}));
}

}  // namespace stepcast
