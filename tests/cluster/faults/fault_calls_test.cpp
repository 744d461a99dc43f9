// Faults of single calls: refusals, throttling, lost answers, silence. What must hold each time: the pods of a job
// exist once, no attempt is counted twice, and the API server is not stormed.
#include <algorithm>
#include <fstream>

#include "tests/cluster/faults/fault_fixture.h"
#include "trainer/contract/contract.h"

namespace trainyard::faults {
namespace {

class FaultCalls : public FaultTest {
 protected:
  // Starts the operator, breaks the calls that `fault` names, and sees a job through from beginning to end.
  void SeeThrough(Fault fault) {
    proxy_->Add(std::move(fault));
    StartOperator();
    AwaitWatching();
    ExpectRunsToTheEnd("a");
  }
  // After attempts whose pods were refused and that were taken back: the next one runs, and nothing was held against
  // the job or its nodes.
  void ExpectRunsAfterRefusals(const std::string& name) {
    const json running = AwaitPhase(name, "Running");
    EXPECT_GE(AttemptOf(running), 2);
    EXPECT_LE(AttemptOf(running), 6) << "a back-off that does not grow";
    const Status finished = kubelet_->Finish(0);
    ASSERT_TRUE(finished.has_value()) << finished.error().message;
    const json job = AwaitPhase(name, "Succeeded");
    const json restarts = job["status"].value("restarts", json::object());
    EXPECT_EQ(restarts.value("user", 0) + restarts.value("infrastructure", 0), 0);
    EXPECT_FALSE(job["status"].contains("excludedNodes")) << job["status"];
  }
  size_t Harmed(const std::string& fault) const {
    return proxy_->Count([&](const Call& call) { return call.fault == fault; });
  }
  // Times at which the create of one pod (by its name in the body) was sent.
  std::vector<Moment> Creates(const std::string& pod) const {
    std::vector<Moment> times;
    for (const Call& call : proxy_->calls()) {
      const bool same = call.Is("create", "pods") && json::parse(call.body)["metadata"]["name"] == pod;
      if (same) times.push_back(call.when);
    }
    return times;
  }
};

const When kCreatePod = On("create", "pods");
const When kWriteStatus = On("update", "trainingjobs", "status");

TEST_F(FaultCalls, NoFaultAtAll) {
  StartOperator();
  AwaitWatching();
  ExpectRunsToTheEnd("a");
  EXPECT_EQ(proxy_->Count(kCreatePod), 2u);
}

TEST_F(FaultCalls, Unauthorized401) {
  SeeThrough({"401", kCreatePod, Answers(401, "Unauthorized", "Unauthorized"), 0, 2});
  EXPECT_EQ(Harmed("401"), 2u);
  EXPECT_LE(proxy_->Count(kCreatePod), 8u);
}

TEST_F(FaultCalls, Forbidden403IsNotRepeatedInALoop) {
  proxy_->Add({"403", kCreatePod, Answers(403, "Forbidden", "pods is forbidden: no"), 0, -1});
  StartOperator();
  AwaitWatching();
  Submit("a");
  ASSERT_TRUE(proxy_->AwaitCount(kPatience, 1, kCreatePod));
  // Two pods at once, claimed again after 1 s, 2 s and so on.
  EXPECT_LE(CallsWithin(Milliseconds(3'000), kCreatePod), 8u);
  EXPECT_LE(operator_->LogLines({"forbidden"}).size(), 8u);
  EXPECT_TRUE(kubelet_->Snapshot().empty());
  proxy_->Remove("403");
  ExpectRunsAfterRefusals("a");
}

TEST_F(FaultCalls, Forbidden403ByQuota) {
  // A ResourceQuota of one pod: the second is refused, in each attempt.
  const When second = [](const Call& call) {
    return call.Is("create", "pods") &&
           json::parse(call.body)["metadata"]["labels"].value(std::string(contract::kLabelNodeRank), "") == "1";
  };
  proxy_->Add(
      {"quota", second,
       Answers(403, "Forbidden",
               "pods \"x\" is forbidden: exceeded quota: one, requested: pods=1, used: pods=1, limited: pods=1"),
       0, -1});
  StartOperator();
  AwaitWatching();
  Submit("a");
  const json told = AwaitJob("a", [](const json& job) {
    return job.is_object() &&
           job.value("/status/reason"_json_pointer, "").find("exceeded quota: one") != std::string::npos;
  });
  EXPECT_EQ(PhaseOf(told), "Placing");
  EXPECT_FALSE(told["status"].contains("excludedNodes")) << told["status"];
  // It holds no GPU while it waits: all of them go to another job at once.
  AwaitJob("a", [](const json& job) { return !job.contains("/status/placement"_json_pointer); });
  EXPECT_LE(CallsWithin(Milliseconds(3'000), second), 4u);
  proxy_->Remove("quota");
  ExpectRunsAfterRefusals("a");
}

TEST_F(FaultCalls, NotFound404OfAPodThatIsThere) {
  // The un-gating of a pod is told that the pod is gone; it is not, and is done again later.
  SeeThrough({"404", On("patch", "pods"), Answers(404, "NotFound", "pods not found"), 0, 2});
  EXPECT_EQ(Harmed("404"), 2u);
}

TEST_F(FaultCalls, AlreadyExists409OfAPodThatIsNotThere) {
  SeeThrough({"409", kCreatePod, Answers(409, "AlreadyExists", "pods already exists"), 0, 2});
  EXPECT_EQ(Harmed("409"), 2u);
}

TEST_F(FaultCalls, Conflict409OfAStatus) {
  SeeThrough({"409", kWriteStatus, Answers(409, "Conflict", "the object has been modified"), 0, 3});
  EXPECT_EQ(Harmed("409"), 3u);
}

TEST_F(FaultCalls, Invalid422OfAPod) {
  proxy_->Add({"422", kCreatePod, Answers(422, "Invalid", "Pod is invalid: spec.containers[0].image: no"), 0, -1});
  StartOperator();
  AwaitWatching();
  Submit("a");
  ASSERT_TRUE(proxy_->AwaitCount(kPatience, 1, kCreatePod));
  EXPECT_LE(CallsWithin(Milliseconds(3'000), kCreatePod), 8u);
  EXPECT_FALSE(operator_->LogLines({"spec.containers[0].image"}).empty()) << "the cause is nowhere to be read";
  // Whoever owns the job does not see that log.
  AwaitJob("a", [](const json& job) {
    const std::string reason = job.value("/status/reason"_json_pointer, "");
    return reason.find("the API server refuses it") != reason.npos &&
           reason.find("spec.containers[0].image") != reason.npos;
  });
  proxy_->Remove("422");
  ExpectRunsAfterRefusals("a");
}

TEST_F(FaultCalls, TooManyRequests429WithRetryAfter) {
  SeeThrough({"429", kCreatePod, Answers(429, "TooManyRequests", "slow down", {{"Retry-After", "3"}}), 0, 4});
  // Two refusals in a row are longer than one call may take (4 s): also the next call must wait.
  EXPECT_EQ(Harmed("429"), 4u);
  for (const Call& call : proxy_->calls()) {
    if (call.fault != "429") continue;
    const std::vector<Moment> times = Creates(json::parse(call.body)["metadata"]["name"]);
    const auto next = std::find_if(times.begin(), times.end(), [&](Moment when) { return when > call.when; });
    ASSERT_NE(next, times.end()) << "the refused pod was not tried again";
    EXPECT_GE(*next - call.when, Milliseconds(2'950)) << "tried again before Retry-After was over";
  }
}

TEST_F(FaultCalls, TooManyRequests429WithoutRetryAfter) {
  SeeThrough({"429", kCreatePod, Answers(429, "TooManyRequests", "slow down"), 0, 6});
  EXPECT_EQ(Harmed("429"), 6u);
  EXPECT_LE(proxy_->Count(kCreatePod), 16u);
}

TEST_F(FaultCalls, InternalError500OfEverything) {
  StartOperator();
  AwaitWatching();
  proxy_->Add({"500", AnyCall(), Answers(500, "InternalError", "etcdserver: leader changed"), 0, -1});
  Submit("a");
  ASSERT_TRUE(proxy_->AwaitCount(kPatience, 1, [](const Call& call) { return call.fault == "500"; }));
  EXPECT_LE(CallsWithin(Milliseconds(4'000), AnyCall()), 60u) << "a storm";
  proxy_->Remove("500");
  ExpectRunsToTheEnd("a");
}

TEST_F(FaultCalls, Unavailable503WithRetryAfter) {
  SeeThrough({"503", kWriteStatus, Answers(503, "ServiceUnavailable", "starting", {{"Retry-After", "1"}}), 0, 2});
  EXPECT_EQ(Harmed("503"), 2u);
}

TEST_F(FaultCalls, ResetBeforeTheAnswer) {
  SeeThrough({"reset", [](const Call& call) { return call.Mutates() && AnyCall()(call); }, ResetsAtOnce(), 0, 6});
  EXPECT_EQ(Harmed("reset"), 6u);
}

TEST_F(FaultCalls, AnswerOfACreateIsLost) {
  SeeThrough({"lost", kCreatePod, LosesAnswer(), 0, 2});
  EXPECT_EQ(Harmed("lost"), 2u);
  // The repeated create was answered 409 AlreadyExists by the API server, and the pod was taken for ours.
  EXPECT_EQ(proxy_->Count([](const Call& call) { return kCreatePod(call) && call.upstream == 201; }), 2u);
}

TEST_F(FaultCalls, AnswerOfAStatusWriteIsLost) {
  // The claim of attempt 1 is stored, but the operator cannot know. It must not claim another one.
  SeeThrough({"lost", kWriteStatus, LosesAnswer(), 0, 2});
  EXPECT_EQ(Harmed("lost"), 2u);
}

TEST_F(FaultCalls, AnswersOfAllKindsAreLostOnce) {
  auto hit = std::make_shared<std::vector<std::string>>();
  SeeThrough({"lost",
              [hit](const Call& call) {
                const std::string kind = call.verb + " " + call.resource + "/" + call.subresource;
                if (!call.Mutates() || std::find(hit->begin(), hit->end(), kind) != hit->end()) return false;
                hit->push_back(kind);
                return true;
              },
              LosesAnswer(), 0, -1});
  EXPECT_GE(Harmed("lost"), 4u) << "status, service, pods and gates";
}

TEST_F(FaultCalls, AnswerOfAFreshListIsLost) {
  // Before it claims again after a failure, the operator lists the job's pods from the API server.
  StartOperator();
  AwaitWatching();
  Submit("a");
  AwaitRunning("a", 1);
  const auto fresh = [](const Call& call) { return call.Is("list", "pods") && !call.Query("labelSelector").empty(); };
  proxy_->Add({"lost", fresh, LosesAnswer(), 0, 2});
  ASSERT_TRUE(kubelet_->Kill(PodOf("a", 0)));
  AwaitRunning("a", 2);
  ExpectPodsOnce("a", 2, 2);
}

TEST_F(FaultCalls, CreateIsNeverAnswered) {
  SeeThrough({"silence", kCreatePod, NeverAnswers(), 0, 2});
  EXPECT_EQ(Harmed("silence"), 2u);
}

TEST_F(FaultCalls, HeadersComeSlowly) {
  // Slow, but inside the time of a call.
  SeeThrough({"slow", kWriteStatus, TricklesHead(Milliseconds(10)), 0, 2});
  EXPECT_EQ(Harmed("slow"), 2u);
}

TEST_F(FaultCalls, HeadersComeTooSlowly) {
  // Each byte resets an idle timer, so only a deadline of the whole call ends this one: 75 bytes, 150 ms each.
  SeeThrough({"trickle", kCreatePod, TricklesHead(Milliseconds(150)), 0, 1});
  EXPECT_EQ(Harmed("trickle"), 1u);
  const std::vector<Call> calls = proxy_->calls();
  const auto harmed =
      std::find_if(calls.begin(), calls.end(), [](const Call& call) { return call.fault == "trickle"; });
  // The watch has meanwhile told that the pod was made, so what comes next is the status.
  const auto next = std::find_if(harmed, calls.end(), kWriteStatus);
  ASSERT_NE(next, calls.end());
  EXPECT_LE(next->when - harmed->when, kApiTimeout + seconds(3)) << "given up late";
}

TEST_F(FaultCalls, AnswerIsNotJson) {
  SeeThrough({"html", kCreatePod, AnswersBody("<html>hello, I am a captive portal</html>", "text/html"), 0, 2});
  EXPECT_EQ(Harmed("html"), 2u);
}

TEST_F(FaultCalls, AnswerIsCutInTheMiddle) {
  SeeThrough({"cut", kWriteStatus, CutsAfter(200), 0, 2});
  EXPECT_EQ(Harmed("cut"), 2u);
}

TEST_F(FaultCalls, TokenExpires) {
  token_file_ = (directory() / "token").string();
  std::ofstream(token_file_) << "first";
  proxy_->ExpectToken("first");
  StartOperator();
  AwaitWatching();
  proxy_->ExpectToken("second");
  proxy_->CutAll();  // watches are authenticated only when they start
  Submit("a");
  const When refused = [](const Call& call) { return call.status == 401; };
  ASSERT_TRUE(proxy_->AwaitCount(kPatience, 4, refused));
  EXPECT_LE(CallsWithin(Milliseconds(4'000), refused), 60u) << "a storm";
  // As the kubelet does it: a new file in the place of the old one.
  std::ofstream(token_file_ + ".new") << "second";
  std::filesystem::rename(token_file_ + ".new", token_file_);
  ExpectRunsToTheEnd("a");
}

TEST_F(FaultCalls, EventsAreRefused) {
  // Events tell people; no job depends on them.
  SeeThrough({"403", On("", "events"), Answers(403, "Forbidden", "events is forbidden: no"), 0, -1});
  EXPECT_GE(Harmed("403"), 1u);
}

}  // namespace
}  // namespace trainyard::faults
