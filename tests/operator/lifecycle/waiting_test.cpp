// What is told while a gang starts, and how seldom: each change of a reason is a write.
#include <set>

#include <gmock/gmock.h>

#include "operator/api/json.h"
#include "operator/lifecycle/pod_builder.h"
#include "tests/operator/lifecycle/scenario.h"

namespace trainyard::lifecycle {
namespace {

using testing::HasSubstr;
using testing::Not;

TEST(WaitingReason, IsToldOnlyOfPodsThatDoNotStartSoon) {
  Scenario s;
  s.in.job.spec.gpus.count = 4;
  s.Steps();
  ASSERT_TRUE(s.status().started);
  const std::string started = s.status().reason;
  EXPECT_THAT(started, HasSubstr("all 2 pods exist"));
  const Decision soon = s.Step();
  EXPECT_EQ(soon.status.reason, started);
  ASSERT_TRUE(soon.requeue_after);
  EXPECT_LE(*soon.requeue_after, s.options.waiting_settle);
  s.in.now += s.options.waiting_settle;
  s.Step();
  EXPECT_THAT(s.status().reason, HasSubstr("pods to be scheduled"));
}

TEST(WaitingReason, ChangesWithWhatIsWaitedForAndNotWithHowManyDo) {
  Scenario s(8, 2);
  s.in.job.spec.gpus.count = 16;
  s.Steps();
  s.in.now += s.options.waiting_settle;
  std::set<std::string> reasons;
  for (api::PodSnapshot& pod : s.in.pods) {
    pod.node = pod.pinned_node;
    s.Step();
    reasons.insert(s.status().reason);
  }
  EXPECT_EQ(reasons.size(), 2u) << testing::PrintToString(reasons);
  s.in.pods[3].reason = "ImagePullBackOff";
  s.Step();
  EXPECT_THAT(s.status().reason, HasSubstr("ImagePullBackOff"));
}

TEST(WaitingReason, NamesThePodAndTheNodeOfAKubeletThatSaysNothing) {
  Scenario s(4, 1);
  s.in.job.spec.gpus.count = 4;
  s.Steps();
  for (api::PodSnapshot& pod : s.in.pods) pod.node = pod.pinned_node;
  s.in.now += s.options.waiting_settle;
  Decision d = s.Step();
  EXPECT_EQ(s.status().reason, "attempt 1: waiting for pods to start");
  ASSERT_TRUE(d.requeue_after);
  s.in.now += *d.requeue_after;
  ASSERT_EQ(s.in.now, *s.status().ungated_at + s.options.naming_settle);
  s.in.pods[0].phase = s.in.pods[2].phase = api::PodPhase::kRunning;
  s.Step();
  const std::string named =
      "attempt 1: waiting for pods to start (" + s.in.pods[1].name + " on " + s.in.pods[1].pinned_node + ")";
  EXPECT_EQ(s.status().reason, named);
  s.in.pods[3].phase = api::PodPhase::kRunning;
  s.Step();
  EXPECT_EQ(s.status().reason, named) << "it still waits for the same";
  s.in.pods[1].reason = "ImagePullBackOff";
  s.in.pods[1].message = "no such image";
  s.Step();
  EXPECT_THAT(s.status().reason, HasSubstr(" on " + s.in.pods[1].pinned_node + ": ImagePullBackOff: no such image)"));
}

TEST(WaitingReason, APodThatNeverStartsIsNotToldWithAnEmptyReason) {
  Scenario s;
  s.Steps();
  s.in.pods[0].node = s.in.pods[0].pinned_node;
  s.in.now += s.options.startup_deadline;
  s.Step();
  EXPECT_EQ(s.ConditionReason(kReady), "False/StartTimeout");
  EXPECT_THAT(s.status().reason, HasSubstr("did not start: its node's kubelet says nothing of it;"));
}

TEST(WaitingReason, OneIsNotAll) {
  Scenario s;
  s.Step();
  s.Step();
  EXPECT_EQ(s.status().reason, "attempt 1: its pod exists, starting it");
}

TEST(RunningReason, SaysTrainingOnlyWhenTheTrainerDoes) {
  Scenario s;
  s.in.job.spec.gpus.count = 4;
  s.Start();
  EXPECT_EQ(s.Phase(), "Running");
  EXPECT_EQ(s.status().reason,
            "all pods run on 4 GPUs on " + s.status().placement->domain + ": the trainer has not reported yet");
  s.in.progress_attempt = 1;
  const auto says = [&s](const char* phase, std::optional<int64_t> resumed = std::nullopt) {
    s.in.progress = api::Progress{.steps = 400, .trainer_phase = phase, .resumed_from_step = resumed};
    s.Step();
    return s.status().reason;
  };
  EXPECT_THAT(says("Starting"), testing::EndsWith(": the trainer waits until all ranks meet"));
  EXPECT_EQ(s.Phase(), "Running");
  EXPECT_THAT(says("Restoring"), testing::EndsWith(": the trainer reads its checkpoint"));
  for (const char* phase : {"Training", "Evaluating", "Training", "Checkpointing", "Training"}) {
    EXPECT_EQ(says(phase, 0), "training on 4 GPUs on " + s.status().placement->domain) << phase;
  }
  s.in.progress_attempt = 0;  // nothing is heard any more: no reason to say something else
  s.in.progress.reset();
  s.Step();
  EXPECT_THAT(s.status().reason, testing::StartsWith("training on"));
}

TEST(RunningReason, TheReasonChangesOnlyInWritesThatTheProgressNeedsAnyway) {
  Scenario s;
  s.Start();
  s.in.progress_attempt = 1;
  s.in.progress = api::Progress{.steps = 400, .trainer_phase = "Starting"};
  s.Step();
  s.in.progress->trainer_phase = "Training";
  s.in.progress->resumed_from_step = 0;
  s.Step();
  EXPECT_THAT(s.status().reason, testing::StartsWith("training on")) << "in the write that brings the phase";
  const std::string before = api::StatusToJson(s.status()).dump();
  s.Steps();
  EXPECT_EQ(api::StatusToJson(s.status()).dump(), before);
}

TEST(RunningReason, OfAUsersOwnProgramNothingIsKnown) {
  Scenario s;
  s.in.job.spec.image = "me/train:1";
  s.in.job.spec.command = {"train"};
  s.in.job.spec.parallelism.strategy = api::Strategy::kDdp;
  s.Start();
  EXPECT_EQ(s.status().reason, "running on 2 GPUs on " + s.status().placement->domain);
}

TEST(WaitingReason, AReasonThatIsInTheMessageIsNotToldTwice) {
  Scenario s;
  s.in.job.spec.model.architecture->layers = 200;
  s.in.job.spec.model.architecture->hidden_size = 16384;
  s.in.job.spec.model.architecture->attention_heads = 128;
  s.in.job.spec.model.architecture->kv_heads = 128;
  s.Step();
  EXPECT_THAT(s.status().reason, testing::StartsWith("DoesNotFit: "));
  EXPECT_THAT(s.status().reason.substr(5), Not(HasSubstr("DoesNotFit")));
}

nlohmann::json Threads(const Scenario& s) {
  const nlohmann::json pod = BuildPod(s.in.job, 0, s.options);
  for (const nlohmann::json& variable : pod["spec"]["containers"][0]["env"]) {
    if (variable["name"] == "OMP_NUM_THREADS") return variable["value"];
  }
  return nullptr;
}

TEST(Threads, FollowTheCpuRequestWhereOptionsSaySoUnlessTheUserDoes) {
  Scenario s;
  s.options.cpu_milli_per_gpu = 6500;
  s.Step();
  EXPECT_EQ(Threads(s), nullptr);
  s.options.threads_from_request = true;
  EXPECT_EQ(Threads(s), "6");
  s.in.job.status.trainer->cpu_milli_per_gpu = 300;
  EXPECT_EQ(Threads(s), "1");
  s.in.job.spec.env = {{"OMP_NUM_THREADS", "11"}};
  EXPECT_EQ(Threads(s), "11");
}

}  // namespace
}  // namespace trainyard::lifecycle
