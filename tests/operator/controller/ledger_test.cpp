#include "operator/controller/ledger.h"

#include <thread>

#include <gtest/gtest.h>

namespace trainyard::controller {
namespace {

class LedgerTest : public testing::Test {
 protected:
  LedgerTest() {
    auto node = std::make_shared<api::NodeSnapshot>();
    node->name = "a";
    node->ready = true;
    node->conditions["Ready"] = "True";
    node->labels = {{"nvidia.com/gpu.product", "NVIDIA-H100-80GB-HBM3"}};
    node->allocatable = {{api::kGpuResource, 8}};
    node_ = node;
    ledger_.SetNode(node_);
  }
  Ledger::View View() {
    return {ledger_,
            now_,
            [this](const std::string& name) { return name == "a" ? node_ : nullptr; },
            [](const std::string&) { return Result<api::PriorityClass>(api::PriorityClass()); },
            [](const std::string&) { return api::Exposure(); },
            [](const lifecycle::PathUser&) { return std::vector<lifecycle::PathNeighbour>(); }};
  }
  int64_t Free() {
    Ledger::View view = View();
    return view.Yard().Find("a")->free;
  }

  // A job that waits for `gpus` of the node.
  placement::WaitingGang Waits(const std::string& uid, int64_t gpus, int64_t priority = 0) {
    placement::WaitingGang gang;
    gang.uid = uid;
    gang.name = "default/" + uid;
    gang.priority = priority;
    gang.since = now_;
    gang.request.gpus = gang.request.per_node = gpus;
    gang.request.products = {"H100-SXM"};
    return gang;
  }
  placement::RunningGang Runs(const std::string& uid, int64_t gpus) {
    placement::RunningGang gang;
    gang.uid = uid;
    gang.name = "default/" + uid;
    gang.holds = {{uid, 1, "a", gpus}};
    gang.placed_at = gang.saved_at = now_;
    return gang;
  }

  const TimePoint now_{std::chrono::hours(500'000)};
  Ledger ledger_{placement::YardOptions()};
  Ledger::NodePtr node_;
};

TEST_F(LedgerTest, WhatAWriteUnderWayTakesIsTakenForAllOthers) {
  Ledger::View view = View();
  EXPECT_EQ(view.Yard().Find("a")->free, 8);
  view.Reserve("job", {{"job", 1, "a", 6}}, {});
  view.Release();
  EXPECT_EQ(Free(), 2);
  // An older version of the job that the watch brings meanwhile frees nothing.
  ledger_.SetJob("job", {}, {});
  EXPECT_EQ(Free(), 2);
  ledger_.Settle("job", {{"job", 1, "a", 6}}, {});
  EXPECT_EQ(Free(), 2);
  ledger_.SetJob("job", {}, {});
  EXPECT_EQ(Free(), 8);
}

TEST_F(LedgerTest, ARefusedWriteGivesBackWhatItReserved) {
  ledger_.SetJob("job", {{"job", 1, "a", 2}}, {});
  Ledger::View view = View();
  view.Reserve("job", {{"job", 2, "a", 4}}, {});
  view.Release();
  EXPECT_EQ(Free(), 2) << "the attempt that is there and the one that may come";
  ledger_.Settle("job", {{"job", 1, "a", 2}}, {});
  EXPECT_EQ(Free(), 6);
}

TEST_F(LedgerTest, ABookingThatIsBothSettledAndReservedCountsOnce) {
  ledger_.SetJob("job", {{"job", 1, "a", 3}}, {});
  Ledger::View view = View();
  view.Reserve("job", {{"job", 1, "a", 3}}, {});
  view.Release();
  EXPECT_EQ(Free(), 5);
}

TEST_F(LedgerTest, NobodyElseLooksWhileAViewDecides) {
  constexpr int kJobs = 16;
  std::atomic<int> placed{0};
  {
    std::vector<std::jthread> deciders;
    for (int i = 0; i < kJobs; ++i) {
      deciders.emplace_back([&, uid = "job-" + std::to_string(i)] {
        Ledger::View view = View();
        if (view.Yard().Find("a")->free < 2) return;
        view.Reserve(uid, {{uid, 1, "a", 2}}, {});
        ++placed;
      });
    }
  }
  EXPECT_EQ(placed, 4);
  EXPECT_EQ(Free(), 0);
}

TEST_F(LedgerTest, WhoAsksStandsInTheLineUntilTheViewEndsOrItsDecisionIsSettled) {
  {
    Ledger::View view = View();
    const placement::WaitingGang asks = Waits("big", 8);
    EXPECT_TRUE(view.Line(&asks).Find("big")->fits);
  }
  EXPECT_EQ(View().Line(nullptr).Find("big"), nullptr);
  ledger_.SetJob("small", {{"small", 1, "a", 1}}, {std::nullopt, Runs("small", 1)});
  Ledger::View view = View();
  const placement::WaitingGang asks = Waits("big", 8);
  EXPECT_FALSE(view.Line(&asks).Find("big")->fits);
  view.Reserve("big", {}, {Waits("big", 8), std::nullopt});
  view.Release();
  ledger_.Settle("big", {}, {Waits("big", 8), std::nullopt});
  EXPECT_EQ(View().Line(nullptr).HeldFor("").at("a"), 7);
}

TEST_F(LedgerTest, AJoinedLineIsTheLineThatIsFormed) {
  ledger_.SetJob("small", {{"small", 1, "a", 8}}, {std::nullopt, Runs("small", 8)});
  for (int i = 0; i < 40; ++i) {
    const std::string uid = "job-" + std::to_string(10 + i);
    Ledger::View view = View();
    const placement::WaitingGang asks = Waits(uid, 1 + i % 3);
    const placement::LineEntry* turn = view.Line(&asks).Find(uid);
    ASSERT_NE(turn, nullptr);
    EXPECT_EQ(turn->position, i + 1);
    EXPECT_FALSE(turn->fits);
    EXPECT_EQ(turn->ahead, i == 0 ? 0u : 1u);
    view.Reserve(uid, {}, {asks, std::nullopt});
  }
  EXPECT_EQ(ledger_.InLine().size(), 40u);
  // What is freed goes to the first, and the others keep their order.
  ledger_.SetJob("small", {}, {});
  const Ledger::Snapshot look = ledger_.Look(now_);
  EXPECT_EQ(look.line.entries.front().uid, "job-10");
  EXPECT_TRUE(look.line.entries.front().fits);
  int64_t kept = 0;
  for (const placement::LineEntry& entry : look.line.entries) kept += entry.fits ? entry.gpus : 0;
  EXPECT_LE(kept, 8);
  EXPECT_GE(kept, 7);
}

TEST_F(LedgerTest, WhoStartsWhereItWasDueLeavesTheOthersWhereTheyAre) {
  for (const char* uid : {"one", "two"}) {
    ledger_.SetJob(uid, {}, {Waits(uid, 4), std::nullopt});
  }
  Ledger::View view = View();
  ASSERT_TRUE(view.Line(nullptr).Find("two")->fits);
  EXPECT_FALSE(view.Reserve("one", {{"one", 1, "a", 4}}, {std::nullopt, Runs("one", 4)}));
  const placement::WaitingGang three = Waits("what-comes-last", 4);
  const placement::Line& line = view.Line(&three);
  EXPECT_EQ(line.Find("one"), nullptr);
  EXPECT_TRUE(line.Find("two")->fits);
  EXPECT_FALSE(line.Find("what-comes-last")->fits) << "two keeps the rest";
}

TEST_F(LedgerTest, AStopThatIsDecidedCountsBeforeItIsWritten) {
  ledger_.SetJob("low-1", {{"low-1", 1, "a", 4}}, {std::nullopt, Runs("low-1", 4)});
  ledger_.SetJob("low-2", {{"low-2", 1, "a", 4}}, {std::nullopt, Runs("low-2", 4)});
  Ledger::View view = View();
  const placement::WaitingGang asks = Waits("urgent", 4, 100);
  const std::vector<std::string> victims = view.Line(&asks).Find("urgent")->victims;
  ASSERT_EQ(victims.size(), 1u);
  EXPECT_TRUE(view.MayBePreempted(victims[0]));
  view.Reserve("urgent", {}, {asks, std::nullopt});
  placement::RunningGang stopping = Runs(victims[0], 4);
  stopping.stopping = true;
  EXPECT_EQ(view.Line(nullptr).PreemptedBy(victims[0])->uid, "urgent");
  view.Reserve(victims[0], stopping.holds, {std::nullopt, stopping});
  EXPECT_EQ(view.Line(nullptr).PreemptedBy("low-1"), nullptr);
  EXPECT_EQ(view.Line(nullptr).PreemptedBy("low-2"), nullptr);
  EXPECT_EQ(view.Line(nullptr).Find("urgent")->leaving, victims);
}

// Else each stop would have all the others chosen anew.
TEST_F(LedgerTest, VictimsStopOneAfterTheOtherInOneLine) {
  for (int i = 0; i < 8; ++i) {
    const std::string uid = "low-" + std::to_string(i);
    ledger_.SetJob(uid, {{uid, 1, "a", 1}}, {std::nullopt, Runs(uid, 1)});
  }
  ledger_.SetJob("urgent", {}, {Waits("urgent", 6, 100), std::nullopt});
  const std::vector<std::string> victims = ledger_.Look(now_).line.Find("urgent")->victims;
  ASSERT_EQ(victims.size(), 6u);
  std::vector<std::string> left = victims;
  while (!left.empty()) {
    ASSERT_TRUE(View().MayBePreempted(left.front()));
    placement::RunningGang stopping = Runs(left.front(), 1);
    stopping.stopping = true;
    stopping.expected_end = now_ + std::chrono::minutes(2);
    ledger_.SetJob(left.front(), stopping.holds, {std::nullopt, stopping});
    left.erase(left.begin());
    const placement::Line line = ledger_.Look(now_ + std::chrono::seconds(1)).line;
    EXPECT_EQ(line.formed_at, now_);
    EXPECT_EQ(line.Find("urgent")->victims, left);
    EXPECT_EQ(line.Find("urgent")->leaving.size(), victims.size() - left.size());
    EXPECT_EQ(line.until, now_ + std::chrono::minutes(2));
  }
  EXPECT_FALSE(View().MayBePreempted("low-0"));
  // Formed anew it says the same.
  const placement::Line anew = ledger_.Look(now_ - std::chrono::seconds(1)).line;
  EXPECT_EQ(anew.formed_at, now_ - std::chrono::seconds(1));
  EXPECT_EQ(std::set(anew.Find("urgent")->leaving.begin(), anew.Find("urgent")->leaving.end()),
            std::set(victims.begin(), victims.end()));
  EXPECT_TRUE(anew.Find("urgent")->victims.empty());
}

TEST_F(LedgerTest, WhatIsGivenBackIsSeenByThoseWhoWait) {
  ledger_.SetJob("small", {{"small", 1, "a", 8}}, {std::nullopt, Runs("small", 8)});
  ledger_.SetJob("big", {}, {Waits("big", 8), std::nullopt});
  ASSERT_FALSE(View().Line(nullptr).Find("big")->fits);
  // While the end of `small` is being written it holds what it has.
  Ledger::View view = View();
  EXPECT_FALSE(view.Reserve("small", {}, {std::nullopt, Runs("small", 8)}));
  view.Release();
  EXPECT_FALSE(View().Line(nullptr).Find("big")->fits);
  EXPECT_TRUE(ledger_.Settle("small", {}, {})) << "those who wait are to be woken";
  EXPECT_TRUE(View().Line(nullptr).Find("big")->fits);
  EXPECT_FALSE(ledger_.Settle("small", {}, {})) << "nothing is new";
}

TEST_F(LedgerTest, NobodyStopsForAPlaceThatIsTaken) {
  auto other = std::make_shared<api::NodeSnapshot>(*node_);
  other->name = "b";
  ledger_.SetNode(other);
  placement::WaitingGang urgent = Waits("urgent", 16, 100);
  urgent.request.per_node = 8;
  ledger_.SetJob("low", {{"low", 1, "a", 8}}, {std::nullopt, Runs("low", 8)});
  ledger_.SetJob("urgent", {}, {urgent, std::nullopt});
  ASSERT_NE(ledger_.Look(now_).line.PreemptedBy("low"), nullptr);
  ledger_.ChangePod(nullptr, std::make_shared<const placement::PodUse>(placement::PodUse{"b", "", 0, 8, {}}));
  EXPECT_EQ(ledger_.Look(now_ + std::chrono::seconds(1)).line.PreemptedBy("low"), nullptr);
}

TEST_F(LedgerTest, WhoWantsLessWakesThoseBehind) {
  ledger_.SetJob("small", {{"small", 1, "a", 1}}, {std::nullopt, Runs("small", 1)});
  ledger_.SetJob("big", {}, {Waits("big", 8), std::nullopt});
  placement::WaitingGang behind = Waits("z-behind", 4);
  ledger_.SetJob("z-behind", {}, {behind, std::nullopt});
  ASSERT_FALSE(ledger_.Look(now_).line.Find("z-behind")->fits);
  EXPECT_FALSE(ledger_.SetJob("z-behind", {}, {behind, std::nullopt})) << "nothing is new";
  EXPECT_TRUE(ledger_.SetJob("big", {}, {Waits("big", 2), std::nullopt}));
  EXPECT_TRUE(ledger_.Look(now_).line.Find("z-behind")->fits);
}

TEST_F(LedgerTest, AnEndThatMovedALittleIsNotOverdue) {
  placement::RunningGang runs = Runs("small", 8);
  runs.expected_end = now_ + std::chrono::minutes(10);
  ledger_.SetJob("small", runs.holds, {std::nullopt, runs});
  ledger_.SetJob("big", {}, {Waits("big", 8), std::nullopt});
  ASSERT_EQ(ledger_.Look(now_).line.Find("big")->expected_start, runs.expected_end);
  runs.expected_end = now_ + std::chrono::minutes(11);
  ledger_.SetJob("small", runs.holds, {std::nullopt, runs});
  const placement::Line line = ledger_.Look(now_ + std::chrono::minutes(10)).line;
  EXPECT_EQ(line.formed_at, now_ + std::chrono::minutes(10));
  EXPECT_EQ(line.Find("big")->expected_start, runs.expected_end);
}

TEST_F(LedgerTest, ARefusedClaimIsSeenByThoseWhoWait) {
  ledger_.SetJob("big", {}, {Waits("big", 8), std::nullopt});
  Ledger::View view = View();
  view.Reserve("taker", {{"taker", 1, "a", 4}}, {std::nullopt, Runs("taker", 4)});
  EXPECT_FALSE(view.Line(nullptr).Find("big")->fits);
  view.Release();
  EXPECT_TRUE(ledger_.Settle("taker", {}, {}));
  EXPECT_TRUE(View().Line(nullptr).Find("big")->fits);
}

TEST_F(LedgerTest, ALittleProgressDoesNotFormTheLineAnew) {
  placement::RunningGang runs = Runs("small", 8);
  runs.expected_end = now_ + std::chrono::hours(10);
  ledger_.SetJob("small", runs.holds, {std::nullopt, runs});
  ledger_.SetJob("big", {}, {Waits("big", 8), std::nullopt});
  const auto formed = [this](std::chrono::seconds after) { return ledger_.Look(now_ + after).line.formed_at; };
  ASSERT_EQ(formed(std::chrono::seconds(0)), now_);
  // A checkpoint, and an end that moves a little with each step.
  for (int i = 1; i <= 5; ++i) {
    runs.saved_at = now_ + std::chrono::seconds(i);
    runs.expected_end = now_ + std::chrono::hours(10) + std::chrono::minutes(10 * i);
    ledger_.SetJob("small", runs.holds, {std::nullopt, runs});
    EXPECT_EQ(formed(std::chrono::seconds(i)), now_) << i;
  }
  // In the end it has moved far.
  runs.expected_end = now_ + std::chrono::minutes(11 * 60 + 10);
  ledger_.SetJob("small", runs.holds, {std::nullopt, runs});
  const Ledger::Snapshot look = ledger_.Look(now_ + std::chrono::seconds(9));
  EXPECT_EQ(look.line.formed_at, now_ + std::chrono::seconds(9));
  EXPECT_EQ(look.line.Find("big")->expected_start, runs.expected_end);
  // That it stops is news, whatever the time.
  runs.stopping = true;
  ledger_.SetJob("small", runs.holds, {std::nullopt, runs});
  EXPECT_EQ(formed(std::chrono::seconds(10)), now_ + std::chrono::seconds(10));
}

TEST_F(LedgerTest, CountsGpusByProductAndFindsNodes) {
  const auto use = std::make_shared<const placement::PodUse>(placement::PodUse{"a", "", 0, 3, {}});
  ledger_.ChangePod(nullptr, use);
  const placement::Census census = ledger_.Look(TimePoint()).census;
  ASSERT_EQ(census.products.size(), 1u);
  EXPECT_EQ(census.products[0].product, "H100-SXM");
  EXPECT_EQ(census.products[0].tally.used, 3);
  EXPECT_EQ(census.products[0].tally.free, 5);
  Ledger::View view = View();
  EXPECT_EQ(view.FindNode("a"), node_.get());
  EXPECT_EQ(view.FindNode("b"), nullptr);
  ledger_.RemoveNode("a");
  EXPECT_TRUE(ledger_.Look(TimePoint()).census.products.empty());
}

}  // namespace
}  // namespace trainyard::controller
