#include <gmock/gmock.h>

#include "tests/operator/placement/yard_fixture.h"

namespace trainyard::placement {
namespace {

int64_t Used(const std::vector<api::PodSnapshot>& pods, const std::vector<Booking>& claims) {
  return Yard::Build({MakeNode("a", 8)}, pods, claims, kRackOptions).nodes()[0].used;
}

TEST(Ledger, CountsAClaimBeforeItsPodsExist) { EXPECT_EQ(Used({}, {{"j", 1, "a", 4}}), 4); }

TEST(Ledger, NeverCountsAClaimAndItsPodTwice) {
  EXPECT_EQ(Used({OurPod("j", 1, "a", 4)}, {{"j", 1, "a", 4}}), 4);
  api::PodSnapshot bound = OurPod("j", 1, "a", 4);
  bound.gated = false;
  bound.node = "a";
  EXPECT_EQ(Used({bound}, {{"j", 1, "a", 4}}), 4);
}

TEST(Ledger, CountsGatedPodsWithoutAClaim) { EXPECT_EQ(Used({OurPod("j", 1, "a", 4)}, {}), 4); }

TEST(Ledger, CountsTerminatingPodsOfTheLastAttemptBesideTheNextOne) {
  api::PodSnapshot old_pod = OurPod("j", 1, "a", 4);
  old_pod.gated = false;
  old_pod.node = "a";
  old_pod.deleting = true;
  EXPECT_EQ(Used({old_pod}, {{"j", 2, "a", 4}}), 8);
  old_pod.phase = api::PodPhase::kFailed;
  EXPECT_EQ(Used({old_pod}, {{"j", 2, "a", 4}}), 4);
}

TEST(Ledger, CountsForeignPodsFromTheirBindingOn) {
  EXPECT_EQ(Used({ForeignPod("a", 2)}, {}), 2);
  api::PodSnapshot pending = ForeignPod("", 2);
  pending.pinned_node = "a";
  EXPECT_EQ(Used({pending}, {}), 0);
  api::PodSnapshot done = ForeignPod("a", 2);
  done.phase = api::PodPhase::kSucceeded;
  EXPECT_EQ(Used({done}, {}), 0);
}

TEST(Ledger, KnowsWhoHoldsWhat) {
  Yard yard = Yard::Build({MakeNode("a", 8)}, {OurPod("j", 1, "a", 4), ForeignPod("a", 1)}, {}, kRackOptions);
  EXPECT_EQ(yard.nodes()[0].used_by_job.at("j"), 4);
  EXPECT_EQ(yard.nodes()[0].free, 3);
}

TEST(Supply, GroupsEligibleNodesByProductAndSizeWhateverRunsThere) {
  api::NodeSnapshot cordoned = MakeNode("c", 8);
  cordoned.unschedulable = true;
  Yard yard = Yard::Build({MakeNode("a", 8), MakeNode("b", 8), cordoned, MakeNode("d", 4)}, {ForeignPod("a", 8)}, {},
                          kRackOptions);
  auto supply = yard.Supply();
  ASSERT_EQ(supply.size(), 2u);
  EXPECT_EQ(supply[0].product, "H100-SXM");
  EXPECT_EQ(supply[0].gpus_per_node, 4);
  EXPECT_EQ(supply[0].nodes, 1);
  EXPECT_EQ(supply[1].gpus_per_node, 8);
  EXPECT_EQ(supply[1].nodes, 2);
}

TEST(NaturalOrder, ComparesDigitsAsNumbers) {
  EXPECT_TRUE(NaturalLess("node-2", "node-10"));
  EXPECT_FALSE(NaturalLess("node-10", "node-2"));
  EXPECT_TRUE(NaturalLess("a9b", "a10a"));
  EXPECT_TRUE(NaturalLess("a", "a1"));
  EXPECT_FALSE(NaturalLess("a1", "a1"));
  EXPECT_NE(NaturalLess("a01", "a1"), NaturalLess("a1", "a01"));
}

}  // namespace
}  // namespace trainyard::placement
