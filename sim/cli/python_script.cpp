#include "cli/python_script.hpp"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <unistd.h>

#include <fmt/format.h>

#include "cli/source_tree.hpp"

namespace stepcast {

int become_python_script(const std::string& script, const std::vector<std::string>& arguments) {
  namespace fs = std::filesystem;
  const fs::path root = source_tree();
  const fs::path path = root / "plots" / script;
  std::error_code error;
  if (!fs::exists(path, error)) {
    fmt::print(stderr,
               "stepcast: there is no {}: set STEPCAST_HOME to the source tree of stepcast\n",
               path.string());
    return 3;
  }
  // Without the virtual environment, the Python on PATH may have what it takes.
  const fs::path venv = root / "build" / "venv" / "bin" / "python";
  std::vector<std::string> words = {fs::exists(venv, error) ? venv.string() : "python3",
                                    path.string()};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  std::fflush(nullptr);
  ::execvp(argv[0], argv.data());
  fmt::print(stderr, "stepcast: cannot start {}: {}; ./dev setup installs it\n", words[0],
             std::strerror(errno));
  return 3;
}

}  // namespace stepcast
