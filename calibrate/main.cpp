#include <csignal>
#include <ctime>
#include <functional>
#include <memory>
#include <signal.h>
#include <string>
#include <string_view>
#include <unistd.h>

#include <fmt/format.h>

#include "document.hpp"
#include "factory.hpp"
#include "measure.hpp"
#include "options.hpp"
#include "progress.hpp"

namespace stepcast::calibrate {
namespace {

constexpr bool is_cuda = std::string_view(STEPCAST_BACKEND) == "cuda";

volatile std::sig_atomic_t stop = 0;

/// The first one ends the run after the case at hand, the second at once. mpirun passes a Ctrl-C
/// on as SIGTERM.
void stop_at_signals() {
  struct sigaction action {};
  action.sa_handler = [](int) { stop = 1; };
  action.sa_flags = SA_RESETHAND | SA_RESTART;
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
}

std::unique_ptr<Backend> make_backend() {
  if constexpr (is_cuda)
    return make_cuda_backend();
  else
    return make_mpi_backend();
}

std::string today() {
  const std::time_t now = std::time(nullptr);
  char text[sizeof "2026-01-31"];
  std::strftime(text, sizeof text, "%F", std::gmtime(&now));
  return text;
}

int print_devices(const Backend& backend) {
  if (backend.rank() == 0) fmt::print("{}\n", Json(backend.environment()).dump());
  return 0;
}

/// Every process asks for the obstacles: NCCL's are found by connecting all ranks.
int print_plan(const std::vector<PlannedCase>& plan, const Accuracy& accuracy,
               const Backend& backend) {
  std::string text;
  double total_s = 0;
  for (const PlannedCase& planned : plan) {
    const std::string reason = obstacle(planned.what, backend);
    text += name(planned) + (reason.empty() ? "" : "  -- skipped: " + reason) + "\n";
    if (reason.empty()) total_s += estimated_s(planned.what, accuracy);
  }
  if (backend.rank() == 0)
    fmt::print("{}{} cases, about {}\n", text, plan.size(), duration_text(total_s));
  return 0;
}

/// On rank 0 only; if it fails there, all processes throw.
void on_rank_0(Backend& backend, const std::function<void()>& act) {
  std::string problem;
  try {
    if (backend.rank() == 0) act();
  } catch (const std::exception& error) {
    problem = error.what();
  }
  if (backend.from_rank_0(problem.empty() ? 0 : 1) != 0) throw UsageError(problem);
}

/// What must be the same for a journal to be continued.
std::string identity(const Options& options, const std::vector<PlannedCase>& plan,
                     const Accuracy& accuracy, const Backend& backend) {
  std::string text =
      fmt::format("{}\n{}\n{}\n{}\n", options.platform, Json(backend.environment()).dump(),
                  backend.world_size(), accuracy.precision);
  for (const PlannedCase& planned : plan) text += name(planned) + "\n";
  return fingerprint(text);
}

int run(const Options& options, const std::string& command, Backend& backend) {
  if (options.devices) return print_devices(backend);
  for (const int ranks : options.plan.ranks)
    if (ranks > backend.world_size())
      throw UsageError(fmt::format("--ranks: {} of {}", ranks, backend.world_size()));
  const Accuracy wanted = accuracy(options.plan);
  const auto plan =
      make_plan(options.plan, is_cuda ? nccl_vocabulary() : mpi_vocabulary(), backend.world_size());
  if (plan.empty())
    throw UsageError(
        fmt::format("nothing to measure with these options on {} rank(s)", backend.world_size()));
  if (options.dry_run) return print_plan(plan, wanted, backend);

  const std::string what_is_measured = identity(options, plan, wanted, backend);
  Machine machine;
  std::unique_ptr<Journal> journal;
  on_rank_0(backend, [&] {
    machine = read_machine(options.platform);
    journal = std::make_unique<Journal>(options.output, what_is_measured);
  });
  stop_at_signals();
  bool finished = false;
  {
    Progress progress(plan, wanted, journal && isatty(STDERR_FILENO) == 1);
    finished = measure_all(plan, backend, wanted, journal.get(), stop,
                           [&](std::size_t index) { progress.show(index); });
  }
  if (!finished) {
    if (journal)
      fmt::print(stderr,
                 "stepcast-calibrate: stopped after {} of {} cases; the same command goes on\n",
                 journal->outcomes().size(), plan.size());
    return 130;
  }
  if (journal) {
    const std::string source =
        fmt::format("Measured by stepcast-calibrate with {} rank(s) on {} node(s).",
                    backend.world_size(), backend.nodes());
    journal->finish(
        document({machine, source, today(), command, backend.environment()}, journal->outcomes()));
  }
  return 0;
}

int fail(int code, const std::string& problem) {
  if (!problem.empty()) fmt::print(stderr, "stepcast-calibrate: {}\n", problem);
  return code;
}

int real_main(int argc, char** argv) {
  const Options options = parse(argc, argv, STEPCAST_BACKEND);
  if (options.help) {
    fmt::print("{}", help_text);
    return 0;
  }
  std::string command = "stepcast-calibrate";
  for (int i = 1; i < argc; ++i) command += std::string(" ") + argv[i];
  const auto backend = make_backend();
  try {
    return run(options, command, *backend);
  } catch (const UsageError& error) {  // all processes have it
    return fail(2, backend->rank() == 0 ? error.what() : "");
  }
}

}  // namespace
}  // namespace stepcast::calibrate

int main(int argc, char** argv) {
  using namespace stepcast::calibrate;
  try {
    return real_main(argc, argv);
  } catch (const UsageError& error) {
    return fail(2, error.what());
  } catch (const Missing& missing) {
    return fail(3, missing.what + ": " + missing.problem);
  } catch (const std::exception& error) {
    return fail(1, error.what());
  }
}
