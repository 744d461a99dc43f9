// Faults of watches: streams that break, fall silent, lie or talk nonsense. What must hold each time: the operator
// learns of what happened meanwhile, drops what has vanished, and begins again no faster than its back-off says.
#include <algorithm>

#include "tests/cluster/faults/fault_fixture.h"

namespace trainyard::faults {
namespace {

using Then = Lines::Then;

const When kWatchPods = On("watch", "pods");
const When kWatchJobs = On("watch", "trainingjobs");

class FaultWatches : public FaultTest {
 protected:
  // A job runs from beginning to end while the watch of its pods is harmed.
  void SeeThrough(Fault fault) {
    const std::string name = fault.name;
    proxy_->Add(std::move(fault));
    StartOperator();
    AwaitWatching();
    ExpectRunsToTheEnd("a");
    EXPECT_GE(Harmed(name), 1u);
  }
  size_t Harmed(const std::string& fault) const {
    return proxy_->Count([&](const Call& call) { return call.fault == fault; });
  }
  // The pod watch breaks; while it is away a pod of a running job vanishes; then `fault` meets the next watch. Only a
  // new list can tell the operator that the pod is gone.
  void LoseAPodWhileBlind(Fault fault) {
    StartOperator();
    AwaitWatching();
    Submit("a");
    AwaitRunning("a", 1);
    const size_t lists = proxy_->Count(On("list", "pods"));
    proxy_->Add({"blind", kWatchPods, NeverAnswers(), 0, -1});
    proxy_->CutAll();
    ASSERT_TRUE(proxy_->AwaitCount(kPatience, 1, [](const Call& call) { return call.fault == "blind"; }));
    ASSERT_TRUE(kubelet_->Kill(PodOf("a", 0)));
    ASSERT_TRUE(kubelet_->AwaitPods(kPatience, [](const auto& pods) { return pods.size() == 1; }));
    const std::string name = fault.name;
    proxy_->Add(std::move(fault));
    proxy_->Remove("blind");
    AwaitRunning("a", 2);
    ExpectPodsOnce("a", 2, 2);
    EXPECT_EQ(Harmed(name), 1u);
    EXPECT_GT(proxy_->Count(On("list", "pods")), lists) << "not listed again";
  }
  static std::function<Lines(const std::string&)> Unharmed() {
    return [](const std::string& line) { return Lines{{line}}; };
  }
};

TEST_F(FaultWatches, CutInMidChunk) { SeeThrough({"cut", kWatchPods, CutsAfter(1'500), 0, 3}); }

TEST_F(FaultWatches, AllConnectionsAreCutAgainAndAgain) {
  StartOperator();
  AwaitWatching();
  Submit("a");
  for (int i = 0; i < 5; ++i) {
    const size_t before = proxy_->Count(kWatchPods);
    proxy_->CutAll();
    ASSERT_TRUE(proxy_->AwaitCount(kPatience, before + 1, kWatchPods));
  }
  ExpectRunsToTheEnd("a");
}

TEST_F(FaultWatches, HalfOpenIsFoundByTheIdleTimer) {
  const auto age = [this] { return operator_->Metric("trainyard_last_event_age_seconds", {"\"pods\""}); };
  StartOperator();
  AwaitWatching();
  ASSERT_TRUE(Eventually([&] { return age().has_value(); }));
  // The stream of pods says nothing more, and its connection stays open.
  proxy_->Add({"silence", kWatchPods, StartsWith({}, Then::kSilence), 0, 1});
  proxy_->CutAll();
  ASSERT_TRUE(proxy_->AwaitCount(kPatience, 1, [](const Call& call) { return call.fault == "silence"; }));
  Submit("a");
  ASSERT_TRUE(kubelet_->AwaitPods(kPatience, [](const auto& pods) { return pods.size() == 2; }));
  const Moment made = std::chrono::steady_clock::now();
  // Pods have come, and still the age of the last event grows: the watch is dead ...
  EXPECT_TRUE(Eventually([&] {
    const std::chrono::duration<double> since = std::chrono::steady_clock::now() - made;
    return since > seconds(2) && age().value_or(0) > since.count();
  })) << "the age does not grow";
  // ... until the idle timer ends it, and the next one brings what was missed.
  AwaitRunning("a", 1);
  EXPECT_LT(age().value_or(99), 2.0) << "the age does not fall";
  const std::chrono::duration<double> blind = std::chrono::steady_clock::now() - made;
  EXPECT_LE(blind, kWatchIdle + seconds(10));
  ExpectRunsToTheEnd("a");
}

TEST_F(FaultWatches, HalfOpenBeforeTheHeaders) {
  StartOperator();
  AwaitWatching();
  proxy_->Add({"silence", kWatchPods, NeverAnswers(), 0, 1});
  proxy_->CutAll();
  ASSERT_TRUE(proxy_->AwaitCount(kPatience, 1, [](const Call& call) { return call.fault == "silence"; }));
  ExpectRunsToTheEnd("a");
}

TEST_F(FaultWatches, SilentWhileAnswersOfCreatesAreLost) {
  // Neither the answers nor the watch tell of the pods that were made.
  StartOperator();
  AwaitWatching();
  proxy_->Add({"silence", kWatchPods, StartsWith({}, Then::kSilence), 0, 2});
  proxy_->CutAll();
  ASSERT_TRUE(proxy_->AwaitCount(kPatience, 1, [](const Call& call) { return call.fault == "silence"; }));
  proxy_->Add({"lost", On("create", "pods"), LosesAnswer(), 0, 2});
  ExpectRunsToTheEnd("a");
  EXPECT_EQ(Harmed("lost"), 2u);
}

TEST_F(FaultWatches, StopsInTheMiddleOfALine) { SeeThrough({"stops", kWatchPods, StopsAfter(1'500), 0, 1}); }

TEST_F(FaultWatches, Gone410AtTheStart) {
  LoseAPodWhileBlind({"410", kWatchPods, Answers(410, "Expired", "too old resource version: 1 (2)"), 0, 1});
}

TEST_F(FaultWatches, Gone410InTheStream) {
  LoseAPodWhileBlind({"410", kWatchPods,
                      StartsWith({ErrorEvent(410, "Expired", "too old resource version: 1 (2)")}, Then::kEnd), 0, 1});
}

TEST_F(FaultWatches, Gone410OfTheJobsThemselves) {
  StartOperator();
  AwaitWatching();
  Submit("a");
  AwaitRunning("a", 1);
  Submit("b");
  AwaitRunning("b", 1);
  proxy_->Add({"blind", kWatchJobs, NeverAnswers(), 0, -1});
  proxy_->CutAll();
  ASSERT_TRUE(proxy_->AwaitCount(kPatience, 1, [](const Call& call) { return call.fault == "blind"; }));
  // One job goes and another comes while nobody looks.
  ASSERT_TRUE(direct().Delete(cluster::Kind::kTrainingJob, {ns_, "a"}, {}));
  Submit("c");
  proxy_->Add({"410", kWatchJobs, Answers(410, "Gone", "too old resource version"), 0, 1});
  proxy_->Remove("blind");
  AwaitRunning("c", 1);
  ExpectPodsOnce("b");
  ExpectPodsOnce("c");
  EXPECT_TRUE(Eventually([&] { return operator_->Metric("trainyard_cached_objects", {"trainingjobs"}) == 2; }))
      << "the deleted job is still cached";
}

TEST_F(FaultWatches, Error500InTheStream) {
  SeeThrough({"500", kWatchPods, StartsWith({ErrorEvent(500, "InternalError", "etcd is busy")}, Then::kEnd), 0, 3});
}

TEST_F(FaultWatches, Refused401) {
  SeeThrough({"401", kWatchPods, Answers(401, "Unauthorized", "Unauthorized"), 0, 2});
}

TEST_F(FaultWatches, Refused403IsReportedOnce) {
  proxy_->Add({"403", kWatchPods, Answers(403, "Forbidden", "pods is forbidden: may not watch"), 0, -1});
  StartOperator();
  ASSERT_TRUE(proxy_->AwaitCount(kPatience, 3, [](const Call& call) { return call.fault == "403"; }));
  EXPECT_LE(operator_->LogLines({"may not watch", "warn"}).size(), 2u) << "one line per state, not one per try";
  proxy_->Remove("403");
  AwaitWatching();
  ExpectRunsToTheEnd("a");
}

TEST_F(FaultWatches, Throttled429) {
  SeeThrough({"429", kWatchPods, Answers(429, "TooManyRequests", "slow down", {{"Retry-After", "1"}}), 0, 2});
}

TEST_F(FaultWatches, EndsAtOnceEveryTime) {
  proxy_->Add({"ends", kWatchPods, StartsWith({}, Then::kEnd), 0, -1});
  StartOperator();
  ASSERT_TRUE(proxy_->AwaitCount(kPatience, 1, kWatchPods));
  EXPECT_LE(CallsWithin(Milliseconds(5'000), kWatchPods), 12u) << "a storm";
  proxy_->Remove("ends");
  ExpectRunsToTheEnd("a");
}

TEST_F(FaultWatches, EventsComeTwice) {
  SeeThrough({"twice", kWatchPods, Streams([] { return [](const std::string& line) { return Lines{{line, line}}; }; }),
              0, -1});
}

TEST_F(FaultWatches, EventsComeInTheWrongOrder) {
  SeeThrough({"swapped", kWatchPods, Streams([] {
                auto held = std::make_shared<std::string>();
                auto count = std::make_shared<int>(0);
                return [held, count](const std::string& line) {
                  // The two pods come at once, whatever else is late; later a line may be the last of its watch.
                  if (*count >= 1) return Lines{{line}};
                  if (held->empty()) return *held = line, Lines{};
                  ++*count;
                  return Lines{{line, std::exchange(*held, "")}};
                };
              }),
              0, 1});
}

TEST_F(FaultWatches, OldEventsComeAgain) {
  SeeThrough({"stale", kWatchPods, Streams([] {
                auto last = std::make_shared<std::string>();
                auto count = std::make_shared<int>(0);
                return [last, count](const std::string& line) {
                  const std::string old = std::exchange(*last, line);
                  return old.empty() || ++*count > 6 ? Lines{{line}} : Lines{{old, line}};
                };
              }),
              0, 1});
}

TEST_F(FaultWatches, OldEventsOfTheJobComeAgain) {
  // The cache of jobs is thrown back behind the operator's own writes: a status write must fail, not claim again.
  SeeThrough({"stale", kWatchJobs, Streams([] {
                auto first = std::make_shared<std::string>();
                auto count = std::make_shared<int>(0);
                return [first, count](const std::string& line) {
                  if (line.find("\"ADDED\"") != std::string::npos) *first = line;
                  return first->empty() || ++*count > 6 ? Lines{{line}} : Lines{{line, *first, line}};
                };
              }),
              0, 1});
}

TEST_F(FaultWatches, MalformedObject) {
  SeeThrough({"malformed", kWatchPods,
              StartsWith({R"({"type":"ADDED","object":{"kind":"Pod","apiVersion":"v1","metadata":{"namespace":"other",)"
                          R"("name":"poison","uid":"u1","resourceVersion":"1"},"spec":7,"status":["x"]}})",
                          R"({"type":"MODIFIED","object":"no object"})", R"({"type":"ADDED"})",
                          R"({"type":17,"object":{}})", R"([])", R"("text")", R"(null)"}),
              0, 1});
}

TEST_F(FaultWatches, MalformedJob) {
  SeeThrough(
      {"malformed", kWatchJobs,
       StartsWith({R"({"type":"ADDED","object":{"kind":"TrainingJob","metadata":{"namespace":")" + ns_ +
                   R"(","name":"poison","uid":"u1","resourceVersion":"1"},"spec":{"model":3,"gpus":{"count":"many"}},)"
                   R"("status":{"phase":17,"attempt":"x"}}})"}),
       0, 1});
}

TEST_F(FaultWatches, LineIsNotJson) {
  SeeThrough({"nonsense", kWatchPods, StartsWith({"{{{ this is not JSON", "", "\xff\xfe\x01"}), 0, 2});
}

TEST_F(FaultWatches, JsonIsCutShort) {
  SeeThrough({"short", kWatchPods, Streams([] {
                return [](const std::string& line) { return Lines{{line.substr(0, line.size() / 2)}, Then::kEnd}; };
              }),
              0, 2});
}

TEST_F(FaultWatches, LineIsHuge) {
  // 64 MiB without a line end. The line is given up at its limit, not when memory is.
  SeeThrough(
      {"huge", kWatchPods, StartsWith({"{\"type\":\"ADDED\",\"object\":\"" + std::string(64 << 20, 'x')}), 0, 1});
  EXPECT_LE(operator_->Metric("process_resident_memory_bytes").value_or(1e12), 250e6);
}

TEST_F(FaultWatches, BookmarkIsEmpty) {
  SeeThrough({"bookmark", kWatchPods,
              StartsWith({R"({"type":"BOOKMARK","object":{}})", R"({"type":"BOOKMARK","object":{"metadata":{}}})",
                          R"({"type":"BOOKMARK","object":{"metadata":{"resourceVersion":""}}})"}),
              0, 1});
}

TEST_F(FaultWatches, EventTypeIsUnknown) {
  SeeThrough({"type", kWatchPods, StartsWith({R"({"type":"RENAMED","object":{"kind":"Pod","metadata":{"name":"x"}}})"}),
              0, 1});
}

}  // namespace
}  // namespace trainyard::faults
