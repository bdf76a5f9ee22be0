// What convolutions and attention should leave, one element at a time and in double precision: what
// the kernels that are measured are checked against. Plain C++17, for all back ends.
#pragma once

#include <cstdint>
#include <functional>

#include "backend.hpp"

namespace stepcast::calibrate {

[[nodiscard]] bool is_convolution(const ComputeCase& what);

/// Multiplications of a gemm, a convolution or an attention, each followed by an addition.
[[nodiscard]] double multiplications(const ComputeCase& what);

/// Element i of a tensor, in the order in which it lies in memory.
using Elements = std::function<double(std::int64_t i)>;

/// How many elements the tensors of a case have. What each of them is:
///
///   kernel                       x           w                    y
///   convolution_forward          images      filters              result
///   convolution_backward_data    d result    filters              d images
///   convolution_backward_filter  images      d result             d filters
///   attention                    Q           K, then V            result
///
/// Those of attention are [batch][head][position][head_size].
struct Counts {
  std::int64_t x = 0, w = 0, y = 0;
};
[[nodiscard]] Counts counts(const ComputeCase& what);

/// Element i of y.
[[nodiscard]] double reference(const ComputeCase& what, const Elements& x, const Elements& w,
                               std::int64_t i);

/// |y - reference| / |reference|, both over some elements that are spread over y.
[[nodiscard]] double relative_error(const ComputeCase& what, const Elements& x, const Elements& w,
                                    const Elements& y);

/// What rounding may make of it; a wrong index, stride or factor makes it about 1.
[[nodiscard]] double tolerance(const ComputeCase& what);

}  // namespace stepcast::calibrate
