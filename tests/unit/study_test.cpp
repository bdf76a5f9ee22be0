#include "input/study.hpp"

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "documents.hpp"
#include "testing.hpp"

namespace stepcast {
namespace {

/// A scenario beside the files it names.
class StudyFiles : public testing::Test {
 protected:
  StudyFiles() {
    folder.write("model.json", tiny_trace());
    folder.write("platform.json", tiny_platform());
    folder.write("calibration.json", tiny_calibration());
    folder.write("scenario.json", tiny_scenario());
  }

  void vary(const std::string& axes) const {
    folder.write("scenario.json", with(tiny_scenario(), "/vary", axes));
  }
  [[nodiscard]] Study load(const std::vector<std::string>& sets = {}) const {
    return load_study(folder.path("scenario.json"), sets);
  }
  [[nodiscard]] std::string error_of(const std::vector<std::string>& sets = {}) const {
    return input_error([&] { static_cast<void>(load(sets)); });
  }
  /// The number of GPUs of each point.
  [[nodiscard]] std::vector<int> gpus(const std::vector<std::string>& sets = {}) const {
    std::vector<int> all;
    for (const Point& point : load(sets).points) all.push_back(point.scenario.gpus);
    return all;
  }
  /// An error about the scenario, or one of the files beside it.
  [[nodiscard]] std::string at(const std::string& file, const std::string& problem) const {
    return folder.path(file) + problem;
  }

  Folder folder;
};

// Without variation ------------------------------------------------------------------------------

TEST_F(StudyFiles, OneScenarioIsOnePoint) {
  const Study study = load();
  ASSERT_EQ(study.points.size(), 1u);
  EXPECT_TRUE(study.points[0].settings.empty());
  EXPECT_TRUE(study.vary.empty());
  EXPECT_EQ(study.points[0].scenario.gpus, 4);
}

TEST_F(StudyFiles, ReadsTheFilesBesideTheScenario) {
  const Study study = load();
  EXPECT_EQ(study.points[0].model->name, "tiny");
  EXPECT_EQ(study.points[0].platform->name, "tiny cluster");
  EXPECT_EQ(study.points[0].calibration->name, "tiny fit");
}

TEST_F(StudyFiles, KeepsTheDocumentsUnderTheirPaths) {
  const Study study = load();
  EXPECT_EQ(study.scenario.path, folder.path("scenario.json"));
  ASSERT_EQ(study.files.size(), 3u);
  EXPECT_EQ(study.files.at("model").path, folder.path("model.json"));
  EXPECT_EQ(study.files.at("platform").document.root().at("name").string(), "tiny cluster");
}

TEST_F(StudyFiles, AreFoundFromTheFolderOfTheScenario) {
  const Folder elsewhere;
  const std::string here = std::filesystem::path(folder.path("")).parent_path().filename().string();
  elsewhere.write("scenario.json",
                  with(with(with(tiny_scenario(), "/model", "\"../" + here + "/model.json\""),
                            "/platform", "\"../" + here + "/platform.json\""),
                       "/calibration", "null"));
  const Study study = load_study(elsewhere.path("scenario.json"), {});
  EXPECT_EQ(study.files.at("model").path, folder.path("model.json"));  // without ".."
}

TEST_F(StudyFiles, NeedNoCalibration) {
  folder.write("scenario.json", without(tiny_scenario(), "/calibration"));
  const Study study = load();
  EXPECT_EQ(study.points[0].calibration, nullptr);
  EXPECT_FALSE(study.files.contains("calibration"));
}

TEST_F(StudyFiles, TakeNullForNoCalibration) {
  const Study study = load({"calibration=null"});
  EXPECT_EQ(study.points[0].calibration, nullptr);
  EXPECT_FALSE(study.files.contains("calibration"));
}

TEST_F(StudyFiles, NameTheFileThatIsMissing) {
  folder.write("scenario.json", with(tiny_scenario(), "/model", R"("nothing.json")"));
  EXPECT_EQ(error_of(),
            at("scenario.json", ":/model: no such file: \"") + at("nothing.json", "\""));
}

TEST_F(StudyFiles, BlameTheCommandLineForAFileThatIsMissing) {
  EXPECT_EQ(error_of({"model=nothing.json"}),
            "--set model: no such file: \"" + at("nothing.json", "\""));
  EXPECT_EQ(error_of({"model="}), "--set model: no such file: \"\"");
}

TEST_F(StudyFiles, NameTheFileThatIsWrong) {
  folder.write("platform.json", with(tiny_platform(), "/nodes", "0"));
  EXPECT_EQ(error_of(),
            at("platform.json", ":/nodes: must be a whole number in [1, 1048576], got 0"));
}

// --set ------------------------------------------------------------------------------------------

TEST_F(StudyFiles, SetAKeyOfTheScenario) { EXPECT_EQ(gpus({"cluster.gpus=2"}), std::vector{2}); }

TEST_F(StudyFiles, SetTheSameKeyTwiceAndTakeTheLast) {
  EXPECT_EQ(gpus({"cluster.gpus=2", "cluster.gpus=8"}), std::vector{8});
}

TEST_F(StudyFiles, SetAValueThatHoldsAnEqualsSign) {
  EXPECT_EQ(load({"question=Is 1=1?"}).points[0].scenario.question, "Is 1=1?");
}

TEST_F(StudyFiles, SetASizeWithItsUnit) {
  EXPECT_EQ(load({"training.bucket_cap_bytes=2MiB"}).points[0].scenario.training.bucket_cap_bytes,
            2 * 1024 * 1024);
}

TEST_F(StudyFiles, SetAKeyOfAFile) {
  const Study study = load({"platform.node.nics.bandwidth_Bps=1e9"});
  EXPECT_EQ(study.points[0].platform->nics->figures.bandwidth, BytesPerSecond{1e9});
}

TEST_F(StudyFiles, SetAnElementOfAListOfAFile) {
  const Study study = load({"model.measured.0.forward.1.duration_s=0.5"});
  EXPECT_EQ(study.points[0].model->measured[0].forward[1].duration, Seconds{0.5});
}

TEST_F(StudyFiles, KeepWhatWasSetInTheDocuments) {
  const Study study = load({"platform.nodes=1", "cluster.gpus=2"});
  EXPECT_EQ(study.files.at("platform").document.root().at("nodes").integer(1, 9), 1);
  EXPECT_EQ(study.scenario.document.root().at("cluster").at("gpus").integer(1, 9), 2);
}

TEST_F(StudyFiles, SetAnotherFile) {
  folder.write("other.json", with(tiny_platform(), "/name", R"("the other")"));
  const Study study = load({"platform=other.json"});
  EXPECT_EQ(study.points[0].platform->name, "the other");
  EXPECT_EQ(study.files.at("platform").path, folder.path("other.json"));
}

TEST_F(StudyFiles, SetAnotherFileAndAKeyOfItInAnyOrder) {
  folder.write("other.json", with(tiny_platform(), "/name", R"("the other")"));
  for (const auto& sets : {std::vector<std::string>{"platform.nodes=1", "platform=other.json"},
                           std::vector<std::string>{"platform=other.json", "platform.nodes=1"}}) {
    const Study study = load(sets);
    EXPECT_EQ(study.points[0].platform->name, "the other");
    EXPECT_EQ(study.points[0].platform->nodes, 1);
  }
}

TEST_F(StudyFiles, SetAFileByItsFullPath) {
  const Folder elsewhere;
  elsewhere.write("other.json", with(tiny_platform(), "/name", R"("the other")"));
  EXPECT_EQ(load({"platform=" + elsewhere.path("other.json")}).points[0].platform->name,
            "the other");
}

TEST_F(StudyFiles, BlameTheCommandLineForAWrongValue) {
  EXPECT_EQ(error_of({"cluster.gpus=0"}),
            "--set cluster.gpus: must be a whole number in [1, 1048576], got 0");
  EXPECT_EQ(error_of({"platform.nodes=0"}),
            "--set platform.nodes: must be a whole number in [1, 1048576], got 0");
}

TEST_F(StudyFiles, BlameTheCommandLineForAnUnknownKey) {
  EXPECT_EQ(error_of({"cluster.gpsu=2"}),
            "--set cluster.gpsu: unknown key \"gpsu\"; did you mean \"gpus\"? known: gpus, "
            "gpus_per_node, placement");
}

TEST_F(StudyFiles, RefuseASetWithoutAValue) {
  EXPECT_EQ(error_of({"cluster.gpus"}),
            "--set cluster.gpus: must be key=value, such as training.accumulation_steps=8");
  EXPECT_EQ(error_of({"=8"}), "--set =8: must be key=value, such as training.accumulation_steps=8");
}

TEST_F(StudyFiles, RefuseAnEmptyPartOfAKey) {
  EXPECT_EQ(error_of({"cluster..gpus=8"}),
            "--set cluster..gpus: a key is words joined by dots, such as training.micro_batch");
  EXPECT_EQ(error_of({"platform.=8"}),
            "--set platform.: a key is words joined by dots, such as training.micro_batch");
}

TEST_F(StudyFiles, RefuseAKeyOfAFileThatIsNotNamed) {
  folder.write("scenario.json", without(tiny_scenario(), "/calibration"));
  EXPECT_EQ(error_of({"calibration.platform=x"}),
            "--set calibration.platform: the scenario names no calibration file");
}

// vary -------------------------------------------------------------------------------------------

TEST_F(StudyFiles, VaryAKey) {
  vary(R"({"cluster.gpus": [1, 2, 8]})");
  EXPECT_EQ(gpus(), (std::vector{1, 2, 8}));
}

TEST_F(StudyFiles, VaryTheLastKeyFastest) {
  vary(R"({"cluster.gpus": [2, 4], "training.sync": ["ddp", "flat"]})");
  std::vector<std::vector<Setting>> settings;
  for (const Point& point : load().points) settings.push_back(point.settings);
  EXPECT_EQ(settings, (std::vector<std::vector<Setting>>{
                          {{"cluster.gpus", "2"}, {"training.sync", "\"ddp\""}},
                          {{"cluster.gpus", "2"}, {"training.sync", "\"flat\""}},
                          {{"cluster.gpus", "4"}, {"training.sync", "\"ddp\""}},
                          {{"cluster.gpus", "4"}, {"training.sync", "\"flat\""}}}));
}

TEST_F(StudyFiles, VaryAllKeysOfAPoint) {
  vary(R"({"cluster.gpus": [2, 4], "training.sync": ["ddp", "flat"]})");
  const Study study = load();
  ASSERT_EQ(study.points.size(), 4u);
  EXPECT_EQ(study.points[1].scenario.gpus, 2);
  EXPECT_EQ(study.points[1].scenario.training.sync, SyncMode::flat);
  EXPECT_EQ(study.points[2].scenario.gpus, 4);
  EXPECT_EQ(study.points[2].scenario.training.sync, SyncMode::ddp);
}

TEST_F(StudyFiles, ListTheVariedKeysWithTheirValues) {
  vary(R"({"training.sync": ["ddp", "flat"], "cluster.gpus": [2]})");
  using Axes = std::vector<std::pair<std::string, std::vector<std::string>>>;
  EXPECT_EQ(load().vary,
            (Axes{{"training.sync", {"\"ddp\"", "\"flat\""}}, {"cluster.gpus", {"2"}}}));
}

TEST_F(StudyFiles, FixAVariedKeyOnTheCommandLine) {
  vary(R"({"cluster.gpus": [1, 2], "training.sync": ["ddp", "flat"]})");
  const Study study = load({"cluster.gpus=8"});
  ASSERT_EQ(study.points.size(), 2u);
  EXPECT_EQ(study.points[1].scenario.gpus, 8);
  EXPECT_EQ(study.points[1].settings, (std::vector<Setting>{{"training.sync", "\"flat\""}}));
}

TEST_F(StudyFiles, VaryAKeyFromTheCommandLine) {
  EXPECT_EQ(gpus({"vary.cluster.gpus=[2, 8]"}), (std::vector{2, 8}));
}

TEST_F(StudyFiles, ReplaceTheValuesOfAVariedKeyFromTheCommandLine) {
  vary(R"({"cluster.gpus": [1, 2]})");
  EXPECT_EQ(gpus({"vary.cluster.gpus=[4, 8]"}), (std::vector{4, 8}));
}

TEST_F(StudyFiles, ReplaceAllAxesFromTheCommandLine) {
  vary(R"({"cluster.gpus": [1, 2]})");
  EXPECT_EQ(gpus({"vary={}"}), std::vector{4});
}

TEST_F(StudyFiles, VaryAKeyOfAFile) {
  vary(R"({"platform.node.nics.bandwidth_Bps": [1e9, 2e9]})");
  const Study study = load();
  ASSERT_EQ(study.points.size(), 2u);
  EXPECT_EQ(study.points[0].platform->nics->figures.bandwidth, BytesPerSecond{1e9});
  EXPECT_EQ(study.points[1].platform->nics->figures.bandwidth, BytesPerSecond{2e9});
}

TEST_F(StudyFiles, VaryAKeyOfTheModel) {
  vary(R"({"model.optimizer.state_bytes_per_element": [4, 8]})");
  const Study study = load();
  ASSERT_EQ(study.points.size(), 2u);
  EXPECT_EQ(study.points[0].model->optimizer_state_bytes_per_element, 4.0);
  EXPECT_EQ(study.points[1].model->optimizer_state_bytes_per_element, 8.0);
}

TEST_F(StudyFiles, VaryAKeyOfTheCalibration) {
  vary(R"({"calibration.platform": ["tiny cluster", "another"]})");
  const Study study = load();
  ASSERT_EQ(study.points.size(), 2u);
  EXPECT_EQ(study.points[0].calibration->platform, "tiny cluster");
  EXPECT_EQ(study.points[1].calibration->platform, "another");
}

TEST_F(StudyFiles, VaryAFile) {
  folder.write("other.json", with(tiny_platform(), "/name", R"("the other")"));
  vary(R"({"platform": ["platform.json", "other.json", "platform.json"]})");
  std::vector<std::string> names;
  for (const Point& point : load().points) names.push_back(point.platform->name);
  EXPECT_EQ(names, (std::vector<std::string>{"tiny cluster", "the other", "tiny cluster"}));
}

TEST_F(StudyFiles, VaryWithAndWithoutCalibration) {
  vary(R"({"calibration": [null, "calibration.json"]})");
  const Study study = load();
  ASSERT_EQ(study.points.size(), 2u);
  EXPECT_EQ(study.points[0].calibration, nullptr);
  ASSERT_NE(study.points[1].calibration, nullptr);
  EXPECT_EQ(study.points[1].calibration->name, "tiny fit");
}

TEST_F(StudyFiles, PointsShareWhatTheyDoNotVary) {
  vary(R"({"cluster.gpus": [2, 4]})");
  const Study study = load();
  EXPECT_EQ(study.points[0].model, study.points[1].model);
  EXPECT_EQ(study.points[0].platform, study.points[1].platform);
  EXPECT_EQ(study.points[0].calibration, study.points[1].calibration);
}

TEST_F(StudyFiles, PointsShareAFileThatWasSetOnTheCommandLine) {
  vary(R"({"cluster.gpus": [2, 4]})");
  const Study study = load({"platform.nodes=1"});
  EXPECT_EQ(study.points[0].platform, study.points[1].platform);
}

TEST_F(StudyFiles, PointsDoNotShareTheFileThatTheyVary) {
  vary(R"({"platform.nodes": [1, 2]})");
  const Study study = load();
  EXPECT_NE(study.points[0].platform, study.points[1].platform);
  EXPECT_EQ(study.points[0].model, study.points[1].model);
}

TEST_F(StudyFiles, KeepASetKeyOfAFileWhileOtherKeysVary) {
  vary(R"({"platform.node.nics.count": [2]})");
  EXPECT_EQ(load({"platform.nodes=1"}).points[0].platform->nodes, 1);
}

TEST_F(StudyFiles, KeepASetKeyOfAFileThatVaries) {
  folder.write("other.json", with(tiny_platform(), "/name", R"("the other")"));
  vary(R"({"platform": ["platform.json", "other.json"]})");
  const Study study = load({"platform.nodes=1"});
  ASSERT_EQ(study.points.size(), 2u);
  EXPECT_EQ(study.points[0].platform->nodes, 1);
  EXPECT_EQ(study.points[1].platform->nodes, 1);
}

TEST_F(StudyFiles, KeepTheLastOfTwoSetsOfAFileThatVaries) {
  folder.write("other.json", with(tiny_platform(), "/name", R"("the other")"));
  vary(R"({"platform": ["platform.json", "other.json"]})");
  for (const Point& point : load({"platform.nodes=2", "platform.nodes=1"}).points)
    EXPECT_EQ(point.platform->nodes, 1);
}

TEST_F(StudyFiles, VaryAKeyThatIsAlsoSetInAFileThatVaries) {
  folder.write("other.json", with(tiny_platform(), "/name", R"("the other")"));
  vary(R"({"platform": ["platform.json", "other.json"], "platform.gpu.name": ["a", "b"]})");
  std::vector<std::string> names;
  for (const Point& point : load({"platform.nodes=1"}).points) {
    EXPECT_EQ(point.platform->nodes, 1);
    names.push_back(point.platform->name + " " + point.platform->gpu.name);
  }
  EXPECT_EQ(names, (std::vector<std::string>{"tiny cluster a", "tiny cluster b", "the other a",
                                             "the other b"}));
}

TEST_F(StudyFiles, VaryAFileAndAKeyOfItInAnyOrder) {
  folder.write("other.json", with(tiny_platform(), "/name", R"("the other")"));
  vary(R"({"platform.nodes": [1], "platform": ["other.json"]})");
  EXPECT_EQ(load().points[0].platform->nodes, 1);
}

TEST_F(StudyFiles, BlameTheAxisForAWrongValue) {
  vary(R"({"cluster.gpus": [2, 0]})");
  EXPECT_EQ(error_of(), at("scenario.json",
                           ":/vary/cluster.gpus/1: must be a whole number in [1, 1048576], got 0"));
}

TEST_F(StudyFiles, BlameTheAxisForAnUnknownKey) {
  vary(R"({"cluster.gpsu": [2]})");
  EXPECT_EQ(error_of(), at("scenario.json",
                           ":/vary/cluster.gpsu/0: unknown key \"gpsu\"; did you mean \"gpus\"? "
                           "known: gpus, gpus_per_node, placement"));
}

TEST_F(StudyFiles, RefuseAnAxisWithoutValues) {
  vary(R"({"cluster.gpus": []})");
  EXPECT_EQ(error_of(), at("scenario.json", ":/vary/cluster.gpus: must list at least one value"));
}

TEST_F(StudyFiles, RefuseToVaryWhatIsNoPartOfTheAnswer) {
  vary(R"({"question": ["a", "b"]})");
  EXPECT_EQ(error_of(), at("scenario.json", ":/vary/question: \"question\" cannot be varied"));
  vary(R"({"vary.cluster.gpus": [[1], [2]]})");
  EXPECT_EQ(error_of(), at("scenario.json", ":/vary/vary.cluster.gpus: \"vary\" cannot be varied"));
}

TEST_F(StudyFiles, RefuseAnAxisThatIsNotAList) {
  vary(R"({"cluster.gpus": 2})");
  EXPECT_EQ(error_of(), at("scenario.json", ":/vary/cluster.gpus: must be a list, got 2"));
}

TEST_F(StudyFiles, RefuseMoreThanAMillionPoints) {
  // 1001 values of one key and 1000 of another.
  std::string values = "[0";
  for (int i = 1; i < 1000; ++i) values += "," + std::to_string(i);
  vary(R"({"cluster.gpus": )" + values + R"(, 1000], "training.accumulation_steps": )" + values +
       "]}");
  EXPECT_EQ(error_of(), at("scenario.json", ":/vary: gives more than 1000000 points"));
}

// cases ------------------------------------------------------------------------------------------

TEST_F(StudyFiles, CrossTheCasesWithWhatVaries) {
  folder.write("scenario.json",
               with(with(tiny_scenario(), "/vary", R"({"cluster.gpus": [2, 4]})"), "/cases",
                    R"([{"name": "as it is", "set": {}},
                        {"name": "slow", "set": {"platform.node.nics.bandwidth_Bps": 1e6,
                                                 "training.sync": "flat"}}])"));
  const Study study = load();
  ASSERT_EQ(study.points.size(), 4u);
  std::vector<std::vector<Setting>> settings;
  for (const Point& point : study.points) settings.push_back(point.settings);
  EXPECT_EQ(settings,
            (std::vector<std::vector<Setting>>{{{"case", "\"as it is\""}, {"cluster.gpus", "2"}},
                                               {{"case", "\"as it is\""}, {"cluster.gpus", "4"}},
                                               {{"case", "\"slow\""}, {"cluster.gpus", "2"}},
                                               {{"case", "\"slow\""}, {"cluster.gpus", "4"}}}));
  EXPECT_EQ(study.points[1].scenario.training.sync, SyncMode::ddp);
  EXPECT_EQ(study.points[2].scenario.training.sync, SyncMode::flat);
  EXPECT_EQ(study.points[3].platform->nics->figures.bandwidth, BytesPerSecond{1e6});
  EXPECT_NE(study.points[0].platform->nics->figures.bandwidth, BytesPerSecond{1e6});
}

TEST_F(StudyFiles, FixAKeyOfACaseOnTheCommandLine) {
  folder.write("scenario.json",
               with(tiny_scenario(), "/cases", R"([{"name": "a", "set": {"cluster.gpus": 2}}])"));
  EXPECT_EQ(gpus(), std::vector{2});
  EXPECT_EQ(gpus({"cluster.gpus=8"}), std::vector{8});
}

TEST_F(StudyFiles, RefuseCasesThatContradict) {
  folder.write("scenario.json", with(with(tiny_scenario(), "/vary", R"({"cluster.gpus": [2]})"),
                                     "/cases", R"([{"name": "a", "set": {"cluster.gpus": 4}}])"));
  EXPECT_EQ(error_of(),
            at("scenario.json", ":/cases/0/set/cluster.gpus: is varied by \"vary\" as well"));
  folder.write("scenario.json", with(tiny_scenario(), "/cases",
                                     R"([{"name": "a", "set": {}}, {"name": "a", "set": {}}])"));
  EXPECT_EQ(error_of(), at("scenario.json", ":/cases/1/name: \"a\" stands twice"));
  folder.write("scenario.json",
               with(tiny_scenario(), "/cases", R"([{"name": "a", "set": {"cluster.gpus": 0}}])"));
  EXPECT_EQ(error_of(), at("scenario.json",
                           ":/cases/0/set/cluster.gpus: must be a whole number in [1, 1048576], "
                           "got 0"));
}

// constraints ------------------------------------------------------------------------------------

TEST_F(StudyFiles, DropPointsThatMeetNoConstraint) {
  folder.write(
      "scenario.json",
      with(with(tiny_scenario(), "/vary",
                R"({"cluster.gpus": [1, 2, 4, 100], "training.accumulation_steps": [1, 2]})"),
           "/constraints",
           R"(["cluster.gpus <= platform.nodes * platform.node.gpus",
                        "training.accumulation_steps == 1 or cluster.gpus > 2"])"));
  // 100 GPUs do not exist, and would be refused without the first constraint.
  EXPECT_EQ(gpus(), (std::vector{1, 2, 4, 4}));
}

TEST_F(StudyFiles, ConstrainWhatHasItsDefault) {
  folder.write("scenario.json",
               with(with(with(without(tiny_scenario(), "/training"), "/cases",
                              R"([{"name": "a", "set": {}}, {"name": "b", "set": {}}])"),
                         "/constraints",
                         R"(["training.micro_batch == 8 and training.accumulation_steps == 1",
                             "training.sync == 'ddp' and case != 'a'"])"),
                    "/cluster/gpus", "2"));
  const Study study = load();
  ASSERT_EQ(study.points.size(), 1u);
  EXPECT_EQ(study.points[0].settings, (std::vector<Setting>{{"case", "\"b\""}}));
}

TEST_F(StudyFiles, NameThePlaceInAConstraint) {
  folder.write("scenario.json", with(tiny_scenario(), "/constraints", R"(["cluster.gpsu > 1"])"));
  EXPECT_EQ(error_of(),
            at("scenario.json",
               ":/constraints/0: character 1 (cluster.gpsu): the scenario gives no value to this "
               "key, in: cluster.gpsu > 1"));
  folder.write("scenario.json", with(tiny_scenario(), "/constraints", R"(["1 > 2"])"));
  EXPECT_EQ(error_of(), at("scenario.json", ":/constraints: no point meets all of them"));
}

// base -------------------------------------------------------------------------------------------

TEST_F(StudyFiles, InheritWhatIsLeftOut) {
  folder.write("middle.json", R"({"format": "stepcast.scenario/1", "base": "scenario.json",
                                  "training": {"accumulation_steps": 3}})");
  folder.write("leaf.json", R"({"format": "stepcast.scenario/1", "base": "middle.json",
                                "question": "Mine?", "cluster": {"gpus": 2}})");
  const Study study = load_study(folder.path("leaf.json"), {});
  const Scenario scenario = study.points[0].scenario;
  EXPECT_EQ(scenario.question, "Mine?");
  EXPECT_EQ(scenario.gpus, 2);
  EXPECT_EQ(scenario.training.accumulation_steps, 3);
  const Scenario original = load().points[0].scenario;
  EXPECT_EQ(scenario.training.sync, original.training.sync);
  EXPECT_EQ(scenario.model, original.model);
}

TEST_F(StudyFiles, BlameTheBaseForItsMistakes) {
  folder.write("scenario.json", with(tiny_scenario(), "/training/accumulation_steps", "0"));
  folder.write("leaf.json", R"({"format": "stepcast.scenario/1", "base": "scenario.json"})");
  EXPECT_EQ(input_error([&] { static_cast<void>(load_study(folder.path("leaf.json"), {})); }),
            at("scenario.json",
               ":/training/accumulation_steps: must be a whole number in [1, 1048576], got 0"));
}

TEST_F(StudyFiles, RefuseBasesInACircle) {
  folder.write("a.json", R"({"format": "stepcast.scenario/1", "base": "b.json"})");
  folder.write("b.json", R"({"format": "stepcast.scenario/1", "base": "a.json"})");
  EXPECT_EQ(input_error([&] { static_cast<void>(load_study(folder.path("a.json"), {})); }),
            at("b.json", ":/base: ") + at("a.json", " inherits from itself"));
}

TEST_F(StudyFiles, FindTheFilesOfABaseInAnotherFolder) {
  const Folder elsewhere;
  const std::string here = std::filesystem::path(folder.path("")).parent_path().filename().string();
  elsewhere.write("leaf.json", R"({"format": "stepcast.scenario/1", "base": "../)" + here +
                                   R"(/scenario.json"})");
  const Study study = load_study(elsewhere.path("leaf.json"), {});
  EXPECT_EQ(study.files.at("model").path, folder.path("model.json"));
  EXPECT_EQ(study.points[0].calibration->name, "tiny fit");
}

// glob -------------------------------------------------------------------------------------------

TEST_F(StudyFiles, VaryAllFilesOfAPattern) {
  folder.write("other_b.json", with(tiny_platform(), "/name", R"("b")"));
  folder.write("other_a.json", with(tiny_platform(), "/name", R"("a")"));
  vary(R"({"platform": {"glob": "other_*.json"}})");
  const Study study = load();
  ASSERT_EQ(study.points.size(), 2u);
  EXPECT_EQ(study.points[0].platform->name, "a");
  EXPECT_EQ(study.points[1].settings, (std::vector<Setting>{{"platform", "\"other_b.json\""}}));
  vary(R"({"platform": ["platform.json", {"glob": "other_*.json"}]})");
  EXPECT_EQ(load().points.size(), 3u);
}

TEST_F(StudyFiles, RefuseAPatternOfNothing) {
  vary(R"({"platform": {"glob": "nothing_*.json"}})");
  EXPECT_EQ(error_of(),
            at("scenario.json", ":/vary/platform/glob: no file is named like \"nothing_*.json\""));
  vary(R"({"cluster.gpus": {"glob": "*"}})");
  EXPECT_EQ(error_of(), at("scenario.json",
                           ":/vary/cluster.gpus: only the files model, platform, calibration can "
                           "be given by a glob"));
}

TEST_F(StudyFiles, TellStudiesApart) {
  const std::uint64_t first = load().fingerprint;
  EXPECT_EQ(load().fingerprint, first);
  EXPECT_NE(load({"cluster.gpus=2"}).fingerprint, first);
  EXPECT_NE(load({"platform.nodes=1"}).fingerprint, first);
  folder.write("platform.json", with(tiny_platform(), "/source", R"("another")"));
  EXPECT_NE(load().fingerprint, first);
}

// What must fit together -------------------------------------------------------------------------

TEST_F(StudyFiles, AllowAllGpusOfThePlatform) {
  EXPECT_EQ(gpus({"cluster.gpus=8"}), std::vector{8});  // 2 nodes of 4
}

TEST_F(StudyFiles, RefuseMoreGpusThanThePlatformHas) {
  folder.write("scenario.json", with(tiny_scenario(), "/cluster/gpus", "9"));
  EXPECT_EQ(error_of(), at("scenario.json",
                           ":/cluster/gpus: must be a whole number in [1, 8] (2 nodes of 4 "
                           "GPUs in ") +
                            at("platform.json", "), got 9"));
}

TEST_F(StudyFiles, CountTheGpusOfThePlatformOfThePoint) {
  vary(R"({"platform.nodes": [2, 1]})");
  EXPECT_EQ(error_of({"cluster.gpus=8"}),
            "--set cluster.gpus: must be a whole number in [1, 4] (1 nodes of 4 GPUs in " +
                at("platform.json", "), got 8"));
}

TEST_F(StudyFiles, TakeAMicroBatchThatWasMeasured) {
  EXPECT_EQ(load({"training.micro_batch=8"}).points[0].scenario.training.micro_batch, 8);
}

TEST_F(StudyFiles, TakeAMicroBatchNearAMeasuredOne) {
  for (const std::string micro_batch : {"1", "64"})  // 8 / 8 and 8 * 8
    EXPECT_EQ(
        std::to_string(
            *load({"training.micro_batch=" + micro_batch}).points[0].scenario.training.micro_batch),
        micro_batch);
}

TEST_F(StudyFiles, RefuseAMicroBatchFarFromWhatWasMeasured) {
  EXPECT_EQ(
      error_of({"training.micro_batch=65"}),
      "--set training.micro_batch: must be a whole number in [1, 64], not too far from what " +
          at("model.json", " was measured at (8), got 65"));
}

TEST_F(StudyFiles, RefuseToSynchroniseABatchNormThatTheTraceDoesNotKnow) {
  EXPECT_EQ(error_of({"training.synchronized_batch_norm=true"}),
            "--set training.synchronized_batch_norm: needs batch_norms in " +
                at("model.json", ": the spans that have a BatchNorm"));
}

TEST_F(StudyFiles, RefuseToChooseBetweenMeasuredMicroBatches) {
  const std::string step =
      JsonDocument::parse(tiny_trace(), "model.json").root().at("measured").elements().at(0).dump();
  folder.write("model.json",
               with(with(tiny_trace(), "/measured/1", step), "/measured/1/micro_batch", "16"));
  EXPECT_EQ(error_of(), at("scenario.json", ": training.micro_batch must be given: ") +
                            at("model.json", " was measured at several; known: 8, 16"));
}

}  // namespace
}  // namespace stepcast
