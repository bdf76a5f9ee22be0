#include "reference.hpp"

#include <algorithm>
#include <cmath>
#include <vector>

namespace stepcast::calibrate {
namespace {

/// Where elements of images or filters lie.
struct Place {
  bool channels_last;
  std::int64_t channels, height, width;

  [[nodiscard]] std::int64_t index(std::int64_t n, std::int64_t c, std::int64_t h,
                                   std::int64_t w) const {
    return channels_last ? ((n * height + h) * width + w) * channels + c
                         : ((n * channels + c) * height + h) * width + w;
  }
};

struct Position {
  std::int64_t n, c, h, w;
};
Position position(const Place& place, std::int64_t i) {
  const auto next = [&i](std::int64_t size) {
    const std::int64_t last = i % size;
    i /= size;
    return last;
  };
  Position at{};
  if (place.channels_last) at.c = next(place.channels);
  at.w = next(place.width);
  at.h = next(place.height);
  if (!place.channels_last) at.c = next(place.channels);
  at.n = i;
  return at;
}

/// The result at (n, k, p, q) is the sum over c, r, s of images(n, c, p stride + r - padding,
/// q stride + s - padding) filters(k, c, r, s). The two backward passes sum the same products, each
/// over the indices that its own result does not have.
double convolution(const ComputeCase& what, const Elements& x, const Elements& w, std::int64_t i) {
  const ConvolutionShape& shape = what.convolution;
  const bool last = shape.layout == "NHWC";
  const std::int64_t size = shape.filter_size;
  const Place images{last, shape.in_channels, shape.height, shape.width};
  const Place filters{last, shape.in_channels, size, size};
  const Place result{last, shape.out_channels, shape.out_height(), shape.out_width()};
  const auto inside = [](std::int64_t at, std::int64_t end) { return at >= 0 && at < end; };
  double sum = 0;
  if (what.kernel == "convolution_forward") {
    const Position y = position(result, i);
    for (std::int64_t c = 0; c < shape.in_channels; ++c)
      for (std::int64_t r = 0; r < size; ++r)
        for (std::int64_t s = 0; s < size; ++s) {
          const std::int64_t h = y.h * shape.stride + r - shape.padding;
          const std::int64_t v = y.w * shape.stride + s - shape.padding;
          if (inside(h, shape.height) && inside(v, shape.width))
            sum += x(images.index(y.n, c, h, v)) * w(filters.index(y.c, c, r, s));
        }
  } else if (what.kernel == "convolution_backward_data") {
    const Position y = position(images, i);
    for (std::int64_t r = 0; r < size; ++r)
      for (std::int64_t s = 0; s < size; ++s) {
        const std::int64_t h = y.h + shape.padding - r;
        const std::int64_t v = y.w + shape.padding - s;
        if (h % shape.stride != 0 || v % shape.stride != 0 ||
            !inside(h, result.height * shape.stride) || !inside(v, result.width * shape.stride))
          continue;
        for (std::int64_t k = 0; k < shape.out_channels; ++k)
          sum += x(result.index(y.n, k, h / shape.stride, v / shape.stride)) *
                 w(filters.index(k, y.c, r, s));
      }
  } else {
    const Position y = position(filters, i);
    for (std::int64_t n = 0; n < shape.batch; ++n)
      for (std::int64_t p = 0; p < result.height; ++p)
        for (std::int64_t q = 0; q < result.width; ++q) {
          const std::int64_t h = p * shape.stride + y.h - shape.padding;
          const std::int64_t v = q * shape.stride + y.w - shape.padding;
          if (inside(h, shape.height) && inside(v, shape.width))
            sum += x(images.index(n, y.c, h, v)) * w(result.index(n, y.n, p, q));
        }
  }
  return sum;
}

double attention(const AttentionShape& shape, const Elements& x, const Elements& w,
                 std::int64_t i) {
  const std::int64_t row = i / shape.head_size;  // of all queries
  const std::int64_t column = i % shape.head_size;
  const std::int64_t first = row / shape.sequence_length * shape.sequence_length;
  std::vector<double> scores(static_cast<std::size_t>(shape.sequence_length));
  std::int64_t key = first;
  for (double& score : scores) {
    for (std::int64_t d = 0; d < shape.head_size; ++d)
      score += x(row * shape.head_size + d) * w(key * shape.head_size + d);
    score /= std::sqrt(static_cast<double>(shape.head_size));
    ++key;
  }
  const double largest = *std::max_element(scores.begin(), scores.end());
  double weights = 0;
  double sum = 0;
  std::int64_t value = shape.elements() + first * shape.head_size + column;
  for (const double score : scores) {
    const double weight = std::exp(score - largest);
    weights += weight;
    sum += weight * w(value);
    value += shape.head_size;
  }
  return sum / weights;
}

}  // namespace

bool is_convolution(const ComputeCase& what) { return what.kernel.rfind("convolution_", 0) == 0; }

double multiplications(const ComputeCase& what) {
  const auto product = [](std::int64_t a, std::int64_t b) {
    return static_cast<double>(a) * static_cast<double>(b);
  };
  if (is_convolution(what)) {
    const ConvolutionShape& shape = what.convolution;
    return product(shape.out_elements(), shape.in_channels * shape.filter_size * shape.filter_size);
  }
  if (what.kernel == "attention")
    return 2 * product(what.attention.scores(), what.attention.head_size);
  return product(what.m * what.n, what.k);
}

Counts counts(const ComputeCase& what) {
  const ConvolutionShape& shape = what.convolution;
  if (what.kernel == "convolution_forward")
    return {shape.in_elements(), shape.filter_elements(), shape.out_elements()};
  if (what.kernel == "convolution_backward_data")
    return {shape.out_elements(), shape.filter_elements(), shape.in_elements()};
  if (what.kernel == "convolution_backward_filter")
    return {shape.in_elements(), shape.out_elements(), shape.filter_elements()};
  const std::int64_t elements = what.attention.elements();
  return {elements, 2 * elements, elements};
}

double reference(const ComputeCase& what, const Elements& x, const Elements& w, std::int64_t i) {
  return is_convolution(what) ? convolution(what, x, w, i) : attention(what.attention, x, w, i);
}

double relative_error(const ComputeCase& what, const Elements& x, const Elements& w,
                      const Elements& y) {
  const std::int64_t count = counts(what).y;
  const std::int64_t checked = std::min<std::int64_t>(47, count);
  double wrong = 0;
  double right = 0;
  for (std::int64_t j = 0; j < checked; ++j) {
    // From the first to the last.
    const std::int64_t i = j * (count - 1) / std::max<std::int64_t>(1, checked - 1);
    const double expected = reference(what, x, w, i);
    const double found = y(i);
    wrong += (found - expected) * (found - expected);
    right += expected * expected;
  }
  return std::sqrt(wrong / right);
}

double tolerance(const ComputeCase& what) {
  // Products of k random numbers of float32 that are added one after the other are off by about
  // 2^-24 sqrt(k): 2e-5 for the 100352 of a filter gradient of ResNet-50. tf32 keeps 10 bits of
  // each factor and would be off by 4e-4, so it does not pass for float32.
  if (what.dtype == "float64") return 1e-12;
  if (what.dtype == "float32") return 1e-4;
  // bfloat16 rounds scores, weights and result of an attention by 2^-9 each: 0.4 % together.
  return 1e-2;
}

}  // namespace stepcast::calibrate
