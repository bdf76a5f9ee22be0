// stepcast plot: the figures of a result.
#include "cli/commands.hpp"
#include "cli/python_script.hpp"

namespace stepcast {

int plot_command(const DrawOptions& options) {
  // The equals sign and the -- keep what starts with - from being read as an option.
  std::vector<std::string> arguments = {"--output=" + options.output, "--"};
  arguments.insert(arguments.end(), options.files.begin(), options.files.end());
  return become_python_script("make_all.py", arguments);
}

}  // namespace stepcast
