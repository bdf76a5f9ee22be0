// The only reader of JSON values. A JsonView knows the file and the RFC 6901 pointer it stands at,
// so that each error names both, what was found and what is allowed.
#pragma once

#include <cstdint>
#include <filesystem>
#include <initializer_list>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <nlohmann/json_fwd.hpp>

namespace stepcast {

class JsonDocument;

/// A cursor on one value of a JsonDocument, which must outlive it. All readers throw InputError.
class JsonView {
 public:
  /// The value of a key that must be there.
  [[nodiscard]] JsonView at(std::string_view key) const;
  /// The value of a key that may be left out.
  [[nodiscard]] std::optional<JsonView> find(std::string_view key) const;
  [[nodiscard]] std::vector<JsonView> elements() const;
  [[nodiscard]] std::vector<std::pair<std::string, JsonView>> members() const;

  /// Refuses every key of this object that is not listed, naming the near ones.
  void allow_only(std::initializer_list<std::string_view> keys) const;
  /// Refuses a document of another kind or version: `"format": "stepcast.trace/1"`.
  void expect_format(std::string_view format) const;

  [[nodiscard]] double number(double min = -std::numeric_limits<double>::infinity(),
                              double max = std::numeric_limits<double>::infinity()) const;
  /// A whole number; 8.0 and 1e3 are, 3.7 is refused and never truncated.
  [[nodiscard]] std::int64_t integer(std::int64_t min, std::int64_t max) const;
  [[nodiscard]] std::string string() const;
  /// One of the listed words.
  [[nodiscard]] std::string word(const std::vector<std::string>& allowed) const;
  [[nodiscard]] bool boolean() const;
  [[nodiscard]] bool is_null() const;
  [[nodiscard]] bool is_object() const;
  [[nodiscard]] bool is_array() const;
  /// True for the string "auto": the tool chooses.
  [[nodiscard]] bool is_auto() const;

  /// `file:/pointer`, or `--set key` where the command line gave the value.
  [[nodiscard]] std::string where() const;
  [[noreturn]] void fail(const std::string& problem) const;
  /// The value as JSON text on one line.
  [[nodiscard]] std::string dump() const;

 private:
  friend class JsonDocument;
  JsonView(const JsonDocument& document, const nlohmann::ordered_json& node, std::string pointer)
      : document_(&document), node_(&node), pointer_(std::move(pointer)) {}
  [[noreturn]] void wrong(const std::string& allowed) const;

  const JsonDocument* document_;
  const nlohmann::ordered_json* node_;
  std::string pointer_;
};

/// A parsed JSON file. Duplicate keys and anything that is not strict JSON are refused.
class JsonDocument {
 public:
  static JsonDocument read_file(const std::filesystem::path& path);
  static JsonDocument parse(const std::string& text, const std::string& name);
  /// A value of another document as one of its own; errors still name the place in the file.
  static JsonDocument part(const JsonView& view);
  JsonDocument(const JsonDocument& other);
  JsonDocument& operator=(const JsonDocument& other);
  JsonDocument(JsonDocument&&) noexcept;
  JsonDocument& operator=(JsonDocument&&) noexcept;
  ~JsonDocument();

  [[nodiscard]] JsonView root() const;
  /// Sets the value at `path` (keys and list places) as the command line gives it: JSON, or a bare
  /// word, or a size such as 25MiB for a key that ends in `_bytes` (or NCCL_BUFFSIZE). Missing
  /// objects on the way are made; the parser of the format then refuses what it does not know.
  /// `origin` is what errors about this value name instead of the file.
  void set(const std::vector<std::string>& path, const std::string& value,
           const std::string& origin);
  [[nodiscard]] const std::string& name() const { return name_; }

 private:
  friend class JsonView;
  JsonDocument(std::string name, nlohmann::ordered_json root);

  std::string name_;
  std::string above_;  // pointer of the root in the file
  std::unique_ptr<nlohmann::ordered_json> root_;
  std::map<std::string, std::string> origin_of_;  // pointer -> the option that set it
};

/// Text as a JSON string, quotes included.
[[nodiscard]] std::string quote_json(const std::string& text);

}  // namespace stepcast
