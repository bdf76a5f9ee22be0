#include "cli/output_file.hpp"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <unistd.h>
#include <utility>

#include <fmt/format.h>

#include "base/error.hpp"

namespace stepcast {

OutputFile::OutputFile(std::string option, std::string path, const std::vector<std::string>& inputs)
    : option_(std::move(option)), path_(std::move(path)) {
  if (is_stdout()) return;
  std::error_code error;
  for (const std::string& input : inputs)
    if (std::filesystem::equivalent(path_, input, error))
      throw InputError(option_, fmt::format("{} is an input of this run", path_.string()));
  if (path_.empty() || std::filesystem::is_directory(path_, error))
    throw InputError(option_, fmt::format("{} is a directory, not a file",
                                          path_.empty() ? "\"\"" : path_.string()));
  if (std::filesystem::exists(path_, error) && ::access(path_.c_str(), W_OK) != 0)
    throw InputError(option_,
                     fmt::format("cannot write {}: {}", path_.string(), std::strerror(errno)));
  if (std::filesystem::exists(path_, error) && !std::filesystem::is_regular_file(path_, error))
    return;  // /dev/null
  const std::string temporary = temporary_path();
  const int file = ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
  if (file < 0)
    throw InputError(option_,
                     fmt::format("cannot write {}: {}", path_.string(), std::strerror(errno)));
  ::close(file);
  ::unlink(temporary.c_str());
}

std::string OutputFile::temporary_path() const {
  return fmt::format("{}.{}.tmp", path_.string(), ::getpid());
}

bool OutputFile::is_regular() const {
  std::error_code error;
  return !is_stdout() &&
         (!std::filesystem::exists(path_, error) || std::filesystem::is_regular_file(path_, error));
}

void OutputFile::write(const std::string& text) const {
  bool is_given = false;
  write([&]() -> std::optional<std::string> {
    if (std::exchange(is_given, true)) return std::nullopt;
    return text;
  });
}

void OutputFile::write(const std::function<std::optional<std::string>()>& next) const {
  if (is_stdout()) {
    while (const auto text = next()) std::fwrite(text->data(), 1, text->size(), stdout);
    return;
  }
  const bool special = !is_regular();
  const std::string target = special ? path_.string() : temporary_path();
  std::FILE* file = std::fopen(target.c_str(), "wb");
  bool written = file != nullptr;
  int problem = errno;
  try {
    while (written) {
      const auto text = next();
      if (!text) break;
      written = std::fwrite(text->data(), 1, text->size(), file) == text->size();
      problem = errno;
    }
  } catch (...) {
    std::fclose(file);
    if (!special) ::unlink(target.c_str());
    throw;
  }
  const bool closed = file != nullptr && std::fclose(file) == 0;
  if (!special && written && closed && std::rename(target.c_str(), path_.c_str()) == 0) return;
  if (special && written && closed) return;
  if (written) problem = errno;
  if (!special) ::unlink(target.c_str());
  throw SimulationError(fmt::format("cannot write {}: {}", path_.string(), std::strerror(problem)));
}

}  // namespace stepcast
