// A registry maps a name to a function. A file that adds an algorithm or a topology registers
// itself at the end of the file, and nothing else needs an edit.
#pragma once

#include <map>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace stepcast {

/// Names are unique: adding one twice ends the program at start-up.
/// The objects that register themselves must be linked as objects, never from a static archive,
/// which would drop them without a word.
template <class Function>
class Registry {
 public:
  bool add(const std::string& name, Function function) {
    if (!entries_.emplace(name, std::move(function)).second)
      throw std::logic_error("registered twice: " + name);
    return true;
  }
  /// Null when there is none of that name.
  [[nodiscard]] const Function* find(const std::string& name) const {
    const auto entry = entries_.find(name);
    return entry == entries_.end() ? nullptr : &entry->second;
  }
  /// In alphabetical order.
  [[nodiscard]] std::vector<std::string> names() const {
    std::vector<std::string> all;
    all.reserve(entries_.size());
    for (const auto& [name, function] : entries_) all.push_back(name);
    return all;
  }

 private:
  std::map<std::string, Function> entries_;
};

}  // namespace stepcast
