#include "cli/distribute.hpp"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <deque>
#include <map>
#include <optional>
#include <thread>
#include <unistd.h>
#include <utility>

#include <fmt/format.h>

#include "base/error.hpp"
#include "cli/point_servers.hpp"
#include "cli/ranks.hpp"

namespace stepcast {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

constexpr auto poll_time = 1ms;    // how late a message may be seen
constexpr auto beat_time = 500ms;  // how often a rank says that it lives
/// MPI does not say that a rank died. One that is silent for so long is taken for dead; if it was
/// not, its points are simulated twice, to the same result.
constexpr auto silence = 5s;
/// Rank 0 may be held up longer, by a slow file system. Without it nobody needs the others.
constexpr auto silence_of_first = 60s;
/// A point that was lost so often is not given out again: it may be what kills the ranks.
constexpr int most_losses = 3;
/// Shorter points are sent ahead, so that a rank does not wait for each next one.
constexpr auto short_point = 50ms;

// To rank 0:
constexpr char hello = 'h';    // jobs, study, host
constexpr char problem = 'e';  // what keeps it from simulating
constexpr char outcome = 'o';  // index, Outcome::Kind, text
constexpr char lost = 'l';     // index: the process that had it died
// From rank 0:
constexpr char point = 'p';  // index
constexpr char stop = 's';
constexpr char leave = 'v';  // the last message: not empty where MPI can be ended
// Both ways:
constexpr char beat = 'b';
constexpr char bye = 'y';  // the answer to stop

/// Fields of a message; the last one may hold anything.
std::string joined(std::size_t number, const std::string& word, const std::string& rest) {
  return fmt::format("{}\n{}\n{}", number, word, rest);
}
struct Fields {
  std::size_t number = 0;
  std::string word, rest;
};
Fields fields_of(const std::string& text) {
  const std::size_t first = text.find('\n'), second = text.find('\n', first + 1);
  return {std::stoul(text), text.substr(first + 1, second - first - 1), text.substr(second + 1)};
}

std::string host_name() {
  char name[256] = {};
  return ::gethostname(name, sizeof name - 1) == 0 ? name : "an unknown host";
}

/// Rank 0 sends the others away. MPI is ended in good order only where none of them is `missing`:
/// it would wait for that one for ever.
void dismiss(Ranks& ranks, std::size_t missing) {
  const int count = team().size;
  for (int rank = 1; rank < count; ++rank) ranks.send(rank, stop, "");
  std::size_t to_come = static_cast<std::size_t>(count) - 1 - missing;
  const auto wait = [&](std::chrono::milliseconds most) {
    const auto began = Clock::now();
    while (to_come > 0 && Clock::now() - began < most) {
      const auto message = ranks.receive();
      if (!message)
        std::this_thread::sleep_for(poll_time);
      else if (message->kind == bye)
        --to_come;
    }
  };
  wait(silence);
  const bool all = missing == 0 && to_come == 0;
  for (int rank = 1; rank < count; ++rank) ranks.send(rank, leave, all ? "all" : "");
  if (all) return ranks.leave();
  ranks.abort_at_exit();
  to_come = 1;  // nothing: what was sent has to leave this process
  wait(beat_time);
}

/// Rank 0 of a sweep.
class Distribution {
 public:
  Distribution(const std::vector<std::size_t>& indices, const RankWork& mine,
               const std::function<void(std::size_t, const Outcome&)>& done,
               const std::function<void(const std::string&)>& say)
      : study_(mine.study),
        done_(done),
        say_(say),
        waiting_(indices.begin(), indices.end()),
        left_(indices.size()),
        servers_(mine.jobs, mine.simulate),
        workers_(static_cast<std::size_t>(team().size)) {
    if (!indices.empty()) has_ended_.resize(*std::max_element(indices.begin(), indices.end()) + 1);
  }

  void run() {
    try {
      while (left_ > 0) {
        give_out();
        for (const PointServers::Finished& finished : servers_.finished(poll_time))
          end(finished.index, finished.outcome);
        while (const auto message = ranks_.receive()) hear(*message);
        look_for_silence();
        if (Clock::now() - beaten_ < beat_time) continue;
        beaten_ = Clock::now();
        for (std::size_t rank = 1; rank < workers_.size(); ++rank)
          if (!workers_[rank].is_silent) send(rank, beat, "");
      }
    } catch (...) {
      dismiss(ranks_, silent_);
      throw;
    }
    dismiss(ranks_, silent_);
  }

 private:
  /// Another rank.
  struct Worker {
    std::string name;
    std::size_t jobs = 0;  ///< 0: it has not said hello, or lost all that simulate
    bool is_silent = false;
    Clock::time_point heard = Clock::now();
    std::vector<std::size_t> points;  ///< given to it and not answered
  };

  void send(std::size_t rank, char kind, const std::string& text) {
    ranks_.send(static_cast<int>(rank), kind, text);
  }

  /// A point that nobody has.
  std::optional<std::size_t> next() {
    while (!waiting_.empty()) {
      const std::size_t index = waiting_.front();
      waiting_.pop_front();
      if (!has_ended_[index]) return index;  // else a rank that was thought dead had it
    }
    return std::nullopt;
  }

  void give_out() {
    while (servers_.has_idle()) {
      const auto index = next();
      if (!index) break;
      servers_.start(*index);
    }
    std::size_t jobs = servers_.count();
    for (const Worker& worker : workers_) jobs += worker.is_silent ? 0 : worker.jobs;
    if (jobs == 0) throw SimulationError("all ranks died; --resume goes on with what is done");
    const auto processor_time = (Clock::now() - began_) * static_cast<int>(jobs);
    const bool are_short = ended_ > 0 && processor_time < short_point * ended_;
    for (std::size_t rank = 1; rank < workers_.size(); ++rank) {
      Worker& worker = workers_[rank];
      const std::size_t most = worker.is_silent ? 0 : worker.jobs * (are_short ? 3 : 1);
      while (worker.points.size() < most) {
        const auto index = next();
        if (!index) return;
        worker.points.push_back(*index);
        send(rank, point, std::to_string(*index));
      }
    }
  }

  /// Without an outcome whoever had the point died.
  void end(std::size_t index, const std::optional<Outcome>& found) {
    if (has_ended_[index]) return;
    if (!found && ++losses_[index] < most_losses) return waiting_.push_front(index);
    has_ended_[index] = true;
    ++ended_;
    --left_;
    done_(index, found.value_or(Outcome{
                     Outcome::Kind::failed,
                     fmt::format("the processes that simulated it died, {} times", most_losses)}));
  }

  void hear(const Ranks::Message& message) {
    Worker& worker = workers_[static_cast<std::size_t>(message.from)];
    worker.heard = Clock::now();
    if (worker.is_silent) {
      worker.is_silent = false;
      --silent_;
      say_(fmt::format("{} is heard again", worker.name));
    }
    if (message.kind == hello) {
      const Fields fields = fields_of(message.text);
      worker.name = fmt::format("rank {} on {}", message.from, fields.rest);
      worker.jobs = fields.number;
      if (fields.word != study_)
        throw InputError(worker.name,
                         "has read other inputs, or is of another version, than rank 0");
    } else if (message.kind == problem) {
      throw InputError(fmt::format("rank {}", message.from), message.text);
    } else if (message.kind == outcome) {
      const Fields fields = fields_of(message.text);
      std::erase(worker.points, fields.number);
      end(fields.number, Outcome{static_cast<Outcome::Kind>(std::stoi(fields.word)), fields.rest});
    } else if (message.kind == lost) {
      const std::size_t index = std::stoul(message.text);
      std::erase(worker.points, index);
      end(index, std::nullopt);
    }
  }

  void look_for_silence() {
    const Clock::time_point now = Clock::now();
    for (std::size_t rank = 1; rank < workers_.size(); ++rank) {
      Worker& worker = workers_[rank];
      if (worker.is_silent || now - worker.heard < silence) continue;
      worker.is_silent = true;
      ++silent_;
      if (worker.name.empty()) worker.name = fmt::format("rank {}", rank);
      say_(fmt::format("{} is silent: {} of its points are simulated elsewhere", worker.name,
                       worker.points.size()));
      for (const std::size_t index : std::exchange(worker.points, {})) end(index, std::nullopt);
    }
  }

  std::string study_;
  std::function<void(std::size_t, const Outcome&)> done_;
  std::function<void(const std::string&)> say_;
  std::deque<std::size_t> waiting_;
  std::vector<bool> has_ended_;  // by index
  std::map<std::size_t, int> losses_;
  std::size_t left_;
  int ended_ = 0;
  PointServers servers_;  // before MPI
  Ranks ranks_;
  std::vector<Worker> workers_;  // by rank; that of rank 0 is not used
  std::size_t silent_ = 0;
  Clock::time_point began_ = Clock::now();
  Clock::time_point beaten_{};
};

/// Any other rank, from its first message on.
bool serve(PointServers& servers, char first, const std::string& text) {
  Ranks ranks;
  ranks.send(0, first, text);
  std::deque<std::size_t> waiting;
  Clock::time_point heard = Clock::now(), beaten = heard;
  while (Clock::now() - heard < silence_of_first) {
    while (const auto message = ranks.receive()) {
      heard = Clock::now();
      if (message->kind == point) waiting.push_back(std::stoul(message->text));
      if (message->kind == stop) ranks.send(0, bye, "");
      if (message->kind != leave) continue;
      if (!message->text.empty()) ranks.leave();
      return true;
    }
    while (!waiting.empty() && servers.has_idle()) {
      servers.start(waiting.front());
      waiting.pop_front();
    }
    const std::size_t before = servers.count();
    for (const PointServers::Finished& finished : servers.finished(poll_time)) {
      if (finished.outcome)
        ranks.send(
            0, outcome,
            joined(finished.index, fmt::format("{}", static_cast<int>(finished.outcome->kind)),
                   finished.outcome->text));
      else
        ranks.send(0, lost, std::to_string(finished.index));
    }
    if (servers.count() < before)
      ranks.send(0, first, joined(servers.count(), fields_of(text).word, host_name()));
    if (servers.count() == 0)
      for (const std::size_t index : std::exchange(waiting, {}))
        ranks.send(0, lost, std::to_string(index));
    if (Clock::now() - beaten < beat_time) continue;
    beaten = Clock::now();
    ranks.send(0, beat, "");
  }
  return false;
}

std::optional<int> number_in(const char* variable) {
  const char* text = std::getenv(variable);
  if (text == nullptr || *text == '\0') return std::nullopt;
  return std::atoi(text);
}

}  // namespace

Team team() {
  // OpenMPI's mpirun; MPICH's and Intel's, and Slurm's PMI-2; Slurm's PMIx.
  for (const auto& [count, rank] :
       {std::pair{"OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK"},
        std::pair{"PMI_SIZE", "PMI_RANK"}, std::pair{"SLURM_NTASKS", "PMIX_RANK"}})
    if (const auto has_count = number_in(count), has_rank = number_in(rank); has_count && has_rank)
      return {*has_count, *has_rank};
  return {};
}

void distribute(const std::vector<std::size_t>& indices, const RankWork& mine,
                const std::function<void(std::size_t, const Outcome&)>& done,
                const std::function<void(const std::string&)>& say) {
  Distribution(indices, mine, done, say).run();
}

void dismiss_ranks() {
  Ranks ranks;
  dismiss(ranks, 0);
}

bool serve_rank(const RankWork& mine) {
  PointServers servers(mine.jobs, mine.simulate);
  return serve(servers, hello, joined(servers.count(), mine.study, host_name()));
}

bool refuse_rank(const std::string& text) {
  PointServers none(0, {});
  return serve(none, problem, text);
}

}  // namespace stepcast
