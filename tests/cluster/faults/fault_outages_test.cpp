// The API server away as a whole, and leases: what a replica does that cannot renew, and who writes meanwhile.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <random>

#include "tests/cluster/faults/fault_fixture.h"

namespace trainyard::faults {
namespace {

class FaultOutages : public FaultTest {};

TEST_F(FaultOutages, ApiServerIsAwayForTenSeconds) {
  StartOperator();
  AwaitWatching();
  Submit("a");
  AwaitRunning("a", 1);
  proxy_->Away();
  ASSERT_TRUE(kubelet_->Finish(0));  // the job ends while nobody can see it
  (void)CallsWithin(Milliseconds(10'000), AnyCall());
  EXPECT_EQ(operator_->Probe("/healthz").status, 200) << "a restart would not help";
  EXPECT_LE(operator_->LogLines({"warn"}).size(), 60u) << "the log is flooded";
  const Moment back = std::chrono::steady_clock::now();
  proxy_->Back();
  AwaitPhase("a", "Succeeded");
  // The longest pause between two tries is 30 s; after ten seconds of failures it is about ten.
  EXPECT_LE(std::chrono::steady_clock::now() - back, seconds(25));
  ExpectPodsOnce("a");
}

TEST_F(FaultOutages, ApiServerIsAwayAtTheStart) {
  proxy_->Away();
  StartOperator();
  ASSERT_TRUE(Eventually([&] { return operator_->Probe("/healthz").status == 200; }));
  const OperatorProcess::Answer ready = operator_->Probe("/readyz");
  EXPECT_EQ(ready.status, 503);
  EXPECT_FALSE(ready.body.empty());
  Submit("a");
  proxy_->Back();
  ExpectRunsToTheEnd("a");
  EXPECT_TRUE(Eventually([&] { return operator_->Probe("/readyz").status == 200; }));
}

TEST_F(FaultOutages, StopsInTimeWhileTheApiServerIsSilent) {
  StartOperator({"--leader-elect=true", "--leader-election-namespace=" + ns_});
  AwaitWatching();
  Submit("a");
  AwaitRunning("a", 1);
  const When all = [](const Call&) { return true; };
  proxy_->Add({"silence", all, NeverAnswers(), 0, -1});
  proxy_->CutAll();
  Submit("b");
  ASSERT_TRUE(proxy_->AwaitCount(kPatience, 2, [](const Call& call) { return call.fault == "silence"; }));
  EXPECT_EQ(operator_->Terminate(Milliseconds(20'000)), 0) << "must be gone before its grace period of 30 s is over";
  proxy_->Remove("silence");
  StartOperator();
  AwaitRunning("b", 1);
  ExpectPodsOnce("a");
  ExpectPodsOnce("b");
}

TEST_F(FaultOutages, AQuarterOfAllCallsFailsInSomeWay) {
  const char* given = std::getenv("TRAINYARD_SEED");
  const unsigned seed = given != nullptr ? static_cast<unsigned>(std::atol(given)) : std::random_device()();
  std::printf("TRAINYARD_SEED=%u\n", seed);
  struct Dice {
    std::mutex mutex;  // guards random
    std::minstd_rand random;
    size_t Roll(size_t sides) {
      std::lock_guard lock(mutex);
      return std::uniform_int_distribution<size_t>(0, sides - 1)(random);
    }
  };
  const auto dice = std::make_shared<Dice>();
  dice->random.seed(seed);
  const std::vector<Act> harms = {Answers(500, "InternalError", "etcd is busy"),
                                  Answers(503, "ServiceUnavailable", "starting", {{"Retry-After", "1"}}),
                                  Answers(429, "TooManyRequests", "slow down", {{"Retry-After", "1"}}),
                                  Answers(409, "Conflict", "the object has been modified"),
                                  AnswersBody("<html>hello</html>", "text/html"),
                                  ResetsAtOnce(),
                                  LosesAnswer(),
                                  CutsAfter(300),
                                  TricklesHead(Milliseconds(2))};
  proxy_->Add({"random", [dice](const Call& call) { return AnyCall()(call) && dice->Roll(4) == 0; },
               [dice, harms](Exchange& exchange) { harms[dice->Roll(harms.size())](exchange); }, 0, -1});
  StartOperator();
  const std::vector<std::string> names = {"a", "b", "c", "d", "e", "f"};
  for (const std::string& name : names) Submit(name);
  for (const std::string& name : names) {
    AwaitRunning(name, 1);
    ExpectPodsOnce(name);
  }
  ASSERT_TRUE(kubelet_->Finish(0));
  for (const std::string& name : names) {
    const json restarts = AwaitPhase(name, "Succeeded")["status"].value("restarts", json::object());
    EXPECT_EQ(restarts.value("user", 0) + restarts.value("infrastructure", 0), 0) << name;
  }
  EXPECT_GE(proxy_->Count([](const Call& call) { return !call.fault.empty(); }), 10u);
}

class FaultLeases : public FaultTest {
 protected:
  static constexpr Milliseconds kRenew{4'000};
  std::vector<std::string> Elect() const {
    return {"--leader-elect=true",         "--leader-election-namespace=" + ns_,
            "--leader-election-id=faults", "--lease-duration=6s",
            "--renew-deadline=4s",         "--retry-period=500ms",
            "--lease-timeout=2s"};
  }
  static bool Leads(const OperatorProcess& process) {
    return process.Metric("leader_election_master_status").value_or(-1) == 1;
  }
  // A write to anything but leases and events.
  static bool Writes(const Call& call) {
    return call.Mutates() && call.resource != "leases" && call.resource != "events";
  }
  // Leads and runs job "a"; then lease calls are harmed. Nothing may be written once the renew deadline has passed
  // since the last lease call that went through; when the fault is gone the same process must lead and work again.
  void LoseAndCampaignAgain(Act harm) {
    StartOperator(Elect());
    AwaitWatching();
    Submit("a");
    AwaitRunning("a", 1);
    ASSERT_TRUE(Leads(*operator_));
    proxy_->Add({"lease", On("", "leases"), std::move(harm), 0, -1});
    ASSERT_TRUE(Eventually([&] { return !Leads(*operator_); })) << "still leads";
    Submit("b");  // work to do for somebody who leads
    EXPECT_EQ(CallsWithin(Milliseconds(3'000), Writes), 0u) << "writes without the lease";
    EXPECT_EQ(operator_->Probe("/healthz").status, 200) << "a restart would not help";
    Moment renewed{}, written{};
    for (const Call& call : proxy_->calls()) {
      const bool held = call.resource == "leases" && call.Mutates() && call.fault.empty() && call.status / 100 == 2;
      if (held) renewed = call.when;
      if (Writes(call)) written = call.when;
    }
    EXPECT_LE(written - renewed, kRenew + Milliseconds(200)) << "wrote after the renew deadline";
    proxy_->Remove("lease");
    AwaitRunning("b", 1);
    EXPECT_TRUE(Eventually([&] { return Leads(*operator_); }));
    ExpectPodsOnce("a");
    ExpectPodsOnce("b");
    EXPECT_TRUE(operator_->Running()) << "it must campaign again in the same process";
  }
};

TEST_F(FaultLeases, LeaseCallsStall) { LoseAndCampaignAgain(NeverAnswers()); }

TEST_F(FaultLeases, LeaseCallsFailWith500) { LoseAndCampaignAgain(Answers(500, "InternalError", "etcd is busy")); }

TEST_F(FaultLeases, LeaseCallsAreForbidden) { LoseAndCampaignAgain(Answers(403, "Forbidden", "leases is forbidden")); }

TEST_F(FaultLeases, LeaseCallsAreReset) { LoseAndCampaignAgain(ResetsAtOnce()); }

TEST_F(FaultLeases, ConflictsOfTheLease) {
  // Single conflicts are met with a fresh read, well inside the renew deadline: leadership is kept.
  StartOperator(Elect());
  AwaitWatching();
  ASSERT_TRUE(Eventually([&] { return Leads(*operator_); }));
  const When renew = [](const Call& call) { return call.resource == "leases" && call.Mutates(); };
  proxy_->Add({"409", renew, Answers(409, "Conflict", "the object has been modified"), 0, 2});
  ASSERT_TRUE(proxy_->AwaitCount(kPatience, 2, [](const Call& call) { return call.fault == "409"; }));
  ExpectRunsToTheEnd("a");
  EXPECT_TRUE(Leads(*operator_));
}

TEST_F(FaultLeases, AnswersOfRenewalsAreLost) {
  StartOperator(Elect());
  AwaitWatching();
  ASSERT_TRUE(Eventually([&] { return Leads(*operator_); }));
  const When renew = [](const Call& call) { return call.resource == "leases" && call.Mutates(); };
  proxy_->Add({"lost", renew, LosesAnswer(), 0, 3});
  ASSERT_TRUE(proxy_->AwaitCount(kPatience, 3, [](const Call& call) { return call.fault == "lost"; }));
  ExpectRunsToTheEnd("a");
  EXPECT_TRUE(Leads(*operator_));
}

TEST_F(FaultLeases, MalformedLease) {
  const json lease = {{"apiVersion", "coordination.k8s.io/v1"},
                      {"kind", "Lease"},
                      {"metadata", {{"namespace", ns_}, {"name", "faults"}}},
                      {"spec", {{"holderIdentity", "somebody"}, {"leaseDurationSeconds", 2}}}};
  ASSERT_TRUE(direct().Create(cluster::Kind::kLease, lease));
  // What the operator reads of it has wrong types; it must neither die nor lead at once.
  proxy_->Add({"malformed", On("get", "leases"), ChangesJson([](json& read) {
                 read["spec"]["leaseDurationSeconds"] = "long";
                 read["spec"]["renewTime"] = 17;
               }),
               0, 3});
  StartOperator(Elect());
  AwaitWatching();
  ASSERT_TRUE(Eventually([&] { return Leads(*operator_); }));
  ExpectRunsToTheEnd("a");
}

TEST_F(FaultLeases, AnotherReplicaTakesOver) {
  StartOperator(Elect());
  AwaitWatching();
  ASSERT_TRUE(Eventually([&] { return Leads(*operator_); }));
  Submit("a");
  AwaitRunning("a", 1);
  // The second replica has its own way to the API server.
  const std::unique_ptr<FaultProxy> other_way = NewProxy();
  const std::unique_ptr<OperatorProcess> second = NewOperator("second");
  const Status started = second->Start(other_way->url(), "", Flags(Elect()));
  ASSERT_TRUE(started.has_value()) << started.error().message;
  ASSERT_TRUE(other_way->AwaitCount(kPatience, 2, On("get", "leases")));
  EXPECT_EQ(other_way->Count(Writes), 0u) << "the standby writes";
  proxy_->Away();
  Submit("b");
  const json running = AwaitRunning("b", 1);
  EXPECT_TRUE(Leads(*second));
  EXPECT_FALSE(Leads(*operator_));
  const Moment back = std::chrono::steady_clock::now();
  proxy_->Back();
  ASSERT_TRUE(proxy_->AwaitCount(kPatience, 1, [back](const Call& call) {
    return call.Is("get", "leases") && call.when > back && call.status == 200;
  }));
  Submit("c");
  AwaitRunning("c", 1);
  EXPECT_EQ(proxy_->Count([back](const Call& call) { return Writes(call) && call.when > back; }), 0u)
      << "the one that was cut off writes";
  for (const char* name : {"a", "b", "c"}) ExpectPodsOnce(name);
  EXPECT_EQ(second->Terminate(Milliseconds(30'000)), 0);
  // It gave the lease back, so the first need not wait for it to expire.
  EXPECT_TRUE(Eventually([&] { return Leads(*operator_); }, Milliseconds(5'000)));
}

}  // namespace
}  // namespace trainyard::faults
