#include "base/text.hpp"

#include <cstdint>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "documents.hpp"
#include "testing.hpp"

namespace stepcast {
namespace {

struct Size {
  std::string name;
  std::string text;
  std::int64_t bytes;
};
void PrintTo(const Size& size, std::ostream* out) { *out << size.text; }

class ParseBytes : public testing::TestWithParam<Size> {};

TEST_P(ParseBytes, ReadsASize) { EXPECT_EQ(parse_bytes(GetParam().text), GetParam().bytes); }

INSTANTIATE_TEST_SUITE_P(
    Sizes, ParseBytes,
    testing::Values(Size{"Zero", "0", 0}, Size{"BareNumber", "1024", 1024}, Size{"Bytes", "7B", 7},
                    Size{"KilobytesArePowersOfTen", "1kB", 1'000},
                    Size{"MegabytesArePowersOfTen", "25MB", 25'000'000},
                    Size{"GigabytesArePowersOfTen", "2GB", 2'000'000'000},
                    Size{"TerabytesArePowersOfTen", "3TB", 3'000'000'000'000},
                    Size{"KibibytesArePowersOfTwo", "1KiB", std::int64_t{1} << 10},
                    Size{"MebibytesArePowersOfTwo", "25MiB", std::int64_t{25} << 20},
                    Size{"GibibytesArePowersOfTwo", "2GiB", std::int64_t{2} << 30},
                    Size{"TebibytesArePowersOfTwo", "3TiB", std::int64_t{3} << 40},
                    Size{"SpaceBeforeTheUnit", "64 KiB", std::int64_t{64} << 10},
                    Size{"FractionThatIsAWholeNumberOfBytes", "1.5GB", 1'500'000'000},
                    Size{"HalfAKibibyte", "0.5KiB", 512}, Size{"Exponent", "1e3B", 1'000},
                    Size{"TheLargestThatADoubleCounts", "8192TiB", std::int64_t{1} << 53}),
    case_name);

class ParseBytesRefuses : public testing::TestWithParam<Size> {};

TEST_P(ParseBytesRefuses, WhatIsNotASize) { EXPECT_EQ(parse_bytes(GetParam().text), std::nullopt); }

INSTANTIATE_TEST_SUITE_P(
    Texts, ParseBytesRefuses,
    testing::Values(Size{"Nothing", "", 0}, Size{"UnitAlone", "MiB", 0},
                    Size{"NotANumber", "nan", 0}, Size{"NotANumberWithAUnit", "nanMiB", 0},
                    Size{"Infinity", "inf", 0}, Size{"MinusInfinity", "-inf", 0},
                    Size{"Negative", "-1", 0}, Size{"NegativeWithAUnit", "-1KiB", 0},
                    Size{"HalfAByte", "1.5B", 0}, Size{"FractionOfAByte", "0.1KiB", 0},
                    Size{"BareK", "25K", 0}, Size{"BareM", "25M", 0}, Size{"BareG", "25G", 0},
                    Size{"LowerCaseUnit", "25mib", 0}, Size{"UpperCaseKilo", "25KB", 0},
                    Size{"WordsBehindTheUnit", "25MiB or so", 0}, Size{"LeadingSpace", " 25", 0},
                    Size{"Plus", "+25", 0}, Size{"Hexadecimal", "0x10", 0},
                    Size{"TwoNumbers", "1 2", 0}, Size{"MoreThanADouble", "1e999", 0},
                    Size{"MoreThanADoubleCounts", "8193TiB", 0},
                    Size{"MoreThanADoubleCountsInBytes", "9007199254740994", 0}),  // 2^53 + 2
    case_name);

TEST(FormatBytes, WritesBelowAKibibyteInBytes) { EXPECT_EQ(format_bytes(1000), "1000 B"); }

TEST(FormatBytes, ChoosesTheLargestUnitThatFits) {
  EXPECT_EQ(format_bytes(0), "0 B");
  EXPECT_EQ(format_bytes(1023), "1023 B");
  EXPECT_EQ(format_bytes(1024), "1 KiB");
  EXPECT_EQ(format_bytes(26214400), "25 MiB");
  EXPECT_EQ(format_bytes(1.5 * 1024 * 1024 * 1024), "1.5 GiB");
  EXPECT_EQ(format_bytes(std::int64_t{2} << 40), "2 TiB");
}

TEST(FormatBytes, RoundsWhatIsNotExact) {
  EXPECT_EQ(format_bytes(1234567), "1.177 MiB");  // 1234567 / 2^20 = 1.17737
}

TEST(FormatNumber, IsTheShortestTextThatReadsBackToTheSame) {
  EXPECT_EQ(format_number(0.1), "0.1");
  EXPECT_EQ(format_number(2.0), "2");
  EXPECT_EQ(std::stod(format_number(1.0 / 3.0)), 1.0 / 3.0);
}

TEST(Suggest, NamesTheNearNameThenAll) {
  EXPECT_EQ(suggest("rinf", {"ring", "double_tree"}),
            "; did you mean \"ring\"? known: ring, double_tree");
}

TEST(Suggest, NamesAllWhenNoneIsNear) {
  EXPECT_EQ(suggest("butterfly", {"ring", "tree"}), "; known: ring, tree");
}

TEST(Suggest, FindsNothingNearToNothing) { EXPECT_EQ(suggest("", {"8", "16"}), "; known: 8, 16"); }

TEST(Suggest, CountsASwapOfNeighboursAsOneMistake) {
  // Two swaps: 2 mistakes, the most that is near for four letters. As replacements they were 4.
  EXPECT_EQ(suggest("irgn", {"ring", "star"}), "; did you mean \"ring\"? known: ring, star");
}

TEST(Suggest, ForgivesTwoMistakesInAShortName) {
  EXPECT_EQ(suggest("rixx", {"ring"}), "; did you mean \"ring\"? known: ring");
  EXPECT_EQ(suggest("rxxx", {"ring"}), "; known: ring");
}

TEST(Suggest, ForgivesAMistakeInThreeLettersOfALongName) {
  // 12 letters: 12 / 3 = 4 mistakes are near, 5 are not.
  EXPECT_EQ(suggest("bucket_xxxxs", {"bucket_bytes"}),
            "; did you mean \"bucket_bytes\"? known: bucket_bytes");
  EXPECT_EQ(suggest("bucket_xxxxx", {"bucket_bytes"}), "; known: bucket_bytes");
}

TEST(Suggest, NamesWhatContainsTheWord) {
  EXPECT_EQ(suggest("micro", {"reference_global_batch", "micro_batch"}),
            "; did you mean \"micro_batch\"? known: reference_global_batch, micro_batch");
}

TEST(Suggest, DoesNotTakeTwoLettersForPartOfAName) {
  EXPECT_EQ(suggest("ba", {"micro_batch"}), "; known: micro_batch");
}

TEST(Suggest, NamesTheNearestFirst) {
  // "trea" becomes "tree" by one replacement and "trim" by two.
  EXPECT_EQ(suggest("trea", {"trim", "tree", "ring"}),
            "; did you mean \"tree\", \"trim\"? known: trim, tree, ring");
}

TEST(Split, CutsAtEachSeparator) {
  EXPECT_EQ(split("cluster.gpus", '.'), (std::vector<std::string>{"cluster", "gpus"}));
}

TEST(Split, KeepsEmptyParts) {
  EXPECT_EQ(split(".a..b.", '.'), (std::vector<std::string>{"", "a", "", "b", ""}));
  EXPECT_EQ(split("", '.'), std::vector<std::string>{""});
}

}  // namespace
}  // namespace stepcast
