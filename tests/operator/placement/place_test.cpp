#include <gmock/gmock.h>

#include <cstdlib>
#include <iostream>
#include <random>
#include <set>

#include "operator/placement/selection.h"
#include "tests/operator/placement/yard_fixture.h"

namespace trainyard::placement {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

Yard Racks(const std::vector<api::NodeSnapshot>& nodes, const std::vector<api::PodSnapshot>& pods = {}) {
  return Yard::Build(nodes, pods, {}, kRackOptions);
}

std::string WhyNot(const Yard& yard, const GangRequest& request) {
  auto placed = Place(yard, request);
  return placed ? "placed" : placed.error().message;
}

TEST(Place, PacksASmallJobOntoTheNodeThatIsBrokenAlready) {
  Yard yard = Racks({MakeNode("a", 8), MakeNode("b", 8), MakeNode("c", 8)}, {ForeignPod("b", 5), ForeignPod("c", 2)});
  EXPECT_THAT(Place(yard, Want(2, 2))->nodes, ElementsAre("b"));
  EXPECT_THAT(Place(yard, Want(4, 4))->nodes, ElementsAre("c"));
  EXPECT_THAT(Place(yard, Want(8, 8))->nodes, ElementsAre("a"));
}

TEST(Place, TakesTheSmallestDomainThatHoldsTheWholeGang) {
  std::vector<api::NodeSnapshot> nodes;
  for (int i = 0; i < 4; ++i) nodes.push_back(MakeNode("big-" + std::to_string(i), 8, "rack-1"));
  for (int i = 0; i < 3; ++i) nodes.push_back(MakeNode("mid-" + std::to_string(i), 8, "rack-2"));
  for (int i = 0; i < 2; ++i) nodes.push_back(MakeNode("low-" + std::to_string(i), 8, "rack-3"));
  Yard yard = Racks(nodes);
  auto placed = Place(yard, Want(24, 8));
  EXPECT_THAT(placed->nodes, ElementsAre("mid-0", "mid-1", "mid-2"));
  EXPECT_EQ(placed->domain, "rack-2");
}

TEST(Place, UsesTheFewestDomainsWhenNoneHoldsAll) {
  // Free 3, 3, 2, 1 and a gang of 7: 3 + 3 + 1 (the example of Kueue's documentation).
  std::vector<api::NodeSnapshot> nodes;
  auto rack = [&nodes](const std::string& name, int count) {
    for (int i = 0; i < count; ++i) nodes.push_back(MakeNode(name + "-" + std::to_string(i), 8, name));
  };
  rack("r1", 3);
  rack("r2", 2);
  rack("r3", 3);
  rack("r4", 1);
  auto placed = Place(Racks(nodes), Want(56, 8));
  EXPECT_THAT(placed->nodes, ElementsAre("r1-0", "r1-1", "r1-2", "r3-0", "r3-1", "r3-2", "r4-0"));
  EXPECT_EQ(placed->domain, "z");
}

TEST(Place, KeepsRanksOfADomainTogether) {
  // Racks alternate by name: a ring in name order would cross a border four times.
  Yard yard = Racks({MakeNode("n1", 8, "A"), MakeNode("n2", 8, "B"), MakeNode("n3", 8, "A"), MakeNode("n4", 8, "B")});
  auto placed = Place(yard, Want(32, 8));
  EXPECT_THAT(placed->nodes, ElementsAre("n1", "n3", "n2", "n4"));
  EXPECT_EQ(RingCrossings(yard, {"n1", "n2", "n3", "n4"}, 1), 4);
  EXPECT_EQ(RingCrossings(yard, placed->nodes, 1), 2);
  EXPECT_EQ(RingCrossings(yard, placed->nodes, 0), 0);
}

TEST(Place, OrdersNodesNaturallyInsideADomain) {
  Yard yard = Racks({MakeNode("n10", 8, "A"), MakeNode("n2", 8, "A"), MakeNode("n1", 8, "A")});
  EXPECT_THAT(Place(yard, Want(24, 8))->nodes, ElementsAre("n1", "n2", "n10"));
}

TEST(Place, TreatsAMissingLabelAsItsOwnPlace) {
  // Two nodes without a rack are not in one rack, so the real rack wins although it is larger.
  Yard yard = Racks(
      {MakeNode("x1", 8), MakeNode("x2", 8), MakeNode("r1", 8, "A"), MakeNode("r2", 8, "A"), MakeNode("r3", 8, "A")});
  EXPECT_THAT(Place(yard, Want(16, 8))->nodes, ElementsAre("r1", "r2"));
}

TEST(Place, TellsRacksOfTheSameNameInTwoZonesApart) {
  Yard yard = Racks({MakeNode("a1", 8, "r", "z1"), MakeNode("b1", 8, "r", "z2"), MakeNode("b2", 8, "r", "z2")});
  EXPECT_THAT(Place(yard, Want(16, 8))->nodes, ElementsAre("b1", "b2"));
}

TEST(Place, NeverMixesProducts) {
  Yard yard = Racks({MakeNode("h", 8, "A"), MakeNode("b", 8, "A", "z", "NVIDIA-B200")});
  EXPECT_THAT(WhyNot(yard, Want(16, 8)), HasSubstr("needs 2 nodes with 8 free GPUs each"));
  GangRequest one = Want(8, 8);
  one.products = {"B200"};
  EXPECT_THAT(Place(yard, one)->nodes, ElementsAre("b"));
}

TEST(Place, AvoidsNodesThatFailedWhileAnythingElseFits) {
  Yard yard = Racks({MakeNode("a", 8), MakeNode("b", 8), MakeNode("c", 8)});
  GangRequest request = Want(8, 8);
  request.excluded_nodes = {{"a", 2}, {"b", 1}};
  EXPECT_THAT(Place(yard, request)->nodes, ElementsAre("c"));
  request = Want(16, 8);
  request.excluded_nodes = {{"a", 2}, {"b", 1}};
  EXPECT_THAT(Place(yard, request)->nodes, ElementsAre("b", "c"));
  request = Want(24, 8);
  request.excluded_nodes = {{"a", 2}, {"b", 1}};
  EXPECT_THAT(Place(yard, request)->why, HasSubstr("failed before"));
}

TEST(Place, CountsItsOwnGpusFreeForAResize) {
  Yard yard = Racks({MakeNode("a", 8)}, {OurPod("me", 1, "a", 4)});
  GangRequest request = Want(8, 8);
  request.job_uid = "someone else";
  EXPECT_FALSE(Place(yard, request));
  request.job_uid = "me";
  EXPECT_TRUE(Place(yard, request));
}

TEST(Place, ChecksWhatPodsAskForBesideGpus) {
  api::NodeSnapshot small = MakeNode("small", 8);
  small.allocatable["cpu"] = 2000;
  Yard yard = Racks({small});
  GangRequest request = Want(4, 4);
  request.pod_resources = {{"cpu", 4000}};
  EXPECT_THAT(WhyNot(yard, request), HasSubstr("1 node with enough GPUs lacks cpu"));
  request.pod_resources = {{"cpu", 2000}};
  EXPECT_TRUE(Place(yard, request));
}

TEST(Place, RequiredNvLinkMeansOneNodeOrOneClique) {
  auto tray = [](const std::string& name, const std::string& clique) {
    api::NodeSnapshot node = MakeNode(name, 4, "rack", "z", "NVIDIA-GB200");
    node.labels["nvidia.com/gpu.clique"] = clique;
    return node;
  };
  Yard yard = Racks({tray("t1", "u.0"), tray("t2", "u.1"), tray("t3", "u.1"), tray("t4", "u.1"), tray("t5", "u.0")});
  GangRequest request = Want(8, 4);
  request.nvlink = api::NvLink::kRequired;
  EXPECT_THAT(Place(yard, request)->nodes, ElementsAre("t1", "t5"));
  request.gpus = 12;
  EXPECT_THAT(Place(yard, request)->domain, HasSubstr("u.1"));
  request.gpus = 16;
  EXPECT_THAT(WhyNot(yard, request),
              HasSubstr("needs 16 GPUs of one NVLink domain; largest free domain has 12 (NVLink clique u.1)"));
  GangRequest pcie = Want(2, 2);
  pcie.nvlink = api::NvLink::kRequired;
  Yard bridges = Racks({MakeNode("p", 4, "", "z", "NVIDIA-H100-PCIe")});
  EXPECT_THAT(WhyNot(bridges, pcie), HasSubstr("no node has one"));
}

TEST(Place, SaysWhyNotWithNumbers) {
  api::NodeSnapshot cordoned = MakeNode("c", 8);
  cordoned.unschedulable = true;
  Yard yard = Racks({MakeNode("a", 8), MakeNode("b", 8), cordoned}, {ForeignPod("a", 2), ForeignPod("b", 3)});
  EXPECT_EQ(WhyNot(yard, Want(8, 8)),
            "needs 8 free GPUs on one node; largest free node has 6 (a); unfit: 1 cordoned; fits with 4 per node");
  EXPECT_EQ(WhyNot(yard, Want(12, 6)),
            "needs 2 nodes with 6 free GPUs each; 1 of 2 fit nodes has them (11 GPUs free in all); unfit: 1 cordoned");
  EXPECT_EQ(WhyNot(Racks({MakeNode("a", 1), MakeNode("b", 1)}), Want(3, 1)),
            "needs 3 nodes with 1 free GPU each; 2 of 2 fit nodes have it (2 GPUs free in all)");
  EXPECT_EQ(WhyNot(Racks({MakeNode("a", 1)}, {ForeignPod("a", 1)}), Want(1, 1)),
            "needs 1 free GPU on one node; largest free node has 0 (a)");
  GangRequest other = Want(8, 8);
  other.products = {"B200"};
  EXPECT_EQ(WhyNot(yard, other), "needs 8 B200 GPUs; no node can give any");
  EXPECT_EQ(Place(yard, Want(8, 3)).error().code, ErrorCode::kInvalidArgument);
}

// Random yards: what is placed is legal, all of it, in the order with the fewest crossings; and what is refused does
// not exist.
TEST(Place, HoldsOnRandomYards) {
  const char* fixed = std::getenv("TRAINYARD_SEED");
  uint64_t seed = fixed != nullptr ? std::strtoull(fixed, nullptr, 10) : std::random_device{}();
  std::cout << "seed " << seed << std::endl;
  std::mt19937_64 random(seed);
  auto below = [&random](int64_t n) { return static_cast<int64_t>(random() % static_cast<uint64_t>(n)); };
  for (int round = 0; round < 2000; ++round) {
    std::vector<api::NodeSnapshot> nodes;
    std::vector<api::PodSnapshot> pods;
    int64_t count = 1 + below(12);
    for (int64_t i = 0; i < count; ++i) {
      std::string name = "n" + std::to_string(i);
      std::string rack = below(5) == 0 ? "" : "r" + std::to_string(below(3));
      nodes.push_back(MakeNode(name, 8, rack, "z" + std::to_string(below(2))));
      if (below(2) == 0) pods.push_back(ForeignPod(name, below(9)));
    }
    Yard yard = Racks(nodes, pods);
    int64_t per_node = 1 + below(8);
    GangRequest request = Want(per_node * (1 + below(6)), per_node);
    int64_t able = 0;
    for (const YardNode& node : yard.nodes()) able += node.free >= per_node ? 1 : 0;
    auto placed = Place(yard, request);
    ASSERT_EQ(placed.has_value(), able >= request.gpus / per_node) << "round " << round;
    if (!placed) continue;
    std::set<std::string> distinct(placed->nodes.begin(), placed->nodes.end());
    ASSERT_EQ(static_cast<int64_t>(distinct.size()), request.gpus / per_node);
    for (const std::string& name : placed->nodes) ASSERT_GE(yard.Find(name)->free, per_node);
    for (size_t level = 0; level < 2; ++level) {
      std::set<std::string> domains;
      for (const std::string& name : placed->nodes) {
        const auto position = static_cast<size_t>(yard.Find(name) - yard.nodes().data());
        domains.insert(std::to_string(yard.index().Domains(level)[position]));
      }
      int64_t fewest = domains.size() > 1 ? static_cast<int64_t>(domains.size()) : 0;
      ASSERT_EQ(RingCrossings(yard, placed->nodes, level), fewest) << "round " << round;
    }
  }
}

}  // namespace
}  // namespace trainyard::placement
