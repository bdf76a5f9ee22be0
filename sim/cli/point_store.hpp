// Points that are done, on disk: a sweep takes no more memory for more of them, and a killed one
// can go on from there.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace stepcast {

/// JSON lines: first `{"format":"stepcast.journal/1","study":...}`, then one for each point in the
/// order in which they were done.
class PointStore {
 public:
  /// In a file without a name, which is gone with the program.
  explicit PointStore(std::size_t points);
  /// In `path`. `study` is what the points belong to: `resume` takes over the points of the same
  /// study, but for those that failed; a file of another one is refused, and so is any file
  /// without `resume`. Throws InputError.
  PointStore(std::filesystem::path path, std::uint64_t study, std::size_t points, bool resume);
  PointStore(const PointStore&) = delete;
  PointStore& operator=(const PointStore&) = delete;
  ~PointStore();

  /// `point` is the text of a point, `events` those of its timeline.
  void add(std::size_t index, const std::string& point, const std::vector<std::string>& events);
  [[nodiscard]] std::size_t size() const { return entries_.size(); }
  [[nodiscard]] bool has(std::size_t index) const { return entries_[index].length > 0; }
  [[nodiscard]] std::string point(std::size_t index) const;
  [[nodiscard]] std::vector<std::string> events(std::size_t index) const;
  /// Removes the file: the result is written.
  void remove();

 private:
  struct Entry {
    std::uint64_t begin = 0;
    std::uint32_t length = 0;        ///< of the line
    std::uint32_t point_length = 0;  ///< of the point in it
  };
  void write(const std::string& line);
  void take_over(std::uint64_t study);
  [[nodiscard]] std::string read(std::uint64_t begin, std::size_t length) const;

  std::filesystem::path path_;  // empty: no name
  int file_ = -1;
  std::uint64_t end_ = 0;
  std::vector<Entry> entries_;
};

}  // namespace stepcast
