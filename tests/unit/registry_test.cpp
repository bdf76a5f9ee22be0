#include "base/registry.hpp"

#include <stdexcept>
#include <string>
#include <vector>

#include "testing.hpp"

namespace stepcast {
namespace {

int one() { return 1; }
int two() { return 2; }

TEST(Registry, FindsAFunctionByItsName) {
  Registry<int (*)()> registry;
  registry.add("one", one);
  registry.add("two", two);
  ASSERT_NE(registry.find("two"), nullptr);
  EXPECT_EQ((*registry.find("two"))(), 2);
}

TEST(Registry, FindsNothingUnderAnUnknownName) {
  Registry<int (*)()> registry;
  registry.add("one", one);
  EXPECT_EQ(registry.find("two"), nullptr);
}

TEST(Registry, RefusesANameTwice) {
  Registry<int (*)()> registry;
  registry.add("one", one);
  try {
    registry.add("one", two);
    FAIL() << "no error";
  } catch (const std::logic_error& error) {
    EXPECT_STREQ(error.what(), "registered twice: one");
  }
  EXPECT_EQ((*registry.find("one"))(), 1);
}

TEST(Registry, NamesAreInAlphabeticalOrder) {
  Registry<int (*)()> registry;
  registry.add("two", two);
  registry.add("one", one);
  EXPECT_EQ(registry.names(), (std::vector<std::string>{"one", "two"}));
}

}  // namespace
}  // namespace stepcast
