#include "base/json_view.hpp"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <set>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/error.hpp"
#include "base/text.hpp"

namespace stepcast {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::uintmax_t largest_file_bytes = 256u << 20;

std::string escape_pointer(std::string_view key) {
  std::string escaped;
  for (const char c : key) {
    if (c == '~')
      escaped += "~0";
    else if (c == '/')
      escaped += "~1";
    else
      escaped += c;
  }
  return escaped;
}

/// Follows the parser to know the pointer of each key, and refuses a key that stands twice:
/// the parsed value would silently keep only the last.
class DuplicateKeyCheck {
 public:
  explicit DuplicateKeyCheck(std::string name) : name_(std::move(name)) {}

  bool operator()(Json::parse_event_t event, const Json& parsed) {
    switch (event) {
      case Json::parse_event_t::key: {
        Level& level = levels_.back();
        level.step = parsed.get<std::string>();
        if (!level.keys.insert(level.step).second)
          throw InputError(name_ + ":" + pointer(), "this key stands twice in the object");
        break;
      }
      case Json::parse_event_t::object_start:
      case Json::parse_event_t::array_start:
        begin_value();
        levels_.push_back({event == Json::parse_event_t::array_start, -1, {}, {}});
        break;
      case Json::parse_event_t::object_end:
      case Json::parse_event_t::array_end: levels_.pop_back(); break;
      case Json::parse_event_t::value: begin_value(); break;
    }
    return true;
  }

 private:
  struct Level {
    bool is_array;
    long index;
    std::string step;
    std::set<std::string> keys;
  };

  void begin_value() {
    if (!levels_.empty() && levels_.back().is_array)
      levels_.back().step = std::to_string(++levels_.back().index);
  }
  [[nodiscard]] std::string pointer() const {
    std::string text;
    for (const Level& level : levels_) text += "/" + escape_pointer(level.step);
    return text;
  }

  std::string name_;
  std::vector<Level> levels_;
};

/// What is wrong with the text, without the library's own error codes.
std::string syntax_problem(const Json::exception& error) {
  std::string text = error.what();
  if (const std::size_t end = text.find("] "); end != std::string::npos)
    text = text.substr(end + 2);
  std::replace_if(
      text.begin(), text.end(), [](char c) { return static_cast<unsigned char>(c) < ' '; }, ' ');
  return "not valid JSON: " + text;
}

template <class Input>
Json parse_strictly(Input&& input, const std::string& name) {
  DuplicateKeyCheck check(name);
  try {
    return Json::parse(
        std::forward<Input>(input),
        [&](int, Json::parse_event_t event, Json& parsed) { return check(event, parsed); });
  } catch (const Json::exception& error) {
    throw InputError(name, syntax_problem(error));
  }
}

std::string shorten(std::string text) {
  constexpr std::size_t longest = 60;
  if (text.size() > longest) text = text.substr(0, longest - 3) + "...";
  return text;
}

}  // namespace

JsonDocument::JsonDocument(std::string name, Json root)
    : name_(std::move(name)), root_(std::make_unique<Json>(std::move(root))) {}
JsonDocument::JsonDocument(const JsonDocument& other)
    : name_(other.name_),
      above_(other.above_),
      root_(std::make_unique<Json>(*other.root_)),
      origin_of_(other.origin_of_) {}
JsonDocument& JsonDocument::operator=(const JsonDocument& other) {
  *this = JsonDocument(other);
  return *this;
}
JsonDocument::JsonDocument(JsonDocument&&) noexcept = default;
JsonDocument& JsonDocument::operator=(JsonDocument&&) noexcept = default;
JsonDocument::~JsonDocument() = default;

JsonDocument JsonDocument::read_file(const std::filesystem::path& path) {
  std::error_code error;
  const auto status = std::filesystem::status(path, error);
  if (!std::filesystem::exists(status)) throw InputError(path.string(), "no such file");
  if (std::filesystem::is_directory(status))
    throw InputError(path.string(), "is a directory, not a file");
  if (std::filesystem::is_regular_file(status) &&
      std::filesystem::file_size(path, error) > largest_file_bytes)
    throw InputError(
        path.string(),
        fmt::format("is {}; at most {} are read",
                    format_bytes(static_cast<double>(std::filesystem::file_size(path, error))),
                    format_bytes(static_cast<double>(largest_file_bytes))));
  std::ifstream file(path, std::ios::binary);
  if (!file) throw InputError(path.string(), "cannot be read");
  return {path.string(), parse_strictly(file, path.string())};
}

JsonDocument JsonDocument::parse(const std::string& text, const std::string& name) {
  return {name, parse_strictly(text, name)};
}

JsonDocument JsonDocument::part(const JsonView& view) {
  JsonDocument document(view.document_->name_, *view.node_);
  document.above_ = view.document_->above_ + view.pointer_;
  return document;
}

JsonView JsonDocument::root() const { return {*this, *root_, ""}; }

void JsonDocument::set(const std::vector<std::string>& path, const std::string& value,
                       const std::string& origin) {
  Json* node = root_.get();
  std::string pointer;
  for (const std::string& step : path) {
    if (step.empty())
      throw InputError(origin, "a key is words joined by dots, such as training.micro_batch");
    if (node->is_null()) *node = Json::object();
    if (node->is_array()) {
      const bool is_index =
          step.find_first_not_of("0123456789") == std::string::npos && step.size() < 9;
      if (!is_index || std::stoul(step) >= node->size())
        throw InputError(
            origin, fmt::format("{}:{} is a list of {}; \"{}\" is not one of its places", name_,
                                pointer, node->size(), step));
      node = &(*node)[std::stoul(step)];
    } else if (node->is_object()) {
      node = &(*node)[step];
    } else {
      throw InputError(
          origin, fmt::format("{}:{} is not an object; it has no \"{}\"", name_, pointer, step));
    }
    pointer += "/" + escape_pointer(step);
  }
  Json parsed = Json::parse(value, nullptr, /*allow_exceptions=*/false);
  if (parsed.is_discarded()) {
    const bool is_size = path.back().ends_with("_bytes") || path.back() == "NCCL_BUFFSIZE";
    const auto bytes = is_size ? parse_bytes(value) : std::nullopt;
    const bool looks_like_a_size =
        is_size && !value.empty() && value.front() >= '0' && value.front() <= '9';
    if (looks_like_a_size && !bytes)
      throw InputError(
          origin, fmt::format("must be a size such as 64KiB, 25MiB or 1000000, got {}", value));
    parsed = bytes ? Json(*bytes) : Json(value);
  }
  *node = std::move(parsed);
  std::erase_if(origin_of_,
                [&](const auto& entry) { return entry.first.starts_with(pointer + "/"); });
  origin_of_[pointer] = origin;
}

JsonView JsonView::at(std::string_view key) const {
  if (auto value = find(key)) return *value;
  fail(fmt::format("the key \"{}\" is missing", key));
}

std::optional<JsonView> JsonView::find(std::string_view key) const {
  if (!node_->is_object()) wrong("must be an object");
  const auto value = node_->find(std::string(key));
  if (value == node_->end()) return std::nullopt;
  return JsonView{*document_, *value, pointer_ + "/" + escape_pointer(key)};
}

std::vector<JsonView> JsonView::elements() const {
  if (!node_->is_array()) wrong("must be a list");
  std::vector<JsonView> all;
  all.reserve(node_->size());
  for (std::size_t i = 0; i < node_->size(); ++i)
    all.push_back(JsonView{*document_, (*node_)[i], pointer_ + "/" + std::to_string(i)});
  return all;
}

std::vector<std::pair<std::string, JsonView>> JsonView::members() const {
  if (!node_->is_object()) wrong("must be an object");
  std::vector<std::pair<std::string, JsonView>> all;
  for (const auto& [key, value] : node_->items())
    all.emplace_back(key, JsonView{*document_, value, pointer_ + "/" + escape_pointer(key)});
  return all;
}

void JsonView::allow_only(std::initializer_list<std::string_view> keys) const {
  for (const auto& [key, value] : members()) {
    if (std::find(keys.begin(), keys.end(), key) != keys.end()) continue;
    const std::string problem =
        fmt::format("unknown key \"{}\"{}", key, suggest(key, {keys.begin(), keys.end()}));
    // The command line may have set the key, or something below it.
    for (const auto& [pointer, origin] : document_->origin_of_)
      if ((pointer + "/").starts_with(value.pointer_ + "/")) throw InputError(origin, problem);
    fail(problem);
  }
}

void JsonView::expect_format(std::string_view format) const {
  const JsonView found = at("format");
  if (found.string() != format)
    found.fail(fmt::format("must be \"{}\", got {}", format, found.dump()));
}

double JsonView::number(double min, double max) const {
  constexpr double infinity = std::numeric_limits<double>::infinity();
  std::string allowed = "must be a number";
  if (max != infinity)
    allowed = fmt::format("must be in [{}, {}]", format_number(min), format_number(max));
  else if (min != -infinity)
    allowed = fmt::format("must be at least {}", format_number(min));
  if (!node_->is_number()) wrong(min == -infinity ? allowed : "must be a number: " + allowed);
  const double value = node_->get<double>();
  if (!(value >= min && value <= max) || !std::isfinite(value)) wrong(allowed);
  return value;
}

std::int64_t JsonView::integer(std::int64_t min, std::int64_t max) const {
  const std::string allowed = fmt::format("must be a whole number in [{}, {}]", min, max);
  if (!node_->is_number()) wrong(allowed);
  if (node_->is_number_float()) {
    constexpr double largest = 9007199254740992.0;  // 2^53: above, a double skips whole numbers
    const double value = node_->get<double>();
    if (!(std::abs(value) <= largest) || value != std::floor(value)) wrong(allowed);
    const auto whole = static_cast<std::int64_t>(value);
    if (whole < min || whole > max) wrong(allowed);
    return whole;
  }
  if (node_->is_number_unsigned() &&
      node_->get<std::uint64_t>() >
          static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()))
    wrong(allowed);
  const auto value = node_->get<std::int64_t>();
  if (value < min || value > max) wrong(allowed);
  return value;
}

std::string JsonView::string() const {
  if (!node_->is_string()) wrong("must be a string");
  return node_->get<std::string>();
}

std::string JsonView::word(const std::vector<std::string>& allowed) const {
  std::string found = string();
  if (std::find(allowed.begin(), allowed.end(), found) == allowed.end())
    fail(fmt::format("unknown \"{}\"{}", found, suggest(found, allowed)));
  return found;
}

bool JsonView::boolean() const {
  if (!node_->is_boolean()) wrong("must be true or false");
  return node_->get<bool>();
}

bool JsonView::is_null() const { return node_->is_null(); }

bool JsonView::is_object() const { return node_->is_object(); }

bool JsonView::is_array() const { return node_->is_array(); }

bool JsonView::is_auto() const {
  return node_->is_string() && node_->get_ref<const std::string&>() == "auto";
}

std::string JsonView::where() const {
  // The command line may have set the value, or an object around it.
  for (std::string pointer = pointer_; !pointer.empty(); pointer.resize(pointer.rfind('/'))) {
    const auto origin = document_->origin_of_.find(pointer);
    if (origin != document_->origin_of_.end()) return origin->second;
  }
  const std::string pointer = document_->above_ + pointer_;
  return pointer.empty() ? document_->name_ : document_->name_ + ":" + pointer;
}

void JsonView::fail(const std::string& problem) const { throw InputError(where(), problem); }

void JsonView::wrong(const std::string& allowed) const {
  fail(allowed + ", got " + shorten(dump()));
}

std::string JsonView::dump() const {
  return node_->dump(-1, ' ', /*ensure_ascii=*/false, Json::error_handler_t::replace);
}

std::string quote_json(const std::string& text) {
  return Json(text).dump(-1, ' ', /*ensure_ascii=*/false, Json::error_handler_t::replace);
}

}  // namespace stepcast
