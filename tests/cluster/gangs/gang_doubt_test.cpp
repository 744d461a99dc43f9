// What the reader of audit logs makes of deletions that race, and of writes of which nobody knows what became.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/cluster/gangs/gang_log.h"

namespace trainyard::gangs {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

json Marked(json pod, int grace) {
  pod["metadata"]["deletionTimestamp"] = "now", pod["metadata"]["deletionGracePeriodSeconds"] = grace;
  return pod;
}

// A pod that runs alone on node a.
json RunOn(Log& log, const std::string& job, const std::string& node) {
  return log.Phase(log.Create(log.Pod(job, 0, node)), "Running", node);
}

// A forced deletion marks the pod first. A status that comes before it goes on takes the pod away, and says in its
// answer how it was marked; the deletion finds nothing then and answers with what it had read, without a version.
TEST(GangDoubt, AWriteBetweenTheTwoStepsOfADeletionIsNoSignOfLife) {
  Log log = TwoNodes();
  const json pod = log.Create(log.Pod("x", 0, "a"));
  log.Delete(pod, "kubectl");
  log.ForgetVersion();
  log.Phase(Marked(pod, 0), "Running", "a");
  EXPECT_TRUE(log.Writes().back().removed);
  log.Create(log.Pod("y", 0, "a"));
  EXPECT_THAT(log.Breaches(), IsEmpty());
}

TEST(GangDoubt, WhatIsGoneForCertainNeverComesBack) {
  Log log = TwoNodes();
  const json pod = RunOn(log, "x", "a");
  log.Delete(pod, "kubectl");
  log.ForgetVersion();
  log.Phase(Marked(pod, 30), "Running", "a");  // it was before, and has a version
  log.Create(log.Pod("y", 0, "a"));
  EXPECT_THAT(log.Breaches(), IsEmpty());
}

TEST(GangDoubt, AFinalizerHoldsAPodUntilItIsTakenOff) {
  Log log = TwoNodes();
  json pod = RunOn(log, "x", "a");
  pod["metadata"]["finalizers"] = {"example.com/keep"};
  log.Delete(pod, "kubectl");
  log.Create(log.Pod("y", 0, "a"));
  EXPECT_THAT(log.Breaches(), ElementsAre(HasSubstr("overbooked")));
  pod["metadata"].erase("finalizers");
  log.Phase(Marked(pod, 0), "Running", "a");
  log.Create(log.Pod("z", 0, "a"));
  EXPECT_THAT(log.Breaches(), ElementsAre(HasSubstr("overbooked"), Not(HasSubstr("x-abcd"))));
}

// Watches are faster than answers: a pod may be deleted before who made it is told.
TEST(GangDoubt, ARemovalMayBeRequestedBeforeTheCreationIsAnswered) {
  Log log = TwoNodes();
  const json pod = log.Create(log.Pod("x", 0, "a"));
  const json early = log.lines[1]["requestReceivedTimestamp"];
  log.Delete(pod, "kubectl");
  log.ForgetVersion();
  log.lines.back()["requestReceivedTimestamp"] = early;
  log.Create(log.Pod("y", 0, "a"));
  EXPECT_THAT(log.Breaches(), IsEmpty());
}

TEST(GangDoubt, APodWhoseDeletionNobodySawEndHoldsNothingUntilItIsSeenAlive) {
  for (const int code : {200, 0, 408, 499, 500, 503, 504}) {
    Log log = TwoNodes();
    const json pod = RunOn(log, "x", "a");
    log.Delete(pod, kOperator, 30);
    log.Unanswered(code);
    log.Create(log.Pod("y", 0, "a"));
    EXPECT_THAT(log.Breaches(), IsEmpty()) << code;
    log.Phase(pod, "Running", "a");  // asked for while the API server may still be at it
    EXPECT_THAT(log.Breaches(), IsEmpty()) << code;
    log.Pass(6);
    log.Phase(pod, "Running", "a");
    EXPECT_THAT(log.Breaches(), ElementsAre(HasSubstr("overbooked: a has 8 GPUs to give, and 16"))) << code;
  }
}

TEST(GangDoubt, ADeletionThatWasRefusedChangesNothing) {
  for (const int code : {403, 404, 409, 422, 429}) {
    Log log = TwoNodes();
    log.Delete(RunOn(log, "x", "a"), kOperator);
    log.Unanswered(code);
    log.Create(log.Pod("y", 0, "a"));
    EXPECT_THAT(log.Breaches(), ElementsAre(HasSubstr("overbooked"))) << code;
  }
}

TEST(GangDoubt, AServerThatBreaksOffMayHaveDeleted) {
  Log log = TwoNodes();
  log.Delete(RunOn(log, "x", "a"), kOperator);
  log.Unanswered(500);
  log.lines.back()["stage"] = "Panic";
  log.Create(log.Pod("y", 0, "a"));
  EXPECT_THAT(log.Breaches(), IsEmpty());
}

TEST(GangDoubt, ACollectionThatNobodySawEndPutsInDoubtWhatItSelects) {
  Log log = TwoNodes();
  RunOn(log, "x", "a"), RunOn(log, "z", "b");
  log.Write(kOperator, "deletecollection", "pods", "", "default", "", json::object());
  log.Unanswered(504);
  log.lines.back()["requestURI"] =
      "/api/v1/namespaces/default/pods?labelSelector=trainyard.dev%2Fjob-uid%3Dx%2Ctrainyard.dev%2Fattempt%3D1";
  log.Create(log.Pod("y", 0, "a"));
  EXPECT_THAT(log.Breaches(), IsEmpty());
  log.Create(log.Pod("y", 1, "b"));
  EXPECT_THAT(log.Breaches(), ElementsAre(HasSubstr("overbooked: b has 8 GPUs")));
}

// A pod that was listed unbound may have been bound before its turn came; then it has time to end.
TEST(GangDoubt, OfWhatWasListedOnlyALaterRequestIsASignOfLife) {
  for (const bool later : {false, true}) {
    Log log = TwoNodes();
    const json pod = log.Create(log.Pod("x", 0, "a"));
    log.Write(kOperator, "deletecollection", "pods", "", "default", "", {{"kind", "PodList"}, {"items", {pod}}});
    const json before = log.lines.back()["requestReceivedTimestamp"];
    log.Phase(Marked(pod, 30), "Running", "a");
    if (!later) log.lines.back()["requestReceivedTimestamp"] = before;
    log.Create(log.Pod("y", 0, "a"));
    EXPECT_EQ(log.Breaches().size(), later ? 1u : 0u);
  }
}

TEST(GangDoubt, APodThatMayHaveBeenMadeIsOneOfItsGang) {
  Log log = TwoNodes();
  const json first = log.Create(log.Pod("x", 0, "a"));
  log.Create(log.Pod("x", 1, "b"));
  log.Unanswered(504);
  log.Ungate(first);
  EXPECT_THAT(log.Breaches(), IsEmpty());
}

TEST(GangDoubt, AClaimThatMayHaveBeenMadeCountsFromThenOn) {
  Log log = TwoNodes();
  log.Pass(60);
  log.Status("x", {"a", "b"});
  log.Unanswered(504);
  log.Node("a", 7);
  log.Pass(60);
  log.Status("x", {"a", "b"});
  log.Status("x", {"a", "b"}, "Undo");
  EXPECT_THAT(log.Breaches(), IsEmpty());
}

TEST(GangDoubt, ANodeThatMayHaveChangedHasRoomUntilItIsWrittenAgain) {
  Log log = TwoNodes();
  log.Node("a", 0);
  log.Pass(30);
  log.Node("a", 8);
  log.Unanswered(504);
  log.Create(log.Pod("x", 0, "a"));
  EXPECT_THAT(log.Breaches(), IsEmpty());
  log.Node("a", 0);
  log.Pass(30);
  log.Create(log.Pod("y", 0, "a"));
  EXPECT_THAT(log.Breaches(), ElementsAre(HasSubstr("overbooked: a has 0 GPUs")));
}

// A node is removed with no version told: the last beat of its heart may stand behind that.
TEST(GangDoubt, AHeartbeatDoesNotBringARemovedNodeBack) {
  Log log = TwoNodes();
  json one = log.Create(log.Pod("x", 0, "a", 1)), other = log.Create(log.Pod("x", 1, "a", 1));
  one = log.Ungate(one), other = log.Ungate(other);
  log.Delete(log.Phase(one, "Running", "a"), kOperator, 30);
  log.Delete(log.Phase(other, "Running", "a"), kOperator, 30);
  log.RemoveNode("a");
  log.Node("a", 8);
  const json next = log.Create(log.Pod("x", 0, "b", 1, 2)), last = log.Create(log.Pod("x", 1, "b", 1, 2));
  log.Ungate(next), log.Ungate(last);
  EXPECT_THAT(log.Breaches(), IsEmpty());
}

TEST(GangDoubt, AnEvictedPodThatWasNotBoundIsGone) {
  for (const bool bound : {false, true}) {
    Log log = TwoNodes();
    json pod = log.Create(log.Pod("x", 0, "a"));
    if (bound) pod = log.Bind(pod, "a");
    log.Write("kubectl", "create", "pods", "eviction", "default", pod["metadata"]["name"], {{"kind", "Eviction"}}, 201);
    log.lines.back()["requestObject"] = log.lines.back()["responseObject"];
    log.lines.back()["responseObject"] = {{"kind", "Status"}, {"metadata", json::object()}};
    log.Create(log.Pod("y", 0, "a"));
    EXPECT_EQ(log.Breaches().size(), bound ? 1u : 0u);
  }
}

TEST(GangDoubt, ABreachTellsTheLastWritesAboutItsPods) {
  Log log = TwoNodes();
  const json pod = RunOn(log, "x", "a");
  log.Delete(pod, kOperator, 30);
  log.Unanswered(409);
  log.Create(log.Pod("y", 0, "a"));
  log.Delete(pod, "kubectl");
  const GangHistory history = log.Replayed();
  EXPECT_THAT(
      history.last_writes.at("default/x-abcd-1-0"),
      ElementsAre(
          HasSubstr(" create by trainyard-operator/0.1.0: 200, version 103, Pending"),
          HasSubstr(" patch status by kubelet: 200, version 104, on a, Running"),
          HasSubstr(" delete by trainyard-operator/0.1.0: 409"),
          HasSubstr(" delete by kubectl: 200, version 107, on a, Running, being deleted with a grace of 0, gone")));
  EXPECT_THAT(history.Summary(), HasSubstr("the last writes about default/y-abcd-1-0\n    18"));
}

}  // namespace
}  // namespace trainyard::gangs
