#include "cli/commands.hpp"
#include "cli/help_text.hpp"

namespace stepcast {

std::string help(const std::string& command) {
  std::string all = help_text;
  if (command.empty()) return all;
  const std::string head = "## stepcast " + command;
  const std::size_t begin = all.find(head);
  return all.substr(begin, all.find("\n## ", begin) - begin) + "\n";
}

}  // namespace stepcast
