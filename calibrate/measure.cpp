#include "measure.hpp"

#include <algorithm>
#include <optional>
#include <vector>

#include <fmt/format.h>

namespace stepcast::calibrate {
namespace {

constexpr char source[] = "measured by stepcast-calibrate";

/// Nodes of the first `ranks` processes, which fill node after node.
int nodes_of(int ranks, const Backend& backend) {
  const int per_node = (backend.world_size() + backend.nodes() - 1) / backend.nodes();
  return (ranks + per_node - 1) / per_node;
}

/// Measures whatever a case is into an Outcome that has its name already.
class Measurement {
 public:
  Measurement(Backend& backend, const Accuracy& accuracy, Outcome& outcome)
      : backend_(backend), accuracy_(accuracy), outcome_(outcome) {}

  void operator()(const ComputeCase& what) {
    outcome_.array = "compute";
    outcome_.entry = to_json(what);
    backend_.prepare(what);
    const std::optional<bool> correct = backend_.is_correct(what);
    add_samples(what);
    if (!correct) return;
    outcome_.entry["correct"] = *correct;
    if (!*correct) outcome_.problems.push_back("left wrong numbers");
  }

  void operator()(const CollectiveCase& what) {
    outcome_.array = "samples";
    outcome_.entry = to_json(what);
    outcome_.entry["nodes"] = nodes_of(what.ranks, backend_);
    backend_.prepare(what);
    const bool correct = backend_.from_rank_0(backend_.is_correct(what) ? 1 : 0) != 0;
    add_samples(what);
    outcome_.entry["correct"] = correct;
    if (!correct) outcome_.problems.push_back("left wrong numbers");
    const double own_estimate_s = backend_.own_estimate(what);
    if (own_estimate_s >= 0) outcome_.entry["own_estimate_s"] = own_estimate_s;
    outcome_.entry["source"] = source;
  }

  void operator()(const InterferenceCase& what) {
    backend_.prepare(what.compute);
    backend_.prepare(what.collective);
    constexpr int calls = 10;
    constexpr int samples = 7;
    std::vector<double> values[4];
    for (int i = -1; i < samples; ++i) {  // the first is discarded
      const InterferenceTimes times = backend_.time(what, calls);
      if (i < 0) continue;
      values[0].push_back(times.compute_alone_s);
      values[1].push_back(times.compute_beside_s);
      values[2].push_back(times.collective_alone_s);
      values[3].push_back(times.collective_beside_s);
    }
    for (auto& times : values)
      std::nth_element(times.begin(), times.begin() + samples / 2, times.end());
    outcome_.array = "interference";
    outcome_.entry = {{"compute", to_json(what.compute)},
                      {"collective", to_json(what.collective)},
                      {"compute_alone_s", values[0][samples / 2]},
                      {"compute_beside_s", values[1][samples / 2]},
                      {"collective_alone_s", values[2][samples / 2]},
                      {"collective_beside_s", values[3][samples / 2]}};
  }

 private:
  template <class What>
  void add_samples(const What& what) {
    const Statistics times =
        sample({[&](int calls) { return backend_.time(what, calls); },
                [&](double value) { return backend_.from_rank_0(value); }, steady_now},
               accuracy_);
    add_times(outcome_.entry, times);
    if (!times.reached)
      outcome_.problems.push_back(
          fmt::format("did not reach a precision of {:g} %", 100 * accuracy_.precision));
  }

  Backend& backend_;
  const Accuracy& accuracy_;
  Outcome& outcome_;
};

struct Obstacle {
  const Backend& backend;
  std::string operator()(const InterferenceCase& what) const {
    const std::string first = backend.obstacle(what.compute);
    return first.empty() ? backend.obstacle(what.collective) : first;
  }
  template <class What>
  std::string operator()(const What& what) const {
    return backend.obstacle(what);
  }
};

}  // namespace

std::string obstacle(const Case& what, const Backend& backend) {
  return std::visit(Obstacle{backend}, what);
}

Outcome measure(const PlannedCase& planned, Backend& backend, const Accuracy& accuracy) {
  Outcome outcome{name(planned), "", {}, {}};
  const std::string reason = obstacle(planned.what, backend);
  if (backend.from_rank_0(reason.empty() ? 0 : 1) != 0) {
    outcome.array = planned.again ? "repeats" : "skipped";
    outcome.entry = {{"case", outcome.name}, {"reason", reason}};
    return outcome;
  }
  std::visit(Measurement(backend, accuracy, outcome), planned.what);
  const Condition condition = backend.condition();
  if (condition.throttled) outcome.problems.push_back("ran while the GPU was throttled");
  if (condition.used_by_others) outcome.problems.push_back("ran while others used the GPU");
  if (planned.again) {
    outcome.array = "repeats";
    outcome.entry["first"] = name(planned.what);
  }
  return outcome;
}

bool measure_all(const std::vector<PlannedCase>& plan, Backend& backend, const Accuracy& accuracy,
                 Journal* journal, const volatile std::sig_atomic_t& stop,
                 const std::function<void(std::size_t)>& show) {
  for (std::size_t i = 0; i < plan.size(); ++i) {
    if (backend.from_rank_0(journal && journal->has(name(plan[i])) ? 1 : 0) != 0) continue;
    if (backend.from_rank_0(stop ? 1 : 0) != 0) return false;
    show(i);
    const Outcome outcome = measure(plan[i], backend, accuracy);
    if (journal) journal->append(outcome);
  }
  return true;
}

}  // namespace stepcast::calibrate
