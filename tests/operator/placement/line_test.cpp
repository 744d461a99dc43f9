#include "operator/placement/line.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/operator/placement/line_fixture.h"

namespace trainyard::placement {
namespace {

using std::chrono::hours;
using std::chrono::minutes;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::UnorderedElementsAre;

std::vector<std::string> Order(const Line& line) {
  std::vector<std::string> order;
  for (const LineEntry& entry : line.entries) order.push_back(entry.uid);
  return order;
}

TEST(Line, StandsByPriorityThenAgeThenUid) {
  Scene scene(1);
  scene.Waits("young", 8, 8);
  scene.Waits("late", 8, 8).since = scene.now;
  scene.Waits("urgent", 8, 8, 100).since = scene.now;
  scene.Waits("b", 8, 8).since = scene.now - hours(200);
  scene.Waits("a", 8, 8).since = scene.now - hours(200);
  scene.Waits("backs-off", 8, 8, 1000).not_before = scene.now + minutes(1);
  const Line line = scene.Form();
  EXPECT_THAT(Order(line), ElementsAre("urgent", "a", "b", "young", "late"));
  EXPECT_EQ(line.entries[3].position, 4);
  EXPECT_EQ(line.until, scene.now + minutes(1));
}

TEST(Line, WhoFitsKeepsItsPlaceUntilItHasClaimed) {
  Scene scene(2);
  scene.Waits("first", 8, 8);
  scene.Waits("second", 8, 8);
  scene.Waits("third", 8, 8);
  const Line line = scene.Form();
  EXPECT_TRUE(line.Find("first")->fits);
  EXPECT_TRUE(line.Find("second")->fits);
  EXPECT_FALSE(line.Find("third")->fits);
  EXPECT_EQ(Sum(line.HeldFor("second")), 8);
  EXPECT_EQ(Sum(line.HeldFor("third")), 16);
  EXPECT_NE(line.Find("first")->placement->nodes, line.Find("second")->placement->nodes);
}

TEST(Line, TheHeadKeepsWhatIsFreeAndOthersTakeTheRest) {
  Scene scene(3);
  scene.Runs("a", {{"n0", 8}}).expected_end = scene.now + hours(3);
  scene.Runs("b", {{"n2", 4}}).expected_end = scene.now + hours(5);
  scene.Waits("big", 16, 8);
  scene.Waits("small", 2, 2);
  scene.Waits("medium", 8, 8);
  const Line line = scene.Form();
  const LineEntry& big = *line.Find("big");
  EXPECT_FALSE(big.fits);
  EXPECT_EQ(big.expected_start, scene.now + hours(3));
  EXPECT_THAT(big.placement->nodes, UnorderedElementsAre("n0", "n1"));
  EXPECT_THAT(big.reserved, ElementsAre(std::pair("n1", 8)));
  EXPECT_THAT(line.Find("small")->placement->nodes, ElementsAre("n2"));
  EXPECT_FALSE(line.Find("medium")->fits);
  EXPECT_EQ(WhyWaits(line, *line.Find("medium"), scene.now), "behind default/big (16 GPUs, priority 0)");
  EXPECT_EQ(
      WhyWaits(line, big, scene.now),
      "held by default/a (8 GPUs, about 3 h left), default/b (4 GPUs, about 5 h left); expected to start in about "
      "3 h");
}

TEST(Line, AGangThatEndsInTimeMayUseWhatIsReserved) {
  Scene scene(2);
  scene.Runs("a", {{"n0", 8}}).expected_end = scene.now + hours(3);
  scene.Waits("big", 16, 8);
  scene.Waits("long", 8, 8).estimate = hours(4);
  scene.Waits("short", 8, 8).estimate = hours(2);
  const Line line = scene.Form();
  EXPECT_FALSE(line.Find("long")->fits);
  EXPECT_TRUE(line.Find("short")->fits);
  EXPECT_THAT(line.HeldFor("short"), IsEmpty());
  EXPECT_EQ(Sum(line.HeldFor("long")), 8);
}

TEST(Line, NobodyUsesAReservationOfWhichNobodyKnowsWhenItBegins) {
  Scene scene(2);
  scene.Runs("a", {{"n0", 8}});
  scene.Runs("late", {}).expected_end = scene.now - hours(1);
  scene.Waits("big", 16, 8);
  scene.Waits("short", 1, 1).estimate = minutes(1);
  const Line line = scene.Form();
  EXPECT_FALSE(line.Find("big")->expected_start);
  EXPECT_EQ(Sum(line.Find("big")->reserved), 8);
  EXPECT_FALSE(line.Find("short")->fits);
}

TEST(Line, EachProductHasAHeadOfItsOwn) {
  Scene scene(1);
  scene.Node("x", 8, "r9", "NVIDIA-A100-SXM4-80GB");
  scene.Runs("a", {{"n0", 4}});
  scene.Runs("b", {{"x", 4}});
  scene.Waits("big", 8, 8);
  scene.Waits("big-a100", 8, 8).request.products = {"A100-80GB-SXM"};
  const Line line = scene.Form();
  EXPECT_EQ(line.Find("big")->reserved, (std::map<std::string, int64_t>{{"n0", 4}}));
  EXPECT_EQ(line.Find("big-a100")->reserved, (std::map<std::string, int64_t>{{"x", 4}}));
}

TEST(Line, WhatCouldNeverFitReservesNothing) {
  Scene scene(2);
  scene.Runs("a", {{"n0", 8}});
  scene.Waits("huge", 24, 8);
  scene.Waits("big", 16, 8);
  const Line line = scene.Form();
  EXPECT_TRUE(line.Find("huge")->never);
  EXPECT_THAT(line.Find("huge")->reserved, IsEmpty());
  EXPECT_EQ(WhyWaits(line, *line.Find("huge"), scene.now), "it would not fit if every job ended");
  EXPECT_EQ(Sum(line.Find("big")->reserved), 8);
}

TEST(Line, PodsOfOthersAreCounted) {
  Scene scene(2);
  scene.pods.push_back(ForeignPod("n0", 3));
  scene.Runs("a", {{"n1", 8}});
  scene.Waits("big", 8, 8);
  const Line line = scene.Form();
  EXPECT_THAT(
      WhyWaits(line, line.entries[0], scene.now),
      testing::AllOf(HasSubstr("held by default/a (8 GPUs)"), HasSubstr("3 GPUs held by pods of no TrainingJob")));
}

TEST(Line, TheCheapestSingleVictimIsTaken) {
  Scene scene(3);
  scene.Runs("dear", {{"n0", 8}}).saved_at = scene.now - hours(9);
  scene.Runs("cheap", {{"n1", 8}}).saved_at = scene.now - minutes(5);
  scene.Runs("half", {{"n2", 4}}).saved_at = scene.now;
  scene.Runs("other-half", {{"n2", 4}}).saved_at = scene.now;
  scene.Waits("urgent", 8, 8, 100);
  const Line line = scene.Form();
  EXPECT_THAT(line.entries[0].victims, ElementsAre("cheap"));
  EXPECT_EQ(line.PreemptedBy("cheap")->uid, "urgent");
  EXPECT_EQ(line.PreemptedBy("dear"), nullptr);
  EXPECT_THAT(WhyWaits(line, line.entries[0], scene.now), HasSubstr("to be stopped for it: default/cheap (8 GPUs)"));
}

TEST(Line, TheLeastImportantGoBeforeFewerOfMoreImportance) {
  Scene scene(2);
  scene.Runs("middle", {{"n0", 8}}, 50);
  scene.Runs("low-1", {{"n1", 4}}, 0);
  scene.Runs("low-2", {{"n1", 4}}, 0);
  scene.Waits("urgent", 8, 8, 100);
  EXPECT_THAT(scene.Form().entries[0].victims, UnorderedElementsAre("low-1", "low-2"));
}

TEST(Line, NobodyStopsWithoutNeedOrForNothing) {
  Scene scene(2);
  scene.Runs("equal", {{"n0", 4}}, 100);
  scene.Runs("low", {{"n0", 4}}, 0);
  scene.Runs("other", {{"n1", 1}}, 100);
  scene.Waits("urgent", 8, 8, 100);
  EXPECT_THAT(scene.Form().entries[0].victims, IsEmpty()) << "stopping `low` would not make room";
  scene.waiting[0].request.gpus = scene.waiting[0].request.per_node = 7;
  EXPECT_TRUE(scene.Form().entries[0].fits);
  EXPECT_THAT(scene.Form().stops, IsEmpty());
  scene.waiting[0].request.gpus = scene.waiting[0].request.per_node = 8;
  scene.running[0].priority = 0;
  EXPECT_THAT(scene.Form().entries[0].victims, UnorderedElementsAre("equal", "low"));
  scene.waiting[0].may_preempt = false;
  EXPECT_THAT(scene.Form().entries[0].victims, IsEmpty()) << "preemptionPolicy: Never";
}

TEST(Line, WhoStopsAlreadyIsEnough) {
  Scene scene(2);
  scene.Runs("stopping", {{"n0", 8}}).stopping = true;
  scene.Runs("low", {{"n1", 8}});
  scene.Waits("urgent", 8, 8, 100);
  scene.Waits("next", 8, 8, 90);
  const Line line = scene.Form();
  EXPECT_THAT(line.entries[0].victims, IsEmpty());
  EXPECT_THAT(line.entries[0].leaving, ElementsAre("stopping"));
  EXPECT_THAT(WhyWaits(line, line.entries[0], scene.now),
              HasSubstr("making room: default/stopping (8 GPUs, stopping)"));
}

TEST(Line, AGangThatWantsOneRackStopsThoseOfOneRack) {
  Scene scene(8);
  for (int i = 0; i < 8; ++i) {
    scene.Runs("job-" + std::to_string(i), {{"n" + std::to_string(i), 8}}, i == 0 ? 50 : 0);
  }
  WaitingGang& gang = scene.Waits("urgent", 32, 8, 100);
  gang.request.level = "rack";
  gang.request.level_required = true;
  EXPECT_THAT(scene.Form().entries[0].victims, UnorderedElementsAre("job-4", "job-5", "job-6", "job-7"));
}

TEST(Line, GangsThatShareNoNodesDoNotWaitForEachOther) {
  Scene scene(4);
  for (int i = 0; i < 4; ++i) {
    const std::string node = "n" + std::to_string(i);
    scene.snapshots[static_cast<size_t>(i)].labels["pool"] = i < 2 ? "a" : "b";
    scene.Runs("low-" + node, {{node, 4}}).expected_end = scene.now + hours(1 + i);
  }
  scene.Waits("in-a", 16, 8).request.constraints.node_selector["pool"] = "a";
  scene.Waits("in-b", 8, 8, -1).request.constraints.node_selector["pool"] = "b";
  scene.Waits("anywhere", 8, 8, -2);
  scene.Waits("also-in-b", 8, 8, -3).request.constraints.node_selector["pool"] = "b";
  const Line line = scene.Form();
  EXPECT_THAT(line.Find("in-a")->reserved, ElementsAre(std::pair("n0", 4), std::pair("n1", 4)));
  EXPECT_THAT(line.Find("in-b")->reserved, ElementsAre(std::pair("n2", 4)));
  EXPECT_EQ(line.Find("in-b")->expected_start, scene.now + hours(3));
  EXPECT_EQ(line.Find("anywhere")->ahead, 1u);
  EXPECT_EQ(line.Find("also-in-b")->ahead, 2u) << "n2 is where in-b is to start";
  EXPECT_THAT(line.heads, ElementsAre(0u, 1u));
}

TEST(Line, EachPoolStopsItsOwn) {
  Scene scene(2);
  for (int i = 0; i < 2; ++i) {
    scene.snapshots[static_cast<size_t>(i)].labels["pool"] = i == 0 ? "a" : "b";
    scene.Runs("low-" + std::to_string(i), {{"n" + std::to_string(i), 8}});
  }
  scene.Waits("in-a", 8, 8, 20).request.constraints.node_selector["pool"] = "a";
  scene.Waits("in-b", 8, 8, 10).request.constraints.node_selector["pool"] = "b";
  const Line line = scene.Form();
  EXPECT_THAT(line.Find("in-a")->victims, ElementsAre("low-0"));
  EXPECT_THAT(line.Find("in-b")->victims, ElementsAre("low-1"));
}

TEST(Line, SoManyHeadsAndNoMore) {
  constexpr int kPools = 20;
  Scene scene(kPools);
  for (int i = 0; i < kPools; ++i) {
    const std::string node = "n" + std::to_string(i);
    scene.snapshots[static_cast<size_t>(i)].labels["pool"] = node;
    scene.Runs("r-" + node, {{node, 4}});
    scene.Waits("w-" + node, 8, 8).request.constraints.node_selector["pool"] = node;
  }
  const Line line = scene.Form();
  EXPECT_EQ(line.heads.size(), 16u);
  EXPECT_EQ(line.entries.back().ahead, 1u);
  EXPECT_THAT(line.entries.back().reserved, IsEmpty());
}

TEST(Line, AStopThatHangsIsNotCountedOn) {
  Scene scene(2);
  RunningGang& hung = scene.Runs("hung", {{"n0", 8}});
  hung.stopping = true;
  hung.preemptible = false;
  hung.expected_end = scene.now + minutes(1);
  scene.Runs("low", {{"n1", 8}}).expected_end = scene.now + hours(5);
  scene.Waits("urgent", 8, 8, 100);
  Line line = scene.Form();
  EXPECT_THAT(line.entries[0].victims, IsEmpty()) << "it is expected to be gone in a minute";
  EXPECT_TRUE(line.entries[0].making_room);
  EXPECT_EQ(line.until, scene.now + minutes(1)) << "then somebody has to look again";

  scene.running[0].expected_end = scene.now;
  line = scene.Form();
  EXPECT_THAT(line.entries[0].victims, ElementsAre("low"));
  EXPECT_THAT(line.entries[0].leaving, IsEmpty());

  scene.waiting[0].may_preempt = false;
  line = scene.Form();
  EXPECT_THAT(line.entries[0].placement->nodes, ElementsAre("n1")) << "the one whose end is known";
  EXPECT_EQ(line.entries[0].expected_start, scene.now + hours(5));
  EXPECT_FALSE(line.entries[0].making_room);
  EXPECT_THAT(WhyWaits(line, line.entries[0], scene.now), HasSubstr("default/hung (8 GPUs, does not stop in time)"));
}

TEST(Line, OneThatStopsForAnotherReasonIsNamedBesideThoseThatRunOn) {
  Scene scene(5);
  for (int i = 0; i < 4; ++i) {
    const std::string n = std::to_string(i);
    scene.Runs("runs-" + n, {{"n" + n, 8}}).expected_end = scene.now + hours(3 + i);
  }
  RunningGang& leaves = scene.Runs("leaves", {{"n4", 4}});
  leaves.stopping = true;
  leaves.expected_end = scene.now + minutes(2);
  scene.Waits("head", 16, 8);
  const Line line = scene.Form();
  EXPECT_FALSE(line.entries[0].making_room);
  const std::string words = WhyWaits(line, line.entries[0], scene.now);
  EXPECT_THAT(words, HasSubstr("being stopped: default/leaves (4 GPUs, stopping)"));
  EXPECT_THAT(words, HasSubstr("default/runs-0 (8 GPUs, about 3 h left)"));
  EXPECT_THAT(words, HasSubstr("expected to start in about 3 h"));
}

TEST(Line, HoldersAreThoseOnNodesThatTheGangMayUse) {
  Scene scene(2);
  scene.snapshots[0].labels["pool"] = "a";
  scene.Runs("in-the-way", {{"n0", 4}});
  scene.Runs("elsewhere", {{"n1", 8}});
  scene.pods.push_back(ForeignPod("n1", 0));
  scene.Waits("head", 8, 8).request.constraints.node_selector["pool"] = "a";
  EXPECT_EQ(WhyWaits(scene.Form(), scene.Form().entries[0], scene.now), "held by default/in-the-way (4 GPUs)");
}

TEST(Line, AKeptPlaceIsStillOneRack) {
  Scene scene(0);
  for (const auto& [name, rack] : {std::pair("x0", "r0"), {"x1", "r0"}, {"x2", "r2"}, {"x3", "r2"}}) {
    scene.Node(name, 8, rack);
  }
  WaitingGang& gang = scene.Waits("gang", 16, 8);
  gang.request.level = "rack";
  gang.request.level_required = true;
  const Line before = scene.Form();
  const std::string moved = before.Find("gang")->placement->nodes[1];
  for (api::NodeSnapshot& node : scene.snapshots) {
    if (node.name == moved) node.labels["rack"] = "r9";
  }
  const Yard yard = scene.Build();
  EXPECT_FALSE(StillFits(yard, before, *before.Find("gang")));
  const Line after = FormLine(yard, scene.waiting, scene.running, scene.now, &before);
  const std::vector<std::string>& nodes = after.Find("gang")->placement->nodes;
  EXPECT_EQ(yard.Find(nodes[0])->path, yard.Find(nodes[1])->path);
}

// Its attempt has just ended, and the books still have it: in that line it is no running gang.
TEST(Line, WhatOneThatResizesGivesBackIsCountedOn) {
  Scene scene(3);
  scene.Runs("resizes", {{"n0", 8}, {"n1", 8}});
  const Yard yard = scene.Build();
  scene.running.clear();
  scene.Waits("ahead", 24, 8, 10);
  scene.Waits("resizes", 24, 8).request.job_uid = "resizes";
  const Line line = FormLine(yard, scene.waiting, scene.running, scene.now);
  EXPECT_FALSE(line.Find("ahead")->never);
  EXPECT_EQ(line.Find("ahead")->reserved, (std::map<std::string, int64_t>{{"n2", 8}}));
  EXPECT_FALSE(line.Find("resizes")->fits);
}

TEST(Line, ThoseThatRanBeforeAreTriedOnceAsWell) {
  Scene scene(1);
  scene.Node("x", 8, "r9", "NVIDIA-A100-SXM4-80GB");
  scene.Runs("big", {{"n0", 8}}, 100);
  for (int i = 0; i < 200; ++i) {
    WaitingGang& gang = scene.Waits("stopped-" + std::to_string(i), 1, 1);
    gang.request.job_uid = gang.uid;
  }
  scene.Waits("other-pool", 8, 8).request.products = {"A100-80GB-SXM"};
  const Line line = scene.Form();
  EXPECT_FALSE(line.entries[199].untried);
  EXPECT_TRUE(line.Find("other-pool")->fits);
}

// Else the first victim takes its place back, and is stopped again when the node is there again.
TEST(Line, ANodeThatIsAwayForAMomentGivesAwayNothing) {
  Scene scene(2);
  scene.Waits("urgent", 16, 8, 100);
  scene.Waits("first-victim", 8, 8, 0).request.job_uid = "first-victim";
  scene.Runs("last-victim", {{"n1", 8}}).stopping = true;
  scene.running[0].expected_end = scene.now + minutes(5);
  const Line before = scene.Form();
  ASSERT_TRUE(before.Find("urgent")->making_room);
  scene.snapshots[1].ready = false;
  const Yard yard = scene.Build();
  Line line = FormLine(yard, scene.waiting, scene.running, scene.now, &before);
  EXPECT_FALSE(line.Find("urgent")->never);
  EXPECT_TRUE(line.Find("urgent")->making_room);
  EXPECT_FALSE(line.Find("first-victim")->fits);
  EXPECT_EQ(line.until, scene.now + minutes(2));
  EXPECT_THAT(WhyWaits(line, *line.Find("urgent"), scene.now), HasSubstr("a node that it counts on is not there now"));
  // Formed anew meanwhile it counts from then, and in the end the others have waited long enough.
  line = FormLine(yard, scene.waiting, scene.running, scene.now + minutes(1), &line);
  EXPECT_EQ(line.Find("urgent")->lost_since, scene.now);
  line = FormLine(yard, scene.waiting, scene.running, scene.now + minutes(2), &line);
  EXPECT_TRUE(line.Find("urgent")->never);
  EXPECT_TRUE(line.Find("first-victim")->fits);
}

TEST(Line, ANodeThatIsAwayForAMomentStopsNobodyElse) {
  Scene scene(3);
  scene.Waits("urgent", 8, 8, 100);
  scene.Runs("victim", {{"n0", 8}}).stopping = true;
  scene.running[0].expected_end = scene.now + minutes(5);
  scene.Runs("other", {{"n1", 8}});
  scene.Runs("important", {{"n2", 8}}, 100);
  const Line before = scene.Form();
  ASSERT_THAT(before.entries[0].victims, IsEmpty());
  scene.snapshots[0].unschedulable = true;
  const Yard yard = scene.Build();
  Line line = FormLine(yard, scene.waiting, scene.running, scene.now + minutes(1), &before);
  EXPECT_THAT(line.stops, IsEmpty());
  line = FormLine(yard, scene.waiting, scene.running, scene.now + minutes(3), &line);
  EXPECT_THAT(line.entries[0].victims, ElementsAre("other")) << "it is away for good";
}

TEST(Line, AHeadThatMayStopNobodyLetsThoseBehindItStopOthersElsewhere) {
  Scene scene(3);
  scene.Runs("soon", {{"n0", 8}}).expected_end = scene.now + hours(1);
  scene.Runs("low-1", {{"n1", 8}}).expected_end = scene.now + hours(5);
  scene.Runs("low-2", {{"n2", 8}}).expected_end = scene.now + hours(6);
  scene.Waits("polite", 8, 8, 1000).may_preempt = false;
  scene.Waits("urgent", 8, 8, 100);
  Line line = scene.Form();
  EXPECT_THAT(line.Find("polite")->placement->nodes, ElementsAre("n0"));
  ASSERT_EQ(line.Find("urgent")->victims.size(), 1u);
  EXPECT_NE(line.Find("urgent")->victims[0], "soon") << "that is where the head is to start";
  // Of one that wants all there is, nobody knows whether it can start at all.
  scene.waiting[0].request.gpus = 24;
  EXPECT_THAT(scene.Form().stops, IsEmpty());
  scene.waiting[0].failed_start = true;
  EXPECT_EQ(scene.Form().Find("urgent")->victims.size(), 1u);
}

TEST(Line, ASmallerSizeIsJudgedByHowLongItRuns) {
  Scene scene(2);
  scene.Runs("a", {{"n0", 8}}).expected_end = scene.now + hours(3);
  scene.Waits("big", 16, 8);
  scene.Waits("elastic", 8, 8).estimate = hours(2);
  const Line line = scene.Form();
  EXPECT_THAT(line.HeldFor("elastic"), IsEmpty());
  EXPECT_THAT(line.HeldFor("elastic", hours(2)), IsEmpty());
  EXPECT_EQ(Sum(line.HeldFor("elastic", hours(4))), 8) << "on half the GPUs it would not give them back in time";
  EXPECT_EQ(Sum(line.HeldFor("elastic", std::nullopt)), 8);
}

TEST(Line, NobodyStopsForOneThatWasNotTried) {
  Scene scene(1);
  scene.Runs("low", {{"n0", 4}});
  constexpr int kTried = 128;
  for (int i = 0; i <= kTried; ++i) {
    WaitingGang& gang = scene.Waits("w" + std::to_string(i), 4, 4, 10);
    gang.request.pod_resources["cpu"] = i;  // no two ask for the same
    gang.request.constraints.node_selector["nobody"] = i < kTried ? "has" : "";
  }
  scene.waiting.back().request.constraints.node_selector.clear();
  const Line line = scene.Form();
  EXPECT_TRUE(line.entries.front().never);
  EXPECT_FALSE(line.entries[kTried - 1].untried);
  EXPECT_TRUE(line.entries[kTried].untried);
  EXPECT_THAT(line.stops, IsEmpty());
}

TEST(Line, WhoFittedKeepsHisPlaceWhenTheLineIsFormedAgain) {
  Scene scene(4);
  scene.Waits("first", 4, 4);
  const Line before = scene.Form();
  const std::vector<std::string> place = before.Find("first")->placement->nodes;
  // Another node would be the better fit now.
  const std::string other = place[0] == "n0" ? "n1" : "n0";
  scene.Runs("a", {{other, 4}});
  const Yard yard = scene.Build();
  EXPECT_EQ(FormLine(yard, scene.waiting, scene.running, scene.now, &before).Find("first")->placement->nodes, place);
  EXPECT_EQ(FormLine(yard, scene.waiting, scene.running, scene.now).Find("first")->placement->nodes,
            std::vector<std::string>{other});
  // Until somebody is there.
  scene.Runs("b", {{place[0], 8}});
  EXPECT_NE(FormLine(scene.Build(), scene.waiting, scene.running, scene.now, &before).Find("first")->placement->nodes,
            place);
}

TEST(Line, ThousandsThatAskForTheSameAreTriedOnce) {
  Scene scene(500);
  for (int i = 0; i < 500; ++i) {
    for (int k = 0; k < 8; ++k) {
      scene.Runs("r" + std::to_string(8 * i + k), {{"n" + std::to_string(i), 1}});
    }
  }
  for (int i = 0; i < 4000; ++i) scene.Waits("w" + std::to_string(i), 1, 1);
  const Line line = scene.Form();
  EXPECT_EQ(line.entries.size(), 4000u);
  EXPECT_LE(line.refused.size(), 1u);
  EXPECT_EQ(line.heads.size(), 1u);
}

}  // namespace
}  // namespace trainyard::placement
