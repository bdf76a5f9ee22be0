// A file's bytes, unpacked where it is gzip.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>

namespace stepcast {

class GzipInput {
 public:
  /// Throws InputError when there is no such file.
  explicit GzipInput(const std::filesystem::path& path);
  ~GzipInput();
  GzipInput(const GzipInput&) = delete;
  GzipInput& operator=(const GzipInput&) = delete;

  /// Up to `size` bytes; 0 at the end. Throws InputError when the file is damaged.
  std::size_t read(char* buffer, std::size_t size);
  /// Share of the file on disk that has been read.
  [[nodiscard]] double fraction() const;

 private:
  struct File;
  std::unique_ptr<File> file_;
  std::filesystem::path path_;
  std::uintmax_t file_bytes_ = 0;
};

}  // namespace stepcast
