#include "input/importers/gzip_input.hpp"

#include <algorithm>
#include <zlib.h>

#include <fmt/format.h>

#include "base/error.hpp"

namespace stepcast {

struct GzipInput::File {
  gzFile handle;
};

GzipInput::GzipInput(const std::filesystem::path& path) : path_(path) {
  std::error_code error;
  if (!std::filesystem::exists(path, error)) throw InputError(path.string(), "no such file");
  if (std::filesystem::is_directory(path, error))
    throw InputError(path.string(), "is a directory, not a file");
  file_bytes_ = std::filesystem::file_size(path, error);
  const gzFile handle = gzopen(path.c_str(), "rb");  // plain files are passed through
  if (handle == nullptr) throw InputError(path.string(), "cannot be read");
  gzbuffer(handle, 1 << 17);
  file_ = std::make_unique<File>(File{handle});
}

GzipInput::~GzipInput() {
  if (file_) gzclose(file_->handle);
}

std::size_t GzipInput::read(char* buffer, std::size_t size) {
  const int got = gzread(file_->handle, buffer, static_cast<unsigned>(size));
  int code = Z_OK;
  const char* problem = gzerror(file_->handle, &code);
  if (got < 0 || (got == 0 && code == Z_BUF_ERROR))
    throw InputError(path_.string(), fmt::format("gzip data is cut off or damaged ({})", problem));
  return static_cast<std::size_t>(got);
}

double GzipInput::fraction() const {
  if (file_bytes_ == 0) return 1.0;
  const auto at = static_cast<double>(gzoffset(file_->handle));
  return std::clamp(at / static_cast<double>(file_bytes_), 0.0, 1.0);
}

}  // namespace stepcast
