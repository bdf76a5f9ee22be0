#include <cstdio>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "base/error.hpp"
#include "base/text.hpp"
#include "base/version.hpp"
#include "cli/commands.hpp"

namespace stepcast {
namespace {

/// One line, whatever names a file or a key has: control characters become spaces.
void print_error(std::string problem) {
  for (char& c : problem)
    if (static_cast<unsigned char>(c) < ' ') c = ' ';
  fmt::print(stderr, "stepcast: {}\n", problem);
}

template <class Options>
int run_or_help(const std::string& command, const Options& options, int (*run)(const Options&)) {
  if (!options.help) return run(options);
  fmt::print("{}", help(command));
  return 0;
}

int dispatch(const std::vector<std::string>& words) {
  if (words.empty() || words[0] == "--help" || words[0] == "-h" || words[0] == "help") {
    fmt::print(words.empty() ? stderr : stdout, "{}", help());
    return words.empty() ? 2 : 0;
  }
  if (words[0] == "--version") {
    fmt::print("stepcast {} ({}, {})\n", version, revision, build_type);
    return 0;
  }
  const std::vector<std::string> arguments(words.begin() + 1, words.end());
  if (words[0] == "run") return run_or_help("run", parse_run(arguments), run_command);
  if (words[0] == "merge") return run_or_help("merge", parse_merge(arguments), merge_command);
  if (words[0] == "collective")
    return run_or_help("collective", parse_collective(arguments), collective_command);
  if (words[0] == "compare")
    return run_or_help("compare", parse_compare(arguments), compare_command);
  if (words[0] == "fit") return run_or_help("fit", parse_fit(arguments), fit_command);
  if (words[0] == "validate")
    return run_or_help("validate", parse_validate(arguments), validate_command);
  if (words[0] == "import") return run_or_help("import", parse_import(arguments), import_command);
  if (words[0] == "trace") return run_or_help("trace", parse_trace(arguments), trace_command);
  if (words[0] == "plot") return run_or_help("plot", parse_draw("plot", arguments), plot_command);
  if (words[0] == "report")
    return run_or_help("report", parse_draw("report", arguments), report_command);
  if (words[0] == "list") return run_or_help("list", parse_list(arguments), list_command);
  throw InputError(words[0],
                   "unknown command" +
                       suggest(words[0], {"run", "merge", "collective", "compare", "fit", "import",
                                          "trace", "validate", "plot", "report", "list"}));
}

}  // namespace
}  // namespace stepcast

int main(int argc, char** argv) {
  try {
    const int code = stepcast::dispatch({argv + 1, argv + argc});
    if (std::fflush(stdout) == 0) return code;
    fmt::print(stderr, "stepcast: cannot write to stdout\n");
    return 1;
  } catch (const stepcast::InputError& error) {
    stepcast::print_error(error.what());
    return 2;
  } catch (const std::exception& error) {
    stepcast::print_error(error.what());
    return 1;
  }
}
