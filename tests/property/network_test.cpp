// SimGrid behind the Network interface against an independent max-min fluid simulation.
#include "engine/network.hpp"

#include <algorithm>

#include "jobs.hpp"
#include "max_min.hpp"
#include "simulate.hpp"

namespace stepcast {
namespace {

struct Flow {
  std::vector<int> links;
  double bytes;
  double latency;
  double start;
};

/// Rates from each event to the next. Returns when each flow ends.
std::vector<double> max_min_reference(const std::vector<Flow>& flows,
                                      const std::vector<double>& bandwidths) {
  enum class State { before, active, done };
  std::vector<State> state(flows.size(), State::before);
  std::vector<double> left, end(flows.size(), 0.0);
  for (const Flow& flow : flows) left.push_back(flow.bytes);
  double now = 0.0;
  while (std::count(state.begin(), state.end(), State::done) <
         static_cast<std::ptrdiff_t>(flows.size())) {
    std::vector<std::size_t> active;
    std::vector<std::vector<int>> routes;
    for (std::size_t i = 0; i < flows.size(); ++i)
      if (state[i] == State::active) {
        active.push_back(i);
        routes.push_back(flows[i].links);
      }
    const std::vector<double> rates = max_min_rates(routes, bandwidths);
    double step = std::numeric_limits<double>::infinity();
    for (std::size_t i = 0; i < flows.size(); ++i)
      if (state[i] == State::before) step = std::min(step, flows[i].start + flows[i].latency - now);
    for (std::size_t k = 0; k < active.size(); ++k)
      step = std::min(step, left[active[k]] / rates[k]);
    now += std::max(step, 0.0);
    for (std::size_t k = 0; k < active.size(); ++k) {
      const std::size_t i = active[k];
      left[i] -= rates[k] * step;
      if (left[i] <= 1e-12 * flows[i].bytes) {
        state[i] = State::done;
        end[i] = now;
      }
    }
    for (std::size_t i = 0; i < flows.size(); ++i)
      if (state[i] == State::before && flows[i].start + flows[i].latency - now <= 1e-15)
        state[i] = State::active;
  }
  return end;
}

std::vector<double> simgrid_ends(const std::vector<Flow>& flows,
                                 const std::vector<double>& bandwidths) {
  struct Recorder final : Sink {
    const std::vector<Flow>& flows;
    Network network;
    std::vector<double> ends;
    explicit Recorder(const std::vector<Flow>& all) : flows(all), ends(all.size(), -1.0) {}
    void timer(std::uint64_t tag) override {
      const Flow& flow = flows[tag];
      network.start_flow(flow.links, Bytes{flow.bytes}, Seconds{flow.latency}, tag);
    }
    void flow_done(std::uint64_t tag) override { ends[tag] = network.now().value(); }
  } recorder(flows);
  for (const double bandwidth : bandwidths) recorder.network.add_link(BytesPerSecond{bandwidth});
  recorder.network.seal();
  for (std::size_t i = 0; i < flows.size(); ++i) recorder.network.at(Seconds{flows[i].start}, i);
  recorder.network.run(recorder);
  return recorder.ends;
}

TEST(Network, SharesContendedLinksMaxMinFairly) {
  for (const unsigned seed : {1u, 2u, 3u, 4u, 5u}) {
    Random random(seed);
    std::vector<double> bandwidths;
    for (int link = 0; link < 20; ++link) bandwidths.push_back(random.real(1e10, 1e11));
    std::vector<Flow> flows;
    for (int i = 0; i < 200; ++i) {
      Flow flow{{},
                std::floor(random.real(1e6, 1e7)),
                1e-6 * static_cast<double>(random.whole(0, 4)),
                random.real(0.0, 2e-3)};
      const auto hops = static_cast<std::size_t>(random.whole(1, 4));
      while (flow.links.size() < hops) {
        const auto link = static_cast<int>(random.whole(0, 19));
        if (std::find(flow.links.begin(), flow.links.end(), link) == flow.links.end())
          flow.links.push_back(link);
      }
      flows.push_back(std::move(flow));
    }
    const std::vector<double> expected = max_min_reference(flows, bandwidths);
    const std::vector<double> found =
        isolated_numbers([&] { return simgrid_ends(flows, bandwidths); });
    EXPECT_LE(worst_difference(expected, found), 1e-9) << "seed " << seed;
  }
}

TEST(Network, OneFlowTakesLatencyPlusBytesOverBandwidth) {
  for (const double latency : {0.0, 2e-6})
    for (const double bytes : {0.0, 1.0, 1e6 / 7, 1e12}) {
      const std::vector<Flow> flows = {{{0}, bytes, latency, 1e-3}};
      const double expected = 1e-3 + latency + bytes / 25e9;
      EXPECT_NEAR(isolated_numbers([&] { return simgrid_ends(flows, {25e9}); })[0] / expected, 1.0,
                  1e-9)
          << bytes;
    }
}

}  // namespace
}  // namespace stepcast
