// The one line that a gang gets when it fits nowhere.
#include "operator/placement/why_not.h"

#include <gmock/gmock.h>

#include "tests/operator/placement/yard_fixture.h"

namespace trainyard::placement {
namespace {

using testing::HasSubstr;

Yard Racks(const std::vector<api::NodeSnapshot>& nodes, const std::vector<api::PodSnapshot>& pods = {}) {
  return Yard::Build(nodes, pods, {}, kRackOptions);
}

std::string Why(const Yard& yard, const GangRequest& request) {
  auto placed = Place(yard, request);
  return placed ? "placed: " + placed->why : placed.error().message;
}

api::NodeTerm Named(const std::string& node) { return {{}, {{"metadata.name", "In", {node}}}}; }

TEST(WhyNot, NamesASelectorThatNoNodeMatches) {
  GangRequest request = Want(8, 8);
  request.products = {"H100-SXM"};
  request.constraints.node_selector = {{"pool", "x"}};
  EXPECT_EQ(Why(Racks({MakeNode("a", 8), MakeNode("b", 8)}), request),
            "needs 8 H100-SXM GPUs; no H100-SXM node matches node selector pool=x");
}

TEST(WhyNot, NamesTheOnlyNodesThatATemplateAllowsWhenTheyAreTooSmall) {
  GangRequest request = Want(8, 8);
  request.constraints.affinity = {Named("x")};
  EXPECT_THAT(Why(Racks({MakeNode("x", 4), MakeNode("y", 8)}), request),
              HasSubstr("podTemplate: affinity allows only node x, which has 4 of the 8 GPUs that a pod needs"));
}

TEST(WhyNot, SaysWhenATemplateAllowsFewerNodesThanThereArePods) {
  GangRequest request = Want(16, 8);
  request.constraints.node_selector = {{"pool", "x"}};
  api::NodeSnapshot x = MakeNode("x", 8);
  x.labels["pool"] = "x";
  EXPECT_EQ(
      Why(Racks({x, MakeNode("y", 8)}), request),
      "podTemplate: node selector allows only node x; the job needs 2 nodes; unfit: 1 outside node selector pool=x");
}

api::NodeSnapshot In(const std::string& pool, api::NodeSnapshot node) {
  node.labels["pool"] = pool;
  return node;
}

TEST(WhyNot, SaysWhatATemplateAllowsOfTheProductThatIsAskedFor) {
  GangRequest request = Want(16, 8);
  request.products = {"H100-SXM"};
  request.constraints.node_selector = {{"pool", "x"}};
  const Yard yard =
      Racks({In("x", MakeNode("a", 8)), In("x", MakeNode("b", 8, "", "z", "NVIDIA-L4")),
             In("x", MakeNode("c", 8, "", "z", "NVIDIA-L4")), In("x", MakeNode("d", 8, "", "z", "Own-Label")),
             In("x", MakeNode("without-gpus", 0, "", "z", "")), MakeNode("e", 8)});
  EXPECT_EQ(
      Why(yard, request),
      "podTemplate: node selector allows only H100-SXM node a; the job needs 2 nodes; 3 more nodes that it allows "
      "have another GPU product, or one that is not known; unfit: 1 outside node selector pool=x");
}

TEST(WhyNot, BlamesATemplateOnlyWhereItBarsNodesThatWouldBeOpen) {
  GangRequest request = Want(16, 8);
  request.constraints.node_selector = {{"pool", "x"}};
  api::NodeSnapshot a = In("x", MakeNode("a", 8)), b = In("x", MakeNode("b", 8)), other = MakeNode("other", 8);
  a.ready = b.ready = false;
  EXPECT_EQ(Why(Racks({a, b, other}), request),
            "needs 16 GPUs; no node can give any; unfit: 2 not ready, 1 outside node selector pool=x")
      << "those that it allows come back";
  other.ready = false;
  EXPECT_EQ(Why(Racks({a, b, other}), request), "needs 16 GPUs; no node can give any; unfit: 3 not ready");
  EXPECT_EQ(Why(Racks({a, other}), request), "needs 16 GPUs; no node can give any; unfit: 2 not ready");
  other.ready = true;
  EXPECT_EQ(Why(Racks({a, other}), request),
            "podTemplate: node selector allows only 1 node; the job needs 2 nodes; unfit: 1 not ready, 1 outside node "
            "selector pool=x")
      << "too few when it comes back, too";
  a.ready = b.ready = true;
  a.taints = {{"team", "blue", "NoSchedule"}};
  EXPECT_EQ(Why(Racks({a, b, other}), request),
            "needs 2 nodes with 8 free GPUs each; 1 of 1 fit node has them (8 GPUs free in all); unfit: 1 outside node "
            "selector pool=x, 1 taint team=blue:NoSchedule; fits without the podTemplate's node selector")
      << "the taint bars it, not the selector";
}

TEST(WhyNoneTakes, CountsTheNodesThatAreThereByWhatKeepsThemFromGangs) {
  api::NodeSnapshot a = MakeNode("a", 8), b = MakeNode("b", 8), cordoned = MakeNode("c", 8), tainted = MakeNode("t", 8);
  a.ready = b.ready = false;
  cordoned.unschedulable = true;
  tainted.taints = {{"team", "blue", "NoSchedule"}};
  const api::NodeSnapshot l4 = MakeNode("l4", 8, "", "z", "NVIDIA-L4"), own = MakeNode("own", 8, "", "z", "Own-Label");
  const Yard yard = Racks({a, b, cordoned, tainted, own});
  EXPECT_EQ(WhyNoneTakes(yard, {}, {}),
            "no node takes this gang now; of 4 nodes with GPUs: 2 not ready, 1 cordoned, 1 taint team=blue:NoSchedule");
  EXPECT_EQ(WhyNoneTakes(yard, {}, {{.key = "team", .op = "Exists", .value = "", .effect = "", .seconds = {}}}), "");
  EXPECT_EQ(WhyNoneTakes(yard, {"L4"}, {}), "") << "there is none";
  EXPECT_EQ(WhyNoneTakes(Racks({a, l4}), {}, {}), "") << "one takes it";
  EXPECT_EQ(WhyNoneTakes(Racks({a, l4}), {"H100-SXM"}, {}),
            "no node takes this gang now; of 1 H100-SXM node: 1 not ready");
}

TEST(WhyNot, CountsTaintsThatTheJobDoesNotTolerate) {
  api::NodeSnapshot tainted = MakeNode("t", 8);
  tainted.taints = {{"team", "blue", "NoSchedule"}};
  const Yard yard = Racks({tainted, MakeNode("b", 8)}, {ForeignPod("b", 8)});
  GangRequest request = Want(8, 8);
  EXPECT_EQ(Why(yard, request),
            "needs 8 free GPUs on one node; largest free node has 0 (b); unfit: 1 taint team=blue:NoSchedule");
  request.constraints.tolerations = {{.key = "team", .op = "Exists", .value = "", .effect = "", .seconds = {}}};
  EXPECT_THAT(Why(yard, request), HasSubstr("placed"));
}

TEST(WhyNot, SaysWhichLevelWouldHoldAGangThatNoRackHolds) {
  const Yard yard = Racks({MakeNode("a", 8, "r1"), MakeNode("b", 8, "r1"), MakeNode("c", 8, "r2")});
  GangRequest request = Want(24, 8);
  request.level = "rack";
  request.level_required = true;
  EXPECT_EQ(Why(yard, request),
            "needs 3 nodes with 8 free GPUs each in one rack; the best one has 2 (r1); fits in one zone");
}

TEST(WhyNot, SaysWhatNvLinkCosts) {
  const Yard yard = Racks({MakeNode("a", 8, "r1"), MakeNode("b", 8, "r1")});
  GangRequest request = Want(16, 8);
  request.nvlink = api::NvLink::kRequired;
  EXPECT_EQ(
      Why(yard, request),
      "needs 16 GPUs of one NVLink domain; largest free domain has 8 (node a); fits on r1 with nvlink: Preferred");
}

TEST(WhyNot, SaysWhatIsKeptForThoseAhead) {
  GangRequest request = Want(8, 8);
  request.held = {{"a", 8}};
  EXPECT_EQ(Why(Racks({MakeNode("a", 8)}), request),
            "needs 8 free GPUs on one node; largest free node has 0 (a); 8 GPUs kept for jobs ahead in the queue");
}

TEST(WhyNot, SaysThatNoNodeIsLargeEnoughAndWhichSizeWouldDo) {
  EXPECT_EQ(Why(Racks({MakeNode("a", 4), MakeNode("b", 4)}), Want(8, 8)),
            "needs 8 free GPUs on one node; the largest node has 4; fits with 4 per node");
}

TEST(WhyNot, NamesTheResourceThatIsShortEvenWhereNoNodeHasIt) {
  GangRequest request = Want(8, 8);
  request.pod_resources = {{"rdma/hca", 8}};
  EXPECT_EQ(Why(Racks({MakeNode("a", 8)}), request),
            "needs 8 free GPUs on one node; largest free node has 8 (a); 1 node with enough GPUs lacks rdma/hca");
}

TEST(WhyNot, AResourceOfAJobThatWouldStopIsFreeToo) {
  api::NodeSnapshot node = MakeNode("a", 8);
  node.allocatable["cpu"] = 8000;
  api::PodSnapshot pod = OurPod("other", 1, "a", 8);
  pod.requests["cpu"] = 8000;
  const Yard yard = Racks({node}, {pod});
  GangRequest request = Want(8, 8);
  request.pod_resources = {{"cpu", 4000}};
  EXPECT_FALSE(FindPlace(yard, request));
  request.released = {"other"};
  EXPECT_TRUE(FindPlace(yard, request));
  EXPECT_TRUE(CanTake(yard, yard.nodes()[0], request));
}

}  // namespace
}  // namespace trainyard::placement
