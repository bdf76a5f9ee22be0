// Numbers that look random but are the same on every machine.
#pragma once

#include <cstdint>

namespace stepcast {

/// One step of splitmix64 (Steele, Lea & Flood, OOPSLA 2014): different inputs give different
/// outputs, and each bit of the one changes about half of the other.
[[nodiscard]] constexpr std::uint64_t mix(std::uint64_t value) {
  value += 0x9e3779b97f4a7c15U;
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9U;
  value = (value ^ (value >> 27)) * 0x94d049bb133111ebU;
  return value ^ (value >> 31);
}
[[nodiscard]] constexpr std::uint64_t mix(std::uint64_t one, std::uint64_t other) {
  return mix(mix(one) + other);
}

}  // namespace stepcast
