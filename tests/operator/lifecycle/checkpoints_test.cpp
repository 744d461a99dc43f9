// What is known of saves, failures and the disk: cadence in the resolved job, SaveFailing and its end, the forecast.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "operator/lifecycle/disk.h"
#include "operator/lifecycle/failure_rate.h"
#include "operator/lifecycle/resolved_job.h"
#include "tests/operator/lifecycle/scenario.h"

namespace trainyard::lifecycle {
namespace {

using nlohmann::json;
using testing::HasSubstr;

json ResolvedCheckpoint(const Scenario& s) { return ResolvedJob(s.in.job, *s.status().plan)["checkpoint"]; }

// Rank 0 at `step`, of which a step takes a second.
void At(Scenario& s, int64_t step) {
  s.in.progress = api::Progress{.step = step, .steps = 400, .step_seconds = 1, .trainer_phase = "Training"};
  s.in.progress_attempt = s.status().attempt;
  s.in.now += s.options.progress_interval;
}

std::vector<std::string> Warnings(const Decision& d) {
  std::vector<std::string> reasons;
  for (const Event& event : d.events) {
    if (event.type == "Warning") reasons.push_back(event.reason);
  }
  return reasons;
}

// ---- how often -----------------------------------------------------------------------------------------------------

TEST(Cadence, StepsAndMinutesGoToTheTrainerAsTheyAre) {
  Scenario s;
  s.Start();
  EXPECT_EQ(ResolvedCheckpoint(s)["everySteps"], 100);
  EXPECT_FALSE(ResolvedCheckpoint(s).contains("everySeconds"));
  EXPECT_FALSE(ResolvedCheckpoint(s).contains("meanSecondsBetweenFailures"));
  EXPECT_FALSE(s.status().checkpoint) << "nothing is said of checkpoints before there is something to say";
  s.in.job.spec.checkpoint->every_steps.reset();
  s.in.job.spec.checkpoint->every_minutes = 2.5;
  EXPECT_EQ(ResolvedCheckpoint(s)["everySteps"], 0);
  EXPECT_EQ(ResolvedCheckpoint(s)["everySeconds"], 150.0);
}

TEST(Cadence, FollowsFailuresWhereNothingIsAskedFor) {
  Scenario s;
  s.in.job.spec.checkpoint->every_steps.reset();
  s.Start();
  ASSERT_TRUE(s.status().checkpoint);
  // 1 / (2 / 20,000 + 1 / 720) hours.
  EXPECT_EQ(s.status().checkpoint->mean_failure_hours, 672);
  EXPECT_THAT(s.status().checkpoint->failure_source,
              HasSubstr("672 hours expected of 2 GPUs; failures seen: other jobs 0 in 0 GPU-hours, this job 0 in"));
  EXPECT_EQ(ResolvedCheckpoint(s)["everySteps"], 0);
  EXPECT_EQ(ResolvedCheckpoint(s)["meanSecondsBetweenFailures"], 672.0 * 3600);
  EXPECT_FALSE(ResolvedCheckpoint(s).contains("costSeconds"));
  At(s, 100);
  s.in.checkpoint = api::CheckpointStatus{.step = 100, .bytes = 5, .seconds = 4.5, .cost_seconds = 0.75};
  s.Steps();
  EXPECT_EQ(ResolvedCheckpoint(s)["costSeconds"], 0.75) << "the next attempt begins with what this one measured";
  EXPECT_EQ(ResolvedCheckpoint(s)["saveSeconds"], 4.5);
}

TEST(Cadence, TheEstimateIsFrozenByTheClaimAndLearnsFromTheAttempt) {
  Scenario s;
  s.in.job.spec.checkpoint->every_steps.reset();
  s.Start();
  s.in.now += std::chrono::hours(3);
  s.in.others_exposure = {.gpu_hours = 100, .failures = 50};
  At(s, 100);
  s.in.checkpoint = api::CheckpointStatus{.step = 100, .bytes = 5, .every_seconds = 1234.567};
  s.Steps();
  EXPECT_EQ(s.status().checkpoint->mean_failure_hours, 672) << "pods of one attempt must not differ";
  EXPECT_EQ(s.status().checkpoint->step, 100);
  EXPECT_EQ(s.status().checkpoint->every_seconds, 1230);
  EXPECT_FALSE(s.status().exposure) << "it runs still";

  s.Exit(0, 137);
  s.Steps();
  ASSERT_TRUE(s.status().exposure);
  EXPECT_EQ(s.status().exposure->failures, 1);
  EXPECT_NEAR(s.status().exposure->gpu_hours, 2 * 3.0, 0.1);
  s.in.now += Milliseconds(600'000);
  s.Start();
  ASSERT_EQ(s.status().attempt, 2);
  EXPECT_LT(*s.status().checkpoint->mean_failure_hours, 10);
  EXPECT_EQ(s.status().checkpoint->step, 100) << "what is known of the checkpoint stays";
}

TEST(Cadence, AnIntendedStopIsNoFailure) {
  Scenario s;
  s.Start();
  s.in.now += std::chrono::hours(1);
  s.in.job.spec.suspend = true;
  s.Edit();
  s.Steps();
  s.Reap();
  s.Steps();
  ASSERT_EQ(s.Phase(), "Suspended");
  ASSERT_TRUE(s.status().exposure);
  EXPECT_EQ(s.status().exposure->failures, 0);
  EXPECT_NEAR(s.status().exposure->gpu_hours, 2, 1e-3);
}

TEST(Cadence, WhatElseIsAskedForIsInTheResolvedJobAndNothingMore) {
  Scenario s;
  s.Start();
  const json plain = ResolvedCheckpoint(s);
  EXPECT_EQ(plain.size(), 6u) << plain;
  api::Checkpoint& checkpoint = *s.in.job.spec.checkpoint;
  checkpoint.keep_every_steps = 1000;
  checkpoint.verify = api::VerifyCheckpoints{};
  checkpoint.resume_from = api::ResumeFrom{"checkpoints", "base", 7, true};
  checkpoint.on_delete = api::OnDelete::kDelete;
  json wanted = plain;
  wanted.update({{"keepEverySteps", 1000}, {"verifyAfterSave", true}, {"verifyEveryHours", 24.0}});
  wanted["resumeFrom"] = {{"volume", "checkpoints"}, {"path", "base"}, {"step", 7}, {"weightsOnly", true}};
  EXPECT_EQ(ResolvedCheckpoint(s), wanted);
}

TEST(FailureRate, IsThePriorWhereNothingWasSeen) {
  EXPECT_DOUBLE_EQ(ProbableRate(0.25, 0, 0), 0.25);
  EXPECT_DOUBLE_EQ(EstimateFailures(1, {}, {}).mean_hours, 695);      // 1 / (1 / 20,000 + 1 / 720)
  EXPECT_DOUBLE_EQ(EstimateFailures(1024, {}, {}).mean_hours, 19.0);  // 1 / (1024 / 20,000 + 1 / 720)
}

TEST(FailureRate, IsTheRootOfItsEquation) {
  for (double failures : {0.0, 1.0, 7.0, 1000.0}) {
    for (double exposure : {0.1, 10.0, 1e6}) {
      const double rate = ProbableRate(0.01, failures, exposure);
      const double spread = std::log(10.0) * std::log(10.0);
      EXPECT_NEAR(failures - rate * exposure, std::log(rate / 0.01) / spread, 1e-6 * (1 + failures + rate * exposure));
    }
  }
}

TEST(FailureRate, ComesNearWhatIsSeenWithEveryFailure) {
  // A failure each 4 hours where one in 700 was thought of: after 3 of them it is known to a third, after 50 to a
  // tenth.
  EXPECT_NEAR(1 / ProbableRate(1.0 / 700, 3, 12), 4, 2);
  EXPECT_NEAR(1 / ProbableRate(1.0 / 700, 50, 200), 4, 0.4);
  EXPECT_GT(1 / ProbableRate(1.0 / 700, 0, 700), 700) << "none in all the time that was thought to have one";
}

TEST(FailureRate, FailuresInARowDoNotMakeAJobSaveAllTheTime) {
  EXPECT_NEAR(EstimateFailures(8, {.gpu_hours = 0.01, .failures = 5}, {}).mean_hours, 0.25, 0.15);
}

TEST(FailureRate, IsFiniteWhateverAStatusSays) {
  for (double hours : {-1.0, 0.0, 1e300}) {
    for (int64_t failures : {int64_t{-5}, int64_t{0}, int64_t{1} << 62}) {
      const double mean = EstimateFailures(8, {hours, failures}, {hours, failures}).mean_hours;
      EXPECT_TRUE(std::isfinite(mean) && mean > 0) << hours << " " << failures << " " << mean;
    }
  }
}

// ---- saves that fail
// -------------------------------------------------------------------------------------------------

TEST(SaveFailing, IsToldAtOnceOnceAndHeals) {
  Scenario s;
  s.Start();
  At(s, 100);
  s.in.checkpoint = api::CheckpointStatus{.step = 100, .bytes = 5};
  s.Steps();
  s.in.now += Milliseconds(1'000);  // before progress is due again
  s.in.checkpoint->failures = 1;
  s.in.checkpoint->failure = "step 200, rank 1: No space left on device\n";
  Decision d = s.Step();
  EXPECT_THAT(Warnings(d), testing::ElementsAre("SaveFailing"));
  EXPECT_EQ(s.ConditionReason(kCheckpointHealthy), "False/SaveFailing");
  EXPECT_EQ(FindCondition(s.status(), kCheckpointHealthy)->message,
            "1 save in a row failed: step 200, rank 1: No space left on device; training goes on, the last good "
            "checkpoint is of step 100");
  EXPECT_EQ(s.status().checkpoint->step, 100);
  EXPECT_EQ(s.Phase(), "Running");

  s.in.checkpoint->failures = 2;
  EXPECT_THAT(s.Step().events, testing::IsEmpty());
  s.in.now += s.options.progress_interval;
  EXPECT_THAT(Warnings(s.Step()), testing::IsEmpty()) << "the condition counts on, the event does not";
  EXPECT_THAT(FindCondition(s.status(), kCheckpointHealthy)->message, HasSubstr("2 saves in a row failed"));

  s.in.now += Milliseconds(1'000);
  s.in.checkpoint = api::CheckpointStatus{.step = 300, .bytes = 5, .failures = 0};
  d = s.Step();
  ASSERT_EQ(d.events.size(), 1u);
  EXPECT_EQ(d.events[0].reason, "Saved");
  EXPECT_EQ(s.ConditionReason(kCheckpointHealthy), "True/Saved");
}

TEST(SaveFailing, IsSaidOfTheFirstSaveToo) {
  Scenario s;
  s.Start();
  At(s, 100);
  s.in.checkpoint = api::CheckpointStatus{.failures = 1, .failure = "step 100, rank 0: Read-only file system"};
  s.Steps();
  EXPECT_THAT(FindCondition(s.status(), kCheckpointHealthy)->message, HasSubstr("there is no good checkpoint"));
}

TEST(Damaged, IsToldAndHealsWithTheNextThatReadsBackWell) {
  Scenario s;
  s.Start();
  At(s, 100);
  s.in.checkpoint = api::CheckpointStatus{.step = 100, .bytes = 5, .verified = false};
  EXPECT_THAT(Warnings(s.Step()), testing::ElementsAre("Damaged"));
  EXPECT_EQ(s.ConditionReason(kCheckpointHealthy), "False/Damaged");
  At(s, 200);
  s.in.checkpoint = api::CheckpointStatus{.step = 200, .bytes = 5, .verified = true};
  s.Steps();
  EXPECT_EQ(s.ConditionReason(kCheckpointHealthy), "True/Saved");
}

TEST(Damaged, OfAnOlderOneIsToldWithItsWordsUntilItIsGone) {
  Scenario s;
  s.Start();
  At(s, 200);
  const std::string damage = "step 100: model/shard-00001-of-00002.safetensors: tensor a of rank 0: wrong";
  s.in.checkpoint = api::CheckpointStatus{.step = 200, .bytes = 5, .verified = true, .damage = damage};
  EXPECT_THAT(Warnings(s.Step()), testing::ElementsAre("Damaged"));
  EXPECT_EQ(s.ConditionReason(kCheckpointHealthy), "False/Damaged");
  EXPECT_THAT(FindCondition(s.status(), kCheckpointHealthy)->message, HasSubstr(damage));
  At(s, 300);
  s.in.checkpoint = api::CheckpointStatus{.step = 300, .bytes = 5, .verified = true};
  s.Steps();
  EXPECT_EQ(s.ConditionReason(kCheckpointHealthy), "True/Saved");
}

// ---- the disk -----------------------------------------------------------------------------------------------------

TEST(Disk, IsFullWhenASaveFindsNoRoomBesideThoseThatStay) {
  DiskUse use{.free_bytes = 350,
              .directory_bytes = 100,
              .save_bytes = 100,
              .keep_last = 3,
              .steps_per_save = 10,
              .step_seconds = 2,
              .steps_left = 1000};
  // One is there; two more stay and a fourth is written beside them: three more fit.
  EXPECT_EQ(SecondsUntilFull(use), std::nullopt);
  use.free_bytes = 250;
  EXPECT_EQ(SecondsUntilFull(use), 3 * 10 * 2) << "the third save finds 50 bytes";
  use.directory_bytes = 300;
  EXPECT_EQ(SecondsUntilFull(use), std::nullopt) << "each new one takes the place of an old one, and one is free";
  use.free_bytes = 99;
  EXPECT_EQ(SecondsUntilFull(use), 10 * 2) << "the very next one";
  use.steps_left = 5;
  EXPECT_EQ(SecondsUntilFull(use), std::nullopt) << "there is no next one";
}

TEST(Disk, FillsByWhatStaysForItsStep) {
  DiskUse use{.free_bytes = 550,
              .directory_bytes = 300,
              .save_bytes = 100,
              .keep_last = 3,
              .keep_every_steps = 50,
              .steps_per_save = 10,
              .step_seconds = 2,
              .steps_left = 1000};
  EXPECT_EQ(SecondsUntilFull(use), 5 * 50 * 2) << "one is for the save under way, four stay, the fifth does not fit";
  use.steps_left = 200;
  EXPECT_EQ(SecondsUntilFull(use), std::nullopt);
  use.save_bytes = 0;
  EXPECT_EQ(SecondsUntilFull(use), std::nullopt) << "nothing is known";
}

TEST(Disk, IsWarnedOfBeforeItIsFull) {
  Scenario s;
  s.in.job.spec.checkpoint->every_steps = 10;
  s.Start();
  At(s, 20);
  s.in.checkpoint = api::CheckpointStatus{
      .step = 20, .bytes = 1'000'000'000, .free_bytes = 1'500'000'000, .directory_bytes = 1'000'000'000};
  const Decision d = s.Step();
  EXPECT_THAT(Warnings(d), testing::ElementsAre("DiskFilling"));
  EXPECT_EQ(s.ConditionReason(kCheckpointHealthy), "True/DiskFilling");
  EXPECT_THAT(FindCondition(s.status(), kCheckpointHealthy)->message,
              HasSubstr("1500 MB are free and a save takes 1000 MB"));
  ASSERT_TRUE(s.status().checkpoint->full_at);
  EXPECT_GE(*s.status().checkpoint->full_at, s.in.now) << "never in the past";
  EXPECT_LE(*s.status().checkpoint->full_at, s.in.now + Milliseconds(320'000));
  At(s, 30);
  EXPECT_THAT(Warnings(s.Step()), testing::IsEmpty()) << "once";
  At(s, 40);
  s.in.checkpoint->free_bytes = 100'000'000'000;
  s.Steps();
  EXPECT_FALSE(s.status().checkpoint->full_at);
  EXPECT_EQ(s.ConditionReason(kCheckpointHealthy), "True/Saved");
}

}  // namespace
}  // namespace trainyard::lifecycle
