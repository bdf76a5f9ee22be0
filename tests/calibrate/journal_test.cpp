#include "journal.hpp"

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include <gmock/gmock.h>

#include "document.hpp"
#include "fake_backend.hpp"
#include "measure.hpp"

namespace stepcast::calibrate {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;

class JournalTest : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::path(testing::TempDir()) /
              testing::UnitTest::GetInstance()->current_test_info()->name();
    fs::remove_all(folder_);
    fs::create_directories(folder_);
    output_ = (folder_ / "out.json").string();
    partial_ = output_ + ".partial";
  }
  void TearDown() override { fs::remove_all(folder_); }

  static std::string read(const std::string& path) {
    std::ostringstream text;
    text << std::ifstream(path).rdbuf();
    return text.str();
  }
  static void write(const std::string& path, const std::string& text) {
    std::ofstream(path) << text;
  }
  [[nodiscard]] std::string error(const std::string& plan) const {
    try {
      Journal(output_, plan);
    } catch (const UsageError& problem) {
      return problem.what();
    }
    return "no error";
  }

  fs::path folder_;
  std::string output_, partial_;
};

std::vector<PlannedCase> small_plan() {
  PlanOptions options;
  options.collectives_only = true;
  options.operations = {"all_reduce"};
  options.ranks = {2};
  options.max_bytes = 1 << 20;
  return make_plan(options, mpi_vocabulary(), 4);
}

Outcome outcome(const std::string& name) { return {name, "samples", {{"time_s", 1e-6}}, {"hot"}}; }

TEST_F(JournalTest, RefusesAnOutputThatExists) {
  write(output_, "{}");
  EXPECT_THAT(error("a"), HasSubstr("out.json: exists already"));
  EXPECT_EQ(read(output_), "{}");
}

TEST_F(JournalTest, RefusesAJournalOfAnotherPlan) {
  Journal(output_, "a").append(outcome("one"));
  const std::string before = read(partial_);
  EXPECT_THAT(error("b"), HasSubstr("out.json.partial: is of other options"));
  EXPECT_EQ(read(partial_), before);
}

TEST_F(JournalTest, RefusesAFolderThatIsNotThere) {
  output_ = (folder_ / "no" / "out.json").string();
  EXPECT_THAT(error("a"), HasSubstr("No such file"));
}

TEST_F(JournalTest, NamesADamagedLine) {
  write(partial_, "{\"plan\":\"a\"}\nnonsense\n");
  EXPECT_THAT(error("a"), HasSubstr("out.json.partial:2: is damaged"));
}

TEST_F(JournalTest, RemembersWhatWasMeasured) {
  Journal(output_, "a").append(outcome("one"));
  const Journal again(output_, "a");
  ASSERT_EQ(again.outcomes().size(), 1U);
  EXPECT_TRUE(again.has("one"));
  EXPECT_FALSE(again.has("two"));
  EXPECT_EQ(again.outcomes()[0].entry.dump(), "{\"time_s\":1e-06}");
  EXPECT_THAT(again.outcomes()[0].problems, ElementsAre("hot"));
}

TEST_F(JournalTest, FinishPutsTheFileInPlaceAndNothingElse) {
  Journal journal(output_, "a");
  journal.append(outcome("one"));
  EXPECT_FALSE(fs::exists(output_));
  journal.finish("text");
  EXPECT_EQ(read(output_), "text");
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_), {}), 1);
}

TEST_F(JournalTest, GoesOnAfterAKillAtAnyByte) {
  FakeBackend backend;
  const std::sig_atomic_t stop = 0;
  const auto plan = small_plan();
  {
    Journal journal(output_, "a");
    EXPECT_TRUE(measure_all(plan, backend, {}, &journal, stop, [](std::size_t) {}));
  }
  const std::string whole = read(partial_);
  for (std::size_t killed_at = 0; killed_at <= whole.size(); killed_at += 7) {
    write(partial_, whole.substr(0, killed_at));
    backend.prepared.clear();
    Journal journal(output_, "a");
    const std::size_t kept = journal.outcomes().size();
    EXPECT_TRUE(measure_all(plan, backend, {}, &journal, stop, [](std::size_t) {}));
    EXPECT_EQ(read(partial_), whole) << killed_at;
    EXPECT_EQ(backend.prepared.size(), plan.size() - kept);
  }
}

TEST_F(JournalTest, ASignalLetsTheCaseAtHandFinish) {
  FakeBackend backend;
  volatile std::sig_atomic_t stop = 0;
  backend.on_prepare = [&](const std::string&) { stop = backend.prepared.size() == 3 ? 1 : 0; };
  Journal journal(output_, "a");
  EXPECT_FALSE(measure_all(small_plan(), backend, {}, &journal, stop, [](std::size_t) {}));
  EXPECT_EQ(journal.outcomes().size(), 3U);
  EXPECT_EQ(Journal(output_, "a").outcomes().size(), 3U);
}

}  // namespace
}  // namespace stepcast::calibrate
