// Drives a job on the Network: compute streams are chains of timers, transfers start when their
// dependencies have arrived and their connection is free. Nothing is created before it can start.
#include <algorithm>
#include <cmath>
#include <optional>

#include <fmt/format.h>

#include "base/error.hpp"
#include "engine/engine.hpp"
#include "engine/interference.hpp"
#include "engine/network.hpp"
#include "engine/plan.hpp"
#include "workload/replay.hpp"

namespace stepcast {
namespace {

// What a timer is for; with none of these bits it ends a rank's compute task, and bits 32 to 59 say
// which forecast of that end it is.
constexpr std::uint64_t launch_tag = std::uint64_t{1} << 63;
constexpr std::uint64_t arrival_tag = std::uint64_t{1} << 62;  // of a rank's last transfer
constexpr std::uint64_t host_tag = std::uint64_t{1} << 61;     // a rank's host comes to its task
constexpr std::uint64_t step_tag = std::uint64_t{1} << 60;     // all ranks begin the next step
constexpr std::uint64_t rank_mask = (std::uint64_t{1} << 32) - 1;
constexpr std::uint64_t forecast_mask = (std::uint64_t{1} << 28) - 1;

/// The transfers of one collective while they run.
class RunningCollective {
 public:
  /// A payload byte takes `work_per_byte` of a link's time, and everything `time_factor` of it.
  RunningCollective(const Plan& plan, double work_per_byte, double time_factor, Network& network)
      : work_per_byte_(work_per_byte),
        time_factor_(time_factor),
        plan_(plan),
        schedule_(plan.schedule),
        network_(network),
        missing_(plan.dependencies),
        known_(schedule_.transfers.size(), Seconds{0.0}),
        served_(schedule_.connections.size(), 0),
        busy_(schedule_.connections.size(), false),
        pending_of_end_(plan.transfers_of_end),
        end_done_(pending_of_end_.size(), Seconds{0.0}) {}

  void begin() {
    for (std::size_t connection = 0; connection < served_.size(); ++connection) serve(connection);
  }

  [[nodiscard]] bool involves(std::size_t rank) const { return pending_of_end_[rank] > 0; }

  /// A rank that has no transfer left, and when it has its last one.
  struct Idle {
    std::size_t rank;
    Seconds since;
  };

  std::vector<Idle> transfer_done(std::size_t transfer) {
    ++done_;
    const auto connection = static_cast<std::size_t>(schedule_.transfers[transfer].connection);
    busy_[connection] = false;
    ++served_[connection];
    serve(connection);
    const Seconds sent = network_.now();
    for (const auto& [index, heard_after] : plan_.dependents.of(transfer)) {
      const auto dependent = static_cast<std::size_t>(index);
      known_[dependent] = std::max(known_[dependent], sent + time_factor_ * heard_after);
      if (--missing_[dependent] == 0)
        serve(static_cast<std::size_t>(schedule_.transfers[dependent].connection));
    }
    std::vector<Idle> idle;
    const Seconds arrived = sent + time_factor_ * plan_.latency[connection];
    for (const auto& [end, time] :
         {std::pair{plan_.src[connection], sent}, std::pair{plan_.dst[connection], arrived}}) {
      const auto index = static_cast<std::size_t>(end);
      end_done_[index] = std::max(end_done_[index], time);
      if (--pending_of_end_[index] == 0 && end < schedule_.ranks)
        idle.push_back({index, end_done_[index]});
    }
    return idle;
  }

  [[nodiscard]] std::string waiting() const {
    for (std::size_t connection = 0; connection < served_.size(); ++connection) {
      const auto queue = plan_.queues.of(connection);
      if (static_cast<std::size_t>(served_[connection]) == queue.size()) continue;
      const auto transfer =
          static_cast<std::size_t>(queue[static_cast<std::size_t>(served_[connection])]);
      const Connection& ends = schedule_.connections[connection];
      return fmt::format(
          "{} of {} transfers done; chunk {} from rank {} to rank {} on channel {} {}", done_,
          schedule_.transfers.size(), schedule_.transfers[transfer].first_chunk, ends.src, ends.dst,
          ends.channel,
          busy_[connection] ? "never arrived"
                            : fmt::format("waits for {} earlier transfers", missing_[transfer]));
    }
    return "all transfers done";
  }

 private:
  /// Starts the connection's next transfer if it may.
  void serve(std::size_t connection) {
    const auto queue = plan_.queues.of(connection);
    const auto place = static_cast<std::size_t>(served_[connection]);
    if (busy_[connection] || place == queue.size()) return;
    const auto transfer = static_cast<std::size_t>(queue[place]);
    if (missing_[transfer] > 0) return;
    busy_[connection] = true;
    const Seconds until_known = std::max(Seconds{0.0}, known_[transfer] - network_.now());
    network_.start_flow(
        plan_.links[connection],
        schedule_.bytes_of(schedule_.transfers[transfer]) * (time_factor_ * work_per_byte_),
        until_known + time_factor_ * plan_.alpha[connection], transfer);
  }

  double work_per_byte_;
  double time_factor_;
  const Plan& plan_;
  const Schedule& schedule_;
  Network& network_;
  std::vector<int> missing_;    ///< dependencies still to be sent, by transfer
  std::vector<Seconds> known_;  ///< when the sender knows of those that were, by transfer
  std::vector<int> served_;     ///< by connection
  std::vector<bool> busy_;      ///< by connection
  std::vector<int> pending_of_end_;
  std::vector<Seconds> end_done_;
  std::size_t done_ = 0;
};

class Execution final : public Sink {
 public:
  explicit Execution(const Job& job)
      : job_(job),
        ranks_(static_cast<std::size_t>(job.cluster.ranks())),
        places_(ranks_),
        computing_(ranks_),
        host_(ranks_),
        has_host_(job.program.issue() > Seconds{}),
        warm_ups_left_(job.warm_ups()),
        slowed_(slowed_at_first(job)),
        done_(job.program.collectives.size()) {
    for (const BytesPerSecond bandwidth : job.cluster.bandwidths()) network_.add_link(bandwidth);
    for (const LoweredCollective& lowered : job.lowered)
      first_channel_link_.push_back(add_channel_links(lowered));
    network_.seal();
    timeline_.ranks = job.cluster.ranks();
    for (const Segment& segment : job.program.segments) {
      first_task_.push_back(timeline_.tasks);
      timeline_.tasks += segment.tasks.size();
      timeline_.segments.push_back({std::vector<Seconds>(ranks_), {}});
    }
    timeline_.task_times.resize(ranks_ * timeline_.tasks);
    timeline_.collectives.resize(job.program.collectives.size());
    segment_of_.resize(job.program.collectives.size());
    for (auto& times : timeline_.collectives) {
      times.ready.resize(ranks_);
      times.end.resize(ranks_);
    }
  }

  Timeline run() {
    begin_step();
    network_.run(*this);
    for (std::size_t rank = 0; rank < ranks_; ++rank)
      if (places_[rank].segment < job_.program.segments.size())
        throw SimulationError(deadlock(rank));
    add_repeats();
    return std::move(timeline_);
  }

  void timer(std::uint64_t tag) override {
    if (tag == launch_tag) {
      std::vector<std::size_t> idle;
      for (std::size_t rank = 0; rank < ranks_; ++rank)
        if (is_simulated(rank) && !running_->involves(rank)) idle.push_back(rank);
      running_->begin();
      finish(idle);
      return;
    }
    if (tag == step_tag) {
      slowed_ = slowed_as_in(job_, timeline_);
      begin_step();
      return;
    }
    const auto rank = static_cast<std::size_t>(tag & rank_mask);
    if ((tag & arrival_tag) != 0) {
      finish({rank});
    } else if ((tag & host_tag) != 0) {
      come_to_task(rank);
    } else if (((tag >> 32) & forecast_mask) == (computing_[rank].forecast & forecast_mask)) {
      computing_[rank].active = false;
      const auto& compute = std::get<Compute>(task_of(rank));
      if (compute.host_waits) host_[rank] = std::max(host_[rank], network_.now());
      end_task(rank);
      advance(rank);
    }
  }

  void flow_done(std::uint64_t tag) override {
    std::vector<std::size_t> done;
    for (const auto& [rank, since] : running_->transfer_done(static_cast<std::size_t>(tag))) {
      if (since > network_.now())
        network_.at(since - network_.now(), rank | arrival_tag);
      else
        done.push_back(rank);
    }
    finish(done);
  }

 private:
  struct Place {
    std::size_t segment = 0;
    std::size_t task = 0;  ///< inside the segment
    bool waits = false;
  };

  /// A rank's compute task while it runs.
  struct Computing {
    bool active = false;
    Seconds left;  ///< at `since`, in time alone
    Seconds since;
    double slowed = 1.0;         ///< by the collective that the rank takes part in
    std::uint64_t forecast = 0;  ///< number of the timer that counts
  };

  [[nodiscard]] const Task& task_of(std::size_t rank) const {
    const Place& place = places_[rank];
    return job_.program.segments[place.segment].tasks[place.task];
  }

  [[nodiscard]] Interval& times_of_task(std::size_t rank) {
    const Place& place = places_[rank];
    return timeline_.task_times[rank * timeline_.tasks + first_task_[place.segment] + place.task];
  }

  /// Gaps pass whatever the host does, and what a stream waits for does not wait for it.
  [[nodiscard]] static bool waits_for_host(const Task& task) {
    const auto* compute = std::get_if<Compute>(&task);
    return std::holds_alternative<Launch>(task) ||
           (compute != nullptr && compute->phase != Phase::host);
  }

  /// All ranks at once; their hosts may be ahead.
  void begin_step() {
    origin_ = network_.now();
    places_.assign(ranks_, {});
    local_passes_.assign(job_.program.segments.size(), {});
    for (auto& done : done_) done.assign(ranks_, false);
    handed_over_.assign(job_.program.collectives.size(), 0);
    queue_.clear();
    next_in_queue_ = 0;
    ranks_done_ = 0;
    for (std::size_t rank = 0; rank < ranks_; ++rank) advance(rank);
  }

  /// The compute stream and the host have come to the task.
  void come_to_task(std::size_t rank) {
    const Task& task = task_of(rank);
    if (const auto* launch = std::get_if<Launch>(&task)) {
      hand_over(rank, static_cast<std::size_t>(launch->collective));
      end_task(rank);
      advance(rank);
      return;
    }
    const auto& compute = std::get<Compute>(task);
    times_of_task(rank).begin = network_.now();
    host_[rank] += compute.host;
    if (compute.phase == Phase::host) {
      network_.at(compute.duration, forecast_of(rank));
      return;
    }
    Computing& computing = computing_[rank];
    computing.active = true;
    computing.left = job_.pace_of(rank) * compute.duration;
    computing.since = network_.now();
    network_.at(computing.slowed * computing.left, forecast_of(rank));
  }

  /// Tag of a new timer for the end of the rank's task; older ones no longer count.
  [[nodiscard]] std::uint64_t forecast_of(std::size_t rank) {
    return rank | ((++computing_[rank].forecast & forecast_mask) << 32);
  }

  void slow_computation(std::size_t rank, double factor) {
    Computing& computing = computing_[rank];
    if (computing.slowed == factor) return;
    if (computing.active) {
      const Seconds now = network_.now();
      const Seconds done = (now - computing.since) / computing.slowed;
      computing.left = std::max(Seconds{}, computing.left - done);
      computing.since = now;
      network_.at(factor * computing.left, forecast_of(rank));
    }
    computing.slowed = factor;
  }

  void end_task(std::size_t rank) {
    times_of_task(rank).end = network_.now();
    ++places_[rank].task;
  }

  /// Runs a rank's program until something must be waited for.
  void advance(std::size_t rank) {
    Place& place = places_[rank];
    for (; place.segment < job_.program.segments.size(); ++place.segment, place.task = 0) {
      const Segment& segment = job_.program.segments[place.segment];
      while (place.task < segment.tasks.size()) {
        const Task& task = segment.tasks[place.task];
        times_of_task(rank).begin = network_.now();
        if (waits_for_host(task) && host_[rank] > network_.now()) {
          network_.at(host_[rank] - network_.now(), rank | host_tag);
          return;
        }
        if (!std::holds_alternative<Wait>(task)) {
          come_to_task(rank);
          return;
        }
        if (!done_[static_cast<std::size_t>(std::get<Wait>(task).collective)][rank]) {
          place.waits = true;
          return;
        }
        end_task(rank);
      }
      timeline_.segments[place.segment].first_end[rank] = network_.now();
      if (has_host_ && segment.repeat > 1 && segment.is_local()) {
        const Clocks clocks = after_passes(segment, segment.repeat - 1, job_.pace_of(rank),
                                           {network_.now(), host_[rank]});
        local_passes_[place.segment].push_back(clocks.compute);
        host_[rank] = network_.now() - (clocks.compute - clocks.host);
      }
    }
    if (++ranks_done_ == ranks_ && warm_ups_left_ > 0) {
      --warm_ups_left_;
      network_.at(Seconds{}, step_tag);
    }
  }

  void hand_over(std::size_t rank, std::size_t collective) {
    timeline_.collectives[collective].ready[rank] = network_.now();
    segment_of_[collective] = places_[rank].segment;
    if (++handed_over_[collective] == ranks_) {
      queue_.push_back(collective);
      start_next();
    }
  }

  /// One collective at a time, in the order of launch: each rank's communication stream is serial.
  void start_next() {
    if (ranks_left_ > 0 || next_in_queue_ == queue_.size()) return;
    current_ = queue_[next_in_queue_++];
    ranks_left_ = ranks_;
    timeline_.collectives[current_].start = network_.now();
    const LoweredCollective& collective = job_.collective(current_);
    plan(job_.lowered_of[current_]);
    running_ = std::make_unique<RunningCollective>(*plan_, collective.work_per_byte,
                                                   slowed_[current_].communication, network_);
    network_.at(slowed_[current_].communication * collective.launch, launch_tag);
    const double slowed = slowed_[current_].computation;
    for (std::size_t rank = 0; rank < ranks_; ++rank) slow_computation(rank, slowed);
  }

  [[nodiscard]] bool is_simulated(std::size_t rank) const {
    return plan_->representative[rank] == static_cast<int>(rank);
  }

  /// Writes a collective's schedule out; one is kept, as equal collectives follow each other.
  void plan(std::size_t lowered) {
    if (plan_ != nullptr && planned_ == lowered) return;
    running_ = nullptr;
    plan_ = nullptr;
    plan_ =
        std::make_unique<Plan>(job_.lowered[lowered], job_.cluster, first_channel_link_[lowered]);
    planned_ = lowered;
  }

  /// The current collective is done on these ranks, and on those that do the same; a rank that
  /// waits for it goes on.
  void finish(std::vector<std::size_t> ranks) {
    const std::size_t collective = current_;
    for (std::size_t i = 0, count = ranks.size(); i < count; ++i)
      for (const int follower : plan_->followers.of(ranks[i]))
        ranks.push_back(static_cast<std::size_t>(follower));
    for (const std::size_t rank : ranks) {
      timeline_.collectives[collective].end[rank] = network_.now();
      done_[collective][rank] = true;
    }
    ranks_left_ -= ranks.size();
    start_next();
    if (ranks_left_ == 0 || current_ == collective)
      for (const std::size_t rank : ranks) slow_computation(rank, 1.0);
    for (const std::size_t rank : ranks) {
      Place& place = places_[rank];
      if (!place.waits) continue;
      const Task& task = job_.program.segments[place.segment].tasks[place.task];
      if (static_cast<std::size_t>(std::get<Wait>(task).collective) != collective) continue;
      place.waits = false;
      end_task(rank);
      advance(rank);
    }
  }

  /// A connection that its channel limits gets a link of its own at that rate. The first of them.
  [[nodiscard]] std::optional<int> add_channel_links(const LoweredCollective& lowered) {
    std::optional<int> first;
    if (!std::isfinite(lowered.channel_rate.value())) return first;
    for (std::size_t i = 0; i < lowered.routes.size(); ++i) {
      const int link = network_.add_link(lowered.channel_rate);
      if (!first) first = link;
    }
    return first;
  }

  /// Moves what comes after a repeated segment behind its last pass.
  void add_repeats() {
    Seconds skipped = -1.0 * origin_;
    Seconds begin = origin_;
    std::vector<Seconds> shift;
    for (std::size_t s = 0; s < timeline_.segments.size(); ++s) {
      Timeline::SegmentTimes& segment = timeline_.segments[s];
      const Seconds end = *std::max_element(segment.first_end.begin(), segment.first_end.end());
      segment.period = end - begin;
      if (const std::vector<Seconds>& local = local_passes_[s]; !local.empty())
        segment.period = (*std::max_element(local.begin(), local.end()) - end) /
                         static_cast<double>(job_.program.segments[s].repeat - 1);
      begin = end;
      shift.push_back(skipped);
      for (Seconds& time : segment.first_end) time += shift[s];
      const std::size_t tasks = job_.program.segments[s].tasks.size();
      for (std::size_t rank = 0; rank < ranks_; ++rank) {
        for (std::size_t task = first_task_[s]; task < first_task_[s] + tasks; ++task) {
          Interval& interval = timeline_.task_times[rank * timeline_.tasks + task];
          interval = {interval.begin + shift[s], interval.end + shift[s]};
        }
      }
      skipped += static_cast<double>(job_.program.segments[s].repeat - 1) * segment.period;
    }
    for (std::size_t c = 0; c < timeline_.collectives.size(); ++c) {
      Timeline::CollectiveTimes& times = timeline_.collectives[c];
      times.start += shift[segment_of_[c]];
      for (auto* moments : {&times.ready, &times.end})
        for (Seconds& time : *moments) time += shift[segment_of_[c]];
    }
  }

  [[nodiscard]] std::string deadlock(std::size_t rank) const {
    const Place& place = places_[rank];
    std::string text = fmt::format("deadlock: rank {} waits at task {} of segment {}", rank,
                                   place.task, place.segment);
    const Task& task = job_.program.segments[place.segment].tasks[place.task];
    if (const auto* wait = std::get_if<Wait>(&task)) {
      text += fmt::format(", for collective {}", wait->collective);
      const std::size_t arrived = handed_over_[static_cast<std::size_t>(wait->collective)];
      if (arrived < ranks_)
        text += fmt::format(" that {} of {} ranks have not launched", ranks_ - arrived, ranks_);
    }
    if (running_ != nullptr && ranks_left_ > 0)
      text += fmt::format("; collective {} runs: {}", current_, running_->waiting());
    return text;
  }

  const Job& job_;
  std::size_t ranks_;
  Network network_;
  std::vector<std::optional<int>> first_channel_link_;  ///< by lowered collective
  Timeline timeline_;
  std::vector<std::size_t> first_task_;  ///< of each segment
  std::vector<Place> places_;            ///< by rank
  std::vector<Computing> computing_;     ///< by rank
  std::vector<Seconds> host_;            ///< by rank: when the host comes to the next task
  bool has_host_ = false;
  std::vector<std::vector<Seconds>> local_passes_;  ///< by segment: ends of its passes by rank
  int warm_ups_left_;
  std::vector<Interference> slowed_;      ///< by collective, as the step before found
  Seconds origin_;                        ///< when the step began
  std::size_t ranks_done_ = 0;            ///< with the step
  std::vector<std::vector<bool>> done_;   ///< [collective][rank]
  std::vector<std::size_t> handed_over_;  ///< by collective: how many ranks have launched it
  std::vector<std::size_t> segment_of_;   ///< by collective
  std::vector<std::size_t> queue_;        ///< collectives that every rank has launched
  std::size_t next_in_queue_ = 0;
  std::size_t current_ = 0;
  std::size_t ranks_left_ = 0;  ///< that the current collective still keeps busy
  std::unique_ptr<Plan> plan_;
  std::size_t planned_ = 0;  ///< whose plan it is
  std::unique_ptr<RunningCollective> running_;
};

}  // namespace

Timeline simulate_with_simgrid(const Job& job) { return Execution(job).run(); }

}  // namespace stepcast
