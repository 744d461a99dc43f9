// Gangs that want the same GPUs at the same moment.
#include <gmock/gmock.h>

#include <thread>

#include "tests/cluster/gangs/gang_fixture.h"

namespace trainyard::gangs {
namespace {

using ::testing::HasSubstr;

class GangRace : public GangTest {
 protected:
  // Two nodes with four free GPUs each: the last eight of the yard.
  void LeaveEight() {
    MakeNodes(2);
    TakeGpus("other-0", nodes_->names()[0], 4);
    TakeGpus("other-1", nodes_->names()[1], 4);
  }
  bool Ready(const std::string& name) { return PhaseOf(JobNow(name)) == "Running"; }
};

TEST_F(GangRace, ForTheLastEightGpusOneStartsWholeAndTheOtherWaitsAndFollows) {
  LeaveEight();
  StartWatching();
  std::thread rival([this] { SubmitGang("b", 2, 4); });
  SubmitGang("a", 2, 4);
  rival.join();
  ASSERT_TRUE(Eventually([&] { return Ready("a") || Ready("b"); }));
  const std::string first = Ready("a") ? "a" : "b", second = first == "a" ? "b" : "a";
  AwaitUp(first, 1);
  const json waits = AwaitPhase(second, "Queued");
  const std::string reason = waits["status"]["reason"];
  EXPECT_THAT(reason, HasSubstr("needs 2 nodes with 4 free " + gpu().product + " GPUs each"));
  EXPECT_THAT(reason, HasSubstr("held by " + ns_ + "/" + first + " (8 GPUs"));
  EXPECT_THAT(reason, HasSubstr("8 GPUs held by pods of no TrainingJob"));
  EXPECT_FALSE(waits["status"].contains("placement")) << "it holds GPUs while it waits";
  EXPECT_EQ(kubelet_->Snapshot().size(), 4u) << "two pods of others and the two of " << first;
  Finish(first);
  AwaitUp(second, 1);
  Finish(second);
  AwaitPhase(first, "Succeeded");
  AwaitPhase(second, "Succeeded");
  EXPECT_EQ(History().undone, 0);
}

// Each operator sees the other's pods, but not its claims.
TEST_F(GangRace, OfTwoOperatorsOneStartsAndTheOtherFollows) {
  rules_.two_operators = true;
  LeaveEight();
  const std::string theirs = plane().FreshNamespace("faults"), ours = ns_;
  faults::SimulatedKubelet their_kubelet(direct(), theirs);
  StartWatching();
  const auto other_way = NewProxy();
  const auto other = NewOperator("other");
  ns_ = theirs;  // of what is submitted and of the flags
  const Status started = other->Start(other_way->url(), "", Flags({"--leader-elect=false"}));
  ASSERT_TRUE(started.has_value()) << started.error().message;
  ASSERT_TRUE(other_way->AwaitCount(kPatience, 1, faults::On("watch", "pods")));
  std::thread rival([this] { SubmitGang("b", 2, 4); });
  rival.join();
  ns_ = ours;
  SubmitGang("a", 2, 4);
  const auto phase = [&](const std::string& ns, const std::string& name) {
    const auto job = direct().Get(cluster::Kind::kTrainingJob, {ns, name});
    return job ? PhaseOf(*job) : "";
  };
  ASSERT_TRUE(Eventually([&] { return phase(ours, "a") == "Running" || phase(theirs, "b") == "Running"; }));
  const bool we = phase(ours, "a") == "Running";
  EXPECT_NE(phase(we ? theirs : ours, we ? "b" : "a"), "Running");
  ASSERT_TRUE((we ? *kubelet_ : their_kubelet).Finish(0, [](const json& pod) {
    return pod["metadata"].contains("labels") && pod["metadata"]["labels"].contains("trainyard.dev/job-uid");
  }));
  ASSERT_TRUE(Eventually([&] { return phase(we ? theirs : ours, we ? "b" : "a") == "Running"; }));
  EXPECT_EQ(other->Terminate(Milliseconds(30'000)), 0);
  ASSERT_TRUE(direct().DeleteCollection(cluster::Kind::kTrainingJob, {theirs, ""}, std::nullopt));
  ASSERT_TRUE(direct().DeleteCollection(cluster::Kind::kPod, {theirs, ""}, 0));
}

}  // namespace
}  // namespace trainyard::gangs
