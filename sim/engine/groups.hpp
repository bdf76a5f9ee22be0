// Lists by key in one vector.
#pragma once

#include <cstddef>
#include <numeric>
#include <span>
#include <vector>

namespace stepcast {

template <class Member>
struct Groups {
  std::vector<Member> members;
  std::vector<int> begin;  ///< [key]; one past the last key ends the last group
  [[nodiscard]] std::span<const Member> of(std::size_t key) const {
    return {members.data() + begin[key], static_cast<std::size_t>(begin[key + 1] - begin[key])};
  }
};

/// Groups (key, member) pairs that `each` hands to its argument, members in that order.
template <class Member, class Each>
Groups<Member> group(std::size_t keys, Each each) {
  Groups<Member> groups;
  groups.begin.assign(keys + 1, 0);
  each([&](std::size_t key, const Member&) { ++groups.begin[key + 1]; });
  std::partial_sum(groups.begin.begin(), groups.begin.end(), groups.begin.begin());
  groups.members.resize(static_cast<std::size_t>(groups.begin.back()));
  std::vector<int> next(groups.begin.begin(), groups.begin.end() - 1);
  each([&](std::size_t key, const Member& member) {
    groups.members[static_cast<std::size_t>(next[key]++)] = member;
  });
  return groups;
}

}  // namespace stepcast
