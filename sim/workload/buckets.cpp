#include "workload/buckets.hpp"

#include <algorithm>
#include <map>
#include <string>

namespace stepcast {

std::vector<Collective> ddp_buckets(const std::vector<Parameter>& parameters,
                                    const std::vector<int>& ready_order, std::int64_t first_bytes,
                                    std::int64_t cap_bytes) {
  struct Closing {
    Collective bucket;
    std::size_t complete_at;  // place in ready_order of the last gradient
  };
  struct Open {
    Collective bucket;
    std::int64_t limit;
    std::size_t last = 0;
  };
  std::vector<Closing> closed;
  std::map<std::string, Open> open;  // one open bucket per dtype
  for (std::size_t place = 0; place < ready_order.size(); ++place) {
    const Parameter& parameter = parameters[static_cast<std::size_t>(ready_order[place])];
    Open& current = open.try_emplace(parameter.dtype, Open{{}, first_bytes, 0}).first->second;
    current.bucket.parameters.push_back(ready_order[place]);
    current.bucket.bytes += parameter.bytes();
    current.last = place;
    if (current.bucket.bytes >= current.limit) {
      closed.push_back({std::move(current.bucket), place});
      current = {{}, cap_bytes, 0};
    }
  }
  for (auto& [dtype, rest] : open)
    if (!rest.bucket.parameters.empty()) closed.push_back({std::move(rest.bucket), rest.last});
  std::sort(closed.begin(), closed.end(),
            [](const Closing& a, const Closing& b) { return a.complete_at < b.complete_at; });
  std::vector<Collective> buckets;
  buckets.reserve(closed.size());
  for (Closing& bucket : closed) buckets.push_back(std::move(bucket.bucket));
  return buckets;
}

}  // namespace stepcast
