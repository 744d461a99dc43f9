// What makes a node unfit for every new gang, one rule each, and what a pod takes of a node besides its GPUs.
#include <gmock/gmock.h>

#include <functional>
#include <limits>

#include "operator/placement/constraints.h"
#include "operator/placement/live_yard.h"
#include "tests/operator/placement/yard_fixture.h"

namespace trainyard::placement {
namespace {

using testing::HasSubstr;

YardNode Seen(const std::function<void(api::NodeSnapshot&)>& change, const YardOptions& options = {}) {
  api::NodeSnapshot node = MakeNode("n", 8);
  change(node);
  return Yard::Build({node}, {}, {}, options).nodes().at(0);
}

std::string Label(const std::string& key, const std::string& value) {
  return Seen([&](auto& node) { node.labels[key] = value; }).ineligible;
}

std::string Tainted(const std::string& key, const std::string& effect = "NoSchedule") {
  return Seen([&](auto& node) { node.taints = {{key, "", effect}}; }).ineligible;
}

TEST(Eligibility, AHealthyNodeIsFit) {
  EXPECT_EQ(Seen([](auto&) {}).ineligible, "");
}

TEST(Eligibility, NotReadyUnknownAndDeletedNodesAreNot) {
  EXPECT_EQ(Seen([](auto& node) { node.ready = false; }).ineligible, "not ready");
  EXPECT_EQ(Seen([](auto& node) { node.deleting = true; }).ineligible, "being deleted");
}

TEST(Eligibility, ACordonBarsEvenThoseWhoTolerateIt) {
  EXPECT_EQ(Seen([](auto& node) { node.unschedulable = true; }).ineligible, "cordoned");
  EXPECT_EQ(Tainted("node.kubernetes.io/unschedulable"), "cordoned");
}

TEST(Eligibility, ANodeThatAnAutoscalerRemovesBarsEverybody) {
  for (const char* key : {"ToBeDeletedByClusterAutoscaler", "karpenter.sh/disrupted", "karpenter.sh/disruption"}) {
    EXPECT_EQ(Tainted(key), "being removed (taint " + std::string(key) + ")");
    YardOptions options;
    options.tolerated_taints.push_back(key);
    EXPECT_NE(Seen([&](auto& node) { node.taints = {{key, "", "NoSchedule"}}; }, options).ineligible, "");
  }
  EXPECT_EQ(Tainted("DeletionCandidateOfClusterAutoscaler", "PreferNoSchedule"), "") << "a candidate is not yet chosen";
}

TEST(Eligibility, OtherTaintsAreLeftToTheTolerationsOfTheJob) {
  const YardNode node =
      Seen([](auto& n) { n.taints = {{"team", "vision", "NoSchedule"}, {"x", "", "PreferNoSchedule"}}; });
  EXPECT_TRUE(node.Eligible());
  ASSERT_EQ(node.taints.size(), 1u);
  EXPECT_EQ(WhyBarred(node, {}), "taint team=vision:NoSchedule");
}

TEST(Eligibility, SharedGpusAreNotWholeOnes) {
  for (const char* strategy : {"time-slicing", "mps"}) {
    EXPECT_EQ(Label("nvidia.com/gpu.sharing-strategy", strategy), "GPUs are shared (" + std::string(strategy) + ")");
  }
  EXPECT_EQ(Label("nvidia.com/gpu.sharing-strategy", "none"), "");
  EXPECT_EQ(Label("nvidia.com/gpu.sharing-strategy", ""), "") << "older label writers have none";
  EXPECT_EQ(Label("nvidia.com/gpu.product", "NVIDIA-L40S-SHARED"), "GPUs are shared");
  EXPECT_EQ(Label("nvidia.com/gpu.replicas", "10"), "GPUs are shared (10 replicas)");
  EXPECT_EQ(Label("nvidia.com/gpu.replicas", "1"), "");
}

TEST(Eligibility, MigSlicesAreNotWholeGpus) {
  EXPECT_EQ(Label("nvidia.com/gpu.product", "NVIDIA-A100-SXM4-80GB-MIG-1g.10gb"), "GPUs are cut into MIG slices");
  EXPECT_EQ(Label("nvidia.com/gpu.product", "NVIDIA-A100-SXM4-80GB-MIG-INVALID"), "GPUs are cut into MIG slices");
  EXPECT_EQ(Label("nvidia.com/mig.strategy", "mixed"), "") << "whole ones that are left are allocatable";
  EXPECT_EQ(Label("nvidia.com/mig.capable", "true"), "");
  const YardNode stale = Seen([](auto& node) {
    node.allocatable["nvidia.com/mig-1g.10gb"] = 0;
    node.labels["nvidia.com/mig.config"] = "all-disabled";
  });
  EXPECT_TRUE(stale.Eligible()) << "an entry of zero means nothing";
  EXPECT_EQ(stale.usable, 8);
}

TEST(Eligibility, ANodeWhoseMigIsBeingChangedWaits) {
  for (const char* state : {"pending", "rebooting", "failed"}) {
    EXPECT_EQ(Label("nvidia.com/mig.config.state", state), "MIG is being reconfigured (" + std::string(state) + ")");
  }
  EXPECT_EQ(Label("nvidia.com/mig.config.state", "success"), "");
}

TEST(Eligibility, EachBadConditionHasItsOwnPolarity) {
  for (const auto& [type, bad] : YardOptions::DefaultBadConditions()) {
    const std::string good = bad == "True" ? "False" : "True";
    EXPECT_EQ(Seen([&, &t = type, &b = bad](auto& node) { node.conditions[t] = b; }).ineligible,
              "condition " + type + "=" + bad);
    EXPECT_EQ(Seen([&, &t = type](auto& node) { node.conditions[t] = good; }).ineligible, "");
    EXPECT_EQ(Seen([&t = type](auto& node) { node.conditions[t] = "Unknown"; }).ineligible, "");
  }
}

TEST(Eligibility, WithoutAllocatableGpusThereAreNone) {
  EXPECT_EQ(Seen([](auto& node) { node.allocatable.clear(); }).ineligible, "advertises no nvidia.com/gpu");
  EXPECT_EQ(Seen([](auto& node) { node.allocatable[api::kGpuResource] = 0; }).ineligible,
            "advertises no nvidia.com/gpu");
  EXPECT_EQ(Seen([](auto& node) { node.allocatable[api::kGpuResource] = -3; }).usable, 0);
}

TEST(Eligibility, MoreGpusThanAnyNodeHasAreSharesOfThem) {
  const YardNode node = Seen([](auto& n) { n.allocatable[api::kGpuResource] = std::numeric_limits<int64_t>::max(); });
  EXPECT_THAT(node.ineligible, HasSubstr("which no node has"));
  EXPECT_EQ(node.usable, 0);
}

TEST(Resources, ExtendedOnesBesideGpusAreCountedLikeAnyOther) {
  api::NodeSnapshot node = MakeNode("n", 8);
  node.allocatable["rdma/hca"] = 8;
  node.allocatable["pods"] = 3;
  api::PodSnapshot other = ForeignPod("n", 0);
  other.requests["rdma/hca"] = 6;
  const Yard yard = Yard::Build({node}, {other}, {}, {});
  EXPECT_EQ(yard.nodes()[0].free_resources.at("rdma/hca"), 2);
  EXPECT_EQ(yard.nodes()[0].free_resources.at("pods"), 2);
  GangRequest request = Want(4, 4);
  request.pod_resources["rdma/hca"] = 4;
  const auto placed = Place(yard, request);
  ASSERT_FALSE(placed);
  EXPECT_THAT(placed.error().message, HasSubstr("rdma/hca"));
  request.pod_resources["rdma/hca"] = 2;
  EXPECT_TRUE(Place(yard, request));
}

TEST(Resources, ANodeFullOfPodsHasNoSlot) {
  api::NodeSnapshot node = MakeNode("n", 8);
  node.allocatable["pods"] = 2;
  std::vector<api::PodSnapshot> daemons(2, ForeignPod("n", 0));
  EXPECT_FALSE(Place(Yard::Build({node}, daemons, {}, {}), Want(1, 1)));
  daemons[1].phase = api::PodPhase::kSucceeded;
  EXPECT_TRUE(Place(Yard::Build({node}, daemons, {}, {}), Want(1, 1))) << "what has ended has none";
  daemons[1].phase = api::PodPhase::kRunning;
  daemons[1].deleting = true;
  EXPECT_FALSE(Place(Yard::Build({node}, daemons, {}, {}), Want(1, 1))) << "what is ending still has one";
}

TEST(Resources, AbsurdRequestsOfOthersNeverMakeRoom) {
  constexpr int64_t kHuge = std::numeric_limits<int64_t>::max();
  api::NodeSnapshot node = MakeNode("n", 8);
  node.allocatable["cpu"] = 1000;
  std::vector<api::PodSnapshot> pods(3, ForeignPod("n", kHuge));
  for (api::PodSnapshot& pod : pods) pod.requests["cpu"] = kHuge;
  pods.push_back(OurPod("j", 1, "n", kHuge));
  pods.back().requests["cpu"] = kHuge;
  const Yard yard = Yard::Build({node}, pods, {{"j", 1, "n", kHuge}, {"k", 1, "n", kHuge}}, {});
  EXPECT_EQ(yard.nodes()[0].free, 0);
  EXPECT_GT(yard.nodes()[0].used, 8);
  EXPECT_LT(yard.nodes()[0].free_resources.at("cpu"), 0);
  EXPECT_FALSE(Place(yard, Want(1, 1)));
}

TEST(LateNodes, ANodeSeenAfterItsPodsIsNotEmpty) {
  LiveYard live{YardOptions()};
  const auto use = std::make_shared<const PodUse>(*UseOf(ForeignPod("n", 6)));
  live.ChangePod(nullptr, use);
  EXPECT_TRUE(live.Current().nodes().empty());
  live.SetNode(std::make_shared<const api::NodeSnapshot>(MakeNode("n", 8)));
  EXPECT_EQ(live.Current().nodes().at(0).free, 2);
}

TEST(Flapping, AllocatableThatDropsUnderUseLeavesNothingFreeAndComesBack) {
  LiveYard live{YardOptions()};
  live.ChangePod(nullptr, std::make_shared<const PodUse>(*UseOf(ForeignPod("n", 6))));
  for (int round = 0; round < 3; ++round) {
    live.SetNode(std::make_shared<const api::NodeSnapshot>(MakeNode("n", 4)));
    EXPECT_EQ(live.Current().nodes().at(0).free, 0);
    EXPECT_EQ(live.Current().nodes().at(0).used, 6);
    live.SetNode(std::make_shared<const api::NodeSnapshot>(MakeNode("n", 8)));
    EXPECT_EQ(live.Current().nodes().at(0).free, 2);
    live.RemoveNode("n");
    EXPECT_TRUE(live.Current().nodes().empty());
  }
}

}  // namespace
}  // namespace trainyard::placement
