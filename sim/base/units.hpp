// Physical quantities as types: the unit is checked by the compiler, not by the reader.
#pragma once

#include <compare>

namespace stepcast {

/// A double tagged with the exponents of (second, byte), so that `bytes / bandwidth` is a time and
/// `latency + bandwidth` does not compile. Base units only; SI prefixes are powers of ten (1 GB/s
/// is 1e9 B/s, as in nccl-tests), powers of two are written MiB.
template <int SecondExp, int ByteExp>
class Quantity {
 public:
  constexpr Quantity() = default;
  constexpr explicit Quantity(double value) : value_(value) {}

  /// The number in base units (s, B, B/s); the only way out of the type.
  [[nodiscard]] constexpr double value() const { return value_; }

  constexpr Quantity& operator+=(Quantity other) {
    value_ += other.value_;
    return *this;
  }
  constexpr Quantity& operator-=(Quantity other) {
    value_ -= other.value_;
    return *this;
  }
  friend constexpr Quantity operator+(Quantity a, Quantity b) {
    return Quantity{a.value_ + b.value_};
  }
  friend constexpr Quantity operator-(Quantity a, Quantity b) {
    return Quantity{a.value_ - b.value_};
  }
  friend constexpr Quantity operator*(Quantity a, double factor) {
    return Quantity{a.value_ * factor};
  }
  friend constexpr Quantity operator*(double factor, Quantity a) {
    return Quantity{a.value_ * factor};
  }
  friend constexpr Quantity operator/(Quantity a, double divisor) {
    return Quantity{a.value_ / divisor};
  }
  friend constexpr double operator/(Quantity a, Quantity b) { return a.value_ / b.value_; }
  friend constexpr auto operator<=>(Quantity, Quantity) = default;

 private:
  double value_ = 0.0;
};

using Seconds = Quantity<1, 0>;
using Bytes = Quantity<0, 1>;  ///< a fluid amount; counts that must add up exactly are std::int64_t
using BytesPerSecond = Quantity<-1, 1>;

constexpr Seconds operator/(Bytes amount, BytesPerSecond rate) {
  return Seconds{amount.value() / rate.value()};
}
constexpr BytesPerSecond operator/(Bytes amount, Seconds time) {
  return BytesPerSecond{amount.value() / time.value()};
}

}  // namespace stepcast
