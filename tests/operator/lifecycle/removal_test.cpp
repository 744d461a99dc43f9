// spec.checkpoint.onDelete: Delete. The finalizer, the pod that removes, and every way to give up.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "operator/lifecycle/pod_builder.h"
#include "operator/lifecycle/unread.h"
#include "tests/operator/lifecycle/scenario.h"

namespace trainyard::lifecycle {
namespace {

using testing::HasSubstr;

class Removal : public testing::Test {
 protected:
  Removal() { s.in.job.spec.checkpoint->on_delete = api::OnDelete::kDelete; }

  bool HasFinalizer() const { return !s.in.job.meta.finalizers.empty(); }
  // Deletes the job as the API server does, and lets its pods end.
  void Delete() {
    s.in.job.meta.deletion_time = s.in.now;
    s.Steps();
    s.Reap();
    s.Steps();
  }
  api::PodSnapshot* Pod() {
    for (api::PodSnapshot& pod : s.in.pods) {
      if (pod.name == RemovalPodName(s.in.job)) return &pod;
    }
    return nullptr;
  }
  // Steps until nothing is left to do; what was said on the way.
  std::vector<Event> Said() {
    std::vector<Event> events;
    for (int i = 0; i < 5; ++i) {
      for (Event& event : s.Step().events) events.push_back(std::move(event));
    }
    return events;
  }
  void ExpectGivenUp(const std::string& why) {
    const std::vector<Event> events = Said();
    ASSERT_EQ(events.size(), 1u);
    EXPECT_EQ(events[0].type + "/" + events[0].reason, "Warning/CheckpointsLeft");
    EXPECT_THAT(events[0].message, HasSubstr("the checkpoints in directory tiny of volume checkpoints stay: " + why));
    EXPECT_FALSE(HasFinalizer());
  }

  Scenario s;
};

TEST_F(Removal, RetainHasNoFinalizer) {
  s.in.job.spec.checkpoint->on_delete = api::OnDelete::kRetain;
  s.Start();
  EXPECT_FALSE(HasFinalizer());
  Delete();
  EXPECT_EQ(Pod(), nullptr);
}

TEST_F(Removal, TheFinalizerIsThereBeforeAnythingRunsAndFollowsTheSpec) {
  const Decision d = s.Step();
  ASSERT_FALSE(d.actions.empty());
  EXPECT_EQ(d.actions.front().kind, Action::Kind::kAddFinalizer);
  EXPECT_EQ(s.in.job.meta.finalizers, std::vector<std::string>{kCheckpointFinalizer});
  s.Start();
  EXPECT_EQ(s.in.job.meta.finalizers.size(), 1u) << "once";
  s.in.job.spec.checkpoint->on_delete = api::OnDelete::kRetain;
  s.Step();
  EXPECT_FALSE(HasFinalizer());
}

TEST_F(Removal, WaitsForThePodsOfTheJobThenRemovesAndLetsGo) {
  s.Start();
  s.in.job.meta.deletion_time = s.in.now;
  s.Steps();
  EXPECT_EQ(Pod(), nullptr) << "they are saving";
  EXPECT_FALSE(s.status().removing_since);
  s.Reap();
  s.Steps();
  ASSERT_NE(Pod(), nullptr);
  EXPECT_EQ(s.status().removing_since, s.in.now);
  EXPECT_TRUE(HasFinalizer());
  EXPECT_THAT(s.status().reason, HasSubstr("removing the checkpoints in directory tiny of volume checkpoints"));

  Pod()->phase = api::PodPhase::kRunning;
  EXPECT_THAT(Said(), testing::IsEmpty());
  EXPECT_NE(Pod(), nullptr) << "nobody sweeps it";
  EXPECT_TRUE(HasFinalizer());
  Pod()->phase = api::PodPhase::kSucceeded;
  Pod()->exit_code = 0;
  const std::vector<Event> events = Said();
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].reason, "CheckpointsRemoved");
  EXPECT_FALSE(HasFinalizer());
}

TEST_F(Removal, OfAFinishedJobToo) {
  s.Start();
  for (size_t i = 0; i < s.in.pods.size(); ++i) s.Exit(i, 0);
  s.Steps();
  ASSERT_EQ(s.Phase(), "Succeeded");
  EXPECT_EQ(Pod(), nullptr);
  Delete();
  ASSERT_NE(Pod(), nullptr);
  Pod()->exit_code = 0;
  Pod()->phase = api::PodPhase::kSucceeded;
  Said();
  EXPECT_FALSE(HasFinalizer());
}

TEST_F(Removal, OfAJobThatNeverRanThereIsNothingToDo) {
  s.in.job.spec.suspend = true;
  s.Steps();
  ASSERT_TRUE(HasFinalizer());
  Delete();
  EXPECT_EQ(Pod(), nullptr);
  EXPECT_FALSE(HasFinalizer());
}

TEST_F(Removal, GivesUpInANamespaceThatIsBeingDeleted) {
  s.Start();
  s.in.refused =
      R"(the API server refuses it: pods "x" is forbidden: unable to create new content in namespace a because )"
      "it is being terminated";
  s.in.job.meta.deletion_time = s.in.now;
  s.Steps();
  s.Reap();
  ExpectGivenUp("the namespace is being deleted");
}

TEST_F(Removal, GivesUpOnAClaimThatIsNotThere) {
  s.Start();
  Delete();
  ASSERT_NE(Pod(), nullptr);
  Pod()->reason = "Unschedulable";
  Pod()->message = R"(0/2 nodes are available: persistentvolumeclaim "ck" not found. preemption: 0/2 nodes)";
  ExpectGivenUp(R"(0/2 nodes are available: persistentvolumeclaim "ck" not found)");
}

TEST_F(Removal, GivesUpWhenThePodSaysThatItCannot) {
  s.Start();
  Delete();
  ASSERT_NE(Pod(), nullptr);
  Pod()->phase = api::PodPhase::kFailed;
  Pod()->exit_code = 9;
  Pod()->termination_message = R"({"class": "Configuration", "message": "it was taken over by job uid-2"})";
  ExpectGivenUp("it was taken over by job uid-2");
}

TEST_F(Removal, GivesUpAfterTenMinutes) {
  s.Start();
  Delete();
  ASSERT_NE(Pod(), nullptr);
  Pod()->message = "0/2 nodes are available: 2 Insufficient cpu.";
  s.in.now += Milliseconds(599'000);
  EXPECT_THAT(Said(), testing::IsEmpty());
  EXPECT_TRUE(HasFinalizer());
  s.in.now += Milliseconds(1'000);
  ExpectGivenUp("they could not be removed in 10 minutes: 0/2 nodes are available: 2 Insufficient cpu.");
}

TEST_F(Removal, AJobThatCannotBeReadIsLetGo) {
  s.in.job.meta.finalizers = {kCheckpointFinalizer};
  EXPECT_THAT(LetGoUnread(s.in.job, "spec.x: unknown field").actions, testing::IsEmpty()) << "nobody deletes it";
  s.in.job.meta.deletion_time = s.in.now;
  const Decision d = LetGoUnread(s.in.job, "spec.x: unknown field");
  ASSERT_EQ(d.actions.size(), 1u);
  EXPECT_EQ(d.actions[0].kind, Action::Kind::kRemoveFinalizer);
  ASSERT_EQ(d.events.size(), 1u);
  EXPECT_EQ(d.events[0].message, "its checkpoints stay: the job cannot be read: spec.x: unknown field");
  s.in.job.meta.finalizers = {"example.com/other"};
  EXPECT_THAT(LetGoUnread(s.in.job, "").actions, testing::IsEmpty()) << "it is not ours";
}

TEST_F(Removal, APodThatItsNodeFailedIsFollowedByAnother) {
  s.Start();
  Delete();
  ASSERT_NE(Pod(), nullptr);
  Pod()->phase = api::PodPhase::kFailed;
  Pod()->reason = "Evicted";
  s.Step();
  EXPECT_TRUE(Pod()->deleting);
  EXPECT_TRUE(HasFinalizer());
  s.Reap();
  s.Step();
  ASSERT_NE(Pod(), nullptr);
  EXPECT_EQ(Pod()->phase, api::PodPhase::kPending);
}

TEST_F(Removal, ThePodMountsTheVolumeAloneWhereTheJobCouldRun) {
  s.in.job.spec.pod_template = {
      .nodes = {.node_selector = {{"zone", "a"}},
                .affinity = {{.expressions = {{"pool", "In", {"x"}}}}},
                .tolerations = {{"dedicated", "Equal", "training", "NoSchedule"}}},
      .rest = R"({"imagePullSecrets": [{"name": "registry"}], "containers": [{"name": "logs", "image": "logs:1"}]})"};
  s.in.job.spec.checkpoint->path = "runs/a";
  s.in.job.status.attempt = 3;
  const nlohmann::json pod = BuildRemovalPod(s.in.job, s.options);
  const nlohmann::json& spec = pod["spec"];
  EXPECT_EQ(pod["metadata"]["name"], "tiny-784d-remove");
  EXPECT_EQ(pod["metadata"]["labels"]["trainyard.dev/attempt"], "3");
  EXPECT_FALSE(pod["metadata"]["labels"].contains("trainyard.dev/node-rank")) << "the Service must not select it";
  ASSERT_EQ(spec["containers"].size(), 1u);
  EXPECT_EQ(spec["containers"][0]["command"], (nlohmann::json{"trainyard-launch", "--", "trainyard-trainer",
                                                              "--remove-checkpoints", "checkpoints", "runs/a"}));
  std::vector<std::string> mounts;
  for (const auto& mount : spec["containers"][0]["volumeMounts"]) mounts.push_back(mount["mountPath"]);
  EXPECT_THAT(mounts, testing::UnorderedElementsAre("/run/trainyard", "/tmp", "/volumes/checkpoints"));
  EXPECT_EQ(spec["volumes"].size(), 3u);
  EXPECT_FALSE(spec["containers"][0]["resources"].contains("limits")) << "no GPU";
  EXPECT_EQ(spec["nodeSelector"]["zone"], "a");
  EXPECT_EQ(spec["tolerations"].size(), 2u);
  EXPECT_EQ(spec["imagePullSecrets"][0]["name"], "registry");
  EXPECT_EQ(spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"],
            nlohmann::json::parse(R"([{"matchExpressions": [{"key": "pool", "operator": "In", "values": ["x"]}]}])"));
  EXPECT_EQ(spec["securityContext"]["runAsNonRoot"], true);
}

// A foreground deletion deletes what blocks it, before the job may go: that would be the pod that it waits for.
TEST_F(Removal, ThePodDoesNotBlockTheJob) {
  const nlohmann::json pod = BuildRemovalPod(s.in.job, s.options);
  EXPECT_EQ(pod["metadata"]["ownerReferences"][0]["blockOwnerDeletion"], false);
  EXPECT_EQ(pod["metadata"]["ownerReferences"][0]["uid"], s.in.job.meta.uid);
}

}  // namespace
}  // namespace trainyard::lifecycle
