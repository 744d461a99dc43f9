#include <gtest/gtest.h>

#include <unistd.h>

#include <filesystem>
#include <string>

#include "operator/base/backoff.h"
#include "operator/base/clock.h"
#include "operator/base/files.h"
#include "operator/base/ids.h"
#include "operator/base/quantity.h"

namespace trainyard {
namespace {

TEST(Quantity, ReadsWhatKubernetesWrites) {
  struct Case {
    const char* text;
    int64_t value;
    int64_t milli;
  };
  for (const Case& c :
       {Case{"8", 8, 8000}, Case{"2Gi", 2147483648, 2147483648000}, Case{"1500m", 2, 1500}, Case{"1e3", 1000, 1000000},
        Case{"191450m", 192, 191450}, Case{"2113504512Ki", 2164228620288, 2164228620288000}, Case{"0.5", 1, 500},
        Case{"1.5Gi", 1610612736, 1610612736000}, Case{"100k", 100000, 100000000}, Case{"0", 0, 0}}) {
    EXPECT_EQ(ParseQuantity(c.text).value(), c.value) << c.text;
    EXPECT_EQ(ParseMilliQuantity(c.text).value(), c.milli) << c.text;
  }
}

TEST(Quantity, RefusesWhatItCannotHold) {
  for (const char* text : {"", "x", "-1", "1Q", "1e", "1e19", "9223372036854775808", "9Ei9", "1.2.3", "16Ei",
                           "1234567890123456789012345678901"}) {
    EXPECT_FALSE(ParseQuantity(text).has_value()) << text;
  }
}

TEST(Quantity, RoundsWhatIsBelowAnyUnitUp) {
  EXPECT_EQ(ParseQuantity(".000000000000000000000000000001e-18").value(), 1);
  EXPECT_EQ(ParseQuantity(".000000000000000000000000000000e-18").value(), 0);
}

TEST(Quantity, ReadsParameterCounts) {
  EXPECT_EQ(ParseCount("125M").value(), 125'000'000);
  EXPECT_EQ(ParseCount("7B").value(), 7'000'000'000);
  EXPECT_EQ(ParseCount("1.1T").value(), 1'100'000'000'000);
  EXPECT_EQ(ParseCount("7000000000").value(), 7'000'000'000);
  for (const char* text : {"", "B", "7Q", "-7B", "0", "7 B", "99999999T"})
    EXPECT_FALSE(ParseCount(text).has_value()) << text;
}

TEST(Quantity, WritesForPeople) {
  EXPECT_EQ(FormatBytes(112e9), "112.0 GB");
  EXPECT_EQ(FormatBinaryBytes(1536), "1.5 KiB");
  EXPECT_EQ(FormatCount(7'000'000'000), "7B");
  EXPECT_EQ(FormatCount(3'030'272), "3.03M");
}

TEST(Clock, WritesAndReadsRfc3339) {
  TimePoint t(Milliseconds(1769860800123));
  EXPECT_EQ(FormatTime(t), "2026-01-31T12:00:00Z");
  EXPECT_EQ(FormatTime(t, true), "2026-01-31T12:00:00.123Z");
  EXPECT_EQ(ParseTime("2026-01-31T12:00:00.123Z").value(), t);
  EXPECT_FALSE(ParseTime("yesterday").has_value());
}

TEST(Backoff, DoublesUpToTheCap) {
  Backoff b{.base = Milliseconds(10), .max = Milliseconds(100)};
  EXPECT_EQ(b.Delay(0).count(), 0);
  EXPECT_EQ(b.Delay(1).count(), 10);
  EXPECT_EQ(b.Delay(4).count(), 80);
  EXPECT_EQ(b.Delay(500).count(), 100);
  EXPECT_EQ(b.Jittered(1, 0).count(), 5);
}

TEST(Files, AreReadWholeAndADirectoryIsNone) {
  std::string made = (std::filesystem::temp_directory_path() / "trainyard-files-XXXXXX").string();
  ASSERT_NE(mkdtemp(made.data()), nullptr);
  const std::string file = made + "/file";
  for (const std::string& text : {std::string(), std::string("a\n"), std::string(100'000, 'x')}) {
    ASSERT_TRUE(WriteFileAtomically(file, text));
    EXPECT_EQ(ReadFile(file), text);
  }
  EXPECT_EQ(ReadFile(made + "/absent").error().code, ErrorCode::kNotFound);
  const auto directory = ReadFile(made);
  ASSERT_FALSE(directory);
  EXPECT_EQ(directory.error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(directory.error().message, "cannot read " + made + ": it is a directory, not a file");
  std::filesystem::remove_all(made);
}

TEST(Ids, AreUniqueAndStable) {
  EXPECT_NE(NewUid(), NewUid());
  EXPECT_EQ(StableHash("a"), 0xaf63dc4c8601ec8cu);  // published FNV-1a vector
  EXPECT_EQ(ShortUid("x").size(), 4u);
}

}  // namespace
}  // namespace trainyard
