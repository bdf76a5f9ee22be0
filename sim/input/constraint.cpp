#include "input/constraint.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <string_view>

#include <fmt/format.h>

#include "base/error.hpp"

namespace stepcast {
namespace {

constexpr std::string_view letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_";
constexpr std::string_view digits = "0123456789";
constexpr int deepest = 100;  // nested parentheses, signs and nots

struct Token {
  enum class Kind { end, number, text, word, sign } kind = Kind::end;
  std::string text;
  std::size_t place = 0;  // of its first character
};

/// Recursive descent that evaluates while it reads; both sides of `and` and `or` are read and
/// evaluated, so that a mistake does not hide behind a lucky point.
class Evaluation {
 public:
  Evaluation(const std::string& expression, const ConstraintLookup& lookup,
             const std::string& where)
      : text_(expression), lookup_(lookup), where_(where) {
    advance();
  }

  bool run() {
    const Token first = token_;
    const ConstraintValue value = either();
    if (token_.kind != Token::Kind::end) fail(token_, "an operator or the end is wanted here");
    return truth(value, first);
  }

 private:
  [[noreturn]] void fail(const Token& token, const std::string& problem) const {
    const bool at_end = token.kind == Token::Kind::end;
    throw InputError(where_, fmt::format("character {}{}: {}, in: {}", token.place + 1,
                                         at_end ? " (the end)" : fmt::format(" ({})", token.text),
                                         problem, text_));
  }

  void advance() {
    std::size_t at = end_of_last_;
    while (at < text_.size() && text_[at] == ' ') ++at;
    token_ = {Token::Kind::end, "", at};
    if (at == text_.size()) return;
    const auto read = [&](Token::Kind kind, std::size_t length) {
      token_ = {kind, text_.substr(at, length), at};
      end_of_last_ = at + length;
    };
    const auto run_of = [&](std::string_view wanted, std::size_t from) {
      const std::size_t end = text_.find_first_not_of(wanted, from);
      return (end == std::string::npos ? text_.size() : end) - from;
    };
    const char c = text_[at];
    if (letters.find(c) != std::string_view::npos) {
      std::string known(letters);
      return read(Token::Kind::word, run_of(known.append(digits).append("."), at));
    }
    if (digits.find(c) != std::string_view::npos || c == '.') {
      double number = 0.0;
      const auto [rest, error] =
          std::from_chars(text_.data() + at, text_.data() + text_.size(), number);
      const auto length = static_cast<std::size_t>(rest - text_.data()) - at;
      read(Token::Kind::number, std::max<std::size_t>(1, length));
      if (error != std::errc{}) fail(token_, "is no number");
      number_ = number;
      return;
    }
    if (c == '\'' || c == '"') {
      const std::size_t end = text_.find(c, at + 1);
      read(Token::Kind::text, end == std::string::npos ? text_.size() - at : end - at + 1);
      if (end == std::string::npos) fail(token_, "the text has no end");
      return;
    }
    for (const std::string_view sign :
         {"<=", ">=", "==", "!=", "<", ">", "+", "-", "*", "/", "%", "(", ")"})
      if (std::string_view(text_).substr(at).starts_with(sign))
        return read(Token::Kind::sign, sign.size());
    read(Token::Kind::sign, 1);
    fail(token_, "means nothing here");
  }

  /// Steps over the token if it is one of these.
  bool take(Token::Kind kind, std::initializer_list<std::string_view> texts) {
    if (token_.kind != kind) return false;
    if (std::find(texts.begin(), texts.end(), token_.text) == texts.end()) return false;
    taken_ = token_;
    advance();
    return true;
  }

  [[nodiscard]] bool truth(const ConstraintValue& value, const Token& at) const {
    if (const bool* its = std::get_if<bool>(&value)) return *its;
    fail(at, "true or false is wanted here, such as a comparison");
  }
  [[nodiscard]] double number(const ConstraintValue& value, const Token& at) const {
    if (const double* its = std::get_if<double>(&value)) return *its;
    const auto* text = std::get_if<std::string>(&value);
    fail(at, fmt::format("a number is wanted here, got {}",
                         text ? '"' + *text + '"' : "true or false"));
  }

  ConstraintValue either() {
    Token first = token_;
    ConstraintValue left = both();
    while (take(Token::Kind::word, {"or"})) {
      const Token second = token_;
      const ConstraintValue right = both();
      const bool a = truth(left, first);
      const bool b = truth(right, second);
      left = a || b;
    }
    return left;
  }

  ConstraintValue both() {
    Token first = token_;
    ConstraintValue left = negation();
    while (take(Token::Kind::word, {"and"})) {
      const Token second = token_;
      const ConstraintValue right = negation();
      const bool a = truth(left, first);
      const bool b = truth(right, second);
      left = a && b;
    }
    return left;
  }

  ConstraintValue negation() {
    if (!take(Token::Kind::word, {"not"})) return comparison();
    const Depth depth(*this);
    const Token of = token_;
    return !truth(negation(), of);
  }

  ConstraintValue comparison() {
    const Token first = token_;
    ConstraintValue left = sum();
    if (!take(Token::Kind::sign, {"<", "<=", ">", ">=", "==", "!="})) return left;
    const Token sign = taken_;
    const Token second = token_;
    const ConstraintValue right = sum();
    if (token_.kind == Token::Kind::sign &&
        comparisons_.end() != std::find(comparisons_.begin(), comparisons_.end(), token_.text))
      fail(token_, "comparisons are not chained; join them by and");
    if (sign.text == "==" || sign.text == "!=") {
      if (left.index() != right.index())
        fail(sign, "compares a number, a text or a truth with another kind of value");
      return (left == right) == (sign.text == "==");
    }
    const double a = number(left, first);
    const double b = number(right, second);
    if (sign.text == "<") return a < b;
    if (sign.text == "<=") return a <= b;
    return sign.text == ">" ? a > b : a >= b;
  }

  ConstraintValue sum() {
    const Token first = token_;
    ConstraintValue left = product();
    while (take(Token::Kind::sign, {"+", "-"})) {
      const Token sign = taken_;
      const Token second = token_;
      const double right = number(product(), second);
      left = number(left, first) + (sign.text == "+" ? right : -right);
    }
    return left;
  }

  ConstraintValue product() {
    const Token first = token_;
    ConstraintValue left = signed_value();
    while (take(Token::Kind::sign, {"*", "/", "%"})) {
      const Token sign = taken_;
      const Token second = token_;
      const double b = number(signed_value(), second);
      const double a = number(left, first);
      if (sign.text != "*" && b == 0.0) fail(sign, "divides by zero");
      left = sign.text == "*" ? a * b : sign.text == "/" ? a / b : std::fmod(a, b);
    }
    return left;
  }

  ConstraintValue signed_value() {
    if (!take(Token::Kind::sign, {"-"})) return value();
    const Depth depth(*this);
    const Token of = token_;
    return -number(signed_value(), of);
  }

  ConstraintValue value() {
    const Token at = token_;
    if (take(Token::Kind::sign, {"("})) {
      const Depth depth(*this);
      ConstraintValue inner = either();
      if (!take(Token::Kind::sign, {")"})) fail(token_, "a closing parenthesis is missing");
      return inner;
    }
    const double here = number_;
    switch (at.kind) {
      case Token::Kind::number: advance(); return here;
      case Token::Kind::text: advance(); return at.text.substr(1, at.text.size() - 2);
      case Token::Kind::word: break;
      default: fail(at, "a key, a number or a text is wanted here");
    }
    if (at.text == "and" || at.text == "or" || at.text == "not")
      fail(at, "a key, a number or a text is wanted here");
    advance();
    if (at.text == "true" || at.text == "false") return at.text == "true";
    if (auto found = lookup_(at.text)) return *found;
    fail(at, "the scenario gives no value to this key");
  }

  /// Deep nesting is refused before it overflows the stack.
  struct Depth {
    explicit Depth(Evaluation& evaluation) : its(evaluation) {
      if (++its.depth_ > deepest) its.fail(its.token_, "is nested too deeply");
    }
    ~Depth() { --its.depth_; }
    Depth(const Depth&) = delete;
    Depth& operator=(const Depth&) = delete;
    Evaluation& its;
  };

  static constexpr std::array<std::string_view, 6> comparisons_ = {"<",  "<=", ">",
                                                                   ">=", "==", "!="};
  const std::string& text_;
  const ConstraintLookup& lookup_;
  const std::string& where_;
  Token token_, taken_;
  double number_ = 0.0;
  std::size_t end_of_last_ = 0;
  int depth_ = 0;
};

}  // namespace

bool constraint_holds(const std::string& expression, const ConstraintLookup& lookup,
                      const std::string& where) {
  return Evaluation(expression, lookup, where).run();
}

}  // namespace stepcast
