// The reader of audit logs, with logs made by hand that break each rule once.
#include "tests/cluster/gangs/gang_history.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <sstream>

#include "tests/cluster/gangs/gang_log.h"

namespace trainyard::gangs {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(GangHistory, OfGangsOneAfterTheOtherHasNoBreach) {
  Log log = TwoNodes();
  RunWell(log, "x");
  RunWell(log, "y");
  const GangHistory history = log.Replayed();
  EXPECT_THAT(history.breaches, IsEmpty()) << history.Summary();
  EXPECT_EQ(history.gangs, 2);
  EXPECT_EQ(history.pods, 4);
  EXPECT_EQ(history.most_booked, 16);
}

TEST(GangHistory, CountsGatedPodsThatArePinned) {
  Log log = TwoNodes();
  log.Create(log.Pod("x", 0, "a"));
  log.Create(log.Pod("y", 0, "a", 1));
  EXPECT_THAT(log.Breaches(), ElementsAre(HasSubstr("overbooked: a has 8 GPUs to give, and 9 are held by")));
}

TEST(GangHistory, CountsPodsOfOthersWhereTheyAreBound) {
  Log log = TwoNodes();
  json other = log.Pod("", 0, "", 1);
  other["metadata"]["name"] = other["metadata"]["uid"] = "web";
  other["metadata"].erase("labels");
  log.Create(other, "kubectl");
  log.Create(log.Pod("x", 0, "a"));
  EXPECT_THAT(log.Breaches(), IsEmpty());
  log.Bind(other, "a");
  EXPECT_THAT(log.Breaches(), ElementsAre(HasSubstr("overbooked: a has 8 GPUs")));
  Rules rules;
  rules.rivals = true;
  EXPECT_THAT(log.Breaches(rules), IsEmpty());
}

TEST(GangHistory, APodThatEndedOrIsGoneHoldsNothing) {
  Log log = TwoNodes();
  const json ended = log.Phase(log.Ungate(log.Create(log.Pod("x", 0, "a"))), "Failed", "a");
  const json gone = log.Create(log.Pod("x", 1, "b"));
  log.Delete(gone, kOperator);
  log.Create(log.Pod("y", 0, "a")), log.Create(log.Pod("y", 1, "b"));
  EXPECT_THAT(log.Replayed().most_booked, 16);
  for (const std::string& breach : log.Breaches()) EXPECT_THAT(breach, Not(HasSubstr("overbooked")));
}

TEST(GangHistory, APodThatIsBeingDeletedStillHolds) {
  Log log = TwoNodes();
  log.Delete(log.Phase(log.Create(log.Pod("x", 0, "a")), "Running", "a"), kOperator, 30);
  log.Create(log.Pod("y", 0, "a"));
  EXPECT_THAT(log.Breaches(), ElementsAre(HasSubstr("overbooked")));
}

TEST(GangHistory, ANodeThatShrinksBreaksNothingButWhatComesAfterwardsDoes) {
  Log log = TwoNodes();
  log.Create(log.Pod("x", 0, "a", 7));
  log.Node("a", 7);
  EXPECT_THAT(log.Breaches(), IsEmpty());
  log.Pass(30);  // longer than the operator may be behind
  log.Create(log.Pod("y", 0, "a", 1));
  EXPECT_THAT(log.Breaches(), ElementsAre(HasSubstr("overbooked: a has 7 GPUs to give, and 8")));
}

TEST(GangHistory, TakesTheOrderFromVersionsNotFromLines) {
  Log log = TwoNodes();
  log.Delete(log.Create(log.Pod("x", 0, "a")), kOperator);
  log.Create(log.Pod("y", 0, "a"));
  std::swap(log.lines[log.lines.size() - 1], log.lines[log.lines.size() - 2]);
  EXPECT_THAT(log.Breaches(), IsEmpty());
}

TEST(GangHistory, TakesOneCollectionOfDeletedPodsApart) {
  Log log = TwoNodes();
  const json unbound = log.Create(log.Pod("x", 0, "a"));
  const json bound = log.Phase(log.Create(log.Pod("x", 1, "b")), "Running", "b");
  log.Write(kOperator, "deletecollection", "pods", "", "default", "",
            {{"kind", "PodList"}, {"items", {unbound, bound}}});
  log.Create(log.Pod("y", 0, "a"));
  EXPECT_THAT(log.Breaches(), IsEmpty());
  log.Create(log.Pod("y", 1, "b"));
  EXPECT_THAT(log.Breaches(), ElementsAre(HasSubstr("overbooked: b has 8")));
}

TEST(GangHistory, ACollectionDeletedByForceIsGone) {
  Log log = TwoNodes();
  const json bound = log.Phase(log.Create(log.Pod("x", 0, "a")), "Running", "a");
  log.Write(kOperator, "deletecollection", "pods", "", "default", "", {{"kind", "PodList"}, {"items", {bound}}});
  log.lines.back()["requestURI"] = "/api/v1/namespaces/default/pods?gracePeriodSeconds=0";
  log.Create(log.Pod("y", 0, "a"));
  EXPECT_THAT(log.Breaches(), IsEmpty());
}

// The answer to a collection says at which version its objects were listed: what was before is no sign of life.
TEST(GangHistory, ACollectionStandsWhereItWasListed) {
  Log log = TwoNodes();
  const json bound = log.Phase(log.Create(log.Pod("x", 0, "a")), "Running", "a");
  log.Delete(bound, "kube-controller-manager", 30);
  log.Write(kOperator, "deletecollection", "pods", "", "default", "", {{"kind", "PodList"}, {"items", {bound}}});
  json& collection = log.lines.back();
  collection["requestObject"] = {{"gracePeriodSeconds", 0}};
  collection["requestReceivedTimestamp"] = log.lines.front()["requestReceivedTimestamp"];
  log.Create(log.Pod("y", 0, "a"));
  EXPECT_THAT(log.Breaches(), IsEmpty());
}

TEST(GangHistory, AGangThatStaysPartlyStartedIsABreach) {
  Log log = TwoNodes();
  const json first = log.Create(log.Pod("x", 0, "a")), second = log.Create(log.Pod("x", 1, "b"));
  log.Ungate(first);
  log.Pass(59);
  log.Node("a", 8);
  EXPECT_THAT(log.Breaches(), IsEmpty());
  log.Pass(2);
  log.Node("a", 8);
  EXPECT_THAT(log.Breaches(), ElementsAre(HasSubstr("partly started: attempt 1 of job x had gates on and gates off")));
}

TEST(GangHistory, AGateThatGoesBeforeTheGangExistsIsABreach) {
  Log log = TwoNodes();
  log.Ungate(log.Create(log.Pod("x", 0, "a")));
  EXPECT_THAT(log.Breaches(), ElementsAre(HasSubstr("lost its gate when 1 of 2 pods of its gang existed")));
}

TEST(GangHistory, TwoAttemptsAtOnceAreABreach) {
  Log log = TwoNodes();
  json one = log.Create(log.Pod("x", 0, "a", 1)), other = log.Create(log.Pod("x", 1, "a", 1));
  one = log.Ungate(one), other = log.Ungate(other);
  const json next = log.Create(log.Pod("x", 0, "b", 1, 2));
  log.Create(log.Pod("x", 1, "b", 1, 2));
  EXPECT_THAT(log.Breaches(), IsEmpty());
  log.Delete(other, kOperator);
  log.Ungate(next);
  EXPECT_THAT(log.Breaches(),
              ElementsAre(HasSubstr("two attempts: default/x-abcd-2-0 is let go while default/x-abcd-1-0")));
}

// A pod of the first attempt is being deleted on a node that was gone; the operator hears a moment later that it is
// back.
TEST(GangHistory, AnAttemptOnANodeThatIsBackIsOneAgainAfterAMoment) {
  for (const bool later : {false, true}) {
    Log log = TwoNodes();
    json one = log.Create(log.Pod("x", 0, "a", 1)), other = log.Create(log.Pod("x", 1, "a", 1));
    one = log.Ungate(one), other = log.Ungate(other);
    log.Delete(log.Phase(one, "Running", "a"), kOperator, 30);
    log.Delete(log.Phase(other, "Running", "a"), kOperator, 30);
    log.RemoveNode("a");
    const json next = log.Create(log.Pod("x", 0, "b", 1, 2)), last = log.Create(log.Pod("x", 1, "b", 1, 2));
    log.Node("a", 8, "create");
    log.lines.back()["responseObject"]["metadata"]["uid"] = "another";
    if (later) log.Pass(6);
    log.Phase(log.Ungate(next), "Running", "b"), log.Ungate(last);
    EXPECT_EQ(log.Breaches().size(), later ? 4u : 0u) << "each of two pods against each of two";
  }
}

TEST(GangHistory, AnUndoWithoutACauseIsABreach) {
  Log log = TwoNodes();
  log.Pass(60);
  log.Status("x", {"a", "b"});
  log.Create(log.Pod("x", 0, "a")), log.Create(log.Pod("x", 1, "b"));
  log.Status("x", {"a", "b"}, "Undo");
  EXPECT_THAT(log.Breaches(), ElementsAre("needless undo: attempt 1 of default/x: because"));
  EXPECT_EQ(log.Replayed().undone, 1);
}

// Each of these, after the claim and before the undo, is a cause.
TEST(GangHistory, AnUndoWithACauseIsNone) {
  const std::map<std::string, std::function<void(Log&, const json&)>> causes = {
      {"node gone", [](Log& log, const json&) { log.RemoveNode("a"); }},
      {"node shrank", [](Log& log, const json&) { log.Node("a", 7); }},
      {"node cordoned", [](Log& log, const json&) { log.Node("a", 8, "update", {{"unschedulable", true}}); }},
      {"node tainted",
       [](Log& log, const json&) {
         log.Node("a", 8, "update", {{"taints", {{{"key", "k"}, {"effect", "NoSchedule"}}}}});
       }},
      {"pod deleted", [](Log& log, const json& pod) { log.Delete(pod, "kubectl"); }},
      {"pod failed", [](Log& log, const json& pod) { log.Phase(pod, "Failed", "a"); }},
      {"pod refused",
       [](Log& log, const json& pod) {
         log.Write(kOperator, "create", "pods", "", "default", "x-abcd-1-1", pod, 403);
       }},
      {"rival", [](Log& log, const json&) {
         json other = log.Pod("", 0, "", 8);
         other["metadata"]["name"] = other["metadata"]["uid"] = "web";
         other["metadata"].erase("labels");
         other["spec"]["nodeName"] = "a";
         log.Create(other, "kubectl");
       }}};
  for (const auto& [name, cause] : causes) {
    Log log = TwoNodes();
    log.Pass(60);
    log.Status("x", {"a", "b"});
    const json pod = log.Create(log.Pod("x", 0, "a"));
    cause(log, pod);
    log.Status("x", {"a", "b"}, "Undo");
    Rules rules;
    rules.rivals = true;
    EXPECT_THAT(log.Breaches(rules), IsEmpty()) << name;
  }
}

TEST(GangHistory, AnUndoOfAClaimThatWasMadeWhenTheOperatorDiedIsNone) {
  Log log = TwoNodes();
  log.Pass(60);
  log.Status("x", {"a", "b"});
  log.Status("x", {"a", "b"}, "Undo");
  const Seconds undone = log.Replayed().breaches.at(0).when;
  Rules rules;
  rules.kills = {undone - 2};
  EXPECT_THAT(log.Breaches(rules), IsEmpty());
  rules.kills = {undone - 30, undone + 2};
  EXPECT_EQ(log.Breaches(rules).size(), 1u);
}

TEST(GangHistory, BreachesOfEarlierTestsAreLeftOut) {
  Log log = TwoNodes();
  log.Create(log.Pod("x", 0, "a")), log.Create(log.Pod("y", 0, "a"));
  const GangHistory history = log.Replayed();
  ASSERT_EQ(history.breaches.size(), 1u);
  Rules rules;
  rules.since = history.breaches[0].when + 1;
  EXPECT_THAT(log.Breaches(rules), IsEmpty());
}

TEST(AuditLog, LeavesOutTheLineThatIsStillBeingWritten) {
  std::stringstream log("{\"verb\": \"create\"}\n{\"verb\": \"cre");
  const auto writes = ReadAuditLog(log);
  ASSERT_TRUE(writes);
  EXPECT_THAT(*writes, IsEmpty());
}

TEST(AuditLog, NamesALineThatIsNoEvent) {
  std::stringstream log("{\"verb\": \"create\"}\nhello\n");
  EXPECT_THAT(ReadAuditLog(log).error().message, HasSubstr("line 2 is no audit event"));
}

}  // namespace
}  // namespace trainyard::gangs
