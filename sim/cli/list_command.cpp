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
    fmt::print("{:<26}  {:<20}  {:<36}  {}\n", "name", "bytes sent per rank", "time on equal links",
               "when it wins");
    for (const std::string& name : all_reduce_algorithms().names()) {
      const AllReduceAlgorithm& algorithm = *all_reduce_algorithms().find(name);
      fmt::print("{:<26}  {:<20}  {:<36}  {}\n", name, algorithm.bytes_per_rank, algorithm.time,
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
