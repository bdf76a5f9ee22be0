#include "engine/job.hpp"

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/text.hpp"
#include "collective/algorithms.hpp"
#include "documents.hpp"
#include "testing.hpp"

namespace stepcast {
namespace {

/// AllReduces of 800, 80 and 800 B on two of the four GPUs behind a switch; the first runs in a
/// segment that repeats three times.
class JobOfThreeCollectives : public testing::Test {
 protected:
  static Program program() {
    Program program;
    program.collectives = {{800, {0}}, {80, {1}}, {800, {0}}};
    program.segments = {{3, {Launch{0}, Wait{0}}}, {1, {Launch{1}, Launch{2}, Wait{1}, Wait{2}}}};
    return program;
  }

  Platform platform = read_platform(JsonDocument::parse(tiny_platform(), "p.json").root());
  Job job = make_job(program(), {}, Cluster(platform, nullptr, 2, "test"));
};

TEST_F(JobOfThreeCollectives, LowersEachSizeOnce) {
  ASSERT_EQ(job.lowered.size(), 2u);
  EXPECT_EQ(job.collective(0).bytes, Bytes{800.0});
  EXPECT_EQ(job.collective(1).bytes, Bytes{80.0});
  EXPECT_EQ(&job.collective(2), &job.collective(0));
}

TEST_F(JobOfThreeCollectives, CountsTheRunsOfEach) {
  EXPECT_EQ(runs_per_step(job.program), (std::vector<std::int64_t>{3, 1, 1}));
}

TEST_F(JobOfThreeCollectives, AddsUpWhatEachRankSends) {
  // A ring of two sends 2(n-1)/n S = S on each rank: 3 * 800 + 80 + 800.
  EXPECT_EQ(sent_bytes_per_rank(job), (std::vector<Bytes>{Bytes{3280.0}, Bytes{3280.0}}));
}

TEST_F(JobOfThreeCollectives, AddsUpWhatEachLinkCarries) {
  const std::vector<Bytes> wire = wire_bytes_per_link(job);
  for (std::size_t link = 0; link < wire.size(); ++link) {
    const std::string name = job.cluster.link_name(static_cast<int>(link));
    const bool in_use = name.starts_with("node0.gpu0") || name.starts_with("node0.gpu1");
    EXPECT_EQ(wire[link], Bytes{in_use ? 3280.0 : 0.0}) << name;
  }
}

TEST_F(JobOfThreeCollectives, CountsTheFlagsOfAProtocolOnTheWireOnly) {
  for (LoweredCollective& lowered : job.lowered) lowered.wire_bytes_per_byte = 2.0;
  EXPECT_EQ(wire_bytes_per_link(job)[0], Bytes{2.0 * 3280.0});
  EXPECT_EQ(sent_bytes_per_rank(job)[0], Bytes{3280.0});
}

TEST(Job, WithoutCollectivesNeedsNoRings) {
  // Five GPUs of a DGX-1V have no ring.
  const Platform platform =
      read_platform(JsonDocument::read_file(repository_file("platforms/dgx1v.json")).root());
  const Job job = make_job(Program{}, {}, Cluster(platform, nullptr, 5, "test"));
  EXPECT_TRUE(job.lowered.empty());
  EXPECT_EQ(sent_bytes_per_rank(job), std::vector<Bytes>(5));
}

TEST(Job, WithoutCollectivesStillRefusesAnUnknownAlgorithm) {
  const Platform platform = read_platform(JsonDocument::parse(tiny_platform(), "p.json").root());
  CollectiveSettings settings;
  settings.algorithm = {"rnig", "--algorithm"};
  EXPECT_EQ(
      input_error([&] {
        static_cast<void>(make_job(Program{}, settings, Cluster(platform, nullptr, 1, "test")));
      }),
      "--algorithm: unknown \"rnig\"" +
          suggest("rnig", collective_algorithms(Operation::all_reduce).names()));
}

TEST(Job, WithoutCollectivesStillRefusesAProtocolWithoutFigures) {
  const Platform platform = read_platform(JsonDocument::parse(tiny_platform(), "p.json").root());
  CollectiveSettings settings;
  settings.protocol = {"LL", "--protocol"};
  EXPECT_EQ(
      input_error([&] {
        static_cast<void>(make_job(Program{}, settings, Cluster(platform, nullptr, 1, "test")));
      }),
      "--protocol: no figures for \"LL\"; known: Simple");
}

}  // namespace
}  // namespace stepcast
