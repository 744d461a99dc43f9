// How long a stop may take, and what is told when that was too short.
#include <limits>

#include <gmock/gmock.h>

#include "operator/api/json.h"
#include "operator/lifecycle/pod_builder.h"
#include "operator/lifecycle/pod_spec.h"
#include "tests/operator/lifecycle/scenario.h"

namespace trainyard::lifecycle {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

void UseOwnProgram(Scenario& s) {
  s.in.job.spec.image = "me/train:1";
  s.in.job.spec.command = {"train"};
  s.in.job.spec.parallelism.strategy = api::Strategy::kDdp;
}

// A running attempt 1 that is at `step` and has saved at `saved`.
void Train(Scenario& s, int64_t step, int64_t saved, double step_seconds = 1) {
  s.Start();
  s.in.progress_attempt = s.status().attempt;
  s.in.progress = api::Progress{
      .step = step, .steps = 400, .step_seconds = step_seconds, .trainer_phase = "Training", .resumed_from_step = 0};
  if (saved > 0) s.in.checkpoint = api::CheckpointStatus{.step = saved};
  s.Step();
}

// The grace of the pods of the next attempt, which is claimed after a failure of this one.
int64_t GraceOfNextAttempt(Scenario& s) {
  s.Exit(s.in.pods.size() - 1, 137);
  s.Step();
  s.Reap();
  s.in.now += std::chrono::minutes(10);
  for (int i = 0; i < 5; ++i) {
    for (const Action& action : s.Step().actions) {
      if (action.kind != Action::Kind::kCreatePod) continue;
      const auto& spec = action.object["spec"];
      for (const auto& variable : spec["containers"][0]["env"]) {
        if (variable["name"] != "TRAINYARD_GRACE_SECONDS") continue;
        // The launcher's own end comes before the pod's.
        EXPECT_EQ(std::stoll(variable["value"].get<std::string>()),
                  std::max<int64_t>(1, spec["terminationGracePeriodSeconds"].get<int64_t>() - 5));
      }
      return spec["terminationGracePeriodSeconds"];
    }
  }
  ADD_FAILURE() << "no next attempt: " << s.status().reason;
  return -1;
}

TEST(Grace, IsTenMinutesAsLongAsNoStepHasBeenMeasured) {
  for (const bool own : {false, true}) {
    Scenario s;
    if (own) UseOwnProgram(s);
    s.Start();
    EXPECT_EQ(GraceOfNextAttempt(s), 600) << own;
  }
}

TEST(Grace, OfAMeasuredStepIsTwoOfThemAndAnEvaluation) {
  Scenario s;
  s.in.job.spec.data->validation.clear();
  Train(s, 50, 0, 200);
  EXPECT_EQ(s.status().progress->step_gpus, 2);
  EXPECT_EQ(GraceOfNextAttempt(s), 60 + 2 * 200);
  EXPECT_EQ(s.status().progress->step_seconds, 200) << "kept for those who look, and for the next attempt";

  Scenario evaluates;  // 16 sequences on 2 GPUs in micro-batches of 2: four per step
  evaluates.in.job.spec.training.evaluation.batches = 8;
  Train(evaluates, 50, 0, 100);
  ASSERT_EQ(evaluates.status().plan->accumulation, 4);
  EXPECT_EQ(GraceOfNextAttempt(evaluates), 60 + 2 * 100 + 8 * 100 / 4 / 2);

  Scenario quick;
  quick.in.job.spec.data->validation.clear();
  Train(quick, 50, 0, 0.2);
  EXPECT_EQ(GraceOfNextAttempt(quick), 61);
}

TEST(Grace, OfAPlanThatKnowsOfLongerStepsThanThatIsAsLongAsTheyTake) {
  Scenario s;
  api::TrainingJob& job = s.in.job;
  job.spec.data->validation.clear();
  job.status.plan.emplace().step_seconds = 100;
  EXPECT_EQ(GraceSeconds(job), 600);
  job.status.plan->step_seconds = 400;
  EXPECT_EQ(GraceSeconds(job), 60 + 2 * 400);
  job.status.progress = api::Progress{.step_seconds = 50};
  EXPECT_EQ(GraceSeconds(job), 60 + 2 * 50) << "what was measured is better";
}

TEST(Progress, AStepTimeThatIsKeptMeasuresNothing) {
  Scenario s;
  Train(s, 340, 300, 200);
  s.Exit(0, 137);
  s.Step();
  s.in.now += std::chrono::minutes(10);
  s.Start();
  ASSERT_EQ(s.status().attempt, 2);
  const auto measured = api::StatusToJson(s.status()).value("measured", nlohmann::json());
  s.in.progress_attempt = 2;
  s.in.progress = api::Progress{.steps = 400, .trainer_phase = "Restoring"};
  s.in.job.status.plan->step_seconds = 1;
  s.Step();
  EXPECT_EQ(s.status().progress->step_seconds, 200);
  EXPECT_EQ(api::StatusToJson(s.status()).value("measured", nlohmann::json()), measured);
}

TEST(Grace, OfFewerGpusIsLongerAndOfMoreNoShorter) {
  for (const auto& [count, expected] : {std::pair<int64_t, int64_t>{1, 60 + 2 * 400}, {4, 60 + 2 * 200}}) {
    Scenario s;
    s.in.job.spec.data->validation.clear();
    Train(s, 50, 0, 200);
    s.Edit();
    s.in.job.spec.gpus.count = count;
    s.Step();
    s.Exit(0, 10);
    Decision d;
    for (int i = 0; i < 5 && Scenario::Count(d, Action::Kind::kCreatePod) == 0; ++i) d = s.Step();
    ASSERT_EQ(s.status().attempt, 2);
    EXPECT_EQ(s.status().gpus, count);
    EXPECT_EQ(GraceSeconds(s.in.job), expected) << count;
  }
}

TEST(Grace, IsBoundedByTheSpecWhateverWasMeasured) {
  Scenario s;
  api::TrainingJob& job = s.in.job;
  job.status.progress = api::Progress{.step_seconds = 1e300};
  EXPECT_EQ(GraceSeconds(job), 1800);
  job.spec.recovery.max_grace_seconds = 30;
  EXPECT_EQ(GraceSeconds(job), 30);
  EXPECT_EQ(LostGraceSeconds(job), 30);
  job.status.progress->step_seconds = -1;
  EXPECT_EQ(GraceSeconds(job), 30);
  job.spec.recovery.max_grace_seconds = 86'400;
  EXPECT_EQ(GraceSeconds(job), 600);
  job.status.plan.emplace();
  job.status.plan->checkpoint_bytes = 50'000'000'000;  // 500 s each at 100 MB/s
  EXPECT_EQ(LostGraceSeconds(job), 60 + 1000);
  EXPECT_EQ(GraceSeconds(job), 600 + 1000);
  job.status.plan->checkpoint_bytes = std::numeric_limits<int64_t>::max();
  EXPECT_EQ(GraceSeconds(job), 86'400);
}

TEST(Grace, OfAnAttemptThatIsLostIsAsShortAsEver) {
  Scenario s;
  s.in.job.spec.gpus.count = 4;
  s.Start();
  s.in.pods[1].deleting = true;  // by someone else, with all of its own grace
  s.Exit(0, 137);
  s.in.pods[0].reason = "Error";
  Decision d = s.Step();
  ASSERT_EQ(s.status().stop->reason, "Failed");
  ASSERT_EQ(Scenario::Count(d, Action::Kind::kDeletePod), 1);
  EXPECT_EQ(d.actions[0].name, s.in.pods[1].name) << "what hangs is not waited for";
  EXPECT_EQ(d.actions[0].grace_seconds, 60);
  EXPECT_TRUE(s.Step().actions.empty()) << "once";
}

// The others wait for a rank that is gone, until the deadline of a collective, and can save nothing without it.
TEST(Grace, OfAGangThatLostANodeIsNoneThatCounts) {
  for (const bool own : {false, true}) {
    Scenario s;
    if (own) UseOwnProgram(s);
    s.in.job.spec.gpus.count = 4;
    s.Start();
    ASSERT_EQ(s.in.pods.size(), 2u);
    s.in.nodes[1].ready = false;
    s.in.nodes[1].conditions["Ready"] = "Unknown";
    s.in.nodes[1].ready_transition_time = s.in.now;
    s.in.now += s.options.pod_termination_timeout;
    const Decision d = s.Step();
    EXPECT_EQ(s.ConditionReason(kReady), "False/NodeLost");
    ASSERT_EQ(Scenario::Count(d, Action::Kind::kDeletePod), 2);
    const int64_t grace = own ? 60 : 10;  // a program of a user may still save something
    EXPECT_EQ(d.actions[0].grace_seconds, grace);
    EXPECT_EQ(d.actions[1].grace_seconds, grace);
    EXPECT_EQ(s.status().stop->due, s.in.now + std::chrono::seconds(grace) + s.options.pod_termination_timeout);
  }
}

TEST(Grace, OfAGangThatIsTakenBackIsShortAndOfAnIntendedStopThePodsOwn) {
  Scenario undone;
  undone.Steps();
  undone.in.now += Milliseconds(121'000);
  Decision d = undone.Step();
  ASSERT_EQ(Scenario::Count(d, Action::Kind::kDeleteAllPods), 1);
  EXPECT_EQ(d.actions[0].grace_seconds, 60);
  Scenario suspended;
  suspended.Start();
  suspended.Edit();
  suspended.in.job.spec.suspend = true;
  d = suspended.Step();
  ASSERT_EQ(Scenario::Count(d, Action::Kind::kDeleteAllPods), 1);
  EXPECT_EQ(d.actions[0].grace_seconds, -1);
}

int64_t Told(const std::vector<Event>& events) {
  return std::count_if(events.begin(), events.end(), [](const Event& event) { return event.reason == "WorkLost"; });
}

TEST(CutOff, SaysSinceWhichStepWorkIsLost) {
  Scenario s;
  Train(s, 340, 300);
  s.Edit();
  s.in.job.spec.suspend = true;
  s.Step();
  s.in.pods[0].exit_code = 137;  // its phase follows
  Decision d = s.Step();
  const std::string message =
      "attempt 1 was killed at the end of its grace, before it had saved: the work since step 300 is lost; a stop may "
      "take 1800 s at most (spec.recovery.maxGraceSeconds)";
  EXPECT_EQ(s.status().reason, message);
  EXPECT_EQ(Told(d.events), 1);
  EXPECT_EQ(s.ConditionReason(kCheckpointHealthy), "False/WorkLost");
  EXPECT_EQ(Told(s.Step().events), 0) << "told once";
  s.Exit(0, 137);
  s.Steps();
  EXPECT_EQ(s.Phase(), "Suspended");
  EXPECT_EQ(s.status().reason, "spec.suspend is set; " + message);
  EXPECT_EQ(s.status().restarts.infrastructure, 0);
  s.Reap();
  s.Edit();
  s.in.job.spec.suspend = false;
  s.Start();
  s.in.progress_attempt = 2;
  s.in.progress->resumed_from_step = 300;
  s.Step();
  EXPECT_EQ(s.ConditionReason(kCheckpointHealthy), "True/Resumed");
}

TEST(CutOff, OfAResizeAndOfSomeoneElsesDeletionToo) {
  Scenario s;
  Train(s, 340, 0);
  s.Edit();
  s.in.job.spec.gpus.count = 4;
  s.Step();
  s.Exit(0, 137);
  Decision d = s.Step();
  EXPECT_EQ(Told(d.events), 1);
  EXPECT_EQ(s.status().attempt, 2);
  EXPECT_THAT(s.status().reason, HasSubstr("; attempt 1 was killed at the end of its grace, before it had saved: the "
                                           "work since step 0 is lost"));

  Scenario drained;
  Train(drained, 340, 300);
  drained.in.pods[0].deleting = true;
  drained.Exit(0, 137);
  d = drained.Step();
  EXPECT_EQ(Told(d.events), 1);
  EXPECT_EQ(drained.Phase(), "Recovering");
  EXPECT_THAT(drained.status().reason, HasSubstr("the work since step 300 is lost"));
}

TEST(CutOff, OfAPodThatWasGoneBeforeAnybodyLooked) {
  Scenario s;
  Train(s, 340, 300);
  s.Edit();
  s.in.job.spec.suspend = true;
  s.Step();
  s.Exit(0, 137);
  s.in.ended = s.in.pods;
  s.in.pods.clear();
  s.in.ended[0].attempt = 0;  // of an earlier one
  Scenario other = s;
  EXPECT_EQ(Told(other.Step().events), 0);
  s.in.ended[0].attempt = 1;
  EXPECT_EQ(Told(s.Step().events), 1);
  EXPECT_EQ(s.Phase(), "Suspended");
  EXPECT_THAT(s.status().reason, HasSubstr("the work since step 300 is lost"));
}

TEST(CutOff, IsNoSuchThingWhereNothingIsLost) {
  for (const int kind : {0, 1, 2, 3}) {
    Scenario s;
    if (kind == 3) s.in.job.spec.checkpoint.reset();  // nothing is ever saved
    Train(s, 340, 300);
    s.Edit();
    s.in.job.spec.suspend = true;
    s.Step();
    s.Exit(0, kind == 0 ? 10 : 137);
    if (kind == 1) s.in.checkpoint->step = 340;  // saved, and then it hung
    if (kind == 2) s.in.progress->trainer_phase = "Stopped";
    EXPECT_EQ(Told(s.Step().events), 0) << kind;
    EXPECT_NE(s.ConditionReason(kCheckpointHealthy), "False/WorkLost") << kind;
  }
  Scenario memory;
  Train(memory, 340, 300);
  memory.in.pods[0].deleting = true;
  memory.Exit(0, 137);
  memory.in.pods[0].reason = "OOMKilled";
  EXPECT_EQ(Told(memory.Step().events), 0);
}

TEST(CutOff, OfAUsersOwnProgramIsForgottenWhenItRunsAgain) {
  Scenario s;
  UseOwnProgram(s);
  s.Start();
  s.Edit();
  s.in.job.spec.gpus.count = 4;
  s.Step();
  s.Exit(0, 137);
  s.Step();
  EXPECT_EQ(s.ConditionReason(kCheckpointHealthy), "False/WorkLost");
  EXPECT_THAT(s.status().reason, HasSubstr("before it ended by itself: what it had not saved is lost"));
  s.Reap();
  s.Start();
  ASSERT_EQ(s.Phase(), "Running");
  EXPECT_EQ(s.ConditionReason(kCheckpointHealthy), "True/RunsAgain");
  EXPECT_THAT(s.status().reason, StartsWith("running on 4 GPUs"));
}

}  // namespace
}  // namespace trainyard::lifecycle
