#include "operator/cli/run/narrator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

#include "operator/cli/run/printer.h"

namespace trainyard::cli {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class NarratorTest : public testing::Test {
 protected:
  std::vector<std::string> See(int64_t seconds) {
    now_ = TimePoint(Milliseconds(seconds * 1000));
    std::vector<std::string> kinds;
    events_ = narrator_.See(job_, now_);
    for (const StoryEvent& event : events_) kinds.push_back(event.kind);
    return kinds;
  }

  api::TrainingJob job_;
  TimePoint now_;
  Narrator narrator_{Milliseconds(5000)};
  std::vector<StoryEvent> events_;
};

TEST_F(NarratorTest, TellsEachThingOnce) {
  job_.status.reason = "planning";
  EXPECT_THAT(See(0), ElementsAre("phase"));
  EXPECT_THAT(See(1), IsEmpty());
  job_.status.plan =
      api::PlanStatus{"FSDP", 2, 2, "Simulated", 4, 2, 3'030'272, 1 << 20, 4ll << 30, 36'363'264, "it fits", 1};
  EXPECT_THAT(See(2), ElementsAre("plan"));
  EXPECT_EQ(events_[0].text,
            "plan: 2 GPUs (2 per node, Simulated), FSDP, micro batch 4 x 2; 3.03M parameters, 1.0 MiB of 4.0 GiB per "
            "GPU, checkpoints of 36.4 MB; it fits");
  job_.status.phase = api::Phase::kRunning;
  EXPECT_THAT(See(3), ElementsAre("phase"));
  EXPECT_EQ(events_[0].text, "Running: planning");
  EXPECT_THAT(See(4), IsEmpty());
}

TEST_F(NarratorTest, TellsProgressNoMoreThanItsShare) {
  job_.status.phase = api::Phase::kRunning;
  See(0);
  job_.status.progress = api::Progress{.step = 1,
                                       .steps = 100,
                                       .loss = 5.5,
                                       .tokens_per_second = 18'200,
                                       .step_seconds = 0.5,
                                       .trainer_phase = "Training"};
  EXPECT_THAT(See(1), ElementsAre("progress"));
  EXPECT_EQ(events_[0].text, "step 1 of 100, loss 5.5, 18.2k tokens/s, ETA 49.5s");
  for (int64_t second = 2; second < 6; ++second) {
    job_.status.progress->step = second;
    EXPECT_THAT(See(second), IsEmpty());
  }
  job_.status.progress->step = 6;
  EXPECT_THAT(See(6), ElementsAre("progress"));
  EXPECT_THAT(See(60), IsEmpty());  // no new step, nothing to tell
  job_.status.progress->validation_loss = 2.75;
  job_.status.progress->initial_validation_loss = 5.55;
  job_.status.checkpoint = api::CheckpointStatus{6, 1'000'000, 0.25, ""};
  EXPECT_THAT(See(61), ElementsAre("checkpoint", "evaluation"));
  EXPECT_EQ(events_[1].text, "evaluation: held-out loss 2.75, perplexity 15.64 (5.55 at the start)");
}

TEST_F(NarratorTest, TellsAResizeOnceItTrainsAndInTheSummary) {
  api::JobStatus& s = job_.status;
  s.phase = api::Phase::kRunning;
  s.attempt = 1;
  s.gpus = 2;
  s.progress = api::Progress{.step = 200, .steps = 400, .trainer_phase = "Training"};
  See(0);
  s.phase = api::Phase::kResizing;
  s.stop = api::StopStatus{"Resize", 1, std::nullopt};
  EXPECT_THAT(See(1), ElementsAre("phase"));
  s.stop.reset();
  s.phase = api::Phase::kRunning;
  s.attempt = 2;
  s.gpus = 4;
  s.placing_since = now_;
  EXPECT_THAT(See(2), ElementsAre("phase"));  // the progress is still that of the attempt before
  s.progress->resumed_from_step = 203;
  s.progress_time = now_;
  EXPECT_THAT(See(3), ElementsAre("resize"));
  EXPECT_EQ(events_[0].text, "resized 2 -> 4 GPUs at step 203");
  EXPECT_THAT(See(4), IsEmpty());
  s.phase = api::Phase::kSucceeded;
  s.progress->step = 400;
  s.progress->initial_validation_loss = 5.55;
  s.progress->validation_loss = 1.9;
  s.checkpoint = api::CheckpointStatus{.step = 400};
  StoryEvent summary = narrator_.Summary(job_, TimePoint(Milliseconds(93'000)));
  EXPECT_EQ(
      summary.text,
      "Succeeded: step 400 of 400, held-out loss 5.55 -> 1.9, resized 2 -> 4 GPUs at step 203, last checkpoint at "
      "step 400, in 1m 33s");
  EXPECT_EQ(summary.fields["resizes"][0]["step"], 203);
}

TEST_F(NarratorTest, GivesTheReasonOfAFailureInTheSummary) {
  job_.status.phase = api::Phase::kFailed;
  job_.status.reason = "rank 1: out of memory";
  See(0);
  EXPECT_EQ(narrator_.Summary(job_, TimePoint(Milliseconds(1000))).text,
            "Failed: rank 1: out of memory; no step, in 1.0s");
}

TEST_F(NarratorTest, DrawsALiveLine) {
  job_.status.phase = api::Phase::kRunning;
  job_.status.gpus = 2;
  job_.status.progress = api::Progress{.step = 120, .steps = 400, .loss = 2.531, .tokens_per_second = 18'200};
  EXPECT_EQ(LiveLine(job_), "Running  step 120/400 [######..............] 30%  loss 2.531  18.2k tokens/s  2 GPUs");
  job_.status.progress.reset();
  job_.status.phase = api::Phase::kPlacing;
  job_.status.reason = "looking for nodes";
  EXPECT_EQ(LiveLine(job_), "Placing  looking for nodes");
}

TEST(Printer, KeepsForeignWordsOnOneLineAndTheTerminalUnsteered) {
  std::ostringstream out;
  std::ostringstream err;
  {
    Printer printer({out, err}, false, TimePoint(Milliseconds(0)));
    printer.Event({"phase", "Failed: a\nb\033[2J", nlohmann::json::object()}, TimePoint(Milliseconds(1500)));
    printer.Live("unseen");
    printer.Problem("x\ny");
  }
  EXPECT_EQ(out.str(), "[    1.5s] Failed: a b [2J\n");
  EXPECT_EQ(err.str(), "trainyard: x y\n");
}

TEST(Printer, RedrawsTheLiveLineUnderEachEvent) {
  std::ostringstream out;
  std::ostringstream err;
  {
    Printer printer({out, err, true, 10}, false, TimePoint(Milliseconds(0)));
    printer.Live("step 1/2 and more");
    printer.Event({"phase", "Running", nlohmann::json::object()}, TimePoint(Milliseconds(0)));
  }
  EXPECT_EQ(out.str(), "\rstep 1/2 a\033[K\r\033[K[    0.0s] Running\n\rstep 1/2 a\033[K\r\033[K");
}

TEST(Printer, WritesOneJsonObjectPerLine) {
  std::ostringstream out;
  std::ostringstream err;
  Printer printer({out, err, true, 80}, true, TimePoint(Milliseconds(0)));
  printer.Event({"phase", "Running", {{"phase", "Running"}}}, TimePoint(Milliseconds(0)));
  printer.Note("for people", TimePoint(Milliseconds(0)));
  printer.Live("for people");
  auto line = nlohmann::json::parse(out.str());
  EXPECT_EQ(line["event"], "phase");
  EXPECT_EQ(line["phase"], "Running");
  EXPECT_EQ(line["time"], "1970-01-01T00:00:00.000Z");
}

}  // namespace
}  // namespace trainyard::cli
