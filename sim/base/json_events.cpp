#include "base/json_events.hpp"

#include <iterator>
#include <unordered_map>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/error.hpp"

namespace stepcast {
namespace {

using Json = nlohmann::json;

/// A window on a ByteSource. The iterators below all move the one position in it: a parser reads
/// each byte once.
class Bytes {
 public:
  explicit Bytes(const ByteSource& source) : source_(source), buffer_(1 << 18) { fill(); }
  [[nodiscard]] bool at_end() const { return next_ == end_; }
  [[nodiscard]] char current() const { return buffer_[next_]; }
  void advance() {
    if (++next_ == end_) fill();
  }

 private:
  void fill() {
    next_ = 0;
    end_ = source_(buffer_.data(), buffer_.size());
  }
  const ByteSource& source_;
  std::vector<char> buffer_;
  std::size_t next_ = 0, end_ = 0;
};

class ByteIterator {
 public:
  // NOLINTBEGIN(readability-identifier-naming): the names of std::iterator_traits
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = char;
  // NOLINTEND(readability-identifier-naming)

  explicit ByteIterator(Bytes* bytes) : bytes_(bytes) {}
  char operator*() const { return bytes_->current(); }
  ByteIterator& operator++() {
    bytes_->advance();
    return *this;
  }
  void operator++(int) { bytes_->advance(); }
  bool operator==(const ByteIterator& other) const { return done() == other.done(); }
  bool operator!=(const ByteIterator& other) const { return done() != other.done(); }

 private:
  [[nodiscard]] bool done() const { return bytes_ == nullptr || bytes_->at_end(); }
  Bytes* bytes_;
};

/// nlohmann's SAX interface (json_sax_t), by name.
class Handler {
 public:
  Handler(const std::string& name, const std::string& list, const std::vector<std::string>& wanted,
          const JsonEventHandlers& handlers)
      : name_(name), list_(list), handlers_(handlers), fields_(wanted.size()) {
    for (std::size_t i = 0; i < wanted.size(); ++i) {
      const std::size_t dot = wanted[i].find('.');
      if (dot == std::string::npos) {
        places_[wanted[i]] = i;
      } else {
        inner_ = wanted[i].substr(0, dot);
        inner_places_[wanted[i].substr(dot + 1)] = i;
      }
    }
  }

  bool null() { return true; }
  bool boolean(bool) { return true; }
  bool number_integer(Json::number_integer_t number) { return whole(number); }
  bool number_unsigned(Json::number_unsigned_t number) {
    return whole(static_cast<std::int64_t>(number));
  }
  bool number_float(Json::number_float_t number, const std::string& text) {
    if (EventField* field = begin_value()) {
      if (open_lists_ > 0) return true;
      field->kind = EventField::Kind::real;
      field->real = number;
      field->text = text;
    } else if (!in_list_) {
      outside(text);
    }
    return true;
  }
  bool string(const std::string& text) {
    if (EventField* field = begin_value()) {
      if (open_lists_ > 0) {
        if (field->text.empty()) field->text = text;
        return true;
      }
      field->kind = EventField::Kind::text;
      field->text = text;
    } else if (!in_list_) {
      outside(text);
    }
    return true;
  }
  bool binary(const Json::binary_t&) { return true; }

  bool start_object(std::size_t) {
    ++depth_;
    if (!in_list_) return open("");
    if (depth_ == list_depth_ + 1) begin_event();
    if (depth_ == list_depth_ + 2) inside_inner_ = in_inner_key_;
    return true;
  }
  bool end_object() {
    if (in_list_) {
      if (depth_ == list_depth_ + 1) handlers_.event(fields_);
      if (depth_ == list_depth_ + 2) inside_inner_ = false;
    } else {
      path_.pop_back();
    }
    --depth_;
    return true;
  }
  bool start_array(std::size_t) {
    EventField* field = here();
    ++depth_;
    if (in_list_) {
      if (field != nullptr) {
        if (open_lists_++ == 0) {
          field->kind = EventField::Kind::list;
          field->list.clear();
          field->text.clear();
          touched_.push_back(place_);
        }
      }
      return true;
    }
    if (depth_ == 1 || (depth_ == 2 && path_.back() == list_)) {
      in_list_ = true;
      list_depth_ = depth_;
      return true;
    }
    return open("");
  }
  bool end_array() {
    if (!in_list_) {
      path_.pop_back();
    } else if (depth_ == list_depth_) {
      in_list_ = false;
    } else if (open_lists_ > 0) {
      fields_[place_].list.push_back(EventField::end_of_list);
      --open_lists_;
    }
    --depth_;
    return true;
  }
  bool key(const std::string& text) {
    if (!in_list_) {
      path_.back() = text;
    } else if (depth_ == list_depth_ + 1) {
      find(places_, text);
      in_inner_key_ = text == inner_;
    } else if (depth_ == list_depth_ + 2 && inside_inner_) {
      find(inner_places_, text);
    } else {
      place_ = none;
    }
    return true;
  }
  bool parse_error(std::size_t position, const std::string&, const Json::exception& error) {
    // "[json.exception.parse_error.101] parse error at line 1, column 9: syntax error ..."
    const std::string text = error.what();
    const std::size_t colon = text.find(": ");
    throw InputError(name_,
                     fmt::format("not JSON at byte {}: {}", position,
                                 colon == std::string::npos ? text : text.substr(colon + 2)));
  }

 private:
  using Places = std::unordered_map<std::string, std::size_t>;
  static constexpr std::size_t none = static_cast<std::size_t>(-1);

  bool open(const char* step) {
    path_.emplace_back(step);
    return true;
  }
  void find(const Places& places, const std::string& text) {
    const auto found = places.find(text);
    place_ = found == places.end() ? none : found->second;
  }
  void begin_event() {
    for (const std::size_t place : touched_) fields_[place].kind = EventField::Kind::absent;
    touched_.clear();
    place_ = none;
    inside_inner_ = in_inner_key_ = false;
  }
  /// The wanted field whose value comes now, or null.
  EventField* here() {
    const bool level = depth_ <= list_depth_ + 2 || open_lists_ > 0;
    return in_list_ && place_ != none && level ? &fields_[place_] : nullptr;
  }
  EventField* begin_value() {
    EventField* field = here();
    if (field == nullptr) return nullptr;
    if (open_lists_ == 0) touched_.push_back(place_);
    return field;
  }
  bool whole(std::int64_t number) {
    if (EventField* field = begin_value()) {
      if (open_lists_ > 0) {
        field->list.push_back(number);
        return true;
      }
      field->kind = EventField::Kind::integer;
      field->integer = number;
    } else if (!in_list_) {
      outside(std::to_string(number));
    }
    return true;
  }
  void outside(const std::string& text) {
    std::string place;
    for (const std::string& step : path_)
      if (!step.empty()) place += "/" + step;  // a list's element has no name
    handlers_.value(place, text);
  }

  const std::string& name_;
  const std::string& list_;
  const JsonEventHandlers& handlers_;
  Places places_, inner_places_;
  std::string inner_;  // the key of the object one level in
  std::vector<EventField> fields_;
  std::vector<std::size_t> touched_;
  std::vector<std::string> path_;  // outside the list
  std::size_t place_ = none;
  int depth_ = 0, list_depth_ = 0, open_lists_ = 0;
  bool in_list_ = false, in_inner_key_ = false, inside_inner_ = false;
};

}  // namespace

void read_json_events(const ByteSource& source, const std::string& name, const std::string& list,
                      const std::vector<std::string>& wanted, const JsonEventHandlers& handlers) {
  Bytes bytes(source);
  Handler handler(name, list, wanted, handlers);
  Json::sax_parse(ByteIterator(&bytes), ByteIterator(nullptr), &handler);
}

}  // namespace stepcast
