#include "base/json_view.hpp"

#include <cstdint>
#include <filesystem>
#include <limits>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "documents.hpp"
#include "testing.hpp"

namespace stepcast {
namespace {

JsonDocument parse(const std::string& text) { return JsonDocument::parse(text, "t.json"); }

std::string parse_error(const std::string& text) {
  return input_error([&] { static_cast<void>(parse(text)); });
}

/// What is said when a reader is called on the only member, "x".
template <class Read>
std::string read_error(const std::string& value, Read read) {
  const JsonDocument document = parse(R"({"x": )" + value + "}");
  return input_error([&] { static_cast<void>(read(document.root().at("x"))); });
}

constexpr std::int64_t smallest_int64 = std::numeric_limits<std::int64_t>::min();
constexpr std::int64_t largest_int64 = std::numeric_limits<std::int64_t>::max();

// Where a value stands ---------------------------------------------------------------------------

TEST(JsonView, NamesTheFileAloneAtTheRoot) { EXPECT_EQ(parse("{}").root().where(), "t.json"); }

TEST(JsonView, NamesTheFileAndThePointer) {
  const JsonDocument document = parse(R"({"links": [{"a": 1}, {"a": 2}]})");
  EXPECT_EQ(document.root().at("links").elements()[1].at("a").where(), "t.json:/links/1/a");
}

TEST(JsonView, EscapesTildeAndSlashInAPointer) {
  const JsonDocument document = parse(R"({"a/b": {"c~d": 1}})");
  EXPECT_EQ(document.root().at("a/b").at("c~d").where(), "t.json:/a~1b/c~0d");
}

TEST(JsonView, MembersKeepTheOrderOfTheFile) {
  const JsonDocument document = parse(R"({"z": 1, "a": 2})");
  std::vector<std::string> keys;
  for (const auto& [key, value] : document.root().members()) keys.push_back(key);
  EXPECT_EQ(keys, (std::vector<std::string>{"z", "a"}));
}

TEST(JsonView, MembersKnowWhereTheyStand) {
  const JsonDocument document = parse(R"({"x": {"a/b": 1}})");
  EXPECT_EQ(document.root().at("x").members().front().second.where(), "t.json:/x/a~1b");
}

TEST(JsonView, NamesTheObjectThatLacksAKey) {
  const JsonDocument document = parse(R"({"x": {}})");
  EXPECT_EQ(input_error([&] { static_cast<void>(document.root().at("x").at("y")); }),
            "t.json:/x: the key \"y\" is missing");
}

TEST(JsonView, FindIsEmptyForAKeyThatIsNotThere) {
  const JsonDocument document = parse(R"({"x": 1})");
  EXPECT_FALSE(document.root().find("y").has_value());
  EXPECT_EQ(document.root().find("x").value().integer(0, 1), 1);
}

TEST(JsonView, ReadsKeysOfAnObjectOnly) {
  EXPECT_EQ(read_error("[1]", [](const JsonView& x) { return x.at("y"); }),
            "t.json:/x: must be an object, got [1]");
  EXPECT_EQ(read_error("1", [](const JsonView& x) { return x.members(); }),
            "t.json:/x: must be an object, got 1");
}

TEST(JsonView, ReadsElementsOfAListOnly) {
  EXPECT_EQ(read_error(R"({"y":1})", [](const JsonView& x) { return x.elements(); }),
            "t.json:/x: must be a list, got {\"y\":1}");
}

TEST(JsonView, ShortensALongValueInAnError) {
  // 60 characters with the quotes: the first 57 and three dots.
  const std::string letters(70, 'a');
  EXPECT_EQ(read_error("\"" + letters + "\"", [](const JsonView& x) { return x.boolean(); }),
            "t.json:/x: must be true or false, got \"" + letters.substr(0, 56) + "...");
}

TEST(JsonView, ShowsAValueOfSixtyCharactersWhole) {
  const std::string value = "\"" + std::string(58, 'a') + "\"";
  EXPECT_EQ(read_error(value, [](const JsonView& x) { return x.boolean(); }),
            "t.json:/x: must be true or false, got " + value);
}

// Parsing ----------------------------------------------------------------------------------------

TEST(JsonDocument, RefusesAKeyThatStandsTwice) {
  EXPECT_EQ(parse_error(R"({"x": 1, "y": 2, "x": 3})"),
            "t.json:/x: this key stands twice in the object");
}

TEST(JsonDocument, RefusesAKeyThatStandsTwiceAtDepth) {
  EXPECT_EQ(parse_error(R"({"a": {"x": {"z": 1}, "b": {"c": [1], "c": 2}}})"),
            "t.json:/a/b/c: this key stands twice in the object");
}

TEST(JsonDocument, RefusesAKeyThatStandsTwiceInAList) {
  EXPECT_EQ(parse_error(R"({"links": [1, [2, 3], {"x": 1}, {"y~": 1, "y~": 2}]})"),
            "t.json:/links/3/y~0: this key stands twice in the object");
}

TEST(JsonDocument, RefusesAKeyThatStandsTwiceInAListOfLists) {
  EXPECT_EQ(parse_error(R"([0, [[], [{}, {"x": 1, "x": 1}]]])"),
            "t.json:/1/1/1/x: this key stands twice in the object");
}

TEST(JsonDocument, AllowsTheSameKeyInDifferentObjects) {
  EXPECT_EQ(parse_error(R"({"x": {"x": [{"x": 1}, {"x": 1}]}, "y": {"x": 1}})"), "no error");
}

TEST(JsonDocument, SaysWhereTruncatedTextEndsOnOneLine) {
  const std::string error = parse_error("{\"x\":\n [1, 2");
  EXPECT_TRUE(error.starts_with("t.json: not valid JSON: parse error at line 2, column 7:"))
      << error;
  EXPECT_EQ(error.find('\n'), std::string::npos) << error;
}

struct BadText {
  std::string name;
  std::string text;
};
void PrintTo(const BadText& bad, std::ostream* out) { *out << bad.text; }

class JsonDocumentRefuses : public testing::TestWithParam<BadText> {};

TEST_P(JsonDocumentRefuses, WhatIsNotStrictJson) {
  const std::string error = parse_error(GetParam().text);
  EXPECT_TRUE(error.starts_with("t.json: not valid JSON: ")) << error;
  EXPECT_EQ(error.find_first_of("\n\r\t"), std::string::npos) << error;
  EXPECT_EQ(error.find("json.exception"), std::string::npos) << error;
}

INSTANTIATE_TEST_SUITE_P(
    Texts, JsonDocumentRefuses,
    testing::Values(BadText{"Nothing", ""}, BadText{"AComment", "{} // why"},
                    BadText{"ATrailingComma", "[1,]"}, BadText{"NaN", R"({"x": NaN})"},
                    BadText{"TwoValues", "{} {}"}, BadText{"AControlCharacter", "\"a\tb\nc\""},
                    BadText{"ANumberBeyondDouble", "[1e999]"}, BadText{"BadUtf8", "\"\xff\""}),
    case_name);

TEST(JsonDocument, ACopyIsIndependent) {
  JsonDocument original = parse(R"({"x": 1})");
  const JsonDocument copy = original;
  original.set({"x"}, "2", "--set x");
  EXPECT_EQ(copy.root().at("x").dump(), "1");
  EXPECT_EQ(copy.root().at("x").where(), "t.json:/x");
}

TEST(JsonDocument, AssignmentTakesValuesAndOrigins) {
  JsonDocument original = parse(R"({"x": 1})");
  original.set({"x"}, "2", "--set x");
  JsonDocument other = JsonDocument::parse("{}", "other.json");
  other = original;
  EXPECT_EQ(other.name(), "t.json");
  EXPECT_EQ(other.root().at("x").dump(), "2");
  EXPECT_EQ(other.root().at("x").where(), "--set x");
}

// Files ------------------------------------------------------------------------------------------

std::string read_file_error(const std::string& path) {
  return input_error([&] { static_cast<void>(JsonDocument::read_file(path)); });
}

TEST(JsonFile, IsNamedByItsPath) {
  const Folder folder;
  folder.write("a.json", R"({"x": 1})");
  const JsonDocument document = JsonDocument::read_file(folder.path("a.json"));
  EXPECT_EQ(document.root().at("x").where(), folder.path("a.json") + ":/x");
}

TEST(JsonFile, RefusesAPathWithNothingThere) {
  const Folder folder;
  EXPECT_EQ(read_file_error(folder.path("a.json")), folder.path("a.json") + ": no such file");
}

TEST(JsonFile, RefusesADirectory) {
  const Folder folder;
  EXPECT_EQ(read_file_error(folder.path("")), folder.path("") + ": is a directory, not a file");
}

TEST(JsonFile, RefusesAHugeFile) {
  const Folder folder;
  folder.write("a.json", "{}");
  std::filesystem::resize_file(folder.path("a.json"), std::uintmax_t{512} << 20);  // sparse
  EXPECT_EQ(read_file_error(folder.path("a.json")),
            folder.path("a.json") + ": is 512 MiB; at most 256 MiB are read");
}

TEST(JsonFile, NamesItselfWhenItIsNotJson) {
  const Folder folder;
  folder.write("a.json", "{");
  const std::string error = read_file_error(folder.path("a.json"));
  EXPECT_TRUE(error.starts_with(folder.path("a.json") + ": not valid JSON: ")) << error;
}

TEST(JsonFile, RefusesAKeyThatStandsTwice) {
  const Folder folder;
  folder.write("a.json", R"({"x": 1, "x": 2})");
  EXPECT_EQ(read_file_error(folder.path("a.json")),
            folder.path("a.json") + ":/x: this key stands twice in the object");
}

// Whole numbers ----------------------------------------------------------------------------------

struct Whole {
  std::string name;
  std::string text;
  std::int64_t value;
};
void PrintTo(const Whole& whole, std::ostream* out) { *out << whole.text; }

class JsonInteger : public testing::TestWithParam<Whole> {};

TEST_P(JsonInteger, IsReadExactly) {
  const JsonDocument document = parse(GetParam().text);
  EXPECT_EQ(document.root().integer(smallest_int64, largest_int64), GetParam().value);
}

INSTANTIATE_TEST_SUITE_P(
    Numbers, JsonInteger,
    testing::Values(Whole{"Zero", "0", 0}, Whole{"Negative", "-3", -3},
                    Whole{"WrittenWithAPoint", "8.0", 8},
                    Whole{"WrittenWithAnExponent", "1e3", 1000}, Whole{"MinusZero", "-0.0", 0},
                    Whole{"TwoToThe53AsADouble", "9007199254740992.0", std::int64_t{1} << 53},
                    Whole{"OneMoreThanADoubleCounts", "9007199254740993",
                          (std::int64_t{1} << 53) + 1},
                    Whole{"TheLargest", "9223372036854775807", largest_int64},
                    Whole{"TheSmallest", "-9223372036854775808", smallest_int64}),
    case_name);

struct NotWhole {
  std::string name;
  std::string text;
  std::string shown;
};
void PrintTo(const NotWhole& value, std::ostream* out) { *out << value.text; }

class JsonIntegerRefuses : public testing::TestWithParam<NotWhole> {};

TEST_P(JsonIntegerRefuses, EvenWhenEverySizeIsAllowed) {
  EXPECT_EQ(read_error(GetParam().text,
                       [](const JsonView& x) { return x.integer(smallest_int64, largest_int64); }),
            "t.json:/x: must be a whole number in [-9223372036854775808, 9223372036854775807], "
            "got " +
                GetParam().shown);
}

INSTANTIATE_TEST_SUITE_P(
    Values, JsonIntegerRefuses,
    testing::Values(
        NotWhole{"AFraction", "3.7", "3.7"},
        NotWhole{"TwoToThe63", "9223372036854775808", "9223372036854775808"},
        NotWhole{"TwoToThe63AsADouble", "9223372036854775808.0", "9.223372036854776e+18"},
        NotWhole{"ADoubleThatSkipsWholeNumbers", "9007199254740994.0", "9.007199254740994e+15"},
        NotWhole{"AHugeDouble", "1e300", "1e+300"},
        NotWhole{"ANegativeHugeDouble", "-1e300", "-1e+300"}, NotWhole{"AString", "\"8\"", "\"8\""},
        NotWhole{"ABoolean", "true", "true"}, NotWhole{"Null", "null", "null"},
        NotWhole{"AList", "[8]", "[8]"}, NotWhole{"AnObject", "{}", "{}"}),
    case_name);

TEST(JsonView, RefusesAFractionWhereAWholeNumberIsMeant) {
  EXPECT_EQ(read_error("3.7", [](const JsonView& x) { return x.integer(1, 8); }),
            "t.json:/x: must be a whole number in [1, 8], got 3.7");
}

TEST(JsonView, RefusesAWholeNumberOutsideItsRange) {
  const auto one_to_eight = [](const JsonView& x) { return x.integer(1, 8); };
  EXPECT_EQ(read_error("0", one_to_eight), "t.json:/x: must be a whole number in [1, 8], got 0");
  EXPECT_EQ(read_error("9", one_to_eight), "t.json:/x: must be a whole number in [1, 8], got 9");
  EXPECT_EQ(read_error("-1", one_to_eight), "t.json:/x: must be a whole number in [1, 8], got -1");
  EXPECT_EQ(read_error("0.0", one_to_eight),
            "t.json:/x: must be a whole number in [1, 8], got 0.0");
  EXPECT_EQ(read_error("1e1", one_to_eight),
            "t.json:/x: must be a whole number in [1, 8], got 10.0");
}

TEST(JsonView, TakesAWholeNumberAtBothEndsOfItsRange) {
  EXPECT_EQ(parse("1").root().integer(1, 8), 1);
  EXPECT_EQ(parse("8").root().integer(1, 8), 8);
  EXPECT_EQ(parse("8.0").root().integer(1, 8), 8);
}

// Numbers ----------------------------------------------------------------------------------------

TEST(JsonView, ReadsNumbersOfEveryNotation) {
  EXPECT_EQ(parse("25e9").root().number(), 25e9);
  EXPECT_EQ(parse("-0.5").root().number(), -0.5);
  EXPECT_EQ(parse("3").root().number(), 3.0);
}

TEST(JsonView, TakesANumberAtBothEndsOfItsRange) {
  EXPECT_EQ(parse("0").root().number(0.0, 1.0), 0.0);
  EXPECT_EQ(parse("1").root().number(0.0, 1.0), 1.0);
}

TEST(JsonView, RefusesANumberOutsideItsRange) {
  const auto zero_to_one = [](const JsonView& x) { return x.number(0.0, 1.0); };
  EXPECT_EQ(read_error("-1", zero_to_one), "t.json:/x: must be in [0, 1], got -1");
  EXPECT_EQ(read_error("1.5", zero_to_one), "t.json:/x: must be in [0, 1], got 1.5");
}

TEST(JsonView, RefusesANumberBelowItsOnlyLimit) {
  EXPECT_EQ(read_error("-1e-9", [](const JsonView& x) { return x.number(0.0); }),
            "t.json:/x: must be at least 0, got -1e-09");
}

TEST(JsonView, RefusesWhatIsNotANumber) {
  EXPECT_EQ(read_error("\"1\"", [](const JsonView& x) { return x.number(); }),
            "t.json:/x: must be a number, got \"1\"");
  const auto zero_to_one = [](const JsonView& x) { return x.number(0.0, 1.0); };
  EXPECT_EQ(read_error("\"1\"", zero_to_one),
            "t.json:/x: must be a number: must be in [0, 1], got \"1\"");
  EXPECT_EQ(read_error("null", zero_to_one),
            "t.json:/x: must be a number: must be in [0, 1], got null");
}

// Other kinds ------------------------------------------------------------------------------------

TEST(JsonView, ReadsAString) { EXPECT_EQ(parse(R"("a\u00e4\n")").root().string(), "a\xc3\xa4\n"); }

TEST(JsonView, RefusesWhatIsNotAString) {
  EXPECT_EQ(read_error("1", [](const JsonView& x) { return x.string(); }),
            "t.json:/x: must be a string, got 1");
}

TEST(JsonView, ReadsABoolean) {
  EXPECT_TRUE(parse("true").root().boolean());
  EXPECT_FALSE(parse("false").root().boolean());
}

TEST(JsonView, RefusesWhatIsNotABoolean) {
  EXPECT_EQ(read_error("0", [](const JsonView& x) { return x.boolean(); }),
            "t.json:/x: must be true or false, got 0");
}

TEST(JsonView, ReadsAWordOfAList) {
  EXPECT_EQ(parse("\"tree\"").root().word({"ring", "tree"}), "tree");
}

TEST(JsonView, RefusesAnUnknownWordAndNamesTheNearOnes) {
  EXPECT_EQ(read_error("\"rnig\"",
                       [](const JsonView& x) {
                         return x.word({"ring", "tree"});
                       }),
            "t.json:/x: unknown \"rnig\"; did you mean \"ring\"? known: ring, tree");
}

TEST(JsonView, KnowsItsKind) {
  EXPECT_TRUE(parse("null").root().is_null());
  EXPECT_FALSE(parse("0").root().is_null());
  EXPECT_TRUE(parse("{}").root().is_object());
  EXPECT_FALSE(parse("[]").root().is_object());
  EXPECT_TRUE(parse("[]").root().is_array());
  EXPECT_FALSE(parse("{}").root().is_array());
}

TEST(JsonView, OnlyTheWordAutoIsAuto) {
  EXPECT_TRUE(parse("\"auto\"").root().is_auto());
  EXPECT_FALSE(parse("\"automatic\"").root().is_auto());
  EXPECT_FALSE(parse("[\"auto\"]").root().is_auto());
  EXPECT_FALSE(parse("1").root().is_auto());
}

TEST(JsonView, DumpsOnOneLineAsItWasWritten) {
  EXPECT_EQ(parse("{\"z\": [1,\n 2.5], \"a\": \"\xc3\xa4\"}").root().dump(),
            "{\"z\":[1,2.5],\"a\":\"\xc3\xa4\"}");
}

TEST(QuoteJson, EscapesWhatAStringMayNotHold) {
  EXPECT_EQ(quote_json("a \"b\"\n"), "\"a \\\"b\\\"\\n\"");
}

TEST(QuoteJson, ReplacesBytesThatAreNotUtf8) {
  EXPECT_EQ(quote_json("a\xff"), "\"a\xef\xbf\xbd\"");  // U+FFFD
}

// Unknown keys and formats -----------------------------------------------------------------------

TEST(JsonView, AllowsTheKeysThatAreListed) {
  const JsonDocument document = parse(R"({"b": 1})");
  EXPECT_EQ(input_error([&] { document.root().allow_only({"a", "b"}); }), "no error");
}

TEST(JsonView, RefusesAnUnknownKeyAndNamesTheNearOnes) {
  const JsonDocument document = parse(R"({"cluster": {"gpsu": 1}})");
  EXPECT_EQ(input_error([&] {
              document.root().at("cluster").allow_only({"nodes", "gpus"});
            }),
            "t.json:/cluster: unknown key \"gpsu\"; did you mean \"gpus\"? known: nodes, gpus");
}

TEST(JsonView, RefusesAnUnknownKeyThatIsNearNone) {
  const JsonDocument document = parse(R"({"colour": 1})");
  EXPECT_EQ(input_error([&] { document.root().allow_only({"gpus"}); }),
            "t.json: unknown key \"colour\"; known: gpus");
}

TEST(JsonView, ExpectsAFormat) {
  const auto error = [](const std::string& text) {
    const JsonDocument document = parse(text);
    return input_error([&] { document.root().expect_format("stepcast.trace/1"); });
  };
  EXPECT_EQ(error(R"({"format": "stepcast.trace/1"})"), "no error");
  EXPECT_EQ(error(R"({"format": "stepcast.trace/2"})"),
            "t.json:/format: must be \"stepcast.trace/1\", got \"stepcast.trace/2\"");
  EXPECT_EQ(error(R"({"format": 1})"), "t.json:/format: must be a string, got 1");
  EXPECT_EQ(error("{}"), "t.json: the key \"format\" is missing");
  EXPECT_EQ(error("[]"), "t.json: must be an object, got []");
}

// Values from the command line -------------------------------------------------------------------

/// The document {"x": ...} after `value` was set at `path`.
std::string after_set(const std::string& text, const std::vector<std::string>& path,
                      const std::string& value) {
  JsonDocument document = parse(text);
  document.set(path, value, "--set test");
  return document.root().dump();
}

std::string set_error(const std::string& text, const std::vector<std::string>& path) {
  return input_error([&] { static_cast<void>(after_set(text, path, "1")); });
}

TEST(JsonSet, TakesJson) {
  EXPECT_EQ(after_set("{}", {"x"}, "8"), R"({"x":8})");
  EXPECT_EQ(after_set("{}", {"x"}, "null"), R"({"x":null})");
  EXPECT_EQ(after_set("{}", {"x"}, R"([1, "a"])"), R"({"x":[1,"a"]})");
  EXPECT_EQ(after_set("{}", {"x"}, "\"8\""), R"({"x":"8"})");
}

TEST(JsonSet, TakesABareWord) {
  EXPECT_EQ(after_set("{}", {"x"}, "ddp"), R"({"x":"ddp"})");
  EXPECT_EQ(after_set("{}", {"x"}, ""), R"({"x":""})");
}

TEST(JsonSet, TakesASizeForAKeyThatEndsInBytes) {
  EXPECT_EQ(after_set("{}", {"training", "bucket_cap_bytes"}, "25MiB"),
            R"({"training":{"bucket_cap_bytes":26214400}})");  // 25 * 2^20
}

TEST(JsonSet, TakesABareWordForAKeyThatEndsInBytes) {
  EXPECT_EQ(after_set("{}", {"chunk_bytes"}, "max"), R"({"chunk_bytes":"max"})");
}

TEST(JsonSet, TakesASizeForNoOtherKey) {
  EXPECT_EQ(after_set("{}", {"name"}, "25MiB"), R"({"name":"25MiB"})");
  EXPECT_EQ(after_set("{}", {"bytes_per_element"}, "4B"), R"({"bytes_per_element":"4B"})");
  EXPECT_EQ(after_set("{}", {"bytes"}, "4B"), R"({"bytes":"4B"})");
}

TEST(JsonSet, ReplacesAValueOfAnotherKind) {
  EXPECT_EQ(after_set(R"({"x": {"y": 1}})", {"x"}, "8"), R"({"x":8})");
}

TEST(JsonSet, KeepsWhatStandsBesideTheValue) {
  EXPECT_EQ(after_set(R"({"x": {"y": 1, "z": 2}})", {"x", "y"}, "8"), R"({"x":{"y":8,"z":2}})");
}

TEST(JsonSet, MakesMissingObjects) {
  EXPECT_EQ(after_set("{}", {"a", "b", "c"}, "1"), R"({"a":{"b":{"c":1}}})");
}

TEST(JsonSet, MakesAnObjectInPlaceOfNull) {
  EXPECT_EQ(after_set(R"({"a": null})", {"a", "b"}, "1"), R"({"a":{"b":1}})");
}

TEST(JsonSet, FindsAPlaceInAList) {
  EXPECT_EQ(after_set(R"({"a": [1, 2, 3]})", {"a", "1"}, "8"), R"({"a":[1,8,3]})");
  EXPECT_EQ(after_set(R"({"a": [{"b": 1}]})", {"a", "0", "b"}, "8"), R"({"a":[{"b":8}]})");
}

TEST(JsonSet, RefusesAPlaceBehindTheEndOfAList) {
  EXPECT_EQ(set_error(R"({"a": [1, 2]})", {"a", "2"}),
            "--set test: t.json:/a is a list of 2; \"2\" is not one of its places");
}

TEST(JsonSet, RefusesAWordAsAPlaceInAList) {
  EXPECT_EQ(set_error(R"({"a": [1, 2]})", {"a", "b"}),
            "--set test: t.json:/a is a list of 2; \"b\" is not one of its places");
  EXPECT_EQ(set_error(R"({"a": [1, 2]})", {"a", "-1"}),
            "--set test: t.json:/a is a list of 2; \"-1\" is not one of its places");
  EXPECT_EQ(set_error(R"({"a": [1, 2]})", {"a", "99999999999999999999"}),
            "--set test: t.json:/a is a list of 2; \"99999999999999999999\" is not one of its "
            "places");
}

TEST(JsonSet, RefusesAKeyOfWhatIsNotAnObject) {
  EXPECT_EQ(set_error(R"({"a": {"b": 1}})", {"a", "b", "c"}),
            "--set test: t.json:/a/b is not an object; it has no \"c\"");
}

TEST(JsonSet, RefusesAnEmptyKey) {
  EXPECT_EQ(set_error("{}", {"a", ""}),
            "--set test: a key is words joined by dots, such as training.micro_batch");
}

TEST(JsonSet, IsNamedInErrorsAboutTheValue) {
  JsonDocument document = parse(R"({"x": {"y": 1}})");
  document.set({"x", "y"}, "-1", "--set x.y");
  EXPECT_EQ(input_error([&] { static_cast<void>(document.root().at("x").at("y").integer(0, 9)); }),
            "--set x.y: must be a whole number in [0, 9], got -1");
}

TEST(JsonSet, IsNotNamedInErrorsAboutOtherValues) {
  JsonDocument document = parse(R"({"x": {"y": 1, "z": -1}})");
  document.set({"x", "y"}, "2", "--set x.y");
  EXPECT_EQ(document.root().at("x").at("z").where(), "t.json:/x/z");
  EXPECT_EQ(document.root().at("x").where(), "t.json:/x");
}

TEST(JsonSet, IsNamedWhenTheKeyIsUnknown) {
  JsonDocument document = parse("{}");
  document.set({"clutser"}, "1", "--set clutser");
  EXPECT_EQ(input_error([&] { document.root().allow_only({"cluster"}); }),
            "--set clutser: unknown key \"clutser\"; did you mean \"cluster\"? known: cluster");
}

TEST(JsonSet, IsNamedWhenAKeyAboveTheValueIsUnknown) {
  JsonDocument document = parse("{}");
  document.set({"clutser", "gpus"}, "1", "--set clutser.gpus");
  EXPECT_EQ(input_error([&] { document.root().allow_only({"cluster"}); }),
            "--set clutser.gpus: unknown key \"clutser\"; did you mean \"cluster\"? known: "
            "cluster");
}

TEST(JsonSet, IsNotNamedForAnUnknownKeyWithTheSameBeginning) {
  JsonDocument document = parse(R"({"gpu": 1})");
  document.set({"gpus"}, "1", "--set gpus");
  EXPECT_EQ(input_error([&] { document.root().allow_only({"gpus"}); }),
            "t.json: unknown key \"gpu\"; did you mean \"gpus\"? known: gpus");
}

TEST(JsonSet, IsNamedInErrorsAboutAPartOfTheValue) {
  JsonDocument document = parse("{}");
  document.set({"cluster"}, R"({"gpus": -1})", "--set cluster");
  EXPECT_EQ(input_error(
                [&] { static_cast<void>(document.root().at("cluster").at("gpus").integer(1, 8)); }),
            "--set cluster: must be a whole number in [1, 8], got -1");
}

TEST(JsonSet, IsNotNamedInErrorsAboutAKeyWithTheSameBeginning) {
  JsonDocument document = parse(R"({"gpus": {"x": -1}})");
  document.set({"gpu"}, "1", "--set gpu");
  EXPECT_EQ(document.root().at("gpus").at("x").where(), "t.json:/gpus/x");
}

TEST(JsonSet, KeepsTheOriginOfWhatItDoesNotReplace) {
  JsonDocument document = parse("{}");
  document.set({"gpus"}, "1", "--set gpus");
  document.set({"gpu"}, "1", "--set gpu");
  EXPECT_EQ(document.root().at("gpus").where(), "--set gpus");
}

TEST(JsonSet, ForgetsWhatItReplaces) {
  JsonDocument document = parse("{}");
  document.set({"cluster", "gpus"}, "1", "--set cluster.gpus");
  document.set({"cluster"}, R"({"gpus": -1})", "--set cluster");
  EXPECT_EQ(input_error(
                [&] { static_cast<void>(document.root().at("cluster").at("gpus").integer(1, 8)); }),
            "--set cluster: must be a whole number in [1, 8], got -1");
}

}  // namespace
}  // namespace stepcast
