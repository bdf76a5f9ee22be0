#include "base/units.hpp"

#include <concepts>

#include "testing.hpp"

namespace stepcast {
namespace {

template <class A, class B>
concept Addable = requires(A a, B b) {
  a + b;
};
template <class A, class B>
concept Multipliable = requires(A a, B b) {
  a* b;
};

// What must not compile.
static_assert(Addable<Seconds, Seconds>);
static_assert(!Addable<Seconds, Bytes>);
static_assert(!Addable<Seconds, double>);
static_assert(!Multipliable<Bytes, BytesPerSecond>);
static_assert(!std::convertible_to<double, Seconds>);
static_assert(sizeof(Seconds) == sizeof(double));

TEST(Units, BytesOverBandwidthIsTime) {
  const Seconds time = Bytes{50e9} / BytesPerSecond{25e9};
  EXPECT_EQ(time.value(), 2.0);
}

TEST(Units, BytesOverTimeIsBandwidth) {
  const BytesPerSecond rate = Bytes{10.0} / Seconds{4.0};
  EXPECT_EQ(rate.value(), 2.5);
}

TEST(Units, EqualQuantitiesDivideToANumber) { EXPECT_EQ(Seconds{3.0} / Seconds{2.0}, 1.5); }

}  // namespace
}  // namespace stepcast
