#include "options.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <getopt.h>
#include <limits>
#include <utility>

#include <fmt/format.h>

#include "journal.hpp"

namespace stepcast::calibrate {

const char help_text[] =
    R"(usage: stepcast-calibrate --platform PLATFORM -o FILE [options]

Measures this machine for stepcast: kernels, collectives, and both at once. Every GPU or process takes
part. What is measured is kept in FILE.partial; after Ctrl-C or a crash the same command goes on.

    --platform PLATFORM  file that describes the machine (stepcast's platforms/*.json)
    -o, --output FILE    where the calibration goes; must not exist
    --quick              the cases a forecast needs most, at 2 % (default)
    --full               all cases, at 1 %
    --collectives-only   no kernels
    --operations LIST    all_reduce, reduce_scatter, all_gather, broadcast
    --algorithms LIST    only all_reduce, forced to these algorithms
    --kernels LIST       only these, alone and beside all_reduce: gemm, attention, convolution_forward ...
    --ranks LIST         2,4,8: how many ranks take part (2, 4, 8 ... and all)
    --min-bytes SIZE     of the collectives (8)
    --max-bytes SIZE     64KiB, 1GiB (1GiB)
    --dry-run            lists the cases and the time they take; measures nothing
    --devices            prints devices and versions as one line of JSON
    --backend NAME       cuda or mpi; refused if this program is built for the other

Exit codes: 0 done; 1 a measurement failed; 2 the command line is wrong; 3 something the machine lacks;
130 interrupted.
)";

namespace {

std::vector<std::string> split(const std::string& text) {
  std::vector<std::string> words{""};
  for (const char c : text) {
    if (c == ',')
      words.emplace_back();
    else
      words.back() += c;
  }
  return words;
}

std::int64_t whole_number(const std::string& option, std::string_view text, std::int64_t factor) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < 1 ||
      value > std::numeric_limits<std::int64_t>::max() / factor)
    throw UsageError(fmt::format("{}: not a whole number above 0: \"{}\"", option, text));
  return value * factor;
}

std::int64_t byte_count(const std::string& option, std::string_view text) {
  constexpr std::array<std::pair<std::string_view, std::int64_t>, 3> units{
      {{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}}};
  for (const auto& [unit, factor] : units)
    if (text.size() > unit.size() && text.substr(text.size() - unit.size()) == unit)
      return whole_number(option, text.substr(0, text.size() - unit.size()), factor);
  return whole_number(option, text, 1);
}

std::vector<std::string> names(const std::string& option, const std::string& text,
                               const std::vector<std::string>& known) {
  std::vector<std::string> words = split(text);
  for (const std::string& word : words)
    if (std::find(known.begin(), known.end(), word) == known.end())
      throw UsageError(
          fmt::format("{}: unknown \"{}\"; known: {}", option, word, fmt::join(known, ", ")));
  return words;
}

std::vector<std::string> known_algorithms() {
  std::vector<std::string> known;
  for (const Vocabulary& vocabulary : {nccl_vocabulary(), mpi_vocabulary()})
    for (const Algorithm& algorithm : vocabulary.algorithms)
      if (std::find(known.begin(), known.end(), algorithm.name) == known.end())
        known.push_back(algorithm.name);
  return known;
}

}  // namespace

Options parse(int argc, char** argv, std::string_view backend) {
  enum Id {
    help = 'h',
    output = 'o',
    platform = 256,
    quick,
    full,
    collectives_only,
    operations,
    algorithms,
    kernels,
    ranks,
    min_bytes,
    max_bytes,
    dry_run,
    devices,
    backend_name
  };
  const option known[] = {{"help", no_argument, nullptr, help},
                          {"output", required_argument, nullptr, output},
                          {"platform", required_argument, nullptr, platform},
                          {"quick", no_argument, nullptr, quick},
                          {"full", no_argument, nullptr, full},
                          {"collectives-only", no_argument, nullptr, collectives_only},
                          {"operations", required_argument, nullptr, operations},
                          {"algorithms", required_argument, nullptr, algorithms},
                          {"kernels", required_argument, nullptr, kernels},
                          {"ranks", required_argument, nullptr, ranks},
                          {"min-bytes", required_argument, nullptr, min_bytes},
                          {"max-bytes", required_argument, nullptr, max_bytes},
                          {"dry-run", no_argument, nullptr, dry_run},
                          {"devices", no_argument, nullptr, devices},
                          {"backend", required_argument, nullptr, backend_name},
                          {nullptr, 0, nullptr, 0}};
  Options options;
  optind = 0;  // so that parse() can be called again
  while (true) {
    const int word = std::max(optind, 1);
    const int id = getopt_long(argc, argv, ":ho:", known, nullptr);
    if (id < 0) break;
    const std::string value = optarg ? optarg : "";
    switch (id) {
      case help: options.help = true; break;
      case output: options.output = value; break;
      case platform: options.platform = value; break;
      case quick: options.plan.full = false; break;
      case full: options.plan.full = true; break;
      case collectives_only: options.plan.collectives_only = true; break;
      case operations:
        options.plan.operations = names(
            "--operations", value, {"all_reduce", "reduce_scatter", "all_gather", "broadcast"});
        break;
      case algorithms:
        options.plan.algorithms = names("--algorithms", value, known_algorithms());
        break;
      case kernels: options.plan.kernels = names("--kernels", value, known_kernels()); break;
      case ranks:
        for (const std::string& count : split(value))
          options.plan.ranks.push_back(
              static_cast<int>(std::min<std::int64_t>(whole_number("--ranks", count, 1), 1 << 20)));
        break;
      case min_bytes: options.plan.min_bytes = byte_count("--min-bytes", value); break;
      case max_bytes: options.plan.max_bytes = byte_count("--max-bytes", value); break;
      case dry_run: options.dry_run = true; break;
      case devices: options.devices = true; break;
      case backend_name:
        if (value != backend)
          throw UsageError(fmt::format("--backend: this program is built for {} only", backend));
        break;
      case ':': throw UsageError(fmt::format("{}: needs a value", argv[word]));
      default: throw UsageError(fmt::format("{}: unknown option; see --help", argv[word]));
    }
  }
  if (optind < argc) throw UsageError(fmt::format("{}: unexpected; see --help", argv[optind]));
  if (options.help || options.devices || options.dry_run) return options;
  if (options.platform.empty()) throw UsageError("--platform: is required");
  if (options.output.empty()) throw UsageError("-o: is required");
  return options;
}

}  // namespace stepcast::calibrate
