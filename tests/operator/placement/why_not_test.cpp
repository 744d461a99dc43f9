// The one line that a gang gets when it fits nowhere.
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
            "needs 8 H100-SXM GPUs; no node matches node selector pool=x");
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
