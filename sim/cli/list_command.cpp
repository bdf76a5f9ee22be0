// stepcast list: what there is to choose from.
#include <fmt/format.h>

#include "base/error.hpp"
#include "base/text.hpp"
#include "cli/commands.hpp"
#include "collective/algorithms.hpp"
#include "input/platform.hpp"

namespace stepcast {

int list_command(const ListOptions& options) {
  if (options.what == "algorithms") {
    fmt::print("{:<8}  {:<20}  {:<8}  {}\n", "name", "bytes sent per rank", "steps",
               "when it wins");
    for (const std::string& name : all_reduce_algorithms().names()) {
      const AllReduceAlgorithm& algorithm = *all_reduce_algorithms().find(name);
      fmt::print("{:<8}  {:<20}  {:<8}  {}\n", name, algorithm.bytes_per_rank, algorithm.steps,
                 algorithm.when);
    }
    return 0;
  }
  if (options.what == "topologies") {
    for (const std::string& name : topologies().names()) fmt::print("{}\n", name);
    return 0;
  }
  throw InputError("stepcast list",
                   fmt::format("unknown \"{}\"{}", options.what,
                               suggest(options.what, {"algorithms", "topologies"})));
}

}  // namespace stepcast
