#include "workload/buckets.hpp"

#include <algorithm>
#include <map>
#include <string>

namespace stepcast {

std::vector<Collective> ddp_buckets(const std::vector<Parameter>& parameters,
                                    const std::vector<int>& ready_order, std::int64_t first_bytes,
                                    std::int64_t cap_bytes) {
  struct Open {
    Collective bucket;
    std::int64_t limit;
    std::size_t last = 0;  // place in ready_order of the last gradient
  };
  std::vector<Collective> buckets;
  std::map<std::string, Open> open;  // one open bucket per dtype
  for (std::size_t place = 0; place < ready_order.size(); ++place) {
    const Parameter& parameter = parameters[static_cast<std::size_t>(ready_order[place])];
    Open& current = open.try_emplace(parameter.dtype, Open{{}, first_bytes, 0}).first->second;
    current.bucket.parameters.push_back(ready_order[place]);
    current.bucket.bytes += parameter.bytes();
    current.last = place;
    if (current.bucket.bytes >= current.limit) {
      buckets.push_back(std::move(current.bucket));
      current = {{}, cap_bytes, 0};
    }
  }
  // What never reached its limit comes last; PyTorch's order among several dtypes is a hash
  // table's.
  std::vector<Open> rests;
  for (auto& [dtype, rest] : open)
    if (!rest.bucket.parameters.empty()) rests.push_back(std::move(rest));
  std::sort(rests.begin(), rests.end(),
            [](const Open& a, const Open& b) { return a.last < b.last; });
  for (Open& rest : rests) buckets.push_back(std::move(rest.bucket));
  return buckets;
}

}  // namespace stepcast
