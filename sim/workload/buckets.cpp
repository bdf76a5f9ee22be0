#include "workload/buckets.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <map>
#include <numeric>
#include <string>
#include <utility>

namespace stepcast {
namespace {

const Parameter& parameter_of(const std::vector<Parameter>& parameters,
                              const ReadyGradient& gradient) {
  return parameters[static_cast<std::size_t>(gradient.parameter)];
}

void add(Collective& collective, const std::vector<Parameter>& parameters,
         const ReadyGradient& gradient) {
  collective.parameters.push_back(gradient.parameter);
  collective.bytes += parameter_of(parameters, gradient).bytes();
}

/// The first tick at which something is known to be ready.
Seconds tick_after(Seconds ready, Seconds cycle) {
  return std::max(ready, std::ceil(ready / cycle) * cycle);  // not before it by rounding
}

}  // namespace

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

std::vector<Collective> initial_ddp_buckets(const std::vector<Parameter>& parameters,
                                            std::int64_t first_bytes, std::int64_t cap_bytes) {
  std::vector<int> registered(parameters.size());
  std::iota(registered.begin(), registered.end(), 0);
  std::vector<Collective> buckets = ddp_buckets(parameters, registered, first_bytes, cap_bytes);
  // PyTorch sorts them by their first parameter where no order is given.
  std::sort(buckets.begin(), buckets.end(), [](const Collective& a, const Collective& b) {
    return a.parameters.front() > b.parameters.front();
  });
  return buckets;
}

std::vector<Collective> merged_buckets(const std::vector<Parameter>& parameters,
                                       const std::vector<ReadyGradient>& ready,
                                       const MergeCost& cost) {
  std::vector<Collective> buckets;
  Collective open;
  Seconds free;  // when the AllReduces so far are done
  for (std::size_t i = 0; i < ready.size(); ++i) {
    add(open, parameters, ready[i]);
    const Seconds start = std::max(free, ready[i].at);
    const bool merges =
        i + 1 < ready.size() && ready[i + 1].at - start < cost.overhead &&
        parameter_of(parameters, ready[i + 1]).dtype == parameter_of(parameters, ready[i]).dtype;
    if (merges) continue;
    free = start + cost.overhead + Bytes{static_cast<double>(open.bytes)} / cost.rate;
    buckets.push_back(std::exchange(open, {}));
  }
  return buckets;
}

std::vector<TimedLaunch> horovod_launches(const std::vector<Parameter>& parameters,
                                          const std::vector<ReadyGradient>& ready,
                                          std::int64_t fusion_bytes, Seconds cycle) {
  std::vector<TimedLaunch> launches;
  for (std::size_t begin = 0; begin < ready.size();) {
    const Seconds tick = tick_after(ready[begin].at, cycle);
    std::size_t end = begin;
    while (end < ready.size() && ready[end].at <= tick) ++end;
    std::vector<ReadyGradient> waiting(ready.begin() + static_cast<std::ptrdiff_t>(begin),
                                       ready.begin() + static_cast<std::ptrdiff_t>(end));
    begin = end;
    while (!waiting.empty()) {
      const std::string& dtype = parameter_of(parameters, waiting.front()).dtype;
      Collective fused;
      std::vector<ReadyGradient> left;
      for (const ReadyGradient& gradient : waiting) {
        const Parameter& parameter = parameter_of(parameters, gradient);
        const bool fits =
            parameter.dtype == dtype && fused.bytes + parameter.bytes() <= fusion_bytes;
        if (fused.parameters.empty() || fits)
          add(fused, parameters, gradient);
        else
          left.push_back(gradient);
      }
      launches.push_back({tick, std::move(fused)});
      waiting = std::move(left);
    }
  }
  return launches;
}

}  // namespace stepcast
