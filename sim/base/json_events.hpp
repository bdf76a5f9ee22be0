// Reads JSON files that are one long list of flat objects, such as a profiler's trace, piece by
// piece: what is in memory at a time is one object.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace stepcast {

/// A value of a wanted key in the object at hand.
struct EventField {
  enum class Kind { absent, integer, real, text, list };
  static constexpr std::int64_t end_of_list = INT64_MIN;

  Kind kind = Kind::absent;
  std::int64_t integer = 0;
  double real = 0.0;
  /// A string, or the digits of a real number as they stand in the file, or a list's first string.
  std::string text;
  std::vector<std::int64_t> list;  ///< whole numbers of nested lists; `end_of_list` where one ends

  [[nodiscard]] bool is_number() const { return kind == Kind::integer || kind == Kind::real; }
};

struct JsonEventHandlers {
  /// Fields in the order of `wanted`.
  std::function<void(const std::vector<EventField>& fields)> event;
  /// A number or a string outside the list: its place (`/distributedInfo/rank`) and its text.
  std::function<void(const std::string& place, const std::string& text)> value;
};

/// Fills a buffer and returns how many bytes it put there; 0 at the end.
using ByteSource = std::function<std::size_t(char* buffer, std::size_t size)>;

/// Reads the list `list` of the document's object (or a document that is this list itself).
/// `wanted`: keys of its objects, `args.stream` for those of an object one level in; others are
/// skipped. Throws InputError where the text is not JSON.
void read_json_events(const ByteSource& source, const std::string& name, const std::string& list,
                      const std::vector<std::string>& wanted, const JsonEventHandlers& handlers);

}  // namespace stepcast
