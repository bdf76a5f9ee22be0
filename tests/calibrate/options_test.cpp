#include "options.hpp"

#include <string>
#include <vector>

#include <gmock/gmock.h>

#include "journal.hpp"

namespace stepcast::calibrate {
namespace {

using testing::ElementsAre;

Options parsed(std::vector<std::string> words) {
  words.insert(words.begin(), "stepcast-calibrate");
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  return parse(static_cast<int>(words.size()), arguments.data(), "mpi");
}

std::string error(const std::vector<std::string>& words) {
  try {
    parsed(words);
  } catch (const UsageError& problem) {
    return problem.what();
  }
  return "no error";
}

TEST(Options, AreRead) {
  const Options options =
      parsed({"--platform", "x", "-o", "y", "--full", "--ranks", "2,4", "--max-bytes=64KiB"});
  EXPECT_EQ(options.platform, "x");
  EXPECT_EQ(options.output, "y");
  EXPECT_TRUE(options.plan.full);
  EXPECT_THAT(options.plan.ranks, ElementsAre(2, 4));
  EXPECT_EQ(options.plan.max_bytes, 65536);
}

TEST(Options, OfADryRunNeedNoOutput) { EXPECT_TRUE(parsed({"--dry-run"}).dry_run); }

TEST(Options, ThatAreWrongAreNamed) {
  EXPECT_EQ(error({}), "--platform: is required");
  EXPECT_EQ(error({"--platform", "x"}), "-o: is required");
  EXPECT_EQ(error({"--platform"}), "--platform: needs a value");
  EXPECT_EQ(error({"--ful1"}), "--ful1: unknown option; see --help");
  EXPECT_EQ(error({"--dry-run", "file"}), "file: unexpected; see --help");
  EXPECT_EQ(error({"--ranks", "2,x"}), "--ranks: not a whole number above 0: \"x\"");
  EXPECT_EQ(error({"--max-bytes", "1MB"}), "--max-bytes: not a whole number above 0: \"1MB\"");
  EXPECT_EQ(error({"--max-bytes", "9999999999999GiB"}),
            "--max-bytes: not a whole number above 0: \"9999999999999\"");
  EXPECT_EQ(
      error({"--operations", "sum"}),
      "--operations: unknown \"sum\"; known: all_reduce, reduce_scatter, all_gather, broadcast");
  EXPECT_EQ(error({"--backend", "cuda"}), "--backend: this program is built for mpi only");
}

}  // namespace
}  // namespace stepcast::calibrate
