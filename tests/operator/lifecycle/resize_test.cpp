// status.resize: from, to, why, and where the time went.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/operator/lifecycle/scenario.h"

namespace trainyard::lifecycle {
namespace {

using testing::HasSubstr;

void Report(Scenario& s, api::Progress progress) {
  progress.steps = 400;
  s.in.progress = progress;
  s.in.progress_attempt = s.status().attempt;
}

void Later(Scenario& s, int64_t ms) { s.in.now += Milliseconds(ms); }

// From the wish to the first step of an attempt that was resized from 2 to 4 GPUs. With `first_step_seconds` the first
// look at it finds that step done.
void RunThroughAResize(Scenario& s, std::optional<double> first_step_seconds = std::nullopt) {
  s.Start();
  Report(s, {.step = 100, .trainer_phase = "Training", .resumed_from_step = 0});
  s.Steps();
  Later(s, 60'000);
  s.in.job.spec.gpus.count = 4;
  s.Edit();
  s.Step();
  ASSERT_EQ(s.Phase(), "Resizing");
  Later(s, 3'000);
  Report(s, {.step = 150, .trainer_phase = "Stopped", .parameter_hash = "p", .state_hash = "abc"});
  s.in.checkpoint = api::CheckpointStatus{.step = 150, .bytes = 7, .seconds = 1.1, .write_seconds = 1.0};
  s.Step();
  Later(s, 1'000);
  s.Reap();
  s.Steps();
  ASSERT_EQ(s.status().attempt, 2);
  Later(s, 2'000);
  s.Start();
  s.in.progress.reset();
  s.in.checkpoint.reset();
  Later(s, 500);
  Report(s, {.step = first_step_seconds ? 151 : 150,
             .trainer_phase = "Training",
             .resumed_from_step = 150,
             .loaded_state_hash = "abc",
             .load_seconds = 0.25,
             .load_bytes = 4242,
             .first_step_seconds = first_step_seconds});
  s.Steps();
  Later(s, 700);
  s.in.progress->step = 151;
  s.Steps();
}

TEST(Resize, SaysFromToWhyAndWhereTheTimeWent) {
  Scenario s;
  RunThroughAResize(s);
  ASSERT_TRUE(s.status().resize);
  const api::ResizeStatus& resize = *s.status().resize;
  EXPECT_EQ(resize.from, 2);
  EXPECT_EQ(resize.to, 4);
  EXPECT_EQ(resize.why, "the spec has changed");
  EXPECT_EQ(resize.attempt, 2);
  EXPECT_EQ(resize.seconds.place, 0);
  EXPECT_EQ(resize.seconds.save, 1.0);
  EXPECT_EQ(resize.seconds.drain, 3.0) << "four seconds from the stop to the end, one of which was the save";
  EXPECT_EQ(resize.seconds.load, 0.25);
  EXPECT_EQ(resize.seconds.start, 2.25) << "two and a half until it was seen to have loaded";
  EXPECT_EQ(resize.seconds.first_step, 0.7);
  EXPECT_EQ(resize.bytes_read_per_rank, 4242);
  EXPECT_EQ(resize.saved_hash, "abc");
  EXPECT_EQ(resize.loaded_hash, "abc");
}

TEST(Resize, TheTrainersWordOnItsFirstStepIsTaken) {
  Scenario s;
  RunThroughAResize(s, /*first_step_seconds=*/0.5);
  const api::ResizeStatus& resize = *s.status().resize;
  EXPECT_EQ(resize.seconds.first_step, 0.5);
  EXPECT_EQ(resize.seconds.start, 1.75) << "what a look finds done already is none of the start";
}

TEST(Resize, IsNotToldAnewBySteps) {
  Scenario s;
  RunThroughAResize(s);
  const api::ResizeStatus before = *s.status().resize;
  Later(s, 60'000);
  s.in.progress->step = 300;
  s.Steps();
  EXPECT_EQ(*s.status().resize, before);
}

TEST(Resize, ThatWaitsForAPlaceSaysSinceWhen) {
  Scenario s(1);
  s.Start();
  s.in.job.spec.gpus.count = 4;
  s.Edit();
  s.Steps();
  ASSERT_EQ(s.Phase(), "Running");
  ASSERT_TRUE(s.status().resize);
  EXPECT_EQ(s.status().resize->wanted_at, s.in.now);
  EXPECT_FALSE(s.status().resize->stopped_at);
  Later(s, 42'000);
  api::NodeSnapshot more = s.in.nodes[0];
  more.name = "node-1";
  s.in.nodes.push_back(more);
  s.Step();
  ASSERT_EQ(s.Phase(), "Resizing");
  EXPECT_EQ(s.status().resize->seconds.place, 42);

  // And one that is taken back before there was a place is forgotten.
  Scenario back(1);
  back.Start();
  back.in.job.spec.gpus.count = 4;
  back.Edit();
  back.Steps();
  ASSERT_TRUE(back.status().resize);
  back.in.job.spec.gpus.count = 2;
  back.Edit();
  back.Steps();
  EXPECT_FALSE(back.status().resize);
}

TEST(Resize, AnElasticJobThatLosesANodeSaysThatItShrank) {
  Scenario s(2, 2);
  s.in.job.spec.gpus = {.count = 4, .min_count = 2};
  s.Start();
  ASSERT_EQ(s.status().gpus, 4);
  s.in.nodes.pop_back();
  for (api::PodSnapshot& pod : s.in.pods) {
    if (pod.node == "node-1") pod.deleting = true;
  }
  s.Steps();
  s.Reap();
  Later(s, 5'000);
  s.Steps();
  s.Reap();
  s.Steps();
  ASSERT_EQ(s.status().attempt, 2) << s.status().reason;
  ASSERT_TRUE(s.status().resize);
  EXPECT_EQ(s.status().resize->from, 4);
  EXPECT_EQ(s.status().resize->to, 2);
  EXPECT_THAT(s.status().resize->why, HasSubstr("node-1"));
}

TEST(Resize, AFailureThatBringsTheJobBackAsItWasIsNone) {
  Scenario s;
  s.in.job.spec.gpus = {.count = 2, .min_count = 1};
  s.Start();
  s.Exit(0, 137);
  s.Steps();
  EXPECT_TRUE(s.status().resize) << "it may come back smaller";
  Later(s, 600'000);
  s.Start();
  ASSERT_EQ(s.status().attempt, 2);
  EXPECT_FALSE(s.status().resize);
}

TEST(Resize, GoesOnWithTheNextClaimWhenTheFirstDidNotComeUp) {
  Scenario s;
  s.Start();
  s.in.job.spec.gpus.count = 4;
  s.Edit();
  s.Step();
  s.Reap();
  s.Steps();
  ASSERT_EQ(s.status().resize->attempt, 2);
  s.in.refused = "quota";  // its pods cannot be made
  std::erase_if(s.in.pods, [](const auto& pod) { return pod.attempt == 2; });
  s.in.job.status.started = false;
  s.Steps();
  s.in.refused.clear();
  s.Reap();
  Later(s, 600'000);
  s.Steps();
  ASSERT_EQ(s.status().attempt, 3) << s.status().reason;
  EXPECT_EQ(s.status().resize->attempt, 3);
  EXPECT_EQ(s.status().resize->to, 4);
}

}  // namespace
}  // namespace trainyard::lifecycle
