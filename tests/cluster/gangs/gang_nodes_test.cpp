// What happens to a running gang when one of its nodes changes: the table in docs/operations.md, each row one test.
// Three nodes of eight GPUs, and a gang that fills two of them.
#include <gmock/gmock.h>

#include <algorithm>
#include <atomic>

#include "tests/cluster/gangs/gang_fixture.h"
#include "trainer/contract/contract.h"

namespace trainyard::gangs {
namespace {

using std::chrono::seconds;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;

class NodeEvents : public GangTest {
 protected:
  void SetUp() override {
    GangTest::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    MakeNodes(3, {.refuses = [this](const json& pod) { return Refuses(pod); }, .exit_on_term = 143});
    StartWatching();
    SubmitGang("a", 2, 8);
    const json job = AwaitUp("a", 1);
    if (HasFailure()) return;
    node_ = NodesOf(job)[0];
  }

  // The first pod of job b that comes to a node.
  std::string Refuses(const json& pod) {
    const bool first = cluster::LabelOf(pod, contract::kLabelJobName) == "b" && refusals_.exchange(0) > 0;
    return first ? "UnexpectedAdmissionError" : "";
  }

  // The gang trains on where it is, says what is wrong with its node, and ends well. The next gang of its size takes
  // the two other nodes.
  void ExpectGoesOnAndTheNextKeepsOff(const std::string& trouble) {
    const std::string told = "node " + node_ + ": " + trouble;
    const json job = AwaitJob("a", [&](const json& now) {
      return now.is_object() && now.value("/status/reason"_json_pointer, "").find(told) != std::string::npos;
    });
    EXPECT_THAT(job["status"].value("advice", json::array()).dump(), HasSubstr(told));
    SubmitGang("b", 2, 8);
    const json waits = AwaitReason("b");
    EXPECT_NE(PhaseOf(waits), "Running");
    EXPECT_EQ(PhaseOf(JobNow("a")), "Running");
    EXPECT_EQ(AttemptOf(JobNow("a")), 1);
    Finish("a");
    AwaitPhase("a", "Succeeded");
    EXPECT_EQ(Paid("a"), 0);
    EXPECT_THAT(NodesOf(AwaitUp("b", 1)), Not(Contains(node_)));
  }

  // The whole gang starts again without the node, on the two others; `paid` restarts were counted.
  void ExpectStartsAgainElsewhere(int64_t paid) {
    EXPECT_THAT(NodesOf(AwaitUp("a", 2)), Not(Contains(node_)));
    EXPECT_EQ(Paid("a"), paid) << JobNow("a")["status"].dump(1);
    Finish("a");
    AwaitPhase("a", "Succeeded");
  }

  std::string node_;              // of rank 0
  std::atomic<int> refusals_{0};  // that are left
};

TEST_F(NodeEvents, IsCordoned) {
  ASSERT_TRUE(nodes_->Cordon(node_, true));
  ExpectGoesOnAndTheNextKeepsOff("cordoned");
}

TEST_F(NodeEvents, IsTaintedNoSchedule) {
  ASSERT_TRUE(nodes_->Taint(node_, "example.com/repair", "NoSchedule"));
  ExpectGoesOnAndTheNextKeepsOff("taint example.com/repair:NoSchedule");
}

TEST_F(NodeEvents, IsTaintedNoExecute) {
  ASSERT_TRUE(nodes_->Taint(node_, "example.com/repair", "NoExecute"));
  ExpectStartsAgainElsewhere(0);
}

TEST_F(NodeEvents, IsDrained) {
  plane().MustKubectl({"drain", node_, "--ignore-daemonsets", "--force", "--delete-emptydir-data", "--timeout=60s"});
  ExpectStartsAgainElsewhere(0);
}

TEST_F(NodeEvents, IsDeleted) {
  ASSERT_TRUE(nodes_->Remove(node_));
  ExpectStartsAgainElsewhere(1);
}

TEST_F(NodeEvents, SaysThatItIsNotReady) {
  ASSERT_TRUE(nodes_->SetReady(node_, "False"));
  ExpectGoesOnAndTheNextKeepsOff("not ready");
}

TEST_F(NodeEvents, IsSilentForAMinute) {
  ASSERT_TRUE(nodes_->SetReady(node_, "Unknown", seconds(61)));
  ExpectStartsAgainElsewhere(1);
  // Its pod is still there as an object; when the node is back, its kubelet ends it.
  ASSERT_TRUE(nodes_->SetReady(node_, "True"));
  kubelet_->LookAgain();
  EXPECT_TRUE(kubelet_->AwaitPods(kPatience, [&](const auto& pods) {
    return std::none_of(pods.begin(), pods.end(),
                        [&](const auto& pod) { return pod.second->at("spec").value("nodeName", "") == node_; });
  }));
}

TEST_F(NodeEvents, LosesAGpu) {
  ASSERT_TRUE(nodes_->SetGpus(node_, 7));
  ExpectGoesOnAndTheNextKeepsOff("advertises 7 of the 8 GPUs in use");
}

TEST_F(NodeEvents, RestartsItsDevicePlugin) {
  ASSERT_TRUE(nodes_->SetGpus(node_, 0));
  SubmitGang("b", 2, 8);
  AwaitReason("b");
  ASSERT_TRUE(nodes_->SetGpus(node_, 8));
  EXPECT_EQ(PhaseOf(JobNow("a")), "Running");
  EXPECT_EQ(AttemptOf(JobNow("a")), 1);
  Finish("a");
  AwaitPhase("a", "Succeeded");
  AwaitUp("b", 1);
  // All three nodes are whole again.
  SubmitGang("c", 1, 8);
  AwaitUp("c", 1);
}

TEST_F(NodeEvents, HasABadCondition) {
  ASSERT_TRUE(nodes_->SetCondition(node_, "XIDErrors", "True"));
  ExpectGoesOnAndTheNextKeepsOff("condition XIDErrors=True");
}

// Between the scheduler's decision and the kubelet's a device may be gone.
TEST_F(NodeEvents, RefusesAPod) {
  refusals_ = 1;
  SubmitGang("b", 1, 8);
  const json job = AwaitUp("b", 2);
  EXPECT_EQ(Paid("b"), 0);
  EXPECT_EQ(job["status"]["excludedNodes"].size(), 1u) << job["status"].dump(1);
  EXPECT_EQ(History().undone, 1);
  Finish("a"), Finish("b");
  AwaitPhase("a", "Succeeded"), AwaitPhase("b", "Succeeded");
}

TEST_F(NodeEvents, ComesLate) {
  SubmitGang("b", 2, 8);
  AwaitReason("b");
  auto more = faults::SimulatedNodes::Start(direct(), 1, "late-", gpu());
  ASSERT_TRUE(more) << more.error().message;
  const auto late = [&](const std::string& node) { return node == "late-0" || nodes_->Serves(node); };
  kubelet_.reset();
  kubelet_ = std::make_unique<faults::SimulatedKubelet>(direct(), ns_, faults::KubeletHabits{.serves = late});
  EXPECT_THAT(NodesOf(AwaitUp("b", 1)), Contains("late-0"));
  Finish("a"), Finish("b");
  AwaitPhase("a", "Succeeded"), AwaitPhase("b", "Succeeded");
}

}  // namespace
}  // namespace trainyard::gangs
