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
    for (const Operation operation : all_operations) {
      if (operation != Operation::all_reduce) fmt::print("\n");
      fmt::print("{:<26}  {:<23}  {:<17}  {:<45}  {}\n", to_string(operation),
                 "bytes sent per rank", "steps", "time on equal links", "when it wins");
      const auto& algorithms = collective_algorithms(operation);
      for (const std::string& name : algorithms.names()) {
        const CollectiveAlgorithm& algorithm = *algorithms.find(name);
        fmt::print("{:<26}  {:<23}  {:<17}  {:<45}  {}\n", name, algorithm.bytes_per_rank,
                   algorithm.steps_taken, algorithm.time, algorithm.when);
      }
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
