#include "cli/point_store.hpp"

#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <fstream>
#include <unistd.h>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/error.hpp"
#include "base/json_view.hpp"

namespace stepcast {
namespace {

constexpr std::string_view before_point = R"({"point":)";

std::string first_line(std::uint64_t study) {
  return fmt::format("{{\"format\":\"stepcast.journal/1\",\"study\":\"{:016x}\"}}\n", study);
}

}  // namespace

PointStore::PointStore(std::size_t points) : entries_(points) {
  std::string name = (std::filesystem::temp_directory_path() / "stepcast.XXXXXX").string();
  file_ = ::mkstemp(name.data());
  if (file_ < 0)
    throw SimulationError(fmt::format("cannot write {}: {}", name, std::strerror(errno)));
  ::unlink(name.c_str());
}

PointStore::PointStore(std::filesystem::path path, std::uint64_t study, std::size_t points,
                       bool resume)
    : path_(std::move(path)), entries_(points) {
  const bool is_there = std::filesystem::exists(path_);
  if (is_there && !resume)
    throw InputError("-o", fmt::format("{} holds points of a run that was not finished: go on with "
                                       "--resume, or remove it",
                                       path_.string()));
  if (is_there) take_over(study);
  file_ = ::open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  // Of two runs that were started at once, one has it; a forked child does not inherit the lock.
  struct flock whole = {};
  whole.l_type = F_WRLCK;
  if (file_ >= 0 && ::fcntl(file_, F_SETLK, &whole) != 0 && (errno == EAGAIN || errno == EACCES))
    throw InputError("-o", fmt::format("{} is being written by another run", path_.string()));
  if (file_ < 0 || ::ftruncate(file_, static_cast<off_t>(end_)) != 0)
    throw InputError("-o",
                     fmt::format("cannot write {}: {}", path_.string(), std::strerror(errno)));
  if (end_ == 0) write(first_line(study));
}

PointStore::~PointStore() { ::close(file_); }

void PointStore::take_over(std::uint64_t study) {
  std::ifstream file(path_, std::ios::binary);
  std::string line;
  const std::string first = first_line(study);
  while (std::getline(file, line) && !file.eof()) {  // at the end of the file it was cut off
    if (end_ == 0 && line + "\n" != first)
      throw InputError("--resume", fmt::format("{} belongs to another scenario, other inputs, "
                                               "options or version; remove it to start anew",
                                               path_.string()));
    if (end_ > 0) {
      const JsonDocument document = JsonDocument::parse(line, path_.string());
      const JsonView point = document.root().at("point");
      const auto most = static_cast<std::int64_t>(entries_.size()) - 1;
      const auto index = static_cast<std::size_t>(document.root().at("index").integer(0, most));
      if (!point.find("error"))
        entries_[index] = {end_, static_cast<std::uint32_t>(line.size() + 1),
                           static_cast<std::uint32_t>(point.dump().size())};
    }
    end_ += line.size() + 1;
  }
}

void PointStore::write(const std::string& line) {
  std::size_t written = 0;
  while (written < line.size()) {
    const ssize_t count = ::pwrite(file_, line.data() + written, line.size() - written,
                                   static_cast<off_t>(end_ + written));
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0)
      throw SimulationError(
          fmt::format("cannot write {}: {}", path_.string(), std::strerror(errno)));
    written += static_cast<std::size_t>(count);
  }
  end_ += line.size();
}

void PointStore::add(std::size_t index, const std::string& point,
                     const std::vector<std::string>& events) {
  const std::string line = fmt::format("{}{},\"index\":{},\"events\":[{}]}}\n", before_point, point,
                                       index, fmt::join(events, ","));
  entries_[index] = {end_, static_cast<std::uint32_t>(line.size()),
                     static_cast<std::uint32_t>(point.size())};
  write(line);
}

std::string PointStore::read(std::uint64_t begin, std::size_t length) const {
  std::string text(length, '\0');
  std::size_t got = 0;
  while (got < length) {
    const ssize_t count =
        ::pread(file_, text.data() + got, length - got, static_cast<off_t>(begin + got));
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) throw SimulationError(fmt::format("cannot read {} again", path_.string()));
    got += static_cast<std::size_t>(count);
  }
  return text;
}

std::string PointStore::point(std::size_t index) const {
  return read(entries_[index].begin + before_point.size(), entries_[index].point_length);
}

std::vector<std::string> PointStore::events(std::size_t index) const {
  const JsonDocument line =
      JsonDocument::parse(read(entries_[index].begin, entries_[index].length), path_.string());
  std::vector<std::string> events;
  for (const JsonView& event : line.root().at("events").elements()) events.push_back(event.dump());
  return events;
}

void PointStore::remove() {
  if (!path_.empty()) std::filesystem::remove(path_);
}

}  // namespace stepcast
