#include "workload/buckets.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "documents.hpp"
#include "testing.hpp"
#include "torchvision.hpp"

namespace stepcast {
namespace {

constexpr std::int64_t mebibyte = 1 << 20;
constexpr std::int64_t float32_bytes = 4;

std::vector<std::int64_t> bytes_of(const std::vector<Collective>& buckets) {
  std::vector<std::int64_t> bytes;
  for (const Collective& bucket : buckets) bytes.push_back(bucket.bytes);
  return bytes;
}

std::vector<std::int64_t> elements_of(const std::vector<Collective>& buckets) {
  std::vector<std::int64_t> elements;
  for (const Collective& bucket : buckets) elements.push_back(bucket.bytes / float32_bytes);
  return elements;
}

std::vector<std::vector<int>> parameters_of(const std::vector<Collective>& buckets) {
  std::vector<std::vector<int>> parameters;
  for (const Collective& bucket : buckets) parameters.push_back(bucket.parameters);
  return parameters;
}

std::int64_t elements_of(const std::vector<Parameter>& parameters) {
  return std::accumulate(parameters.begin(), parameters.end(), std::int64_t{0},
                         [](std::int64_t sum, const Parameter& p) { return sum + p.elements; });
}

/// Parameters of these sizes in bytes, ready in this order.
std::vector<Collective> buckets_of(const std::vector<std::int64_t>& bytes, std::int64_t first_bytes,
                                   std::int64_t cap_bytes) {
  std::vector<Parameter> parameters;
  for (const std::int64_t size : bytes) parameters.push_back({"p", size / 2, "float16"});
  std::vector<int> order(bytes.size());
  std::iota(order.begin(), order.end(), 0);
  return ddp_buckets(parameters, order, first_bytes, cap_bytes);
}

// Real bucketings --------------------------------------------------------------------------------

TEST(DdpBuckets, OfResNet50AreThoseOfAKinetoTrace) {
  const std::vector<Parameter> parameters = resnet50();
  ASSERT_EQ(parameters.size(), 161u);
  ASSERT_EQ(elements_of(parameters), 25'557'032);  // torchvision's resnet50
  // Two A100, FP32, default limits: facts.md §4.1 golden 1.
  EXPECT_EQ(elements_of(ddp_buckets(parameters, reverse_registration_order(parameters), mebibyte,
                                    25 * mebibyte)),
            (std::vector<std::int64_t>{2'049'000, 7'875'584, 6'563'840, 6'637'568, 2'431'040}));
}

TEST(DdpBuckets, OfResNet50WithoutASmallFirstBucket) {
  const std::vector<Parameter> parameters = resnet50();
  EXPECT_EQ(elements_of(ddp_buckets(parameters, reverse_registration_order(parameters),
                                    25 * mebibyte, 25 * mebibyte)),
            (std::vector<std::int64_t>{7'564'264, 6'563'840, 7'091'712, 4'337'216}));
}

TEST(DdpBuckets, OfTheShippedResNet50TraceAreThoseOfAKinetoTrace) {
  const StepTrace trace = read_step_trace(
      JsonDocument::read_file(repository_file("models/resnet50_v100_fp32.json")).root());
  std::vector<int> order;
  for (const Span& span : trace.measured.at(0).backward)
    order.insert(order.end(), span.gradients.begin(), span.gradients.end());
  EXPECT_EQ(elements_of(ddp_buckets(trace.parameters, order, mebibyte, 25 * mebibyte)),
            (std::vector<std::int64_t>{2'049'000, 7'875'584, 6'563'840, 6'637'568, 2'431'040}));
}

TEST(DdpBuckets, OfResNet18AreThoseOfAPyTorchIssue) {
  const std::vector<Parameter> parameters = resnet18();
  ASSERT_EQ(parameters.size(), 62u);
  ASSERT_EQ(elements_of(parameters), 11'689'512);  // torchvision's resnet18
  const std::vector<int> order = reverse_registration_order(parameters);
  // pytorch#48880: facts.md §4.1 golden 2.
  EXPECT_EQ(bytes_of(ddp_buckets(parameters, order, mebibyte, 25 * mebibyte)),
            (std::vector<std::int64_t>{2'052'000, 28'852'224, 15'853'824}));
  EXPECT_EQ(bytes_of(ddp_buckets(parameters, order, mebibyte, 35 * mebibyte)),
            (std::vector<std::int64_t>{2'052'000, 38'297'600, 6'408'448}));
}

TEST(InitialDdpBuckets, HaveTheSmallOneOfTheFirstLayersLast) {
  // torch/nn/parallel/distributed.py: the rule in the order of the registration, launched
  // backwards.
  const std::vector<Parameter> parameters = resnet50();
  std::vector<int> registered(parameters.size());
  std::iota(registered.begin(), registered.end(), 0);
  std::vector<std::int64_t> expected =
      elements_of(ddp_buckets(parameters, registered, mebibyte, 25 * mebibyte));
  std::reverse(expected.begin(), expected.end());
  EXPECT_EQ(elements_of(initial_ddp_buckets(parameters, mebibyte, 25 * mebibyte)), expected);
  EXPECT_GE(expected.back() * float32_bytes, mebibyte);
  EXPECT_LT(expected.back() * float32_bytes, 4 * mebibyte);
}

// The rule ---------------------------------------------------------------------------------------

TEST(DdpBuckets, CloseWhenTheyHaveReachedTheirLimit) {
  EXPECT_EQ(bytes_of(buckets_of({4, 4, 2, 4}, 8, 8)), (std::vector<std::int64_t>{4 + 4, 2 + 4}));
}

TEST(DdpBuckets, OvershootBecauseAGradientIsNeverSplit) {
  // 6 < 8 stays open; 6 + 100 >= 8 closes.
  EXPECT_EQ(bytes_of(buckets_of({6, 100, 2}, 8, 8)), (std::vector<std::int64_t>{6 + 100, 2}));
}

TEST(DdpBuckets, TheFirstHasALimitOfItsOwn) {
  EXPECT_EQ(bytes_of(buckets_of({2, 2, 2, 2, 2, 2}, 2, 4)),
            (std::vector<std::int64_t>{2, 2 + 2, 2 + 2, 2}));
}

TEST(DdpBuckets, HoldTheGradientsInTheOrderInWhichTheyBecomeReady) {
  const std::vector<Parameter> parameters(4, {"p", 1, "float32"});
  EXPECT_EQ(parameters_of(ddp_buckets(parameters, {3, 0, 2, 1}, 8, 8)),
            (std::vector<std::vector<int>>{{3, 0}, {2, 1}}));
}

TEST(DdpBuckets, OfNothingAreNone) { EXPECT_TRUE(buckets_of({}, 1, 1).empty()); }

TEST(DdpBuckets, HoldOneDtypeEach) {
  const std::vector<Parameter> parameters = {
      {"a", 1, "float32"}, {"b", 2, "float16"}, {"c", 1, "float32"}, {"d", 2, "float16"}};
  EXPECT_EQ(parameters_of(ddp_buckets(parameters, {0, 1, 2, 3}, 8, 8)),
            (std::vector<std::vector<int>>{{0, 2}, {1, 3}}));
}

TEST(DdpBuckets, TheFirstOfEachDtypeHasTheFirstLimit) {
  const std::vector<Parameter> parameters = {
      {"a", 1, "float32"}, {"b", 1, "float32"}, {"c", 2, "float16"}, {"d", 2, "float16"}};
  // The first of each closes at 4 B, whatever the other dtype has closed before; the second of each
  // never reaches 1000 B.
  EXPECT_EQ(parameters_of(ddp_buckets(parameters, {0, 1, 2, 3}, 4, 1000)),
            (std::vector<std::vector<int>>{{0}, {2}, {1}, {3}}));
}

TEST(DdpBuckets, AreInTheOrderInWhichTheyAreClosed) {
  const std::vector<Parameter> parameters = {
      {"a", 1, "float32"}, {"b", 4, "float16"}, {"c", 1, "float32"}};
  // The float32 bucket is opened first and complete last.
  EXPECT_EQ(parameters_of(ddp_buckets(parameters, {0, 1, 2}, 8, 8)),
            (std::vector<std::vector<int>>{{1}, {0, 2}}));
}

TEST(DdpBuckets, RestsComeLastAsInPyTorch) {
  const std::vector<Parameter> parameters = {
      {"a", 1, "float16"}, {"b", 1, "float32"}, {"c", 1, "float32"}};
  // The float16 rest (2 B < 8 B) is complete first, and launched behind the float32 bucket:
  // reducer.cpp appends such buckets to the others.
  EXPECT_EQ(parameters_of(ddp_buckets(parameters, {0, 1, 2}, 8, 8)),
            (std::vector<std::vector<int>>{{1, 2}, {0}}));
}

// Random lists -----------------------------------------------------------------------------------

class RandomBuckets : public testing::TestWithParam<unsigned> {
 protected:
  RandomBuckets() : random_(GetParam()) {
    const std::vector<std::string> dtypes = {"float32", "float16", "float64"};
    const int count = whole(1, 60);
    for (int i = 0; i < count; ++i)
      parameters.push_back({"p", whole(1, 1000), dtypes[static_cast<std::size_t>(whole(0, 2))]});
    order = reverse_registration_order(parameters);
    std::shuffle(order.begin(), order.end(), random_);
    first_bytes = whole(1, 5000);
    cap_bytes = whole(1, 20000);
    buckets = ddp_buckets(parameters, order, first_bytes, cap_bytes);
  }
  int whole(int min, int max) { return std::uniform_int_distribution<int>(min, max)(random_); }
  [[nodiscard]] const Parameter& parameter(int index) const {
    return parameters[static_cast<std::size_t>(index)];
  }

  /// Where in the order its gradient becomes ready.
  [[nodiscard]] std::ptrdiff_t place_of(int index) const {
    return std::find(order.begin(), order.end(), index) - order.begin();
  }

  std::vector<Parameter> parameters;
  std::vector<int> order;
  std::int64_t first_bytes = 0;
  std::int64_t cap_bytes = 0;
  std::vector<Collective> buckets;

 private:
  std::mt19937 random_;
};

TEST_P(RandomBuckets, HoldEachGradientOnce) {
  std::vector<int> seen;
  for (const Collective& bucket : buckets)
    seen.insert(seen.end(), bucket.parameters.begin(), bucket.parameters.end());
  std::sort(seen.begin(), seen.end());
  std::vector<int> all(parameters.size());
  std::iota(all.begin(), all.end(), 0);
  EXPECT_EQ(seen, all);
}

TEST_P(RandomBuckets, AddUpTheBytesOfTheirGradients) {
  for (const Collective& bucket : buckets) {
    std::int64_t bytes = 0;
    for (const int index : bucket.parameters) bytes += parameter(index).bytes();
    EXPECT_EQ(bucket.bytes, bytes);
  }
}

TEST_P(RandomBuckets, ReachTheirLimitWithTheirLastGradientAndNotBefore) {
  std::map<std::string, std::vector<const Collective*>> of_dtype;
  for (const Collective& bucket : buckets)
    of_dtype[parameter(bucket.parameters.front()).dtype].push_back(&bucket);
  for (const auto& [dtype, list] : of_dtype) {
    for (std::size_t i = 0; i < list.size(); ++i) {
      const std::int64_t limit = i == 0 ? first_bytes : cap_bytes;
      const std::int64_t before_last =
          list[i]->bytes - parameter(list[i]->parameters.back()).bytes();
      EXPECT_LT(before_last, limit);
      if (i + 1 < list.size()) {
        EXPECT_GE(list[i]->bytes, limit);
      }
    }
  }
}

TEST_P(RandomBuckets, HoldGradientsInTheOrderInWhichTheyBecomeReady) {
  for (const Collective& bucket : buckets)
    EXPECT_TRUE(std::is_sorted(bucket.parameters.begin(), bucket.parameters.end(),
                               [&](int a, int b) { return place_of(a) < place_of(b); }));
}

TEST_P(RandomBuckets, AreInTheOrderInWhichTheyWereClosedThenTheRests) {
  // A rest is the last bucket of its dtype and below its limit; behind it stand only rests.
  std::map<std::string, int> of_dtype;
  bool before_was_rest = false;
  std::ptrdiff_t place_before = -1;
  for (const Collective& bucket : buckets) {
    const std::int64_t limit =
        of_dtype[parameter(bucket.parameters.front()).dtype]++ == 0 ? first_bytes : cap_bytes;
    const bool is_rest = bucket.bytes < limit;
    EXPECT_GE(is_rest, before_was_rest);
    const std::ptrdiff_t place = place_of(bucket.parameters.back());
    if (is_rest == before_was_rest) {
      EXPECT_LT(place_before, place);
    }
    before_was_rest = is_rest;
    place_before = place;
  }
}

constexpr auto seed_name = [](const auto& info) { return std::to_string(info.param); };
INSTANTIATE_TEST_SUITE_P(Seeds, RandomBuckets, testing::Range(0u, 50u), seed_name);

}  // namespace
}  // namespace stepcast
