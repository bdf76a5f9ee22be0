// Runs work in child processes, because SimGrid allows one simulation per process: the parent never
// touches it, and a child that dies takes only its own answer with it.
#pragma once

#include <cstddef>
#include <cstring>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace stepcast {

/// What one child brought back.
struct Outcome {
  enum class Kind { done, input_error, failed } kind = Kind::failed;
  std::string text;  ///< the answer, or what went wrong
};

/// Calls work(i) for each of the indices, each in a child of its own, at most `workers` at a time,
/// and hands each outcome to `done` as it comes, in whatever order. Errors that the work throws
/// come back as outcomes.
void run_isolated(const std::vector<std::size_t>& indices, int workers,
                  const std::function<std::string(std::size_t)>& work,
                  const std::function<void(std::size_t, const Outcome&)>& done);

/// How many children a run_isolated() may have at a time.
struct Workers {
  int count = 1;
  /// Inside the work of another run_isolated(): one more for each place that an outer one has left
  /// and nothing to do for. So all of them together keep to the `count` of the outermost, but for
  /// processes that only wait for others.
  bool borrow = false;
};
/// The same for the indices that `next` gives, which is asked whenever there is room for one, also
/// after it gave none, and until it gives none while no child is running.
void run_isolated(const std::function<std::optional<std::size_t>()>& next, Workers workers,
                  const std::function<std::string(std::size_t)>& work,
                  const std::function<void(std::size_t, const Outcome&)>& done);

/// The outcomes of work(0) ... work(count - 1), in order whatever `workers` is.
[[nodiscard]] std::vector<Outcome> run_isolated(
    std::size_t count, int workers, const std::function<std::string(std::size_t)>& work);

/// Values as they are in memory, bit by bit, for the answer of a child.
template <class Value>
[[nodiscard]] std::string text_of_values(const std::vector<Value>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(Value)};
}
template <class Value>
[[nodiscard]] std::vector<Value> values_in(const std::string& text) {
  std::vector<Value> values(text.size() / sizeof(Value));
  std::memcpy(values.data(), text.data(), text.size());
  return values;
}

/// Numbers that one child finds, bit by bit. Throws SimulationError with what went wrong in it.
[[nodiscard]] std::vector<double> isolated_numbers(
    const std::function<std::vector<double>()>& work);

}  // namespace stepcast
