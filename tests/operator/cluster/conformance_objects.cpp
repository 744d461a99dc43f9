// Creating, changing and reading one object: versions, generation, status, preconditions, patches, gates.
#include "tests/operator/cluster/conformance.h"

namespace trainyard::cluster {

using nlohmann::json;

TEST_P(ClusterConformance, CreateFillsInWhatTheServerOwns) {
  const json job = MustCreate(Kind::kTrainingJob, TestJob("a"));
  EXPECT_FALSE(UidOf(job).empty());
  EXPECT_FALSE(ResourceVersionOf(job).empty());
  EXPECT_EQ(job["metadata"]["generation"], 1);
  EXPECT_TRUE(ParseTime(job["metadata"]["creationTimestamp"]).has_value());
  const Result<json> read = cluster_->Get(Kind::kTrainingJob, {ns_, "a"});
  ASSERT_TRUE(read.has_value());
  EXPECT_EQ(*read, job);
}

TEST_P(ClusterConformance, CreateOfATakenNameIsRefused) {
  MustCreate(Kind::kPod, TestPod("a"));
  TRAINYARD_EXPECT_CODE(kAlreadyExists, cluster_->Create(Kind::kPod, TestPod("a")));
}

TEST_P(ClusterConformance, CreateMakesANameFromGenerateName) {
  json pod = TestPod("x");
  pod["metadata"].erase("name");
  pod["metadata"]["generateName"] = "made-";
  const std::string first = KeyOf(MustCreate(Kind::kPod, pod)).name;
  const std::string second = KeyOf(MustCreate(Kind::kPod, pod)).name;
  EXPECT_TRUE(first.starts_with("made-") && first.size() > 5) << first;
  EXPECT_NE(first, second);
}

TEST_P(ClusterConformance, RefusesWhatIsNoObject) {
  TRAINYARD_EXPECT_CODE(kInvalidArgument, cluster_->Create(Kind::kPod, json::array()));
  TRAINYARD_EXPECT_CODE(kInvalidArgument, cluster_->Create(Kind::kPod, json({{"metadata", 5}})));
  json bad_name = TestPod("../escape");
  TRAINYARD_EXPECT_CODE(kInvalidArgument, cluster_->Create(Kind::kPod, bad_name));
  json no_containers = TestPod("a");
  no_containers["spec"].erase("containers");
  TRAINYARD_EXPECT_CODE(kInvalidArgument, cluster_->Create(Kind::kPod, no_containers));
}

TEST_P(ClusterConformance, AbsentObjectsAreNotFound) {
  TRAINYARD_EXPECT_CODE(kNotFound, cluster_->Get(Kind::kPod, {ns_, "none"}));
  TRAINYARD_EXPECT_CODE(kNotFound, cluster_->Delete(Kind::kPod, {ns_, "none"}, {}));
  TRAINYARD_EXPECT_CODE(kNotFound,
                        cluster_->Patch(Kind::kPod, {ns_, "none"}, PatchType::kMerge, json::object(), false));
}

TEST_P(ClusterConformance, StatusAndSpecAreIsolated) {
  json given = TestJob("a");
  given["status"] = {{"phase", "Running"}};
  json job = MustCreate(Kind::kTrainingJob, given);
  EXPECT_FALSE(job.contains("status") && job["status"].contains("phase")) << "create must drop status";

  job["status"] = {{"phase", "Pending"}};
  job["spec"]["image"] = "me/other:2";
  Result<json> after_status = cluster_->ReplaceStatus(Kind::kTrainingJob, job);
  ASSERT_TRUE(after_status.has_value()) << after_status.error().message;
  EXPECT_EQ((*after_status)["status"]["phase"], "Pending");
  EXPECT_EQ((*after_status)["spec"]["image"], "me/it:1") << "a status write must not touch spec";

  json changed = *after_status;
  changed["status"]["phase"] = "Failed";
  changed["spec"]["image"] = "me/other:2";
  const Result<json> after_spec = cluster_->Replace(Kind::kTrainingJob, changed);
  ASSERT_TRUE(after_spec.has_value()) << after_spec.error().message;
  EXPECT_EQ((*after_spec)["status"]["phase"], "Pending") << "a spec write must not touch status";
  EXPECT_EQ((*after_spec)["spec"]["image"], "me/other:2");
}

TEST_P(ClusterConformance, GenerationCountsChangesOfSpecOnly) {
  json job = MustCreate(Kind::kTrainingJob, TestJob("a"));
  job["status"] = {{"phase", "Pending"}};
  job = *cluster_->ReplaceStatus(Kind::kTrainingJob, job);
  EXPECT_EQ(job["metadata"]["generation"], 1);
  job["metadata"]["labels"]["more"] = "yes";
  job = *cluster_->Replace(Kind::kTrainingJob, job);
  EXPECT_EQ(job["metadata"]["generation"], 1);
  job["spec"]["suspend"] = true;
  job = *cluster_->Replace(Kind::kTrainingJob, job);
  EXPECT_EQ(job["metadata"]["generation"], 2);
}

TEST_P(ClusterConformance, AnOldResourceVersionConflicts) {
  const json first = MustCreate(Kind::kTrainingJob, TestJob("a"));
  json winner = first;
  winner["spec"]["suspend"] = true;
  ASSERT_TRUE(cluster_->Replace(Kind::kTrainingJob, winner).has_value());
  json loser = first;
  loser["spec"]["image"] = "me/late:1";
  TRAINYARD_EXPECT_CODE(kConflict, cluster_->Replace(Kind::kTrainingJob, loser));
  loser["status"] = {{"phase", "Pending"}};
  TRAINYARD_EXPECT_CODE(kConflict, cluster_->ReplaceStatus(Kind::kTrainingJob, loser));
  json patch = {{"metadata", {{"resourceVersion", ResourceVersionOf(first)}}}, {"spec", {{"image", "me/late:1"}}}};
  TRAINYARD_EXPECT_CODE(kConflict, cluster_->Patch(Kind::kTrainingJob, {ns_, "a"}, PatchType::kMerge, patch, false));
}

TEST_P(ClusterConformance, WritingTheSameChangesNothing) {
  const json job = MustCreate(Kind::kTrainingJob, TestJob("a"));
  const Result<json> again = cluster_->Replace(Kind::kTrainingJob, job);
  ASSERT_TRUE(again.has_value());
  EXPECT_EQ(ResourceVersionOf(*again), ResourceVersionOf(job));
}

TEST_P(ClusterConformance, AMergePatchChangesOnlyWhatItNames) {
  const json job = MustCreate(Kind::kTrainingJob, TestJob("a"));
  const json patch = {{"spec", {{"gpus", {{"count", 4}}}, {"image", nullptr}, {"command", {"run"}}}}};
  const Result<json> patched = cluster_->Patch(Kind::kTrainingJob, {ns_, "a"}, PatchType::kMerge, patch, false);
  ASSERT_TRUE(patched.has_value()) << patched.error().message;
  EXPECT_EQ((*patched)["spec"]["gpus"]["count"], 4);
  EXPECT_FALSE((*patched)["spec"].contains("image"));
  EXPECT_EQ((*patched)["spec"]["model"], job["spec"]["model"]);
  EXPECT_EQ((*patched)["metadata"]["generation"], 2);
}

TEST_P(ClusterConformance, AStatusPatchLeavesSpecAlone) {
  MustCreate(Kind::kTrainingJob, TestJob("a"));
  const json patch = {{"spec", {{"suspend", true}}}, {"status", {{"phase", "Queued"}}}};
  const Result<json> patched = cluster_->Patch(Kind::kTrainingJob, {ns_, "a"}, PatchType::kMerge, patch, true);
  ASSERT_TRUE(patched.has_value()) << patched.error().message;
  EXPECT_EQ((*patched)["status"]["phase"], "Queued");
  EXPECT_FALSE((*patched)["spec"].value("suspend", false));
}

TEST_P(ClusterConformance, GatesGoByAPatchThatTestsUidAndGate) {
  json pod = TestPod("a");
  pod["spec"]["schedulingGates"] = json::array({{{"name", "example.com/other"}}, {{"name", "trainyard.dev/gang"}}});
  pod = MustCreate(Kind::kPod, pod);
  const auto patch = [](const std::string& uid, int index) {
    const std::string path = "/spec/schedulingGates/" + std::to_string(index);
    return json::array({{{"op", "test"}, {"path", "/metadata/uid"}, {"value", uid}},
                        {{"op", "test"}, {"path", path + "/name"}, {"value", "trainyard.dev/gang"}},
                        {{"op", "remove"}, {"path", path}}});
  };
  const ObjectKey key{ns_, "a"};
  TRAINYARD_EXPECT_CODE(kConflict, cluster_->Patch(Kind::kPod, key, PatchType::kJson, patch("another-uid", 1), false));
  TRAINYARD_EXPECT_CODE(kConflict, cluster_->Patch(Kind::kPod, key, PatchType::kJson, patch(UidOf(pod), 0), false));
  const Result<json> patched = cluster_->Patch(Kind::kPod, key, PatchType::kJson, patch(UidOf(pod), 1), false);
  ASSERT_TRUE(patched.has_value()) << patched.error().message;
  EXPECT_EQ((*patched)["spec"]["schedulingGates"], json::array({{{"name", "example.com/other"}}}));
}

TEST_P(ClusterConformance, GatesCanOnlyBeRemovedAndAPodCannotChange) {
  json pod = MustCreate(Kind::kPod, TestPod("a"));
  json gated = pod;
  gated["spec"]["schedulingGates"].push_back({{"name", "example.com/late"}});
  TRAINYARD_EXPECT_CODE(kInvalidArgument, cluster_->Replace(Kind::kPod, gated));
  json changed = pod;
  changed["spec"]["containers"][0]["command"] = {"false"};
  TRAINYARD_EXPECT_CODE(kInvalidArgument, cluster_->Replace(Kind::kPod, changed));
}

TEST_P(ClusterConformance, AGatedPodSaysWhyItIsNotScheduled) {
  const json pod = MustCreate(Kind::kPod, TestPod("a"));
  EXPECT_EQ(pod["status"]["phase"], "Pending");
  EXPECT_EQ(pod["status"]["conditions"][0]["reason"], "SchedulingGated");
}

}  // namespace trainyard::cluster
