#include "reference.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace stepcast::calibrate {
namespace {

using Tensor = std::vector<double>;

Elements elements(const Tensor& tensor) {
  return [&tensor](std::int64_t i) { return tensor[static_cast<std::size_t>(i)]; };
}

/// Numbers between -1 and 1 that do not repeat within these tests.
Tensor numbers(std::int64_t count, int seed) {
  Tensor tensor(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < tensor.size(); ++i)
    tensor[i] = std::sin(12.9898 * static_cast<double>(i) + seed);
  return tensor;
}

Tensor all(const ComputeCase& what, const Tensor& x, const Tensor& w) {
  Tensor y(static_cast<std::size_t>(counts(what).y));
  for (std::size_t i = 0; i < y.size(); ++i)
    y[i] = reference(what, elements(x), elements(w), static_cast<std::int64_t>(i));
  return y;
}

double inner(const Tensor& a, const Tensor& b) {
  EXPECT_EQ(a.size(), b.size());
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

/// Two images of 5 x 7 pixels and 3 channels; 4 filters of 3 x 3.
ComputeCase convolution(const std::string& pass, const std::string& layout, std::int64_t stride,
                        std::int64_t padding) {
  return {.kernel = "convolution_" + pass,
          .dtype = "float64",
          .convolution = {layout, 2, 3, 5, 7, 4, 3, stride, padding}};
}

ComputeCase attention(std::int64_t length, std::int64_t size) {
  return {.kernel = "attention", .dtype = "float64", .attention = {2, 3, length, size}};
}

TEST(Reference, ConvolvesByHand) {
  ComputeCase what{.kernel = "convolution_forward"};
  what.convolution = {"NCHW", 1, 1, 3, 3, 1, 2, 1, 0};
  // 1 2 3
  // 4 5 6   with   10 20   is   1*10+2*20+4*30+5*40 = 370, and 100 more for each step to the right
  // 7 8 9          30 40        and 300 for each one down: the filter's sum times 1 and 3.
  EXPECT_EQ(all(what, {1, 2, 3, 4, 5, 6, 7, 8, 9}, {10, 20, 30, 40}), (Tensor{370, 470, 670, 770}));
  // Around it zeros: the corner has 1*40 only. Every second place is taken: 4 x 4 of them, 2 x 2.
  what.convolution = {"NCHW", 1, 1, 3, 3, 1, 2, 2, 1};
  // 40*1 | 30*2+40*3 | 20*4+40*7 | 10*5+20*6+30*8+40*9
  EXPECT_EQ(all(what, {1, 2, 3, 4, 5, 6, 7, 8, 9}, {10, 20, 30, 40}), (Tensor{40, 180, 360, 770}));
}

/// <conv(x, w), g> = <x, backward_data(g, w)> = <w, backward_filter(x, g)>, for it is linear in
/// both.
TEST(Reference, BackwardPassesAreTheAdjointsOfTheForwardPass) {
  for (const std::string layout : {"NCHW", "NHWC"})
    for (const std::int64_t stride : {1, 2, 3})
      for (const std::int64_t padding : {0, 1}) {
        const ComputeCase forward = convolution("forward", layout, stride, padding);
        const Tensor x = numbers(counts(forward).x, 1);
        const Tensor w = numbers(counts(forward).w, 2);
        const Tensor g = numbers(counts(forward).y, 3);
        const double product = inner(all(forward, x, w), g);
        EXPECT_NE(product, 0);
        const auto tensor = [&](const std::string& pass, const Tensor& a, const Tensor& b) {
          return all(convolution(pass, layout, stride, padding), a, b);
        };
        EXPECT_NEAR(inner(tensor("backward_data", g, w), x), product, 1e-11) << layout << stride;
        EXPECT_NEAR(inner(tensor("backward_filter", x, g), w), product, 1e-11) << layout << stride;
      }
}

/// The same image and filters in the other order give the same result in the other order.
TEST(Reference, LayoutsDifferInTheOrderOnly) {
  const ComputeCase first = convolution("forward", "NCHW", 2, 1);
  const ComputeCase last = convolution("forward", "NHWC", 2, 1);
  const auto reordered = [](const Tensor& from, std::size_t channels, std::size_t pixels) {
    Tensor to(from.size());
    for (std::size_t i = 0; i < from.size(); ++i) {
      const std::size_t image = i / (channels * pixels);
      const std::size_t channel = i / pixels % channels;
      to[(image * pixels + i % pixels) * channels + channel] = from[i];
    }
    return to;
  };
  const Tensor x = numbers(counts(first).x, 1);
  const Tensor w = numbers(counts(first).w, 2);
  // 5 x 7 pixels go in and (5 + 2 - 3) / 2 + 1 = 3 times (7 + 2 - 3) / 2 + 1 = 4 come out.
  EXPECT_EQ(all(last, reordered(x, 3, 35), reordered(w, 3, 9)), reordered(all(first, x, w), 4, 12));
}

TEST(Reference, AttentionToEqualKeysIsTheMeanOfTheValues) {
  const ComputeCase what = attention(4, 2);
  const Tensor q = numbers(counts(what).x, 1);
  Tensor kv = numbers(counts(what).w, 2);
  std::fill(kv.begin(), kv.begin() + static_cast<std::ptrdiff_t>(q.size()), 0.5);
  const Tensor y = all(what, q, kv);
  for (std::size_t i = 0; i < y.size(); ++i) {
    const std::size_t head = i / 8;
    double mean = 0;
    for (std::size_t j = 0; j < 4; ++j) mean += kv[q.size() + head * 8 + j * 2 + i % 2] / 4;
    EXPECT_NEAR(y[i], mean, 1e-12) << i;
  }
}

TEST(Reference, AttentionWeighsByTheExponentOfTheScaledProduct) {
  ComputeCase what = attention(2, 4);
  what.attention.batch = what.attention.heads = 1;
  // q.k is 6 for the first key and 0 for the second: e^(6 / sqrt(4)) = e^3 to 1.
  const Tensor q{1, 2, 3, 0, 1, 2, 3, 0};
  const Tensor kv{1, 1, 1, 1, 0, 0, 0, 1, /* V */ 1, 2, 3, 4, -1, -2, -3, -4};
  const double weight = std::exp(3.0) / (std::exp(3.0) + 1);
  for (std::int64_t d = 0; d < 4; ++d)
    EXPECT_NEAR(reference(what, elements(q), elements(kv), d),
                (2 * weight - 1) * static_cast<double>(d + 1), 1e-12);
}

TEST(Reference, ToleratesRoundingAndNothingElse) {
  for (const std::string dtype : {"float32", "tf32", "float16", "bfloat16"}) {
    ComputeCase what = convolution("forward", "NHWC", 1, 1);
    what.dtype = dtype;
    const Tensor x = numbers(counts(what).x, 1);
    const Tensor w = numbers(counts(what).w, 2);
    const Tensor right = all(what, x, w);
    const auto error = [&](const Tensor& y) {
      return relative_error(what, elements(x), elements(w), elements(y));
    };
    EXPECT_EQ(error(right), 0);
    Tensor rounded = right;
    // Of the result; the sums are kept in float32.
    const double unit = dtype == "bfloat16" ? 0x1p-9 : dtype == "float32" ? 0x1p-24 : 0x1p-11;
    for (std::size_t i = 0; i < rounded.size(); ++i) rounded[i] *= 1 + (i % 2 ? unit : -unit);
    EXPECT_LT(error(rounded), tolerance(what)) << dtype;

    Tensor shifted = right;  // one place off
    std::rotate(shifted.begin(), shifted.begin() + 1, shifted.end());
    EXPECT_GT(error(shifted), tolerance(what)) << dtype;
    Tensor scaled = right;
    for (double& value : scaled) value *= 1.05;
    EXPECT_GT(error(scaled), tolerance(what)) << dtype;
    Tensor none = right;
    none[0] = std::nan("");
    EXPECT_FALSE(error(none) <= tolerance(what)) << dtype;
  }
}

TEST(Reference, CountsMultiplications) {
  EXPECT_EQ(multiplications({"gemm", "float32", 2, 3, 5}), 30);
  // He et al. 2016, table 1: the first layer of ResNet-50 multiplies 112 x 112 x 64 x 7 x 7 x 3 =
  // 118 million times an image; whichever the pass.
  for (const char* pass : {"forward", "backward_data", "backward_filter"}) {
    ComputeCase what = convolution(pass, "NCHW", 2, 3);
    what.convolution = {"NCHW", 32, 3, 224, 224, 64, 7, 2, 3};
    EXPECT_EQ(multiplications(what), 32 * 118013952.0);
  }
  // Q K^T and P V: 2 x 3 heads x 4 x 4 x 8 each.
  EXPECT_EQ(multiplications(attention(4, 8)), 2 * 2 * 3 * 4 * 4 * 8);
}

}  // namespace
}  // namespace stepcast::calibrate
