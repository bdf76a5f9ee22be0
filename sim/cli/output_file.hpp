// Files that appear whole or not at all.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace stepcast {

/// An output path, tried when it is made, so that a path that cannot be written is found before the
/// simulation and not after it. "-" is stdout.
class OutputFile {
 public:
  /// `option` is what errors name. Throws InputError when the path cannot be written, or is one of
  /// the `inputs`, which would be lost.
  OutputFile(std::string option, std::string path, const std::vector<std::string>& inputs);
  /// Puts the text in place under a temporary name, then renames it.
  void write(const std::string& text) const;
  /// The same for a text that comes in parts: `next` gives one after the other, at last none.
  void write(const std::function<std::optional<std::string>()>& next) const;
  [[nodiscard]] bool is_stdout() const { return path_ == "-"; }
  [[nodiscard]] const std::filesystem::path& path() const { return path_; }
  /// Not /dev/null or a pipe.
  [[nodiscard]] bool is_regular() const;

 private:
  [[nodiscard]] std::string temporary_path() const;

  std::string option_;
  std::filesystem::path path_;
};

}  // namespace stepcast
