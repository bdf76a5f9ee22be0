#include "cli/answer.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/text.hpp"
#include "collective/algorithms.hpp"
#include "collective/cluster.hpp"
#include "collective/protocols.hpp"
#include "engine/isolate.hpp"
#include "report/render.hpp"
#include "report/report.hpp"

namespace stepcast {
namespace {

constexpr std::size_t most_groups = 8;  // that are told one by one

/// What the answer needs of a point.
struct Seen {
  std::size_t index = 0;
  std::int64_t gpus = 1;
  double efficiency = 1.0;
};

/// Points that differ in their number of GPUs only.
struct Group {
  std::string name;  ///< the other settings, empty when there are none
  std::vector<Seen> points;
};

std::vector<Group> groups_of(const Study& study,
                             const std::function<std::string(std::size_t)>& result_of) {
  std::vector<Group> groups;
  std::map<std::string, std::size_t> known;
  for (std::size_t i = 0; i < study.points.size(); ++i) {
    const JsonDocument document = JsonDocument::parse(result_of(i), "point");
    const JsonView point = document.root();
    if (point.find("error")) continue;
    std::vector<std::string> others;
    for (const auto& [key, value] : point.at("settings").members())
      if (key != "cluster.gpus")
        others.push_back(
            fmt::format("{} = {}", key, value.is_string() ? value.string() : value.dump()));
    const std::string name = fmt::format("{}", fmt::join(others, ", "));
    const auto [place, is_new] = known.emplace(name, groups.size());
    if (is_new) groups.push_back({name, {}});
    groups[place->second].points.push_back(
        {i, point.at("world_size").integer(1, 1 << 30), point.at("scaling_efficiency").number()});
  }
  for (Group& group : groups)
    std::stable_sort(group.points.begin(), group.points.end(),
                     [](const Seen& a, const Seen& b) { return a.gpus < b.gpus; });
  return groups;
}

std::string percent(double fraction) { return fmt::format("{:.1f} %", 100.0 * fraction); }

/// The first point under the threshold, if there is one.
const Seen* first_below(const Group& group, double threshold) {
  const auto found = std::find_if(group.points.begin(), group.points.end(),
                                  [&](const Seen& seen) { return seen.efficiency < threshold; });
  return found == group.points.end() ? nullptr : &*found;
}

std::string where_it_falls(const Group& group, double threshold) {
  const std::string who = group.name.empty() ? "" : group.name + ": ";
  const Seen* below = first_below(group, threshold);
  if (below == nullptr) {
    const Seen& worst =
        *std::min_element(group.points.begin(), group.points.end(),
                          [](const Seen& a, const Seen& b) { return a.efficiency < b.efficiency; });
    return fmt::format("{}the efficiency stays above {:.4g} %: at least {}, at {} GPUs of up to {}",
                       who, 100.0 * threshold, percent(worst.efficiency), worst.gpus,
                       group.points.back().gpus);
  }
  std::string text = fmt::format("{}the efficiency falls under {:.4g} % at {} GPUs ({}", who,
                                 100.0 * threshold, below->gpus, percent(below->efficiency));
  if (below != &group.points.front())
    text += fmt::format("; {} at {}", percent((below - 1)->efficiency), (below - 1)->gpus);
  return text + ")";
}

/// How much of the time under collectives the busiest link needs for its bytes.
struct Busiest {
  double share = 0.0;
  std::string kind, name;
};
Busiest busiest_link(const JsonView& point) {
  Busiest busiest;
  const double comm = point.at("comm_s").number();
  for (const JsonView& link : point.at("links").elements()) {
    const double share = comm > 0.0 ? link.at("busiest_utilisation").number() *
                                          point.at("step_time_s").number() / comm
                                    : 0.0;
    if (share <= busiest.share) continue;
    busiest = {share, link.at("kind").string(), link.at("busiest_link").string()};
  }
  return busiest;
}

/// The part of the step beyond that of one GPU that is largest, and what is behind it
/// (docs/results.md, Answer).
std::string bottleneck(const JsonView& point) {
  constexpr double nothing = 0.005;   // of the step
  constexpr double link_share = 0.5;  // of the time under collectives
  const double step = point.at("step_time_s").number();
  const double lost = step * (1.0 - point.at("scaling_efficiency").number());
  const double exposed = point.at("split").at("exposed_comm_s").number();
  const double wait = point.at("split").at("wait_s").number();
  const double slowed = std::max(0.0, lost - exposed - wait);
  const auto part = [&](double seconds) {
    return fmt::format("{:.3f} of the {:.3f} ms that the step takes more than on one GPU",
                       1e3 * seconds, 1e3 * lost);
  };
  if (point.at("host_bound").boolean())
    return "the host: it issues kernels for the whole step, so that faster GPUs or links would "
           "not shorten it";
  if (lost < nothing * step)
    return fmt::format("nothing worth speaking of: the step takes {} more than on one GPU",
                       percent(lost / step));
  if (exposed >= wait && exposed >= slowed) {
    const Busiest busiest = busiest_link(point);
    if (busiest.share >= link_share)
      return fmt::format(
          "the {} links: exposed communication is {}, and while collectives run "
          "{} is busy for {:.0f} % of the time",
          busiest.kind == "inter_node" ? "inter-node" : "intra-node", part(exposed), busiest.name,
          100.0 * busiest.share);
    return fmt::format(
        "latency: exposed communication is {}, but while collectives run even the "
        "busiest link is busy for {:.0f} % of the time only; the rest are overheads "
        "of their steps",
        part(exposed), 100.0 * busiest.share);
  }
  if (wait >= slowed) return fmt::format("stragglers: waiting for other ranks is {}", part(wait));
  return fmt::format(
      "computation: kernels that a collective runs beside take {:.2f} x as long, and "
      "gradients are copied and divided; that is {}",
      point.at("interference").at("computation_factor").number(), part(slowed));
}

// What if ----------------------------------------------------------------------------------------

struct Change {
  std::string name;
  std::string algorithm;  ///< of many, only the best is told
  Point from, to;
};

template <class T>
std::shared_ptr<T> copy_of(const std::shared_ptr<const T>& value) {
  return std::make_shared<T>(*value);
}

/// The point without its measured curves, and the same with all alphas and latencies halved: what
/// was measured holds for the alphas that there were, so the mechanism has to say.
std::pair<Point, Point> with_half_latency(const Point& point) {
  constexpr double half = 0.5;
  const Cluster cluster(*point.platform, point.calibration.get(), point.scenario.gpus,
                        point.scenario.gpus_origin, point.scenario.placement);
  Calibration calibration = point.calibration ? *point.calibration : Calibration{};
  calibration.samples.clear();
  calibration.protocols = protocols_of(cluster);
  Point from = point;
  from.calibration = std::make_shared<const Calibration>(calibration);
  for (ProtocolFigures& protocol : calibration.protocols) {
    protocol.alpha_intra_node = half * protocol.alpha_intra_node;
    protocol.alpha_inter_node = half * protocol.alpha_inter_node;
    protocol.latency_intra_node = half * protocol.latency_intra_node;
    protocol.latency_inter_node = half * protocol.latency_inter_node;
  }
  Point to = point;
  to.calibration = std::make_shared<const Calibration>(std::move(calibration));
  return {from, to};
}

std::vector<Change> changes_of(const Point& point, const JsonView& result) {
  std::vector<Change> changes;
  const auto add = [&](const std::string& name, const Point& to,
                       const std::string& algorithm = "") {
    changes.push_back({name, algorithm, point, to});
  };
  constexpr double faster = 1.1;
  auto platform = copy_of(point.platform);
  platform->intra_node.bandwidth = faster * platform->intra_node.bandwidth;
  if (platform->nics)
    platform->nics->figures.bandwidth = faster * platform->nics->figures.bandwidth;
  if (auto& pair = platform->fabric.node_pair) pair = faster * *pair;
  Point changed = point;
  changed.platform = platform;
  add("10 % faster network, in and between nodes", changed);

  auto [from, to] = with_half_latency(point);
  changes.push_back({"half the latency (alpha)", "", std::move(from), std::move(to)});

  const TrainingSettings& training = point.scenario.training;
  if (training.sync == SyncMode::ddp)
    for (const std::int64_t bytes : {2 * training.bucket_cap_bytes,
                                     std::max<std::int64_t>(1, training.bucket_cap_bytes / 2)}) {
      changed = point;
      changed.scenario.training.bucket_cap_bytes = bytes;
      add(fmt::format("buckets of {} instead of {}", format_bytes(static_cast<double>(bytes)),
                      format_bytes(static_cast<double>(training.bucket_cap_bytes))),
          changed);
    }

  std::set<std::string> used;
  for (const JsonView& bucket : result.at("buckets").elements())
    if (bucket.at("operation").string() == "all_reduce")
      used.insert(bucket.at("algorithm").string());
  for (const std::string& algorithm : collective_algorithms(Operation::all_reduce).names()) {
    if (used.contains(algorithm)) continue;
    changed = point;
    CollectiveSettings& collective = changed.scenario.collective;
    collective.algorithm = {algorithm, "--answer"};
    collective.allowed_algorithms.clear();
    add(fmt::format("{}, the best other algorithm", algorithm), changed, algorithm);
  }

  changed = point;
  ++changed.scenario.training.accumulation_steps;
  add(fmt::format("{} accumulation steps instead of {}", training.accumulation_steps + 1,
                  training.accumulation_steps),
      changed);
  return changes;
}

/// Time for each sample; empty when the point cannot be simulated.
std::optional<double> time_per_sample(const Outcome& outcome) {
  if (outcome.kind != Outcome::Kind::done) return std::nullopt;
  const JsonDocument document = JsonDocument::parse(outcome.text, "point");
  return document.root().at("step_time_s").number() / document.root().at("global_batch").number();
}

std::string sensitivity(const Point& point, const JsonView& result, const AnswerOptions& options) {
  const std::vector<Change> changes = changes_of(point, result);
  const std::vector<Outcome> outcomes =
      run_isolated(2 * changes.size(), options.jobs, [&](std::size_t index) {
        const Change& change = changes[index / 2];
        return options.simulate(index % 2 == 0 ? change.from : change.to);
      });
  std::vector<Row> rows;
  std::optional<std::size_t> algorithm_row;
  double best_algorithm = 0.0;
  for (std::size_t i = 0; i < changes.size(); ++i) {
    const auto before = time_per_sample(outcomes[2 * i]);
    const auto after = time_per_sample(outcomes[2 * i + 1]);
    if (!before || !after) continue;
    const double change = *after / *before - 1.0;
    const Row row = {"  " + changes[i].name, fmt::format("{:+.2f} %", 100.0 * change)};
    if (changes[i].algorithm.empty()) {
      rows.push_back(row);
    } else if (!algorithm_row) {
      algorithm_row = rows.size();
      best_algorithm = change;
      rows.push_back(row);
    } else if (change < best_algorithm) {
      best_algorithm = change;
      rows[*algorithm_row] = row;
    }
  }
  return render(rows, /*left=*/1);
}

}  // namespace

std::string answer(const Study& study, const std::function<std::string(std::size_t)>& result_of,
                   const AnswerOptions& options) {
  const std::vector<Group> groups = groups_of(study, result_of);
  if (groups.empty()) return {};
  std::string text = "Answer\n";
  const Seen* looked_at = nullptr;  // the first under the threshold, else the worst
  bool is_below = false;
  for (std::size_t i = 0; i < groups.size(); ++i) {
    if (i < most_groups) text += "  " + where_it_falls(groups[i], options.threshold) + "\n";
    const Seen* below = first_below(groups[i], options.threshold);
    if (below != nullptr && !is_below) {
      looked_at = below;
      is_below = true;
    }
    for (const Seen& seen : groups[i].points)
      if (!is_below && (looked_at == nullptr || seen.efficiency < looked_at->efficiency))
        looked_at = &seen;
  }
  if (groups.size() > most_groups)
    text += fmt::format("  and {} more settings\n", groups.size() - most_groups);
  const Point point = study.points[looked_at->index];
  const JsonDocument document = JsonDocument::parse(result_of(looked_at->index), "point");
  const JsonView result = document.root();
  const std::string where =
      point.settings.empty() ? fmt::format("{} GPUs", looked_at->gpus) : point_name(point);
  if (looked_at->gpus == 1) return text;
  text += fmt::format("\nWhat keeps it down at {}: {}.\n", where, bottleneck(result));
  text += fmt::format("\nTime per sample at {} would change with\n{}", where,
                      sensitivity(point, result, options));
  return text;
}

}  // namespace stepcast
