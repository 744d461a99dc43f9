// A named topology level: one domain of it required, preferred, and nodes of which nobody knows where they are.
#include <gmock/gmock.h>

#include "tests/operator/placement/yard_fixture.h"

namespace trainyard::placement {
namespace {

using testing::ElementsAre;
using testing::EndsWith;
using testing::SizeIs;

Yard Racks(const std::vector<api::NodeSnapshot>& nodes, const std::vector<api::PodSnapshot>& pods = {}) {
  return Yard::Build(nodes, pods, {}, kRackOptions);
}

GangRequest WantIn(int64_t gpus, const std::string& level, bool required) {
  GangRequest request = Want(gpus, 8);
  request.level = level;
  request.level_required = required;
  return request;
}

std::vector<api::NodeSnapshot> Rack(const std::string& zone, const std::string& rack, int count) {
  std::vector<api::NodeSnapshot> nodes;
  for (int i = 0; i < count; ++i) nodes.push_back(MakeNode(zone + rack + "-" + std::to_string(i), 8, rack, zone));
  return nodes;
}

std::vector<api::NodeSnapshot> Join(std::vector<std::vector<api::NodeSnapshot>> parts) {
  std::vector<api::NodeSnapshot> all;
  for (auto& part : parts) all.insert(all.end(), part.begin(), part.end());
  return all;
}

TEST(Level, RequiredIsNeverSplitWhateverIsFreeElsewhere) {
  const Yard yard = Racks(Join({Rack("z", "a", 2), Rack("z", "b", 3)}));
  EXPECT_THAT(Place(yard, WantIn(24, "rack", true))->nodes, ElementsAre("zb-0", "zb-1", "zb-2"));
  EXPECT_FALSE(Place(yard, WantIn(32, "rack", true)));
  EXPECT_THAT(Place(yard, WantIn(32, "zone", true))->nodes, SizeIs(4));
}

TEST(Level, PreferredGoesToItsParentsAndThenToSeveralDomains) {
  const Yard yard = Racks(Join({Rack("y", "a", 2), Rack("y", "b", 2), Rack("z", "a", 3)}));
  EXPECT_THAT(Place(yard, WantIn(24, "rack", false))->nodes, ElementsAre("za-0", "za-1", "za-2"));
  EXPECT_THAT(Place(yard, WantIn(32, "rack", false))->nodes, ElementsAre("ya-0", "ya-1", "yb-0", "yb-1"));
  EXPECT_THAT(Place(yard, WantIn(40, "rack", false))->nodes, SizeIs(5));
}

TEST(Level, ALevelFartherThanNeedBeLeavesTheSmallDomainsWhole) {
  // A zone is near enough: of two zones that touch as few racks, the smaller one.
  const Yard yard = Racks(Join({Rack("y", "a", 2), Rack("y", "b", 4), Rack("z", "a", 3)}));
  EXPECT_THAT(Place(yard, WantIn(16, "zone", false))->nodes, ElementsAre("za-0", "za-1"));
  EXPECT_THAT(Place(yard, Want(16, 8))->nodes, ElementsAre("ya-0", "ya-1"));
}

TEST(Level, NodesOfUnknownPlaceAreInNoRequiredDomain) {
  const Yard yard = Racks({MakeNode("x1", 8), MakeNode("x2", 8), MakeNode("r1", 8, "a")});
  EXPECT_FALSE(Place(yard, WantIn(16, "rack", true)));
  EXPECT_THAT(Place(yard, WantIn(8, "rack", true))->nodes, ElementsAre("r1"));
  EXPECT_THAT(Place(yard, WantIn(16, "zone", true))->nodes, SizeIs(2));
}

TEST(Level, OneThatNoNodeHasIsRefusedIfRequiredAndToldIfPreferred) {
  const Yard yard = Racks(Rack("z", "a", 2));
  EXPECT_EQ(Place(yard, WantIn(16, "aisle", true)).error().message,
            "needs 16 GPUs in one aisle; no node says where it is by such a level (known: zone, rack)");
  EXPECT_THAT(Place(yard, WantIn(16, "aisle", false))->why,
              EndsWith("; no node says where it is by a level called aisle"));
}

TEST(Level, PrefersTheDomainInWhichFewerOfTheNextLevelAreTouched) {
  // Neither zone has a rack for all four. The smaller zone would take four racks, the larger one two.
  const Yard yard = Racks(Join({Rack("y", "a", 1), Rack("y", "b", 1), Rack("y", "c", 1), Rack("y", "d", 1),
                                Rack("z", "a", 3), Rack("z", "b", 2)}));
  EXPECT_THAT(Place(yard, Want(32, 8))->nodes, ElementsAre("za-0", "za-1", "za-2", "zb-0"));
}

TEST(Level, AGangOfEightInTwoRacksCrossesTheBorderAsRarelyAsAnyOrder) {
  // Names alternate between the racks, four nodes in each.
  std::vector<api::NodeSnapshot> nodes;
  for (int i = 0; i < 8; ++i) nodes.push_back(MakeNode("node-" + std::to_string(i), 8, i % 2 == 0 ? "a" : "b"));
  const Yard yard = Racks(nodes);
  const auto placed = Place(yard, Want(64, 8));
  ASSERT_TRUE(placed);
  EXPECT_THAT(placed->nodes,
              ElementsAre("node-0", "node-2", "node-4", "node-6", "node-1", "node-3", "node-5", "node-7"));
  EXPECT_EQ(RingCrossings(yard, placed->nodes, 1), 2);
  EXPECT_EQ(RingCrossings(yard, placed->nodes, 0), 0);
  // The order of names would cross it at every step.
  EXPECT_EQ(RingCrossings(yard, {"node-0", "node-1", "node-2", "node-3", "node-4", "node-5", "node-6", "node-7"}, 1),
            8);
}

TEST(Level, AWholeNodeComesFromTheRackThatIsBrokenAlready) {
  const Yard yard = Racks(Join({Rack("z", "a", 4), Rack("z", "b", 4)}), {ForeignPod("zb-1", 8)});
  EXPECT_THAT(Place(yard, Want(8, 8))->nodes, ElementsAre("zb-0"));
}

TEST(Level, NodesOfUnknownRackThatShareACliqueStayTogether) {
  auto tray = [](const std::string& name, const std::string& clique) {
    api::NodeSnapshot node = MakeNode(name, 4, "", "z", "NVIDIA-GB200");
    node.labels["nvidia.com/gpu.clique"] = "7b968a6d-c8aa-45e1-9e07-e1e51be99c31." + clique;
    return node;
  };
  // Six trays in two cliques of three, a gang of four: three of one and one of the other, never two and two.
  const Yard yard =
      Racks({tray("a", "0"), tray("b", "1"), tray("c", "0"), tray("d", "1"), tray("e", "0"), tray("f", "1")});
  const auto placed = Place(yard, Want(16, 4));
  ASSERT_TRUE(placed);
  EXPECT_THAT(placed->nodes, ElementsAre("a", "c", "e", "b"));
}

}  // namespace
}  // namespace trainyard::placement
