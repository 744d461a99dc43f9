#include "operator/cli/plan/text_table.h"

#include <gtest/gtest.h>

namespace trainyard::cli {
namespace {

TEST(TextTable, BarsShowTheShareAndWhatIsTooMuch) {
  EXPECT_EQ(Bar(0, 100, 10), "[..........]");
  EXPECT_EQ(Bar(55, 100, 10), "[######....]");
  EXPECT_EQ(Bar(100, 100, 10), "[##########]");
  EXPECT_EQ(Bar(101, 100, 10), "[#########>]");
  EXPECT_EQ(Bar(5, 0, 10), "[#########>]");  // no capacity holds nothing
}

TEST(TextTable, SentencesBreakAtSpacesOnly) {
  EXPECT_EQ(Wrapped("one two three", "- ", "  ", 9), "- one two\n  three\n");
  EXPECT_EQ(Wrapped("a-word-longer-than-the-line x", "- ", "  ", 9), "- a-word-longer-than-the-line\n  x\n");
  EXPECT_EQ(Wrapped("", "- ", "  "), "- \n");
}

TEST(TextTable, ColumnsAlign) {
  Table table({"NAME", "N", "WHAT"});
  table.Row({"a", "10", "x"});
  table.Row({"longer", "2", ""});
  EXPECT_EQ(table.Text({0, 2}), "NAME     N  WHAT\na       10  x\nlonger   2\n");
  EXPECT_EQ(table.Markdown({0, 2}), "| NAME | N | WHAT |\n| --- | ---: | --- |\n| a | 10 | x |\n| longer | 2 |   |\n");
}

TEST(TextTable, AmountsForPeople) {
  EXPECT_EQ(Thousands(28333.3), "28,333");
  EXPECT_EQ(Thousands(-1234567), "-1,234,567");
  EXPECT_EQ(Thousands(999), "999");
  EXPECT_EQ(HoursText(2.345, false), "2.35");
  EXPECT_EQ(HoursText(55.56, false), "55.6");
  EXPECT_EQ(HoursText(12345.6, false), "12,346");
  EXPECT_EQ(HoursText(56, true), "56");
  EXPECT_EQ(CostText(3.5, false), "3.50");
  EXPECT_EQ(CostText(28333.3, false), "28,333");
}

}  // namespace
}  // namespace trainyard::cli
