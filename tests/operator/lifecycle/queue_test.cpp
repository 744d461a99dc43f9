// The queue as one job sees it: for whom others stop and for whom not, who waits for what, and what is told of it when.
#include <gmock/gmock.h>

#include "operator/api/json.h"
#include "tests/operator/lifecycle/scenario.h"
#include "trainer/contract/contract.h"

namespace trainyard::lifecycle {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::UnorderedElementsAre;

// A job of high priority among others.
class Queue : public testing::Test {
 protected:
  Queue() {
    s_.in.priority_classes = {{.name = "high", .value = 100}};
    s_.in.job.spec.priority_class_name = "high";
    s_.in.job.spec.gpus.count = 4;
  }
  placement::RunningGang& Runs(const std::string& uid, const std::string& node, int64_t gpus) {
    placement::RunningGang& gang = s_.in.running.emplace_back();
    gang.uid = uid;
    gang.name = "default/" + uid;
    gang.holds = {{uid, 1, node, gpus}};
    gang.placed_at = gang.saved_at = s_.in.now;
    s_.in.other_claims.push_back(gang.holds[0]);
    return gang;
  }
  void Leaves(const std::string& uid) {
    std::erase_if(s_.in.running, [&uid](const auto& gang) { return gang.uid == uid; });
    std::erase_if(s_.in.other_claims, [&uid](const auto& booking) { return booking.job_uid == uid; });
  }
  placement::WaitingGang Standing() const {
    return WaitingOf(s_.in.job, s_.options, s_.in.priority_classes[0]).value_or(placement::WaitingGang());
  }
  // A gang that has been taken back and may try again.
  void ComesAndIsTakenBack() {
    while (!s_.status().placement) s_.Step();
    s_.in.pods.clear();  // none of them can be made
    s_.in.now += s_.options.gang_deadline;
    s_.Step();
    ASSERT_EQ(s_.ConditionReason(kPlaced), "False/Undone");
    s_.in.pods.clear();
    s_.Steps();
    ASSERT_FALSE(s_.status().placement);
    s_.in.now = *s_.status().retry_after;
  }

  Scenario s_;
};

TEST_F(Queue, AJobThatWasTakenBackStopsNobodyUntilItHasRun) {
  Runs("low", "node-1", 2);
  EXPECT_THAT(s_.Step().concerns, ElementsAre("low"));
  EXPECT_EQ(s_.ConditionReason(kPlaced), "False/MakingRoom");
  Leaves("low");
  ComesAndIsTakenBack();
  EXPECT_EQ(s_.status().undone_generation, 1);
  Runs("low", "node-1", 2);
  EXPECT_THAT(s_.Step().concerns, IsEmpty());
  EXPECT_EQ(s_.Phase(), "Queued");
  EXPECT_EQ(s_.ConditionReason(kPlaced), "False/NoRoom");
  EXPECT_THAT(s_.status().reason, HasSubstr("no other job is stopped for it"));
  EXPECT_FALSE(Standing().may_preempt);
  // It takes what comes free, and once it has run it is as before.
  Leaves("low");
  s_.Start();
  ASSERT_EQ(s_.Phase(), "Running");
  EXPECT_EQ(s_.status().undone_generation, 0);
}

TEST_F(Queue, AChangedSpecMayStopOthersAgain) {
  ComesAndIsTakenBack();
  ASSERT_FALSE(Standing().may_preempt);
  s_.Edit();
  s_.Step();
  s_.in.job.status.placement.reset();
  EXPECT_TRUE(Standing().may_preempt);
}

TEST_F(Queue, AnAttemptThatFailedBeforeItRanIsNoReasonToStopOthersAgain) {
  s_.Steps();
  ASSERT_TRUE(s_.status().started);
  for (api::PodSnapshot& pod : s_.in.pods) pod.node = pod.pinned_node;
  s_.in.now += s_.options.startup_deadline;
  s_.Step();
  ASSERT_EQ(s_.ConditionReason(kReady), "False/StartTimeout");
  EXPECT_EQ(s_.status().undone_generation, 1);
}

TEST_F(Queue, AnAttemptThatFailedAfterItRanMayStopOthersAgain) {
  s_.Start();
  ASSERT_EQ(s_.Phase(), "Running");
  s_.Exit(0, 1);
  s_.Steps();
  s_.in.now += s_.options.echo_settle;
  s_.Steps();
  ASSERT_EQ(s_.Phase(), "Recovering");
  EXPECT_EQ(s_.status().undone_generation, 0);
}

// It says so first that a rank is lost, while the cause may still show.
TEST_F(Queue, AGangThatRanAndLostAPeerHasRun) {
  for (const bool ran : {true, false}) {
    SCOPED_TRACE(ran);
    s_ = Scenario();
    s_.in.job.spec.gpus.count = 4;
    if (ran) {
      s_.Start();
    } else {
      s_.Steps();
      for (api::PodSnapshot& pod : s_.in.pods) pod.node = pod.pinned_node;
    }
    ASSERT_EQ(s_.Phase(), ran ? "Running" : "Starting");
    s_.Exit(0, contract::kExitCommunication);
    s_.Steps();
    s_.in.now += s_.options.echo_settle;
    s_.Steps();
    ASSERT_EQ(s_.Phase(), "Recovering");
    EXPECT_EQ(s_.status().undone_generation, ran ? 0 : 1);
  }
}

TEST_F(Queue, ANodeThatChangesUnderAStartTakesNoRightAway) {
  while (!s_.status().placement) s_.Step();
  s_.in.nodes[0].unschedulable = true;
  s_.Step();
  ASSERT_EQ(s_.ConditionReason(kPlaced), "False/Undone");
  EXPECT_EQ(s_.status().undone_generation, 0);
}

TEST_F(Queue, ANodeThatIsLostUnderAStartTakesNoRightAway) {
  s_.Steps();
  ASSERT_TRUE(s_.status().started);
  for (api::PodSnapshot& pod : s_.in.pods) pod.node = pod.pinned_node;
  std::erase_if(s_.in.nodes, [&](const auto& node) { return node.name == s_.in.pods[0].node; });
  s_.Steps();
  ASSERT_EQ(s_.Phase(), "Recovering") << s_.status().reason;
  EXPECT_EQ(s_.status().undone_generation, 0);
}

// It backs off, and gives its GPUs back within moments: nobody else has to stop meanwhile.
TEST_F(Queue, AGangThatFailedIsCountedOnUntilItIsDue) {
  s_.Start();
  s_.Exit(0, 1);
  s_.Step();
  ASSERT_TRUE(s_.status().stop) << s_.status().reason;
  const auto running = RunningOf(s_.in.job, api::PriorityClass());
  ASSERT_TRUE(running);
  EXPECT_TRUE(running->Leaves(s_.in.now));
  EXPECT_TRUE(running->Hangs(*s_.status().stop->due));
  EXPECT_FALSE(running->preemptible);
}

TEST_F(Queue, AJobWhosePriorityClassIsGoneIsStoppedForNobody) {
  s_.Start();
  EXPECT_TRUE(RunningOf(s_.in.job, FindPriority(s_.in.priority_classes, "high"))->preemptible);
  EXPECT_FALSE(RunningOf(s_.in.job, FindPriority({}, "high"))->preemptible);
}

// A list costs a call: one that waits for room looks often.
TEST_F(Queue, OneThatRanBeforeListsItsPodsOnlyWhenItHasAPlace) {
  ComesAndIsTakenBack();
  Runs("low", "node-1", 2);
  s_.in.pods_fresh = false;
  EXPECT_FALSE(Decide(s_.in, s_.options).refresh_pods);
  Leaves("low");
  EXPECT_TRUE(Decide(s_.in, s_.options).refresh_pods);
}

TEST_F(Queue, AnElasticJobDoesNotTakeAPartOfWhatOthersStopFor) {
  s_.in.job.spec.gpus.min_count = 1;
  Runs("low-0", "node-0", 2);
  Runs("low-1", "node-1", 2);
  EXPECT_THAT(s_.Step().concerns, UnorderedElementsAre("low-0", "low-1"));
  for (placement::RunningGang& gang : s_.in.running) gang.stopping = true;
  Leaves("low-0");
  EXPECT_THAT(s_.Step().concerns, IsEmpty());
  EXPECT_EQ(s_.Phase(), "Queued");
  EXPECT_EQ(s_.status().attempt, 0);
  Leaves("low-1");
  s_.Step();
  ASSERT_TRUE(s_.status().placement);
  EXPECT_EQ(s_.status().plan->gpus, 4);
}

// Else it would keep nothing, and take at a smaller size what others have stopped for others.
TEST_F(Queue, AnElasticJobThatCannotHaveAllItWantsStopsOthersForWhatItCan) {
  s_.in.job.spec.gpus.count = 8;  // of four
  s_.in.job.spec.gpus.min_count = 2;
  Runs("low-0", "node-0", 2);
  Runs("low-1", "node-1", 2);
  EXPECT_THAT(s_.Step().concerns, UnorderedElementsAre("low-0", "low-1"));
  EXPECT_EQ(s_.status().plan->gpus, 4);
  const api::JobStatus told = s_.status();
  s_.Step();
  EXPECT_EQ(api::StatusToJson(s_.status()), api::StatusToJson(told)) << "it does not change its mind at each look";
  Leaves("low-0");
  Leaves("low-1");
  s_.Step();
  ASSERT_TRUE(s_.status().placement);
  EXPECT_EQ(s_.status().gpus, 4);
}

TEST_F(Queue, OneBehindAnotherSaysThatItCanNeverFit) {
  s_.in.job.spec.gpus.count = 8;
  Runs("low", "node-1", 2);
  placement::WaitingGang& ahead = s_.in.waiting.emplace_back();
  ahead.uid = ahead.name = "ahead";
  ahead.priority = 1000;
  ahead.request.gpus = 4;
  ahead.request.per_node = 2;
  s_.Step();
  EXPECT_THAT(s_.status().reason, HasSubstr("behind ahead"));
  EXPECT_THAT(s_.status().reason, HasSubstr("it would not fit if every job ended"));
}

TEST_F(Queue, AnElasticJobForWhichNobodyStopsTakesWhatThereIs) {
  s_.in.job.spec.gpus.min_count = 1;
  s_.in.job.spec.priority_class_name = "";
  Runs("other", "node-1", 2);
  s_.Step();
  ASSERT_TRUE(s_.status().placement);
  EXPECT_EQ(s_.status().plan->gpus, 2);
  EXPECT_THAT(s_.status().reason, HasSubstr("(wanted 4: needs "));
}

TEST_F(Queue, AStopIsCountedOnForItsGraceAndNoLonger) {
  s_.Start();
  // The pods have the grace that they were made with, whatever the spec says by now.
  for (api::PodSnapshot& pod : s_.in.pods) pod.grace_seconds = 300;
  s_.in.job.spec.recovery.max_grace_seconds = 1;
  s_.in.job.spec.suspend = true;
  s_.Step();
  ASSERT_TRUE(s_.status().stop);
  const TimePoint due = s_.in.now + std::chrono::seconds(300) + s_.options.pod_termination_timeout;
  EXPECT_EQ(s_.status().stop->due, due);
  const auto standing = [this] { return *RunningOf(s_.in.job, api::PriorityClass()); };
  EXPECT_EQ(standing().expected_end, due);
  EXPECT_TRUE(standing().Leaves(s_.in.now));
  EXPECT_TRUE(standing().Hangs(*standing().expected_end));
  // An older operator did not write when it began: nobody knows that it hangs.
  s_.in.job.status.stop->due.reset();
  EXPECT_TRUE(standing().Leaves(s_.in.now + std::chrono::hours(24)));
}

TEST_F(Queue, TheReasonFollowsWhenItIsDueAndNotBefore) {
  s_.in.job.spec.priority_class_name = "";
  Runs("one", "node-1", 1);
  s_.Step();
  EXPECT_EQ(s_.Phase(), "Queued");
  const std::string told = s_.status().reason;
  EXPECT_THAT(told, HasSubstr("held by default/one (1 GPU)"));
  const TimePoint told_at = *s_.status().told_at;
  Runs("two", "node-1", 1);
  s_.in.now += Milliseconds(1'000);
  const Decision soon = s_.Step();
  EXPECT_EQ(s_.status().reason, told);
  EXPECT_EQ(s_.in.now + soon.requeue_after.value_or(Milliseconds(0)), told_at + s_.options.reason_interval);
  s_.in.now += *soon.requeue_after;
  s_.Step();
  EXPECT_THAT(s_.status().reason, HasSubstr("default/two (1 GPU)"));
  EXPECT_THAT(s_.status().reason, Not(testing::Eq(told)));
}

TEST_F(Queue, WhoWaitsForLongForgetsWhichNodesToAvoid) {
  s_.in.job.spec.priority_class_name = "";
  Runs("one", "node-1", 1);
  s_.in.job.status.excluded_nodes = {{"node-0", 2}};
  s_.in.job.status.excluded_at = {{"node-0", s_.in.now}};
  s_.Step();
  EXPECT_EQ(Standing().request.excluded_nodes, (std::map<std::string, int64_t>{{"node-0", 2}}));
  s_.in.now += 2 * s_.options.penalty_period;
  s_.Step();
  EXPECT_THAT(s_.status().excluded_nodes, IsEmpty());
  EXPECT_THAT(Standing().request.excluded_nodes, IsEmpty());
}

TEST_F(Queue, FarBackInTheLineItIsLookedAtLessOften) {
  s_.in.job.spec.priority_class_name = "";
  Runs("one", "node-1", 1);
  constexpr int kAhead = 400;
  for (int i = 0; i < kAhead; ++i) {
    placement::WaitingGang& gang = s_.in.waiting.emplace_back();
    gang.uid = gang.name = "ahead-" + std::to_string(i);
    gang.priority = 1;
    gang.request.gpus = 4;
    gang.request.per_node = 2;
  }
  const Decision far = s_.Step();
  EXPECT_EQ(far.requeue_after, 4 * s_.options.placement_retry);
  s_.in.waiting.clear();
  s_.in.now += s_.options.reason_interval;
  EXPECT_EQ(s_.Step().requeue_after, s_.options.placement_retry);
}

}  // namespace
}  // namespace trainyard::lifecycle
