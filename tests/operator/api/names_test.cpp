#include "operator/api/names.h"

#include <gtest/gtest.h>

#include "operator/base/ids.h"

namespace trainyard::api {
namespace {

TEST(Names, SpellEnumsAsTheApiDoes) {
  EXPECT_EQ(ToString(Strategy::kZero1), "ZeRO1");
  EXPECT_EQ(FromString<Strategy>("FSDP"), Strategy::kFsdp);
  EXPECT_EQ(FromString<Strategy>("fsdp"), std::nullopt);
  EXPECT_EQ(ToString(Phase::kRecovering), "Recovering");
  EXPECT_EQ(ToString(static_cast<Phase>(99)), "Unknown");
}

TEST(Names, ReadStrategiesOfPeople) {
  EXPECT_EQ(ParseStrategy("fsdp").value(), Strategy::kFsdp);
  EXPECT_EQ(ParseStrategy("ZERO2").value(), Strategy::kZero2);
  EXPECT_EQ(ParseStrategy("FDSP").error().message, "'FDSP' is not a strategy: did you mean 'FSDP'?");
}

TEST(Names, OfChildrenFitIntoDnsLabels) {
  TrainingJob job;
  job.meta.name = std::string(kMaxNameLength, 'a');
  job.meta.uid = "0f6c1f5e-0000-4000-8000-000000000001";
  EXPECT_EQ(PodName(job, 3, 1), job.meta.name + "-" + ShortUid(job.meta.uid) + "-3-1");
  EXPECT_EQ(ServiceName(job), "tj-" + job.meta.name);
  EXPECT_TRUE(IsDnsLabel(PodName(job, 99999, 9999)));
  EXPECT_TRUE(IsDnsLabel(ServiceName(job)));
}

TEST(Names, DnsLabels) {
  for (const char* good : {"a", "a-b", "0", "x1"}) EXPECT_TRUE(IsDnsLabel(good)) << good;
  for (const char* bad : {"", "-a", "a-", "A", "a.b", "a_b", "ä"}) EXPECT_FALSE(IsDnsLabel(bad)) << bad;
  EXPECT_FALSE(IsDnsLabel(std::string(64, 'a')));
}

TEST(Names, SuggestOnlyWhatIsNear) {
  EXPECT_EQ(NearestName("hiddensize", {"layers", "hiddenSize"}), "hiddenSize");
  EXPECT_EQ(NearestName("cuont", {"count", "minCount"}), "count");
  EXPECT_EQ(NearestName("kuent", {"count", "minCount"}), std::nullopt);  // two edits in five letters
  EXPECT_EQ(Printable("a\nb"), "a?b");
  EXPECT_EQ(NearestName("zzzzzz", {"count"}), std::nullopt);
  EXPECT_EQ(NearestName(std::string(100'000, 'c'), {"count"}), std::nullopt);
}

}  // namespace
}  // namespace trainyard::api
