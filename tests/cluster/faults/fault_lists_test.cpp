// Faults of lists: refused, broken, malformed or expired half-way. A list is how the operator learns of everything at
// its start and after a 410, so it must come through in the end, and one bad object must not keep out the others.
#include "tests/cluster/faults/fault_fixture.h"

namespace trainyard::faults {
namespace {

const When kListPods = On("list", "pods");
const When kListJobs = On("list", "trainingjobs");

class FaultLists : public FaultTest {
 protected:
  // A job already runs when an operator starts whose first list is harmed: it must go on with it, not begin anew.
  void TakeOver(std::vector<Fault> faults) {
    StartOperator();
    AwaitWatching();
    Submit("a");
    AwaitRunning("a", 1);
    for (const Fault& fault : faults) proxy_->Add(fault);
    RestartOperator();
    ASSERT_TRUE(Eventually([&] { return operator_->Probe("/readyz").status == 200; }))
        << operator_->Probe("/readyz").body;
    for (const Fault& fault : faults) {
      EXPECT_GE(proxy_->Count([&](const Call& call) { return call.fault == fault.name; }), 1u) << fault.name;
    }
    ExpectPodsOnce("a");
    ExpectRunsToTheEnd("a");
  }
};

TEST_F(FaultLists, Gone410OnAContinueToken) {
  const auto first = [](const Call& call) { return kListPods(call) && call.Query("continue").empty(); };
  const auto next = [](const Call& call) { return kListPods(call) && !call.Query("continue").empty(); };
  TakeOver({{"small-pages", first, Asks("limit", "1"), 0, -1},
            {"410", next, Answers(410, "Expired", "the provided continue parameter is too old"), 0, 1}});
  // It began again from the first page.
  const std::vector<Call> calls = proxy_->calls();
  size_t at = 0;
  while (at < calls.size() && calls[at].fault != "410") ++at;
  const auto later = [&](const Call& call) { return first(call) && call.when > calls[at].when; };
  EXPECT_GE(proxy_->Count(later), 1u);
}

TEST_F(FaultLists, Forbidden403IsReportedOnce) {
  proxy_->Add({"403", kListPods, Answers(403, "Forbidden", "pods is forbidden: may not list"), 0, -1});
  StartOperator();
  ASSERT_TRUE(proxy_->AwaitCount(kPatience, 4, kListPods));
  EXPECT_EQ(operator_->Probe("/healthz").status, 200) << "a restart would not help";
  const OperatorProcess::Answer ready = operator_->Probe("/readyz");
  EXPECT_EQ(ready.status, 503);
  EXPECT_NE(ready.body.find("pods"), std::string::npos) << "the reason is not told: " << ready.body;
  EXPECT_LE(operator_->LogLines({"may not list", "warn"}).size(), 2u) << "one line per state, not one per try";
  proxy_->Remove("403");
  ExpectRunsToTheEnd("a");
}

TEST_F(FaultLists, InternalError500) { TakeOver({{"500", kListPods, Answers(500, "InternalError", "no"), 0, 3}}); }

TEST_F(FaultLists, Throttled429) {
  TakeOver({{"429", kListPods, Answers(429, "TooManyRequests", "slow down", {{"Retry-After", "1"}}), 0, 2}});
}

TEST_F(FaultLists, NeverAnswered) { TakeOver({{"silence", kListPods, NeverAnswers(), 0, 1}}); }

TEST_F(FaultLists, CutInMidChunk) { TakeOver({{"cut", kListPods, CutsAfter(2'000), 0, 2}}); }

TEST_F(FaultLists, StopsInTheMiddle) { TakeOver({{"stops", kListPods, StopsAfter(2'000), 0, 1}}); }

TEST_F(FaultLists, ConnectionIsReset) { TakeOver({{"reset", kListPods, ResetsAtOnce(), 0, 3}}); }

TEST_F(FaultLists, IsNotJson) {
  TakeOver({{"html", kListPods, AnswersBody("<html>hello, I am a captive portal</html>", "text/html"), 0, 2}});
}

TEST_F(FaultLists, JsonIsCutShort) {
  TakeOver(
      {{"short", kListPods, Changes([](const std::string& body) { return body.substr(0, body.size() / 2); }), 0, 2}});
}

TEST_F(FaultLists, HasNoItems) {
  // What is no list must not be taken for an empty one: every pod would seem to have vanished.
  TakeOver({{"null", kListPods, ChangesJson([](json& list) { list.erase("items"); }), 0, 2}});
}

TEST_F(FaultLists, IsAnotherObject) {
  TakeOver(
      {{"other", kListPods, AnswersBody(R"({"kind":"Namespace","apiVersion":"v1","metadata":{"name":"x"}})"), 0, 2}});
}

TEST_F(FaultLists, MalformedObject) {
  const auto poison = [](json& list) {
    list["items"].insert(list["items"].begin(),
                         {{{"metadata", {{"namespace", "other"}, {"name", "poison"}, {"uid", "u1"}}}, {"spec", 7}},
                          json("no object"),
                          json(nullptr),
                          {{"metadata", "none"}}});
  };
  TakeOver({{"malformed", kListPods, ChangesJson(poison), 0, -1}});
}

TEST_F(FaultLists, MalformedJob) {
  const std::string ns = ns_;
  const auto poison = [ns](json& list) {
    list["items"].insert(list["items"].begin(),
                         {{{"metadata", {{"namespace", ns}, {"name", "poison"}, {"uid", "u1"}}},
                           {"spec", {{"model", 3}, {"gpus", {{"count", "many"}}}}},
                           {"status", {{"phase", 17}, {"attempt", "x"}}}},
                          {{"metadata", {{"namespace", ns}, {"name", "empty"}, {"uid", "u2"}}}}});
  };
  TakeOver({{"malformed", kListJobs, ChangesJson(poison), 0, -1}});
}

TEST_F(FaultLists, MalformedNode) {
  const auto poison = [](json& list) {
    list["items"].insert(list["items"].begin(),
                         {{{"metadata", {{"name", "poison"}, {"labels", {{"nvidia.com/gpu.count", "many"}}}}},
                           {"spec", {{"taints", "none"}}},
                           {"status", {{"allocatable", {{"nvidia.com/gpu", "eight"}, {"cpu", -1}}}}}}});
  };
  TakeOver({{"malformed", On("list", "nodes"), ChangesJson(poison), 0, -1}});
}

}  // namespace
}  // namespace trainyard::faults
