// Max-min fair rates by progressive filling (Bertsekas & Gallager, Data Networks, 6.5.2), written
// without SimGrid so that it can be held against it.
#pragma once

#include <algorithm>
#include <vector>

namespace stepcast {

/// The rate of each flow, by the links that it passes: all rise together until a link is full,
/// whose flows then keep theirs.
inline std::vector<double> max_min_rates(const std::vector<std::vector<int>>& flows,
                                         std::vector<double> room) {
  std::vector<double> rates(flows.size(), 0.0);
  std::vector<bool> fixed(flows.size(), false);
  while (true) {
    std::vector<int> open(room.size(), 0);
    for (std::size_t i = 0; i < flows.size(); ++i)
      if (!fixed[i])
        for (const int link : flows[i]) ++open[static_cast<std::size_t>(link)];
    const auto share = [&](std::size_t link) { return room[link] / open[link]; };
    std::size_t tightest = room.size();
    for (std::size_t link = 0; link < room.size(); ++link)
      if (open[link] > 0 && (tightest == room.size() || share(link) < share(tightest)))
        tightest = link;
    if (tightest == room.size()) return rates;
    const double level = share(tightest);
    for (std::size_t i = 0; i < flows.size(); ++i) {
      if (fixed[i] ||
          std::find(flows[i].begin(), flows[i].end(), static_cast<int>(tightest)) == flows[i].end())
        continue;
      fixed[i] = true;
      rates[i] = level;
      for (const int link : flows[i]) room[static_cast<std::size_t>(link)] -= level;
    }
  }
}

}  // namespace stepcast
