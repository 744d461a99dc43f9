#include <limits>

#include <gmock/gmock.h>

#include "operator/api/json.h"
#include "tests/operator/lifecycle/scenario.h"

namespace trainyard::lifecycle {
namespace {

using testing::HasSubstr;

TEST(Start, ClaimsBeforeItCreatesAndCreatesGated) {
  Scenario s;
  Decision d = s.Step();
  EXPECT_EQ(d.status.attempt, 1);
  ASSERT_TRUE(d.status.placement);
  EXPECT_FALSE(d.status.started);
  EXPECT_EQ(Scenario::Count(d, Action::Kind::kCreatePod), 1);
  EXPECT_EQ(Scenario::Count(d, Action::Kind::kCreateService), 1);
  EXPECT_EQ(Scenario::Count(d, Action::Kind::kUngatePod), 0);
}

TEST(Start, LeavesAJobOfAnotherControllerAlone) {
  Scenario s;
  s.in.job.spec.managed_by = "example.com/other";
  Decision d = Decide(s.in, s.options);
  EXPECT_EQ(api::StatusToJson(d.status), api::StatusToJson(s.in.job.status));
  EXPECT_TRUE(d.actions.empty());
  EXPECT_TRUE(d.events.empty());
  EXPECT_FALSE(d.requeue_after);
  s.in.job.spec.managed_by = api::kManagedByUs;
  EXPECT_EQ(Decide(s.in, s.options).status.attempt, 1);
}

TEST(Start, TakesTheGatesOffOnlyWhenAllPodsExistAndBehindAWrite) {
  Scenario s;
  s.in.job.spec.gpus.count = 4;
  s.Step();
  ASSERT_EQ(s.in.pods.size(), 2u);
  api::PodSnapshot missing = s.in.pods.back();
  s.in.pods.pop_back();
  Decision d = Decide(s.in, s.options);
  EXPECT_EQ(Scenario::Count(d, Action::Kind::kUngatePod), 0);
  EXPECT_EQ(Scenario::Count(d, Action::Kind::kCreatePod), 1);
  s.in.pods.push_back(missing);
  d = s.Step();
  EXPECT_EQ(Scenario::Count(d, Action::Kind::kUngatePod), 2);
  EXPECT_TRUE(d.status.started);
  EXPECT_TRUE(d.status.ungated_at);
}

TEST(Start, NeverTakesAGateOffWithoutAWriteOfItsOwn) {
  Scenario s;
  s.Step();
  s.Step();
  ASSERT_TRUE(s.status().started);
  s.in.pods[0].gated = true;  // the un-gate was lost, or the cache does not show it yet
  s.in.now += Milliseconds(1'000);
  Decision d = s.Step();
  EXPECT_EQ(Scenario::Count(d, Action::Kind::kUngatePod), 0);
  s.in.now += s.options.ungate_retry;
  TimePoint before = *s.status().ungated_at;
  d = s.Step();
  EXPECT_EQ(Scenario::Count(d, Action::Kind::kUngatePod), 1);
  EXPECT_GT(*d.status.ungated_at, before);
}

TEST(Start, RunsAndThenWritesNothingMore) {
  Scenario s;
  s.Start();
  EXPECT_EQ(s.Phase(), "Running");
  EXPECT_EQ(s.status().gpus, 2);
  EXPECT_EQ(s.ConditionReason(kReady), "True/Running");
  std::string before = api::StatusToJson(s.status()).dump();
  s.in.now += Milliseconds(3'600'000);
  Decision d = s.Step();
  EXPECT_EQ(api::StatusToJson(d.status).dump(), before);
  EXPECT_TRUE(d.actions.empty());
  EXPECT_TRUE(d.events.empty());
}

TEST(Start, TakesAGangBackThatIsNotScheduledInTime) {
  Scenario s;
  s.Steps();
  s.in.pods[0].message = "0/2 nodes are available: 2 Insufficient memory.";
  s.in.now += Milliseconds(121'000);
  s.Step();
  EXPECT_EQ(s.status().stop->reason, "Undo");
  EXPECT_THAT(s.status().reason, HasSubstr("Insufficient memory"));
  EXPECT_EQ(s.status().restarts.user + s.status().restarts.infrastructure, 0);
  EXPECT_EQ(s.status().excluded_nodes.size(), 1u);
  s.Reap();
  s.Steps();
  EXPECT_EQ(s.Phase(), "Placing");
  EXPECT_FALSE(s.status().placement);
  s.in.now += Milliseconds(2'000);
  s.Steps();
  EXPECT_EQ(s.status().attempt, 2);
  EXPECT_EQ(s.status().placement->nodes[0].node, "node-1");
}

// The node of the last attempt was lost when the next one was claimed, and is back before its gates go.
TEST(Attempts, NoneIsLetGoWhileAPodOfTheLastOneMayRun) {
  Scenario s(4, 2);
  s.in.job.spec.gpus.count = 4;
  s.Start();
  ASSERT_EQ(s.Phase(), "Running");
  const std::string lost = s.in.pods[0].node;
  const auto node = std::find_if(s.in.nodes.begin(), s.in.nodes.end(), [&](const auto& n) { return n.name == lost; });
  const auto set_ready = [&](bool ready) {
    node->ready = ready;
    node->conditions["Ready"] = ready ? "True" : "Unknown";
    node->ready_transition_time = s.in.now;
  };
  set_ready(false);
  s.in.now += s.options.pod_termination_timeout;
  s.Steps();
  std::erase_if(s.in.pods, [&](const auto& pod) { return pod.deleting && pod.node != lost; });
  s.in.now = *s.status().retry_after;
  for (int i = 0; i < 10 && !(s.status().attempt == 2 && s.in.pods.size() == 3); ++i) s.Step();
  ASSERT_EQ(s.status().attempt, 2);
  ASSERT_FALSE(s.status().started);
  set_ready(true);
  s.Steps();
  EXPECT_FALSE(s.status().started) << "two attempts would run at once";
  EXPECT_THAT(s.status().reason, HasSubstr("waiting for those of earlier attempts to be gone"));
  std::erase_if(s.in.pods, [](const auto& pod) { return pod.attempt == 1; });
  s.Step();
  EXPECT_TRUE(s.status().started);
}

TEST(Waiting, SaysAtOnceWhatDoesNotFit) {
  Scenario s;
  api::PodSnapshot foreign;
  foreign.node = "node-0";
  foreign.phase = api::PodPhase::kRunning;
  foreign.gpus = 1;
  s.in.job.spec.gpus.count = 4;
  s.in.all_pods = {foreign};
  Decision d = Decide(s.in, s.options);
  EXPECT_EQ(d.status.phase, api::Phase::kQueued);
  EXPECT_THAT(d.status.reason, HasSubstr("needs 2 nodes with 2 free Simulated GPUs each; 1 of 2"));
  EXPECT_TRUE(d.actions.empty());
}

TEST(Waiting, NodesThatAreNotReadyAreThereAndAreTriedAgain) {
  Scenario s(3);
  for (api::NodeSnapshot& node : s.in.nodes) node.ready = false;
  s.in.nodes[2].ready = true;
  s.in.nodes[2].unschedulable = true;
  const Decision waits = s.Step();
  EXPECT_EQ(s.status().reason,
            "DoesNotFit: no node takes this gang now; of 3 nodes with GPUs: 2 not ready, 1 cordoned");
  EXPECT_TRUE(waits.requeue_after);
  api::NodeSnapshot other = s.in.nodes[2];
  other.name = "other";
  other.unschedulable = false;
  other.labels = {{"nvidia.com/gpu.product", "NVIDIA-L4"}};
  s.in.nodes.push_back(other);
  s.in.job.spec.gpus.products = {"Simulated"};
  s.Step();
  EXPECT_EQ(s.status().reason,
            "DoesNotFit: no node takes this gang now; of 3 Simulated nodes: 2 not ready, 1 cordoned");
  s.in.nodes[0].ready = true;
  s.Steps();
  EXPECT_TRUE(s.status().placement) << s.status().reason;
}

TEST(Waiting, NamesEveryMistakeOfTheSpec) {
  Scenario s;
  s.in.job.spec.training.steps = 0;
  s.in.job.spec.gpus.min_count = 8;
  s.in.job.spec.gpus.max_count = 4;
  s.Step();
  EXPECT_EQ(s.Phase(), "Pending");
  EXPECT_EQ(s.ConditionReason(kPlanned), "False/Invalid");
  EXPECT_THAT(s.status().reason, HasSubstr("steps"));
  EXPECT_THAT(s.status().reason, HasSubstr("minCount"));
}

TEST(Waiting, RefusesCudaOnSimulatedNodes) {
  Scenario s;
  s.in.job.spec.training.device = api::DeviceKind::kCuda;
  s.Step();
  EXPECT_EQ(s.ConditionReason(kPlanned), "False/Impossible");
  EXPECT_THAT(s.status().reason, HasSubstr("CUDA"));
}

TEST(PlanOnly, PlansAndStartsNothing) {
  Scenario s;
  s.in.job.spec.plan_only = true;
  s.Steps();
  EXPECT_EQ(s.Phase(), "Pending");
  ASSERT_TRUE(s.status().plan);
  EXPECT_EQ(s.status().plan->gpus, 2);
  EXPECT_TRUE(s.in.pods.empty());
}

TEST(Finish, SucceedsWhenEveryTrainerExitedWithZeroAndStaysSo) {
  Scenario s;
  s.Start();
  s.Exit(0, 0);
  s.Steps();
  EXPECT_EQ(s.Phase(), "Succeeded");
  EXPECT_TRUE(s.status().completion_time);
  s.in.pods.clear();
  s.Edit();
  s.in.job.spec.gpus.count = 4;
  s.Steps();
  EXPECT_EQ(s.Phase(), "Succeeded");
  EXPECT_TRUE(s.in.pods.empty());
}

TEST(Finish, KeepsAPodWhosePhaseComesLaterThanItsExitCodeAndRemovesASidecars) {
  Scenario s;
  s.Start();
  s.Exit(0, 0);
  s.in.pods[0].phase = api::PodPhase::kRunning;  // the kubelet tells the container's end first
  Decision d = s.Step();
  ASSERT_EQ(s.Phase(), "Succeeded");
  for (int i = 0; i < 3; ++i) EXPECT_EQ(Scenario::Count(s.Step(), Action::Kind::kDeletePod), 0);
  s.in.now += Milliseconds(29'000);
  d = s.Step();
  EXPECT_EQ(Scenario::Count(d, Action::Kind::kDeletePod), 0);
  ASSERT_TRUE(d.requeue_after);
  s.in.now += *d.requeue_after;  // still running: something beside the trainer
  EXPECT_EQ(Scenario::Count(s.Step(), Action::Kind::kDeletePod), 1);
}

TEST(Start, ARefusedGangGivesItsGpusBackAtOnceAndComesAgainLaterAndLater) {
  Scenario s;
  Milliseconds last_wait{0};
  for (int64_t attempt = 1; attempt <= 5; ++attempt) {
    SCOPED_TRACE(attempt);
    Decision d;
    do d = s.Step();
    while (Scenario::Count(d, Action::Kind::kCreatePod) == 0);
    EXPECT_EQ(s.status().attempt, attempt);
    EXPECT_FALSE(ClaimsOf(s.in.job).empty());
    s.in.pods.clear();
    s.in.refused = "the API server refuses it: pods \"x\" is forbidden: exceeded quota: gpus";
    d = s.Step();
    const std::string told =
        "attempt " + std::to_string(attempt) +
        " was taken back: the API server refuses it: pods \"x\" is forbidden: exceeded quota: gpus";
    EXPECT_EQ(s.status().reason, told);
    EXPECT_EQ(s.Phase(), "Placing");
    ASSERT_EQ(d.events.size(), 1u);
    EXPECT_EQ(d.events[0].message, told);
    s.in.refused.clear();  // what is undone is not refused
    s.Steps();
    EXPECT_TRUE(ClaimsOf(s.in.job).empty());
    EXPECT_EQ(s.status().reason, told) << "it is what people should read while the job waits";
    EXPECT_THAT(s.status().excluded_nodes, testing::IsEmpty()) << "no node has done anything";
    EXPECT_EQ(s.status().restarts.user + s.status().restarts.infrastructure, 0);
    ASSERT_TRUE(s.status().retry_after);
    const Milliseconds wait = *s.status().retry_after - s.in.now;
    EXPECT_GT(wait, last_wait);
    last_wait = wait;
    s.in.now += wait;
  }
}

TEST(Start, PodsThatWereMadeBeforeTheRefusalGoAsWell) {
  Scenario s;
  s.in.job.spec.gpus.count = 4;
  while (s.in.pods.size() < 2) s.Step();
  s.in.pods.pop_back();
  s.in.refused = "no";
  EXPECT_EQ(Scenario::Count(s.Step(), Action::Kind::kDeleteAllPods), 1);
  s.in.refused.clear();
  s.Reap();
  s.Steps();
  EXPECT_TRUE(s.in.pods.empty());
  EXPECT_FALSE(s.status().placement);
}

TEST(Start, OnlyWhatANodeCanHaveCausedCountsAgainstIt) {
  const std::string others = "1 node(s) didn't match Pod's node affinity/selector";
  const std::vector<std::pair<std::string, bool>> said = {
      {"", false},
      {"persistentvolumeclaim \"corpus\" not found", false},
      {"0/2 nodes are available: persistentvolumeclaim \"corpus\" not found. not found", false},
      {"0/2 nodes are available: pod has unbound immediate PersistentVolumeClaims. preemption: 0/2 nodes are "
       "available: "
       "2 Preemption is not helpful for scheduling.",
       false},
      {"0/2 nodes are available: " + others + ". preemption: 0/2 nodes: 1 node(s) had no victims", false},
      {"0/2 nodes are available: 1 Insufficient nvidia.com/gpu, " + others + ".", true},
      {"0/2 nodes are available: 1 Too many pods, " + others + ".", true},
      {"0/2 nodes are available: 1 node(s) had untolerated taint {a: b}, " + others + ".", true},
      {"0/2 nodes are available: 1 node(s) had volume node affinity conflict, " + others + ".", true},
  };
  for (const auto& [message, blamed] : said) {
    Scenario s;
    s.Steps();
    s.in.pods[0].message = message;
    s.in.now += Milliseconds(121'000);
    s.Step();
    ASSERT_TRUE(s.status().stop) << message;
    EXPECT_EQ(s.status().stop->reason, "Undo");
    EXPECT_EQ(s.status().excluded_nodes.size(), blamed ? 1u : 0u) << message;
  }
  Scenario s;  // pods that could not be made were in no node's hands
  while (s.in.pods.empty()) s.Step();
  s.in.pods.clear();
  s.in.now += Milliseconds(61'000);
  s.Step();
  EXPECT_THAT(s.status().reason, HasSubstr("1 pod could not be created in time"));
  EXPECT_THAT(s.status().excluded_nodes, testing::IsEmpty());
}

TEST(Start, AMissingVolumeClaimDoesNotHoldGpusForLong) {
  Scenario s;
  s.Steps();
  s.in.pods[0].message = "0/2 nodes are available: persistentvolumeclaim \"corpus\" not found.";
  s.in.now += s.options.waiting_settle - Milliseconds(1);
  s.Step();
  EXPECT_FALSE(s.status().stop) << "it may be created right after the job";
  s.in.now += Milliseconds(1);
  s.Step();
  ASSERT_TRUE(s.status().stop);
  EXPECT_THAT(s.status().reason, HasSubstr("persistentvolumeclaim \"corpus\" not found"));
}

TEST(Start, GatesThatMayNotBeTakenOffAreTold) {
  Scenario s;
  s.Steps();
  ASSERT_TRUE(s.status().started);
  s.in.pods[0].gated = true;
  s.in.refused = "the API server refuses it: patch pods x: denied by a webhook";
  s.Step();
  EXPECT_EQ(s.status().reason, "attempt 1: its pods cannot be started: " + s.in.refused);
  s.in.refused.clear();
  s.in.now += s.options.ungate_retry;
  s.Steps();
  EXPECT_FALSE(s.in.pods[0].gated);
}

TEST(Failure, APodThatSomeoneDeletedIsToldAsThat) {
  Scenario s;
  s.Start();
  s.in.pods[0].deleting = true;
  s.Exit(0, 10);
  s.Steps();
  EXPECT_EQ(s.status().restarts.user + s.status().restarts.infrastructure, 0);
  EXPECT_THAT(s.status().reason, HasSubstr("node rank 0 on node-0: its pod was deleted by someone else"));
}

TEST(Failure, KilledRankCostsTheInfrastructureBudgetAndComesBack) {
  Scenario s;
  s.Start();
  s.Exit(0, 137);
  s.Step();
  EXPECT_EQ(s.Phase(), "Recovering");
  EXPECT_EQ(s.status().restarts.infrastructure, 1);
  EXPECT_EQ(s.status().restarts.user, 0);
  EXPECT_THAT(s.status().reason, HasSubstr("infrastructure restart 1 of 50"));
  s.in.now += Milliseconds(1'000);
  s.Steps();
  EXPECT_EQ(s.status().attempt, 2);
  EXPECT_EQ(s.in.pods.size(), 2u);  // the failed one stays for its logs
}

TEST(Failure, TheCauseIsNamedNotItsEcho) {
  Scenario s;
  s.in.job.spec.gpus.count = 4;
  s.Start();
  s.Exit(0, 6);
  s.Step();
  EXPECT_FALSE(s.status().stop);  // a lost peer waits a moment for the failure behind it
  s.Exit(1, 1);
  s.in.pods[1].termination_message = R"({"contract":1,"class":"User","message":"bug in step 3"})";
  s.Step();
  EXPECT_EQ(s.status().restarts.user, 1);
  EXPECT_THAT(s.status().reason, HasSubstr("bug in step 3"));
}

// Two paths of a pod are long, and what to do stands behind them.
TEST(Failure, WhatATrainerSaysIsNotCutBeforeItsRemedy) {
  Scenario s;
  s.Start();
  s.Exit(0, 4);
  const std::string said = "the base is another: " + std::string(300, 'a') + " and " + std::string(300, 'b');
  s.in.pods[0].termination_message =
      R"({"contract":1,"class":"Data","message":")" + said + R"(; put model.pretrained back"})";
  s.Step();
  EXPECT_THAT(s.status().reason, HasSubstr(said + "; put model.pretrained back"));
}

TEST(Failure, ALonelyEchoIsJudgedAfterAMoment) {
  Scenario s;
  s.in.job.spec.gpus.count = 4;
  s.Start();
  s.Exit(0, 6);
  s.Step();
  s.in.now += s.options.echo_settle;
  s.Step();
  EXPECT_EQ(s.status().restarts.infrastructure, 1);
}

TEST(Failure, ConfigurationNeverRetries) {
  for (int code : {2, 3, 4, 8}) {
    Scenario s;
    s.Start();
    s.Exit(0, code);
    s.Steps();
    EXPECT_EQ(s.Phase(), "Failed") << code;
    EXPECT_EQ(s.status().attempt, 1);
  }
}

TEST(Failure, ExitCodesOfAUsersOwnProgramAreItsOwn) {
  for (int code : {2, 3, 6, 10}) {
    Scenario s;
    s.in.job.spec.image = "registry.example.com/me/finetune:1";
    s.in.job.spec.command = {"torchrun", "train.py"};
    s.in.job.spec.parallelism.strategy = api::Strategy::kFsdp;
    s.Start();
    s.Exit(0, code);
    s.Steps();
    EXPECT_EQ(s.Phase(), "Recovering") << code;
    EXPECT_EQ(s.status().restarts.user, 1) << code << ": neither free nor final";
  }
}

TEST(Failure, StopsWhenTheUserBudgetIsUsedUp) {
  Scenario s;
  s.in.job.spec.recovery.max_user_restarts = 2;
  for (int i = 0; i < 5 && s.Phase() != "Failed"; ++i) {
    s.Start();
    s.Exit(s.in.pods.size() - 1, 1);
    s.Steps();
    s.in.now += Milliseconds(600'000);
  }
  EXPECT_EQ(s.Phase(), "Failed");
  EXPECT_EQ(s.status().attempt, 3);
  EXPECT_EQ(s.status().restarts.user, 2);
  EXPECT_THAT(s.status().reason, HasSubstr("all 2 user restarts are used up"));
}

TEST(Failure, BacksOffLongerEachTimeUntilItRunsWell) {
  Scenario s;
  std::vector<int64_t> waits;
  for (int i = 0; i < 4; ++i) {
    s.Start();
    if (i == 3) s.in.now += s.options.healthy_period;
    s.Exit(s.in.pods.size() - 1, 137);
    s.Step();
    waits.push_back((*s.status().retry_after - s.in.now).count());
    s.in.now += Milliseconds(300'000);
  }
  EXPECT_LE(waits[0], 1000);
  EXPECT_GT(waits[1], 999);
  EXPECT_GT(waits[2], 1999);
  EXPECT_LE(waits[3], 1000);
}

TEST(Failure, LostNodeIsLeftAfterItsTimeAndItsGpusStayBooked) {
  Scenario s;
  s.Start();
  std::string lost = s.in.pods[0].node;
  api::NodeSnapshot& node = lost == "node-0" ? s.in.nodes[0] : s.in.nodes[1];
  node.ready = false;
  node.conditions["Ready"] = "Unknown";
  node.ready_transition_time = s.in.now;
  s.Step();
  EXPECT_EQ(s.Phase(), "Running");  // a short absence is no loss
  s.in.now += Milliseconds(60'000);
  s.Step();
  EXPECT_EQ(s.Phase(), "Recovering");
  EXPECT_EQ(s.ConditionReason(kReady), "False/NodeLost");
  s.in.now += Milliseconds(1'000);
  s.Steps();
  EXPECT_EQ(s.status().attempt, 2);
  EXPECT_NE(s.status().placement->nodes[0].node, lost);
}

TEST(Failure, ADrainCostsNothing) {
  Scenario s;
  s.Start();
  s.in.pods[0].deleting = true;
  s.Step();
  EXPECT_EQ(s.Phase(), "Running");
  s.Exit(0, 10);
  s.Step();
  EXPECT_EQ(s.Phase(), "Recovering");
  EXPECT_EQ(s.status().restarts.user + s.status().restarts.infrastructure, 0);
}

TEST(Resize, StopsSavesAndComesBackAtTheNewSize) {
  Scenario s;
  s.Start();
  s.Edit();
  s.in.job.spec.gpus.count = 4;
  Decision d = s.Step();
  EXPECT_EQ(s.Phase(), "Resizing");
  EXPECT_EQ(d.status.stop->reason, "Resize");
  EXPECT_EQ(Scenario::Count(d, Action::Kind::kDeleteAllPods), 1);
  s.Exit(0, 10);
  s.Step();
  EXPECT_EQ(s.status().restarts.user + s.status().restarts.infrastructure, 0);
  s.Reap();
  s.Start();
  EXPECT_EQ(s.Phase(), "Running");
  EXPECT_EQ(s.status().attempt, 2);
  EXPECT_EQ(s.status().gpus, 4);
}

TEST(Resize, TakesTheRoomThatItsOwnAttemptHasJustLeft) {
  Scenario s;
  s.Start();
  s.Edit();
  s.in.job.spec.gpus.count = 4;
  s.Step();
  s.Exit(0, 10);
  ASSERT_EQ(s.status().attempt, 1);
  // The controller's books change only when the decision that releases them has been written.
  s.in.other_claims = ClaimsOf(s.in.job);
  Decision d = s.Step();
  for (const Event& event : d.events) EXPECT_NE(event.reason, "NoRoom") << event.message;
  EXPECT_EQ(s.Phase(), "Placing") << s.status().reason;
  EXPECT_EQ(s.status().attempt, 2);
}

TEST(Resize, KeepsTrainingWhileThereIsNoRoom) {
  Scenario s;
  s.Start();
  std::string other = s.in.pods[0].node == "node-0" ? "node-1" : "node-0";
  s.in.other_claims = {{"someone", 1, other, 2}};
  s.Edit();
  s.in.job.spec.gpus.count = 4;
  s.Steps();
  EXPECT_EQ(s.Phase(), "Running");
  EXPECT_FALSE(s.status().stop);
  EXPECT_THAT(s.status().reason, HasSubstr("wants 4 GPUs: needs 2 nodes"));
  s.in.other_claims.clear();
  s.Step();
  EXPECT_EQ(s.Phase(), "Resizing");
}

TEST(Resize, OtherChangesWaitForTheNextAttempt) {
  Scenario s;
  s.Start();
  s.Edit();
  s.in.job.spec.training.steps = 800;
  s.Steps();
  EXPECT_EQ(s.Phase(), "Running");
  EXPECT_EQ(s.status().attempt, 1);
  EXPECT_EQ(s.status().plan->generation, 2);
}

std::set<std::string> ImagesOf(const Decision& d) {
  std::set<std::string> images;
  for (const Action& action : d.actions) {
    if (action.kind == Action::Kind::kCreatePod) images.insert(action.object["spec"]["containers"][0]["image"]);
  }
  return images;
}

TEST(Upgrade, ARestartOfTheSameGenerationKeepsItsTrainerImage) {
  for (int64_t min_count : {0, 1}) {
    Scenario s;
    s.in.job.spec.gpus.min_count = min_count;  // an elastic job is planned anew for each attempt
    s.options.trainer_image = "trainer:old";
    EXPECT_EQ(ImagesOf(s.Step()), std::set<std::string>{"trainer:old"});
    s.Start();
    s.options.trainer_image = "trainer:new";
    EXPECT_TRUE(s.Step().actions.empty()) << "an upgrade touches nothing that runs";
    EXPECT_EQ(s.status().attempt, 1);
    s.Exit(0, 137);
    s.Step();
    s.Reap();
    s.in.now += std::chrono::minutes(10);
    s.options.cpu_milli_per_gpu *= 2;
    const Decision again = s.Step();
    EXPECT_EQ(ImagesOf(again), std::set<std::string>{"trainer:old"});
    EXPECT_EQ(s.status().attempt, 2);
    EXPECT_EQ(s.status().trainer->cpu_milli_per_gpu, 1000) << "nor may it ask for more than it had";
  }
}

TEST(Upgrade, ANewGenerationTakesTheNewTrainerImage) {
  Scenario s;
  s.options.trainer_image = "trainer:old";
  s.Start();
  s.options.trainer_image = "trainer:new";
  s.Edit();
  s.in.job.spec.gpus.count = 4;
  s.Step();
  s.Reap();
  EXPECT_EQ(ImagesOf(s.Step()), std::set<std::string>{"trainer:new"});
}

TEST(Upgrade, PodsOfOneAttemptRunOneImage) {
  Scenario s(2, 1);
  s.in.job.spec.image = "me/train:1";
  s.in.job.spec.command = {"train"};
  s.in.job.spec.parallelism.strategy = api::Strategy::kDdp;
  s.Step();
  ASSERT_EQ(s.in.pods.size(), 2u);
  s.in.pods.pop_back();  // not created after all
  s.Edit();
  s.in.job.spec.image = "me/train:2";
  EXPECT_EQ(ImagesOf(s.Step()), std::set<std::string>{"me/train:1"});
}

TEST(Elastic, StartsSmallerRatherThanNotAtAll) {
  Scenario s;
  s.in.job.spec.gpus = {.count = 4, .min_count = 1, .max_count = 4};
  s.in.other_claims = {{"someone", 1, "node-1", 2}};
  s.Start();
  EXPECT_EQ(s.Phase(), "Running");
  EXPECT_EQ(s.status().gpus, 2);
  s.in.other_claims.clear();
  s.Steps();
  EXPECT_EQ(s.status().gpus, 2);  // not for every GPU that comes free
  s.in.now += s.options.grow_after;
  s.Step();
  EXPECT_EQ(s.Phase(), "Resizing");
}

TEST(Suspend, StopsAndResumesWithoutCost) {
  Scenario s;
  s.Start();
  s.Edit();
  s.in.job.spec.suspend = true;
  s.Step();
  EXPECT_EQ(s.status().stop->reason, "Suspend");
  s.Reap();
  s.Steps();
  EXPECT_EQ(s.Phase(), "Suspended");
  EXPECT_EQ(s.status().gpus, 0);
  s.Edit();
  s.in.job.spec.suspend = false;
  s.Start();
  EXPECT_EQ(s.Phase(), "Running");
  EXPECT_EQ(s.ConditionReason(kSuspended), "False/Resumed");
  EXPECT_EQ(s.status().restarts.user + s.status().restarts.infrastructure, 0);
}

TEST(Deletion, StartsNothingNew) {
  Scenario s;
  s.Start();
  s.in.job.meta.deletion_time = s.in.now;
  s.Steps();
  s.Reap();
  s.Steps();
  EXPECT_TRUE(s.in.pods.empty());
  EXPECT_FALSE(s.status().placement);
}

TEST(Progress, IsRoundedAndNotCopiedTooOften) {
  Scenario s;
  s.Start();
  s.in.progress_attempt = 1;
  s.in.progress = api::Progress{.step = 1, .steps = 400, .loss = 5.123456789, .trainer_phase = "Training"};
  s.Step();
  EXPECT_EQ(s.status().progress->loss, 5.1235);
  s.in.progress->step = 2;
  s.in.now += Milliseconds(1'000);
  s.Step();
  EXPECT_EQ(s.status().progress->step, 1);
  s.in.progress->trainer_phase = "Checkpointing";
  s.Step();
  EXPECT_EQ(s.status().progress->step, 2);
  s.in.progress->step = 3;
  s.in.now += Milliseconds(30'000);
  s.Step();
  EXPECT_EQ(s.status().progress->step, 3);
  s.in.progress_attempt = 0;  // the words of another attempt
  s.in.progress->step = 9;
  s.in.now += Milliseconds(30'000);
  s.Step();
  EXPECT_EQ(s.status().progress->step, 3);
}

TEST(Progress, IsLookedForAsLongAsTheGangRuns) {
  Scenario s;
  s.Start();
  s.in.progress = api::Progress{.step = 1, .steps = 400, .trainer_phase = "Training"};
  s.in.progress_attempt = 1;
  s.Steps();
  // Nothing has changed since: still someone looks again within the interval.
  Decision d = s.Step();
  ASSERT_TRUE(d.requeue_after.has_value());
  EXPECT_LE(*d.requeue_after, s.options.progress_interval);
  s.in.now += s.options.progress_interval;
  s.in.progress->step = 9;
  s.Steps();
  EXPECT_EQ(s.status().progress->step, 9);
}

TEST(Progress, OfAnEndedAttemptIsNotTakenForTheNextOnes) {
  Scenario s;
  s.Start();
  s.in.progress = api::Progress{.step = 50, .steps = 400, .tokens_per_second = 9000, .trainer_phase = "Training"};
  s.in.progress_attempt = 1;
  s.Steps();
  s.Exit(0, 137);
  s.Steps();
  s.in.now += Milliseconds(600'000);
  s.Steps();
  ASSERT_EQ(s.status().attempt, 2);
  EXPECT_EQ(s.status().progress->step, 50);
  EXPECT_EQ(s.status().progress->trainer_phase, "");
  EXPECT_FALSE(s.status().progress->tokens_per_second.has_value());
}

TEST(Progress, AnAttemptThatStartsKeepsHowFarTheJobHasComeInSight) {
  Scenario s;
  s.Start();
  s.in.progress = api::Progress{.step = 50, .steps = 400, .loss = 2.5, .trainer_phase = "Training"};
  s.in.progress_attempt = 1;
  s.Steps();
  s.Exit(0, 137);
  s.Steps();
  s.in.now += Milliseconds(600'000);
  s.Start();
  ASSERT_EQ(s.status().attempt, 2);
  s.in.progress_attempt = 2;
  for (const char* phase : {"Starting", "Restoring", "Failed"}) {
    s.in.progress = api::Progress{.trainer_phase = phase};
    s.Step();
    EXPECT_EQ(s.status().progress->trainer_phase, phase);
    EXPECT_EQ(s.status().progress->step, 50);
    EXPECT_EQ(s.status().progress->steps, 400);
    EXPECT_EQ(s.status().progress->loss, 2.5);
  }
  // Once it trains, what it says counts, even if that is less.
  s.in.progress = api::Progress{.step = 41, .steps = 400, .trainer_phase = "Training", .resumed_from_step = 40};
  s.Step();
  EXPECT_EQ(s.status().progress->step, 41);
}

TEST(Progress, ResumingBeforeTheLastDurableStepIsReported) {
  Scenario s;
  s.Start();
  s.in.progress_attempt = 1;
  s.in.progress = api::Progress{.step = 300, .steps = 400, .trainer_phase = "Training", .resumed_from_step = 0};
  s.in.checkpoint = api::CheckpointStatus{.step = 300};
  s.Step();
  EXPECT_EQ(s.ConditionReason(kCheckpointHealthy), "True/NoneYet") << "a first run resumes nothing";
  EXPECT_THAT(FindCondition(s.status(), kCheckpointHealthy)->message, HasSubstr("began at step 0"));
  s.Exit(0, 137);
  s.Step();
  s.in.now += Milliseconds(1'000);
  s.Start();
  ASSERT_EQ(s.status().attempt, 2);
  s.in.progress_attempt = 2;
  s.in.progress->resumed_from_step = 200;
  s.in.checkpoint->step = 200;
  s.Step();
  EXPECT_EQ(s.ConditionReason(kCheckpointHealthy), "False/Regressed");
  s.in.progress->step = 400;
  s.in.checkpoint->step = 400;
  s.in.now += Milliseconds(60'000);
  s.Steps();
  EXPECT_EQ(s.ConditionReason(kCheckpointHealthy), "True/Saved") << "it has saved again";
}

TEST(Progress, AnAttemptThatResumedFromItsCheckpointIsHealthy) {
  Scenario s;
  s.Start();
  s.in.progress_attempt = 1;
  s.in.progress = api::Progress{.step = 300, .steps = 400, .trainer_phase = "Training", .resumed_from_step = 0};
  s.in.checkpoint = api::CheckpointStatus{.step = 300};
  s.Step();
  s.Exit(0, 137);
  s.Step();
  s.in.now += Milliseconds(1'000);
  s.Start();
  s.in.progress_attempt = 2;
  s.in.progress->resumed_from_step = 300;
  s.Step();
  EXPECT_EQ(s.ConditionReason(kCheckpointHealthy), "True/Resumed");
  EXPECT_THAT(FindCondition(s.status(), kCheckpointHealthy)->message, HasSubstr("resumed from step 300"));
}

TEST(Progress, AnAttemptThatEndsBeforeItHasRestoredKeepsTheStepInSight) {
  Scenario s;
  s.Start();
  s.in.progress_attempt = 1;
  s.in.progress = api::Progress{.step = 310, .steps = 400, .trainer_phase = "Training", .resumed_from_step = 0};
  s.in.checkpoint = api::CheckpointStatus{.step = 300};
  s.Step();
  s.Exit(0, 137);
  s.Step();
  s.in.now += Milliseconds(1'000);
  s.Start();
  ASSERT_EQ(s.status().attempt, 2);
  s.in.progress_attempt = 2;
  s.in.progress = api::Progress{.steps = 400, .trainer_phase = "Failed"};
  s.in.checkpoint.reset();
  s.Exit(s.in.pods.size() - 1, 5);
  s.Step();
  EXPECT_EQ(s.Phase(), "Recovering");
  EXPECT_EQ(s.status().progress->step, 310);
  EXPECT_EQ(s.status().checkpoint->step, 300);
}

TEST(Service, ComesBackWheneverALiveAttemptHasNone) {
  Scenario s;
  s.in.job.spec.gpus.count = 4;
  s.Steps();
  ASSERT_TRUE(s.status().started);
  for (const bool running : {false, true}) {
    if (running) s.Start();
    s.in.service_exists = false;
    Decision d = s.Step();
    EXPECT_EQ(Scenario::Count(d, Action::Kind::kCreateService), 1) << running;
    EXPECT_EQ(d.actions.size(), 1u);
    EXPECT_TRUE(s.Step().actions.empty());
  }
  s.Edit();
  s.in.job.spec.suspend = true;
  s.Step();
  s.in.service_exists = false;
  EXPECT_EQ(Scenario::Count(s.Step(), Action::Kind::kCreateService), 0) << "an attempt that stops needs none";
}

TEST(Service, OneThatCannotBeMadeAgainIsTold) {
  Scenario s;
  s.Start();
  const std::string before = s.status().reason;
  s.in.service_exists = false;
  s.in.refused = "the API server refuses it: services \"tj-tiny\" is forbidden: exceeded quota: services";
  Decision d = s.Step();
  EXPECT_EQ(d.status.reason, before + "; its Service is gone and cannot be made again: " + s.in.refused);
  EXPECT_EQ(s.Phase(), "Running");
  EXPECT_EQ(Scenario::Count(d, Action::Kind::kCreateService), 1);
  s.in.refused.clear();
  s.Step();
  EXPECT_EQ(s.status().reason, before);
}

TEST(Service, AMissingOneDoesNotHoldTheGatesUp) {
  Scenario s;
  s.Step();
  s.in.service_exists = false;
  Decision d = s.Step();
  ASSERT_EQ(d.actions.size(), 2u);
  EXPECT_EQ(d.actions[0].kind, Action::Kind::kUngatePod);
  EXPECT_EQ(d.actions[1].kind, Action::Kind::kCreateService);
}

TEST(Resize, SaysWhatChangesWhereTheNumberStays) {
  Scenario s;
  s.Start();
  s.Edit();
  s.in.job.spec.gpus.per_node = 1;
  Decision d = s.Step();
  EXPECT_EQ(s.status().reason, "stopping attempt 1: resize from 2 GPUs on 1 node to 2 GPUs on 2 nodes");
  Scenario grows;
  grows.Start();
  grows.Edit();
  grows.in.job.spec.gpus.count = 4;
  grows.Step();
  EXPECT_EQ(grows.status().reason, "stopping attempt 1: resize from 2 to 4 GPUs");
}

TEST(Staleness, APodOfALaterAttemptIsLookedForBeforeItIsBelieved) {
  Scenario s;
  s.Start();
  api::PodSnapshot later = s.in.pods[0];
  later.attempt = 2;
  later.uid = "later";
  s.in.pods = {later};
  s.in.pods_fresh = false;
  Decision d = Decide(s.in, s.options);
  EXPECT_TRUE(d.refresh_pods);
  EXPECT_TRUE(d.actions.empty());
  EXPECT_EQ(api::StatusToJson(d.status), api::StatusToJson(s.status()));
}

TEST(Staleness, AStatusBehindItsPodsTakesTheirAttemptOver) {
  for (const bool ended : {false, true}) {
    SCOPED_TRACE(ended);
    Scenario s;
    s.Start();
    s.in.pods[0].attempt = 7;  // made by six attempts of which a restored status knows nothing
    if (ended) s.Exit(0, 137);
    s.in.pods_fresh = true;
    Decision d = Decide(s.in, s.options);
    EXPECT_EQ(d.status.attempt, 7);
    EXPECT_FALSE(d.status.placement);
    EXPECT_TRUE(d.actions.empty()) << "the status comes first: it fails where this copy of the job is old";
    EXPECT_THAT(d.status.reason, HasSubstr("attempt 7"));
    ASSERT_EQ(d.events.size(), 1u);
    EXPECT_EQ(d.events[0].type, "Warning");
    EXPECT_EQ(d.events[0].reason, "StatusWasBehind");
    EXPECT_TRUE(d.requeue_after);
    s.in.job.status = d.status;
    s.Steps();
    if (!ended) {
      EXPECT_TRUE(s.in.pods[0].deleting);
      EXPECT_EQ(s.status().attempt, 7) << "the next attempt waits for its end";
    }
    s.Reap();
    s.Start();
    EXPECT_EQ(s.status().attempt, 8);
    EXPECT_EQ(s.Phase(), "Running");
    EXPECT_EQ(s.status().restarts.user + s.status().restarts.infrastructure, 0) << "nothing is known to have failed";
  }
}

TEST(Staleness, AFinishedJobStaysFinishedWhateverItsPodsSay) {
  Scenario s;
  s.Start();
  s.Exit(0, 2);
  s.Steps();
  ASSERT_EQ(s.Phase(), "Failed");
  const std::string reason = s.status().reason;
  s.in.pods[0].attempt = 2;
  s.in.pods[0].exit_code.reset();
  s.in.pods[0].phase = api::PodPhase::kRunning;
  s.Steps();
  EXPECT_EQ(s.Phase(), "Failed");
  EXPECT_EQ(s.status().reason, reason);
  EXPECT_EQ(s.status().attempt, 2);
  EXPECT_TRUE(s.in.pods[0].deleting);
}

TEST(Staleness, ANumberThatNoAttemptOfOursHasIsSweptUp) {
  Scenario s;
  s.Start();
  api::PodSnapshot odd = s.in.pods[0];
  odd.name = "odd";
  odd.uid = "odd";
  odd.attempt = std::numeric_limits<int64_t>::max();
  s.in.pods.push_back(odd);
  s.Steps();
  EXPECT_EQ(s.status().attempt, 1);
  EXPECT_EQ(s.Phase(), "Running");
  EXPECT_TRUE(s.in.pods[1].deleting);
}

std::string FencedBy(const std::string& owner, int exit_code = 9) {
  return R"({"contract":1,"class":"Configuration","exitCode":)" + std::to_string(exit_code) +
         R"(,"message":"checkpoint directory /volumes/ck/run )" + owner + "\"}";
}

TEST(Fence, OfANewerAttemptOfTheSameJobLeadsToOneAboveIt) {
  Scenario s;
  s.in.job.spec.gpus.count = 4;
  s.Start();
  s.Exit(0, 9);
  s.in.pods[0].termination_message = FencedBy("is not that of this attempt");
  s.Exit(1, 9);
  s.in.pods[1].termination_message =
      FencedBy("belongs to attempt 5 (round 0) of this job; attempt 1 (round 0) is older and must stop");
  s.Step();
  EXPECT_EQ(s.Phase(), "Recovering");
  EXPECT_EQ(s.status().restarts.infrastructure, 1);
  EXPECT_THAT(s.status().reason, HasSubstr("belongs to attempt 5"));
  EXPECT_THAT(s.status().excluded_nodes, testing::IsEmpty());
  s.in.now += Milliseconds(2'000);
  s.Start();
  EXPECT_EQ(s.status().attempt, 6);
  EXPECT_EQ(s.Phase(), "Running");
  EXPECT_EQ(s.status().restarts.infrastructure, 1) << "counted once";
}

TEST(Fence, OfAnotherJobOrWithoutSenseIsNeverTriedAgain) {
  for (const std::string& said :
       {FencedBy("was taken over by job 4711 from job 0815; use another path"),
        FencedBy("belongs to attempt 1 (round 0) of this job; attempt 1 (round 0) is older and must stop"),
        FencedBy("belongs to attempt 99999999999999999999999 (round 0) of this job; attempt 1 is older"),
        FencedBy("belongs to attempt 9223372036854775807 (round 0) of this job; attempt 1 is older"),
        FencedBy("belongs to attempt 5 (round 0) of job 4711"),
        FencedBy("belongs to attempt 5 (round 0) of this job; attempt 1 is older", 2), std::string("fenced")}) {
    Scenario s;
    s.Start();
    s.Exit(0, said.find("\"exitCode\":2") != std::string::npos ? 2 : 9);
    s.in.pods[0].termination_message = said;
    s.Steps();
    EXPECT_EQ(s.Phase(), "Failed") << said;
    EXPECT_EQ(s.status().attempt, 1) << said;
  }
}

TEST(Staleness, APodThatIsMissingIsLookedForBeforeItIsMourned) {
  Scenario s;
  s.Start();
  s.in.pods.clear();
  s.in.all_pods.clear();
  s.in.pods_fresh = false;
  Decision d = Decide(s.in, s.options);
  EXPECT_TRUE(d.refresh_pods);
  EXPECT_EQ(api::StatusToJson(d.status), api::StatusToJson(s.status()));
}

TEST(Ownership, PodsOfOthersWithOurLabelAreNotTouched) {
  Scenario s;
  s.Start();
  s.in.pods[0].owner_uid = "someone else";
  s.in.pods[0].attempt = 0;
  s.in.pods_fresh = true;
  Decision d = Decide(s.in, s.options);
  for (const Action& action : d.actions) EXPECT_NE(action.uid, s.in.pods[0].uid);
}

}  // namespace
}  // namespace trainyard::lifecycle
