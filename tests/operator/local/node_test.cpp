// Simulated machines and the scheduler.
#include "operator/cluster/snapshot.h"
#include "tests/operator/local/local_fixture.h"

namespace trainyard::local {
namespace {

using cluster::Kind;
using nlohmann::json;

class NodeTest : public LocalFixture {
 protected:
  json Node(const std::string& name) {
    const Result<json> node = cluster_->Get(Kind::kNode, {"", name});
    return node ? *node : json();
  }
  std::string Why(const std::string& name) {
    const json pod = Await(name, [](const json& now) {
      return now["status"].contains("conditions") &&
             now["status"]["conditions"][0].value("reason", "") == "Unschedulable";
    });
    return pod["status"]["conditions"][0]["message"];
  }
};

TEST_F(NodeTest, NodesLookLikeGpuMachines) {
  Start(2, 4);
  const auto node = cluster::NodeFromJson(Node("local-1"));
  ASSERT_TRUE(node.has_value()) << node.error().message;
  EXPECT_TRUE(node->ready);
  EXPECT_EQ(node->labels.at("nvidia.com/gpu.product"), "trainyard-simulated");
  EXPECT_EQ(node->labels.at("nvidia.com/gpu.count"), "4");
  EXPECT_EQ(node->labels.at("kubernetes.io/hostname"), "local-1");
  EXPECT_GT(std::stoll(node->labels.at("nvidia.com/gpu.memory")), 0);
  EXPECT_EQ(node->allocatable.at("nvidia.com/gpu"), 4);
}

TEST_F(NodeTest, BindsToThePinnedNodeAndOnlyWithRoom) {
  Start(2, 2);
  json pod = Pod("a", "sleep 1000", 2);
  PinTo(pod, "local-1");
  Create(pod);
  EXPECT_EQ(AwaitPhase("a", "Running")["spec"]["nodeName"], "local-1");
  pod["metadata"]["name"] = "b";
  Create(pod);
  EXPECT_EQ(Why("b"),
            "0/2 nodes are available: 1 Insufficient nvidia.com/gpu, 1 node(s) didn't match Pod's node "
            "affinity/selector.");
  ASSERT_TRUE(cluster_->Delete(Kind::kPod, {"default", "a"}, {}).has_value());
  EXPECT_EQ(AwaitPhase("b", "Running")["spec"]["nodeName"], "local-1") << "room was freed";
}

TEST_F(NodeTest, AGatedPodWaitsForItsGate) {
  Start();
  json pod = Pod("a", "true");
  pod["spec"]["schedulingGates"] = {{{"name", "trainyard.dev/gang"}}};
  Create(pod);
  Create(Pod("b", "true"));
  AwaitEnd("b");  // the scheduler has passed by
  EXPECT_FALSE(GetPod("a")["spec"].contains("nodeName"));
  const json patch = {{{"op", "remove"}, {"path", "/spec/schedulingGates/0"}}};
  ASSERT_TRUE(cluster_->Patch(Kind::kPod, {"default", "a"}, cluster::PatchType::kJson, patch, false).has_value());
  EXPECT_EQ(AwaitEnd("a")["exitCode"], 0);
}

TEST_F(NodeTest, APinToANodeThatComesLaterIsHonoured) {
  Start(1);
  json pod = Pod("a", "true");
  PinTo(pod, "late");
  Create(pod);
  Why("a");
  NodeOptions late;
  late.name = "late";
  late.labels["topology.kubernetes.io/zone"] = "z";
  ASSERT_TRUE(cluster_->AddNode(late).has_value());
  AwaitEnd("a");
  EXPECT_EQ(Node("late")["metadata"]["labels"]["topology.kubernetes.io/zone"], "z");
  EXPECT_FALSE(cluster_->AddNode(late).has_value());
}

TEST_F(NodeTest, ACordonedNodeTakesNoMorePods) {
  Start(1);
  ASSERT_TRUE(cluster_->Cordon("local-0", true).has_value());
  Create(Pod("a", "true"));
  EXPECT_EQ(Why("a"), "0/1 nodes are available: 1 it is unschedulable.");
  ASSERT_TRUE(cluster_->Cordon("local-0", false).has_value());
  AwaitEnd("a");
  EXPECT_FALSE(cluster_->Cordon("none", true).has_value());
}

TEST_F(NodeTest, ADeadNodeReportsNothingAndForcedDeletionFreesItsPods) {
  Start(2);
  json pod = Pod("a", "sleep 1000");
  PinTo(pod, "local-0");
  Create(pod);
  AwaitPhase("a", "Running");
  ASSERT_TRUE(cluster_->KillNode("local-0").has_value());
  const auto node = cluster::NodeFromJson(Node("local-0"));
  EXPECT_FALSE(node->ready);
  EXPECT_EQ(node->taints.at(0).key, "node.kubernetes.io/unreachable");
  EXPECT_EQ(PhaseOf(GetPod("a")), "Running") << "nobody is there to report";
  ASSERT_TRUE(cluster_->Delete(Kind::kPod, {"default", "a"}, {}).has_value());
  Create(Pod("b", "true"));
  AwaitEnd("b");
  EXPECT_TRUE(GetPod("a")["metadata"].contains("deletionTimestamp")) << "its kubelet cannot confirm";
  ASSERT_TRUE(cluster_->Delete(Kind::kPod, {"default", "a"}, {"", "", 0}).has_value());
  EXPECT_TRUE(GetPod("a").is_null());
}

TEST_F(NodeTest, ARevivedNodeReportsWhatItLost) {
  Start(1);
  Create(Pod("a", "sleep 1000"));
  AwaitPhase("a", "Running");
  ASSERT_TRUE(cluster_->KillNode("local-0").has_value());
  ASSERT_TRUE(cluster_->ReviveNode("local-0").has_value());
  const json terminated = AwaitEnd("a");
  EXPECT_EQ(terminated["reason"], "ContainerStatusUnknown");
  EXPECT_EQ(terminated["exitCode"], 137);
  Create(Pod("b", "true"));
  AwaitEnd("b");
}

TEST_F(NodeTest, ARemovedNodeTakesItsPodsWithIt) {
  Start(2);
  json pod = Pod("a", "sleep 1000");
  PinTo(pod, "local-0");
  Create(pod);
  AwaitPhase("a", "Running");
  ASSERT_TRUE(cluster_->RemoveNode("local-0").has_value());
  EXPECT_TRUE(GetPod("a").is_null());
  EXPECT_TRUE(Node("local-0").is_null());
  EXPECT_FALSE(cluster_->RemoveNode("local-0").has_value());
}

TEST_F(NodeTest, ReadsTheProgressOfRankZero) {
  Start(1);
  Create(Pod("a", "echo '{\"contract\":1,\"step\":5}' > $TRAINYARD_RUN_DIR/status.json; sleep 1000"));
  Create(Pod("b", "echo '[' > $TRAINYARD_RUN_DIR/status.json"));
  Create(Pod("c", "true"));
  AwaitEnd("b");
  AwaitEnd("c");
  LocalProgressSource source(*cluster_);
  const auto read = [&](const std::string& name) {
    api::PodSnapshot pod;
    pod.name = name;
    return source.Read(pod);
  };
  EXPECT_EQ(read("b").error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(read("c").error().code, ErrorCode::kNotFound);
  json pod = Pod("d", "while [ ! -s " + (cluster_->PodDirectory("a") / "run/status.json").string() + " ]; do :; done");
  Create(pod);
  AwaitEnd("d");
  EXPECT_EQ((*read("a"))["step"], 5);
}

TEST(LocalCluster, SaysWhatIsWrongWithItsOptions) {
  LocalOptions options;
  options.state_dir = "/proc/nowhere";
  const auto cluster = LocalCluster::Start(options);
  ASSERT_FALSE(cluster.has_value());
  EXPECT_NE(cluster.error().message.find("/proc/nowhere"), std::string::npos) << cluster.error().message;
}

}  // namespace
}  // namespace trainyard::local
