#include "workload/micro_batch.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

namespace stepcast {
namespace {

using Steps = std::vector<MeasuredStep>;

/// Where a micro-batch lies among the measured ones.
struct Place {
  double wanted = 0.0;
  std::vector<double> measured;  ///< micro-batches, rising
  [[nodiscard]] bool above() const { return wanted > measured.back(); }
  [[nodiscard]] bool below() const { return wanted < measured.front(); }
  /// First of the two measured ones whose line is followed; with one measured there is none.
  [[nodiscard]] std::size_t segment() const {
    std::size_t i = 0;
    while (i + 2 < measured.size() && measured[i + 1] < wanted) ++i;
    return i;
  }
  [[nodiscard]] double share() const {
    const std::size_t i = segment();
    return (wanted - measured[i]) / (measured[i + 1] - measured[i]);
  }
  [[nodiscard]] std::size_t nearest() const {
    std::size_t best = 0;
    for (std::size_t i = 1; i < measured.size(); ++i)
      if (std::abs(measured[i] - wanted) < std::abs(measured[best] - wanted)) best = i;
    return best;
  }
};

/// What grows with the micro-batch: t0 + k b between neighbours, their tail beyond the last, and
/// before the first whatever slope they begin with, flat if they are launch bound there.
double growing(const Place& place, const std::vector<double>& values, double floor) {
  const double first = values.front();
  const double least = std::min(first, floor);
  if (values.size() == 1) return least + (first - least) * place.wanted / place.measured.front();
  const std::size_t i = place.segment();
  if (!place.above() && !place.below())
    return values[i] + place.share() * (values[i + 1] - values[i]);
  const double slope =
      std::max(0.0, (values[i + 1] - values[i]) / (place.measured[i + 1] - place.measured[i]));
  if (place.above()) return values.back() + slope * (place.wanted - place.measured.back());
  // A smaller micro-batch is never the more efficient one: t0 >= 0.
  const double steepest = first / place.measured.front();
  return std::max(least,
                  first - std::min(slope, steepest) * (place.measured.front() - place.wanted));
}

/// What does not: only noise lies between the measured values.
double steady(const Place& place, const std::vector<double>& values) {
  if (place.above() || values.size() == 1) return values.back();
  if (place.below()) return values.front();
  const std::size_t i = place.segment();
  return values[i] + place.share() * (values[i + 1] - values[i]);
}

using Spans = std::vector<Span> MeasuredStep::*;

double total_s(const std::vector<Span>& spans) {
  double sum = 0.0;
  for (const Span& span : spans) sum += span.duration.value();
  return sum;
}

bool same_spans(const Steps& steps, Spans phase) {
  const std::vector<Span>& first = steps.front().*phase;
  return std::all_of(steps.begin(), steps.end(), [&](const MeasuredStep& step) {
    return std::equal(first.begin(), first.end(), (step.*phase).begin(), (step.*phase).end(),
                      [](const Span& a, const Span& b) {
                        return a.name == b.name && a.gradients == b.gradients;
                      });
  });
}

template <class Value>
std::vector<double> across(const Steps& steps, const Value& value) {
  std::vector<double> values;
  values.reserve(steps.size());
  for (const MeasuredStep& step : steps) values.push_back(value(step));
  return values;
}

/// One phase of the step. `scales`: its kernels work on samples, those of the optimizer do not.
std::vector<Span> phase_at(const Steps& steps, const Place& place, Spans phase, bool scales,
                           Seconds kernel_floor) {
  std::vector<Span> spans = steps[place.nearest()].*phase;
  const auto duration_of = [&](const std::vector<double>& values) {
    return scales ? growing(place, values, kernel_floor.value()) : steady(place, values);
  };
  if (!same_spans(steps, phase)) {
    // Other kernels were chosen at another micro-batch: the total is all they share.
    const double before = total_s(spans);
    const double after =
        duration_of(across(steps, [&](const MeasuredStep& step) { return total_s(step.*phase); }));
    for (Span& span : spans)
      if (before > 0.0) span.duration = span.duration * (after / before);
    return spans;
  }
  for (std::size_t i = 0; i < spans.size(); ++i) {
    const auto of_span = [&](auto value) {
      return across(steps, [&](const MeasuredStep& step) { return value((step.*phase)[i]); });
    };
    spans[i].duration =
        Seconds{duration_of(of_span([](const Span& span) { return span.duration.value(); }))};
    // The host issues the same kernels whatever they work on.
    spans[i].gap =
        Seconds{steady(place, of_span([](const Span& span) { return span.gap.value(); }))};
    spans[i].host =
        Seconds{steady(place, of_span([](const Span& span) { return span.host.value(); }))};
  }
  return spans;
}

MeasuredStep synthesise(const Steps& steps, std::int64_t micro_batch, Seconds kernel_floor) {
  const Place place{static_cast<double>(micro_batch), across(steps, [](const MeasuredStep& step) {
                      return static_cast<double>(step.micro_batch);
                    })};
  const MeasuredStep& near = steps[place.nearest()];
  MeasuredStep made = near;
  made.micro_batch = micro_batch;
  made.forward = phase_at(steps, place, &MeasuredStep::forward, true, kernel_floor);
  made.backward = phase_at(steps, place, &MeasuredStep::backward, true, kernel_floor);
  made.finalize = phase_at(steps, place, &MeasuredStep::finalize, false, kernel_floor);
  made.optimizer = phase_at(steps, place, &MeasuredStep::optimizer, false, kernel_floor);
  // The spread of the nearest measured steps, relative to their median.
  const double scale = made.total() / near.total();
  for (Seconds* time : {&made.fastest, &made.median, &made.slowest}) *time = *time * scale;

  made.activation_bytes.reset();
  if (std::all_of(steps.begin(), steps.end(),
                  [](const MeasuredStep& step) { return step.activation_bytes.has_value(); }))
    made.activation_bytes =
        std::llround(growing(place,
                             across(steps,
                                    [](const MeasuredStep& step) {
                                      return static_cast<double>(*step.activation_bytes);
                                    }),
                             0.0));
  return made;
}

/// Medians of |made / measured - 1| where 31 micro-batches of four models on a T4 are each made
/// from the others (docs/model.md §1.4): where too few were measured to say how far these are off.
constexpr double error_between = 0.01;
constexpr double error_beyond = 0.02;
constexpr double error_of_one_per_doubling = 0.1;

/// How far the nearest measured step is from what the others make of it, in the same way: between
/// them for an interpolation, beyond them for an extrapolation.
double left_out_error(const Steps& steps, std::int64_t micro_batch, Seconds kernel_floor) {
  const auto error_without = [&](std::size_t index) {
    Steps others = steps;
    others.erase(others.begin() + static_cast<std::ptrdiff_t>(index));
    const MeasuredStep made = synthesise(others, steps[index].micro_batch, kernel_floor);
    return std::abs(made.total() / steps[index].total() - 1.0);
  };
  if (micro_batch < steps.front().micro_batch) return error_without(0);
  if (micro_batch > steps.back().micro_batch) return error_without(steps.size() - 1);
  double worst = 0.0;
  for (std::size_t i = 1; i + 1 < steps.size(); ++i)
    if (steps[i - 1].micro_batch < micro_batch && micro_batch < steps[i + 1].micro_batch)
      worst = std::max(worst, error_without(i));
  return worst;
}

double error_of(const Steps& steps, std::int64_t micro_batch, bool inside, Seconds kernel_floor) {
  if (steps.size() > 2) return left_out_error(steps, micro_batch, kernel_floor);
  if (steps.size() == 2) return inside ? error_between : error_beyond;
  return error_of_one_per_doubling *
         std::abs(std::log2(static_cast<double>(micro_batch) /
                            static_cast<double>(steps.front().micro_batch)));
}

}  // namespace

StepEstimate step_at(const StepTrace& trace, std::int64_t micro_batch, Seconds kernel_floor) {
  const Steps& steps = trace.measured;
  const auto same = std::find_if(steps.begin(), steps.end(), [&](const MeasuredStep& step) {
    return step.micro_batch == micro_batch;
  });
  StepEstimate estimate;
  if (same != steps.end()) {
    estimate.step = *same;
  } else {
    const bool inside =
        steps.front().micro_batch < micro_batch && micro_batch < steps.back().micro_batch;
    estimate = {synthesise(steps, micro_batch, kernel_floor),
                inside ? Basis::interpolated : Basis::extrapolated,
                error_of(steps, micro_batch, inside, kernel_floor)};
  }
  if (trace.modelled) estimate.basis = Basis::mechanism;
  return estimate;
}

}  // namespace stepcast
