#include "input/constraint.hpp"

#include <map>
#include <string>

#include "testing.hpp"

namespace stepcast {
namespace {

const std::map<std::string, ConstraintValue> values = {{"cluster.gpus", 8.0},
                                                       {"training.micro_batch", 32.0},
                                                       {"training.sync", std::string("ddp")},
                                                       {"model.measured.0.micro_batch", 32.0},
                                                       {"collective.nvls", true}};

bool holds(const std::string& expression) {
  return constraint_holds(
      expression,
      [](const std::string& key) -> std::optional<ConstraintValue> {
        const auto found = values.find(key);
        return found == values.end() ? std::nullopt : std::optional(found->second);
      },
      "here");
}

std::string error_of(const std::string& expression) {
  return input_error([&] { static_cast<void>(holds(expression)); });
}

TEST(Constraints, CompareProductsOfKeys) {
  EXPECT_TRUE(holds("cluster.gpus * training.micro_batch <= 256"));
  EXPECT_FALSE(holds("cluster.gpus * training.micro_batch <= 255"));
  EXPECT_TRUE(holds("model.measured.0.micro_batch == 32"));
}

TEST(Constraints, CompareInAllWays) {
  for (const auto& [sign, less, equal, more] :
       {std::tuple{"<", true, false, false}, std::tuple{"<=", true, true, false},
        std::tuple{">", false, false, true}, std::tuple{">=", false, true, true},
        std::tuple{"==", false, true, false}, std::tuple{"!=", true, false, true}}) {
    EXPECT_EQ(holds(std::string("1 ") + sign + " 2"), less) << sign;
    EXPECT_EQ(holds(std::string("2 ") + sign + " 2"), equal) << sign;
    EXPECT_EQ(holds(std::string("3") + sign + "2"), more) << sign;
  }
}

// As in arithmetic: products before sums, from the left; minus binds closest.
TEST(Constraints, KnowWhatBindsCloser) {
  EXPECT_TRUE(holds("2 + 3 * 4 == 14"));
  EXPECT_TRUE(holds("(2 + 3) * 4 == 20"));
  EXPECT_TRUE(holds("10 - 3 - 2 == 5"));
  EXPECT_TRUE(holds("16 / 4 / 2 == 2"));
  EXPECT_TRUE(holds("17 % 8 == 1"));
  EXPECT_TRUE(holds("-2 * -3 == 6"));
  EXPECT_TRUE(holds("1e3 + .5 == 1000.5"));
  // (true or (false and false)), not ((true or false) and false)
  EXPECT_TRUE(holds("1 == 1 or 1 == 2 and 1 == 2"));
  // ((not true) or true), not (not (true or true))
  EXPECT_TRUE(holds("not 1 == 1 or 1 == 1"));
  EXPECT_TRUE(holds("not (1 == 1 and 1 == 2)"));
}

TEST(Constraints, CompareTextsAndTruths) {
  EXPECT_TRUE(holds("training.sync == 'ddp'"));
  EXPECT_TRUE(holds("training.sync != \"flat\""));
  EXPECT_TRUE(holds("collective.nvls"));
  EXPECT_TRUE(holds("collective.nvls == true and not false"));
}

TEST(Constraints, NameThePlaceThatIsWrong) {
  EXPECT_EQ(error_of("cluster.gpsu < 8"),
            "here: character 1 (cluster.gpsu): the scenario gives no value to this key, in: "
            "cluster.gpsu < 8");
  EXPECT_EQ(error_of("cluster.gpus <"),
            "here: character 15 (the end): a key, a number or a text is wanted here, in: "
            "cluster.gpus <");
  EXPECT_EQ(error_of("cluster.gpus = 8"),
            "here: character 14 (=): means nothing here, in: cluster.gpus = 8");
  EXPECT_EQ(error_of("(1 < 2"),
            "here: character 7 (the end): a closing parenthesis is missing, in: (1 < 2");
  EXPECT_EQ(error_of("1 < 2 3"),
            "here: character 7 (3): an operator or the end is wanted here, in: 1 < 2 3");
  EXPECT_EQ(error_of("'ddp == training.sync"),
            "here: character 1 ('ddp == training.sync): the text has no end, in: 'ddp == "
            "training.sync");
  EXPECT_EQ(error_of(""),
            "here: character 1 (the end): a key, a number or a text is wanted here, in: ");
}

TEST(Constraints, ConvertNothing) {
  EXPECT_EQ(error_of("cluster.gpus"),
            "here: character 1 (cluster.gpus): true or false is wanted here, such as a "
            "comparison, in: cluster.gpus");
  EXPECT_EQ(error_of("1 == 1 and 2"),
            "here: character 12 (2): true or false is wanted here, such as a comparison, in: 1 == "
            "1 and 2");
  EXPECT_EQ(error_of("2 * training.sync > 1"),
            "here: character 5 (training.sync): a number is wanted here, got \"ddp\", in: 2 * "
            "training.sync > 1");
  EXPECT_EQ(error_of("training.sync == 1"),
            "here: character 15 (==): compares a number, a text or a truth with another kind of "
            "value, in: training.sync == 1");
  EXPECT_EQ(error_of("1 < 2 < 3"),
            "here: character 7 (<): comparisons are not chained; join them by and, in: 1 < 2 < 3");
  EXPECT_EQ(error_of("1 / (2 - 2) > 0"),
            "here: character 3 (/): divides by zero, in: 1 / (2 - 2) > 0");
}

// A mistake must not wait for the point that reaches it.
TEST(Constraints, ReadBothSides) {
  EXPECT_EQ(error_of("1 == 1 or nothing > 2"),
            "here: character 11 (nothing): the scenario gives no value to this key, in: 1 == 1 or "
            "nothing > 2");
}

TEST(Constraints, RefuseToNestWithoutEnd) {
  const std::string deep(100'000, '(');
  EXPECT_NE(error_of(deep).find("is nested too deeply"), std::string::npos);
}

}  // namespace
}  // namespace stepcast
