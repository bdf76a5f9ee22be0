// Expressions over the keys of a scenario that say which points of a sweep are wanted, such as
// `cluster.gpus * training.micro_batch <= 4096`.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <variant>

namespace stepcast {

using ConstraintValue = std::variant<double, bool, std::string>;
/// The value of a key in a point; empty when there is no such key.
using ConstraintLookup = std::function<std::optional<ConstraintValue>(const std::string& key)>;

/// Evaluates an expression whose value is true or false. From weak to strong: `or`, `and`, `not`,
/// one of `== != < <= > >=`, `+ -`, `* / %`, a sign; parentheses, numbers, 'texts', true, false and
/// keys. Nothing is converted: `and` takes truths, `*` numbers, `==` two of a kind. Throws
/// InputError with `where` and the place in the expression.
[[nodiscard]] bool constraint_holds(const std::string& expression, const ConstraintLookup& lookup,
                                    const std::string& where);

}  // namespace stepcast
