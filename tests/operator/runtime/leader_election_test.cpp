// Two rivals for one lease on the in-memory cluster, time moved by hand. Real processes on a real API server:
// tests/cluster/faults/fault_outages_test.cpp.
#include "operator/runtime/leader_election.h"

#include <limits>
#include <memory>
#include <sstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <spdlog/sinks/ostream_sink.h>
#include <spdlog/spdlog.h>

#include "operator/local/store.h"
#include "operator/runtime/fenced_cluster.h"
#include "tests/operator/runtime/store_cluster.h"

namespace trainyard::runtime {
namespace {

using cluster::Kind;
using nlohmann::json;
using std::chrono::seconds;

// What is logged while it lives.
class LogLines {
 public:
  LogLines() : before_(spdlog::default_logger()) {
    spdlog::set_default_logger(
        std::make_shared<spdlog::logger>("", std::make_shared<spdlog::sinks::ostream_sink_mt>(text_)));
  }
  ~LogLines() { spdlog::set_default_logger(before_); }
  std::string Text() const { return text_.str(); }

 private:
  std::ostringstream text_;
  const std::shared_ptr<spdlog::logger> before_;
};

class LeaderElectionTest : public testing::Test {
 protected:
  std::unique_ptr<LeaderElector> Candidate(const std::string& identity, seconds lease = seconds(15)) {
    LeaderElectionOptions options{.ns = "system", .name = "operator", .identity = identity};
    options.lease_duration = lease;
    return std::make_unique<LeaderElector>(cluster_, options, clock_, 1, [this] { return now_; });
  }
  void Pass(Milliseconds time) {
    now_ += time;
    clock_.Advance(time);
  }
  json Spec() {
    const auto lease = cluster_.Get(Kind::kLease, {"system", "operator"});
    EXPECT_TRUE(lease.has_value());
    return lease ? (*lease)["spec"] : json::object();
  }

  FakeClock clock_{TimePoint(Milliseconds(1'800'000'000'123))};
  SteadyTime now_ = SteadyTime(seconds(1000));
  StoreCluster cluster_{clock_};
};

TEST_F(LeaderElectionTest, TheFirstTakesTheLeaseAndWritesWhatPeopleExpect) {
  auto a = Candidate("a");
  EXPECT_FALSE(a->IsLeader());
  EXPECT_EQ(a->Tick(), seconds(2));
  EXPECT_TRUE(a->IsLeader());
  EXPECT_TRUE(a->Leads(1));
  const json spec = Spec();
  EXPECT_EQ(spec["holderIdentity"], "a");
  EXPECT_EQ(spec["leaseDurationSeconds"], 15);
  EXPECT_EQ(spec["acquireTime"], "2027-01-15T08:00:00.123000Z");
  EXPECT_EQ(spec["renewTime"], spec["acquireTime"]);
  EXPECT_EQ(spec["leaseTransitions"], 0);
  Pass(seconds(2));
  a->Tick();
  EXPECT_EQ(Spec()["renewTime"], "2027-01-15T08:00:02.123000Z");
  EXPECT_EQ(Spec()["acquireTime"], "2027-01-15T08:00:00.123000Z");
}

TEST_F(LeaderElectionTest, TheOtherWaitsWhileTheLeaseIsRenewedWhateverItsTimesSay) {
  auto a = Candidate("a");
  auto b = Candidate("b");
  a->Tick();
  // A clock that is years off must not matter.
  clock_.Advance(seconds(100'000'000));
  for (int i = 0; i < 30; ++i) {
    const Milliseconds pause = b->Tick();
    EXPECT_GE(pause, seconds(2));
    EXPECT_LE(pause, Milliseconds(4'400));
    EXPECT_FALSE(b->IsLeader());
    Pass(seconds(2));
    a->Tick();
    EXPECT_TRUE(a->IsLeader());
  }
}

TEST_F(LeaderElectionTest, ADeadLeaderHasStoppedWritingBeforeTheNextOneLeads) {
  auto a = Candidate("a");
  auto b = Candidate("b");
  a->Tick();
  b->Tick();  // has seen the renewal of second 0
  Pass(Milliseconds(9'999));
  EXPECT_TRUE(a->IsLeader());
  Pass(Milliseconds(1));
  EXPECT_FALSE(a->IsLeader()) << "the renew deadline has passed";
  b->Tick();
  EXPECT_FALSE(b->IsLeader());
  Pass(Milliseconds(4'999));
  b->Tick();
  EXPECT_FALSE(b->IsLeader());
  Pass(Milliseconds(1));
  b->Tick();
  EXPECT_TRUE(b->IsLeader());
  EXPECT_EQ(Spec()["holderIdentity"], "b");
  EXPECT_EQ(Spec()["leaseTransitions"], 1);
  a->Tick();
  EXPECT_FALSE(a->IsLeader());
}

TEST_F(LeaderElectionTest, ARenewalThatFailsIsTriedAgainAndTheTermGoesOn) {
  auto a = Candidate("a");
  a->Tick();
  cluster_.SetAway(true);
  Pass(seconds(4));
  EXPECT_EQ(a->Tick(), seconds(2));
  EXPECT_TRUE(a->Leads(1));
  EXPECT_THAT(a->problem(), testing::HasSubstr("away"));
  cluster_.SetAway(false);
  Pass(seconds(5));
  a->Tick();
  EXPECT_TRUE(a->Leads(1));
  EXPECT_EQ(a->problem(), "");
  Pass(seconds(9));
  EXPECT_TRUE(a->Leads(1));
}

TEST_F(LeaderElectionTest, AfterALossItLeadsAgainInProcessAndThatIsAnotherTerm) {
  auto a = Candidate("a");
  a->Tick();
  cluster_.SetAway(true);
  Pass(seconds(11));
  a->Tick();
  EXPECT_FALSE(a->IsLeader());
  cluster_.SetAway(false);
  a->Tick();
  EXPECT_TRUE(a->IsLeader());
  EXPECT_FALSE(a->Leads(1)) << "late writes of the first term must be refused";
  EXPECT_TRUE(a->Leads(2));
  EXPECT_EQ(Spec()["leaseTransitions"], 0) << "nobody else held it";
}

TEST_F(LeaderElectionTest, AnotherDurationInTheRecordIsRespected) {
  auto a = Candidate("a", seconds(60));
  auto b = Candidate("b", seconds(15));
  a->Tick();
  b->Tick();
  Pass(seconds(59));
  b->Tick();
  EXPECT_FALSE(b->IsLeader());
  Pass(seconds(1));
  b->Tick();
  EXPECT_TRUE(b->IsLeader());
}

TEST_F(LeaderElectionTest, ADurationThatNobodyMeansIsWaitedForNoLongerThanTenOfOurs) {
  for (const int64_t says : {int64_t{150}, int64_t{151}, int64_t{86'400'000}, std::numeric_limits<int64_t>::max()}) {
    const cluster::ObjectKey key{"system", "operator"};
    if (cluster_.Get(Kind::kLease, key)) {
      ASSERT_TRUE(cluster_.Delete(Kind::kLease, key, {}).has_value());
    }
    const json lease = {{"metadata", {{"namespace", "system"}, {"name", "operator"}}},
                        {"spec", {{"holderIdentity", "gone"}, {"leaseDurationSeconds", says}}}};
    ASSERT_TRUE(cluster_.Create(Kind::kLease, lease).has_value());
    auto b = Candidate("b", seconds(15));
    b->Tick();
    LogLines lines;
    Pass(Milliseconds(14'999));
    b->Tick();
    EXPECT_EQ(lines.Text(), "") << "an ordinary wait is no news";
    Pass(Milliseconds(1));
    b->Tick();
    EXPECT_THAT(lines.Text(),
                testing::HasSubstr("b waits: gone has not renewed the lease for 15.0s, which says that it "
                                   "lasts " +
                                   std::to_string(says) + " s; it is taken over when 2m 30s"));
    Pass(Milliseconds(134'999));
    b->Tick();
    EXPECT_FALSE(b->IsLeader()) << says;
    Pass(Milliseconds(1));
    b->Tick();
    EXPECT_TRUE(b->IsLeader()) << says;
    EXPECT_EQ(lines.Text().find(" waits: "), lines.Text().rfind(" waits: ")) << "told once: " << lines.Text();
  }
}

TEST_F(LeaderElectionTest, ANegativeOrWrittenOutDurationCountsAsOurs) {
  for (const json& says : {json(-5), json("1000")}) {
    const cluster::ObjectKey key{"system", "operator"};
    if (cluster_.Get(Kind::kLease, key)) {
      ASSERT_TRUE(cluster_.Delete(Kind::kLease, key, {}).has_value());
    }
    const json lease = {{"metadata", {{"namespace", "system"}, {"name", "operator"}}},
                        {"spec", {{"holderIdentity", "gone"}, {"leaseDurationSeconds", says}}}};
    ASSERT_TRUE(cluster_.Create(Kind::kLease, lease).has_value());
    auto b = Candidate("b", seconds(15));
    b->Tick();
    Pass(Milliseconds(14'999));
    b->Tick();
    EXPECT_FALSE(b->IsLeader());
    Pass(Milliseconds(1));
    b->Tick();
    EXPECT_TRUE(b->IsLeader());
  }
}

TEST_F(LeaderElectionTest, AReleasedLeaseIsTakenAtOnce) {
  auto a = Candidate("a");
  auto b = Candidate("b");
  a->Tick();
  b->Tick();
  a->Release();
  EXPECT_FALSE(a->IsLeader());
  EXPECT_FALSE(Spec().contains("holderIdentity"));
  EXPECT_EQ(Spec()["leaseDurationSeconds"], 1);
  b->Tick();
  EXPECT_TRUE(b->IsLeader());
  EXPECT_EQ(Spec()["leaseTransitions"], 1);
}

TEST_F(LeaderElectionTest, OfTwoThatTryAtOnceOneWins) {
  auto a = Candidate("a");
  auto b = Candidate("b");
  a->Tick();
  b->Tick();
  Pass(seconds(20));
  // b reads the expired lease, and a renews before b writes.
  cluster_.BeforeNextWrite([&] { a->Tick(); });
  b->Tick();
  EXPECT_TRUE(a->IsLeader());
  EXPECT_FALSE(b->IsLeader());
}

TEST_F(LeaderElectionTest, ALeaseWithoutSpecIsTaken) {
  ASSERT_TRUE(
      cluster_.Create(Kind::kLease, {{"metadata", {{"namespace", "system"}, {"name", "operator"}}}}).has_value());
  auto a = Candidate("a");
  a->Tick();
  EXPECT_TRUE(a->IsLeader());
}

TEST_F(LeaderElectionTest, TheThreadLeadsAndGivesTheLeaseBack) {
  LeaderElectionOptions options{.ns = "system", .name = "operator", .identity = "a"};
  LeaderElector a(cluster_, options, clock_, 1);
  a.Start();
  std::stop_source never;
  EXPECT_EQ(a.AwaitTerm(never.get_token()), std::optional<uint64_t>(1));
  a.Stop();
  EXPECT_FALSE(a.IsLeader());
  a.AwaitEnd(1, never.get_token());
  EXPECT_FALSE(Spec().contains("holderIdentity"));
  std::stop_source stop;
  stop.request_stop();
  EXPECT_EQ(a.AwaitTerm(stop.get_token()), std::nullopt);
}

TEST(LeaderElectionOptionsTest, TimesThatMakeNoSenseAreRefused) {
  LeaderElectionOptions options;
  EXPECT_TRUE(CheckLeaderElection(options).has_value());
  options.renew_deadline = options.lease_duration;
  EXPECT_THAT(CheckLeaderElection(options).error().message, testing::HasSubstr("lease duration (15.0s)"));
  options = {};
  options.retry_period = options.renew_deadline;
  EXPECT_THAT(CheckLeaderElection(options).error().message, testing::HasSubstr("retry period"));
  options.retry_period = Milliseconds(0);
  EXPECT_FALSE(CheckLeaderElection(options).has_value());
}

TEST_F(LeaderElectionTest, AFencedClusterTakesWritesOnlyWhileTheTermLasts) {
  auto a = Candidate("a");
  a->Tick();
  FencedCluster fenced(cluster_, [&] { return a->Leads(1); });
  const json pod = {{"metadata", {{"namespace", "default"}, {"name", "p"}}},
                    {"spec", {{"containers", json::array({{{"name", "trainer"}, {"image", "i"}}})}}}};
  ASSERT_TRUE(fenced.Create(Kind::kPod, pod).has_value());
  Pass(seconds(10));
  const cluster::ObjectKey key{"default", "p"};
  const auto refused = [](const auto& result) {
    return !result && result.error().code == ErrorCode::kFailedPrecondition;
  };
  EXPECT_TRUE(refused(fenced.Create(Kind::kPod, pod)));
  EXPECT_TRUE(refused(fenced.Replace(Kind::kPod, pod)));
  EXPECT_TRUE(refused(fenced.ReplaceStatus(Kind::kPod, pod)));
  EXPECT_TRUE(refused(fenced.Patch(Kind::kPod, key, cluster::PatchType::kMerge, json::object(), false)));
  EXPECT_TRUE(refused(fenced.Delete(Kind::kPod, key, {})));
  EXPECT_TRUE(refused(fenced.DeleteCollection(Kind::kPod, {}, std::nullopt)));
  EXPECT_TRUE(fenced.Get(Kind::kPod, key).has_value()) << "reads pass";
  EXPECT_EQ(fenced.List(Kind::kPod, {})->items.size(), 1u);
}

}  // namespace
}  // namespace trainyard::runtime
