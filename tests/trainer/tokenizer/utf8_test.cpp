#include "trainer/tokenizer/utf8.h"

#include <string>

#include <gtest/gtest.h>

namespace trainyard::tokenizer {
namespace {

TEST(Utf8, WellFormedTextIsAllValid) {
  for (const std::string text : {"", "plain text of ASCII", "\xc3\xa9", "\xe2\x82\xac", "\xed\x9f\xbf", "\xee\x80\x80",
                                 "\xf0\x9f\x98\x80", "\xf4\x8f\xbf\xbf", "12345678\xd0\x96zzzzzzzzz"}) {
    EXPECT_EQ(ValidUtf8Prefix(text), text.size()) << text;
  }
  EXPECT_EQ(ValidUtf8Prefix(std::string("a\0b", 3)), 3U);
}

// Unicode 15, table 3-7: what is beside each row.
TEST(Utf8, EachKindOfDamageIsFound) {
  for (const std::string bad : {"\x80", "\xc0\x80", "\xc1\xbf", "\xe0\x80\x80", "\xe0\x9f\xbf", "\xed\xa0\x80",
                                "\xf0\x80\x80\x80", "\xf0\x8f\xbf\xbf", "\xf4\x90\x80\x80", "\xf5\x80\x80\x80", "\xff",
                                "\xc3", "\xe2\x82", "\xf0\x9f\x98", "\xc3(", "\xe2\x28\xa1", "\xe2\x82("}) {
    EXPECT_EQ(ValidUtf8Prefix("12345678ab" + bad), 10U);
    EXPECT_EQ(ValidUtf8Prefix("ab" + bad + "c"), 2U);
  }
  EXPECT_EQ(CheckUtf8("ab\xff").error().message, "byte 2 is not UTF-8");
}

TEST(Brief, IsOneShortLineOfWholeCharacters) {
  EXPECT_EQ(Brief("role"), "role");
  EXPECT_EQ(Brief("two\nlines\x7f"), "two lines ");
  EXPECT_EQ(Brief(std::string(40, 'x')), std::string(40, 'x'));
  EXPECT_EQ(Brief(std::string(41, 'x')), std::string(40, 'x') + "...");
  EXPECT_EQ(Brief(std::string(39, 'x') + "\xd0\x96"), std::string(39, 'x') + "...");
}

}  // namespace
}  // namespace trainyard::tokenizer
