// How objects go: preconditions, grace, finalizers, owners, collections.
#include "tests/operator/cluster/conformance.h"

namespace trainyard::cluster {

using nlohmann::json;

namespace {

json OwnedBy(json object, const json& owner) {
  object["metadata"]["ownerReferences"] = json::array({{{"apiVersion", owner["apiVersion"]},
                                                        {"kind", owner["kind"]},
                                                        {"name", owner["metadata"]["name"]},
                                                        {"uid", owner["metadata"]["uid"]},
                                                        {"controller", true},
                                                        {"blockOwnerDeletion", true}}});
  return object;
}

}  // namespace

TEST_P(ClusterConformance, ADeletionWithAWrongPreconditionConflicts) {
  const json pod = MustCreate(Kind::kPod, TestPod("a"));
  const ObjectKey key{ns_, "a"};
  TRAINYARD_EXPECT_CODE(kConflict, cluster_->Delete(Kind::kPod, key, {"another-uid", "", {}}));
  TRAINYARD_EXPECT_CODE(kConflict, cluster_->Delete(Kind::kPod, key, {"", "1", {}}));
  EXPECT_TRUE(cluster_->Get(Kind::kPod, key).has_value());
  const Status deleted = cluster_->Delete(Kind::kPod, key, {UidOf(pod), ResourceVersionOf(pod), {}});
  EXPECT_TRUE(deleted.has_value()) << deleted.error().message;
  AwaitGone(Kind::kPod, key);
}

TEST_P(ClusterConformance, APodThatWasNeverBoundGoesAtOnce) {
  MustCreate(Kind::kPod, TestPod("a"));
  ASSERT_TRUE(cluster_->Delete(Kind::kPod, {ns_, "a"}, {}).has_value());
  TRAINYARD_EXPECT_CODE(kNotFound, cluster_->Get(Kind::kPod, {ns_, "a"}));
}

TEST_P(ClusterConformance, ABoundPodGetsItsGracePeriodWhichCanOnlyShrink) {
  json pod = TestPod("a", "no-such-node");
  pod["spec"]["terminationGracePeriodSeconds"] = 50;
  MustCreate(Kind::kPod, pod);
  const ObjectKey key{ns_, "a"};
  ASSERT_TRUE(cluster_->Delete(Kind::kPod, key, {}).has_value());
  json dying = *cluster_->Get(Kind::kPod, key);
  EXPECT_TRUE(dying["metadata"].contains("deletionTimestamp"));
  EXPECT_EQ(dying["metadata"]["deletionGracePeriodSeconds"], 50);
  ASSERT_TRUE(cluster_->Delete(Kind::kPod, key, {"", "", 90}).has_value());
  EXPECT_EQ((*cluster_->Get(Kind::kPod, key))["metadata"]["deletionGracePeriodSeconds"], 50);
  ASSERT_TRUE(cluster_->Delete(Kind::kPod, key, {"", "", 20}).has_value());
  EXPECT_EQ((*cluster_->Get(Kind::kPod, key))["metadata"]["deletionGracePeriodSeconds"], 20);
  ASSERT_TRUE(cluster_->Delete(Kind::kPod, key, {"", "", 0}).has_value());
  TRAINYARD_EXPECT_CODE(kNotFound, cluster_->Get(Kind::kPod, key));
}

TEST_P(ClusterConformance, ATerminalPodGoesAtOnce) {
  json pod = MustCreate(Kind::kPod, TestPod("a", "no-such-node"));
  pod["status"]["phase"] = "Failed";
  ASSERT_TRUE(cluster_->ReplaceStatus(Kind::kPod, pod).has_value());
  ASSERT_TRUE(cluster_->Delete(Kind::kPod, {ns_, "a"}, {}).has_value());
  TRAINYARD_EXPECT_CODE(kNotFound, cluster_->Get(Kind::kPod, {ns_, "a"}));
}

TEST_P(ClusterConformance, AnObjectStaysUntilItsLastFinalizerGoes) {
  json job = TestJob("a");
  job["metadata"]["finalizers"] = {"example.com/one", "example.com/two"};
  MustCreate(Kind::kTrainingJob, job);
  const ObjectKey key{ns_, "a"};
  ASSERT_TRUE(cluster_->Delete(Kind::kTrainingJob, key, {}).has_value());
  job = *cluster_->Get(Kind::kTrainingJob, key);
  EXPECT_TRUE(job["metadata"].contains("deletionTimestamp"));
  json more = job;
  more["metadata"]["finalizers"].push_back("example.com/three");
  TRAINYARD_EXPECT_CODE(kInvalidArgument, cluster_->Replace(Kind::kTrainingJob, more));
  job["metadata"]["finalizers"] = {"example.com/two"};
  job = *cluster_->Replace(Kind::kTrainingJob, job);
  job["metadata"]["finalizers"] = json::array();
  ASSERT_TRUE(cluster_->Replace(Kind::kTrainingJob, job).has_value());
  TRAINYARD_EXPECT_CODE(kNotFound, cluster_->Get(Kind::kTrainingJob, key));
}

TEST_P(ClusterConformance, WhatADeletedOwnerLeavesIsCollected) {
  const json job = MustCreate(Kind::kTrainingJob, TestJob("a"));
  MustCreate(Kind::kPod, OwnedBy(TestPod("child"), job));
  MustCreate(Kind::kPod, TestPod("stranger"));
  ASSERT_TRUE(cluster_->Delete(Kind::kTrainingJob, {ns_, "a"}, {}).has_value());
  AwaitGone(Kind::kPod, {ns_, "child"});
  EXPECT_TRUE(cluster_->Get(Kind::kPod, {ns_, "stranger"}).has_value());
}

TEST_P(ClusterConformance, AChildOfAnOwnerThatIsGoneIsCollected) {
  const json job = MustCreate(Kind::kTrainingJob, TestJob("a"));
  ASSERT_TRUE(cluster_->Delete(Kind::kTrainingJob, {ns_, "a"}, {}).has_value());
  MustCreate(Kind::kTrainingJob, TestJob("a"));  // the same name is another owner
  MustCreate(Kind::kPod, OwnedBy(TestPod("late"), job));
  AwaitGone(Kind::kPod, {ns_, "late"});
}

TEST_P(ClusterConformance, ACollectedPodThatRunsGetsItsGrace) {
  const json job = MustCreate(Kind::kTrainingJob, TestJob("a"));
  MustCreate(Kind::kPod, OwnedBy(TestPod("child", "no-such-node"), job));
  ASSERT_TRUE(cluster_->Delete(Kind::kTrainingJob, {ns_, "a"}, {}).has_value());
  // Wait for the collector: the pod is marked, and stays for its kubelet.
  auto watch = cluster_->Watch(Kind::kPod, {ns_, "", ResourceVersionOf(job)});
  ASSERT_TRUE(watch.has_value());
  while (true) {
    const WatchEvent event = MustNext(**watch);
    ASSERT_FALSE(HasFailure());
    ASSERT_NE(event.type, WatchEvent::Type::kDeleted);
    if ((*event.object)["metadata"].contains("deletionTimestamp")) break;
  }
}

TEST_P(ClusterConformance, ACollectionIsDeletedBySelector) {
  for (const char* name : {"a", "b", "c"}) MustCreate(Kind::kPod, TestPod(name));
  ASSERT_TRUE(cluster_->DeleteCollection(Kind::kPod, {ns_, "app in (a,c)"}, {}).has_value());
  AwaitGone(Kind::kPod, {ns_, "a"});
  AwaitGone(Kind::kPod, {ns_, "c"});
  EXPECT_TRUE(cluster_->Get(Kind::kPod, {ns_, "b"}).has_value());
  EXPECT_TRUE(cluster_->DeleteCollection(Kind::kPod, {ns_, "app=none"}, {}).has_value());
}

}  // namespace trainyard::cluster
