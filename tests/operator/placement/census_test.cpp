#include "operator/placement/census.h"

#include <gmock/gmock.h>

#include "tests/operator/placement/yard_fixture.h"

namespace trainyard::placement {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::Pair;

Census Count(const std::vector<api::NodeSnapshot>& nodes, const std::vector<api::PodSnapshot>& pods = {}) {
  return CountYard(Yard::Build(nodes, pods, {}, kRackOptions));
}

TEST(Census, TellsUsedFreeStrandedAndUnfitApart) {
  api::NodeSnapshot cordoned = MakeNode("c", 8, "r1");
  cordoned.unschedulable = true;
  const Census census = Count({MakeNode("a", 8, "r1"), MakeNode("b", 8, "r1"), cordoned, MakeNode("d", 8, "r2")},
                              {ForeignPod("a", 5), ForeignPod("d", 8)});
  ASSERT_EQ(census.products.size(), 1u);
  const ProductCensus& h100 = census.products[0];
  EXPECT_EQ(h100.product, "H100-SXM");
  EXPECT_EQ(h100.tally.nodes, 4);
  EXPECT_EQ(h100.tally.unfit_nodes, 1);
  EXPECT_EQ(h100.tally.whole_nodes, 1);
  EXPECT_EQ(h100.tally.usable, 32);
  EXPECT_EQ(h100.tally.used, 13);
  EXPECT_EQ(h100.tally.free, 11);
  EXPECT_EQ(h100.tally.stranded, 3);
  EXPECT_EQ(h100.tally.unfit, 8);
  EXPECT_THAT(h100.why_unfit, ElementsAre(Pair("cordoned", 1)));
}

TEST(Census, FindsTheLargestGangInANodeADomainAndAnywhere) {
  const Census census = Count({MakeNode("a", 8, "r1"), MakeNode("b", 8, "r1"), MakeNode("c", 8, "r2"),
                               MakeNode("d", 8, "r2"), MakeNode("e", 8, "r2"), MakeNode("f", 8)},
                              {ForeignPod("d", 1)});
  const ProductCensus& h100 = census.products.at(0);
  EXPECT_EQ(h100.largest_in_node, 8);
  EXPECT_EQ(h100.largest_in_nvlink, 8);
  EXPECT_EQ(h100.tally.largest_gang, 40);
  EXPECT_THAT(h100.in_domain, ElementsAre(40, 16));  // the zone; a rack. f is in the zone and in no rack
  ASSERT_EQ(h100.domains.size(), 2u);
  ASSERT_EQ(h100.domains[1].size(), 2u);
  EXPECT_THAT(h100.domains[1][1].path, ElementsAre("z", "r2"));
  EXPECT_EQ(h100.domains[1][1].tally.free, 23);
  EXPECT_EQ(h100.domains[1][1].tally.stranded, 7);
}

TEST(Census, TakesTheNodeSizeThatGivesTheMost) {
  // One pod of 8, or three pods of 4.
  EXPECT_EQ(Count({MakeNode("a", 8), MakeNode("b", 4), MakeNode("c", 4)}).products.at(0).tally.largest_gang, 12);
  EXPECT_EQ(Count({MakeNode("a", 8), MakeNode("b", 8), MakeNode("c", 4)}).products.at(0).tally.largest_gang, 16);
}

TEST(Census, CountsCliquesAcrossRacksAndProductsApart) {
  auto tray = [](const std::string& name, const std::string& clique) {
    api::NodeSnapshot node = MakeNode(name, 4, "", "z", "NVIDIA-GB200");
    if (!clique.empty()) node.labels["nvidia.com/gpu.clique"] = clique;
    return node;
  };
  const Census census =
      Count({tray("a", "7b968a6d-c8aa-45e1-9e07-e1e51be99c31.0"), tray("b", "7b968a6d-c8aa-45e1-9e07-e1e51be99c31.0"),
             tray("c", "7b968a6d-c8aa-45e1-9e07-e1e51be99c31.1"), tray("d", ""), MakeNode("h", 8)});
  ASSERT_EQ(census.products.size(), 2u);
  EXPECT_EQ(census.products[0].product, "GB200");
  EXPECT_EQ(census.products[0].largest_in_nvlink, 8);
  EXPECT_EQ(census.products[0].largest_in_node, 4);
  ASSERT_EQ(census.products[0].cliques.size(), 2u);
  EXPECT_EQ(census.products[0].cliques[0].tally.largest_gang, 8);
  EXPECT_THAT(census.products[1].cliques, IsEmpty());
}

TEST(Census, LargestGangsHaveTheCpuAndMemoryThatTheyAskFor) {
  const auto node = [](const std::string& name, int64_t cpu_milli, int64_t memory) {
    api::NodeSnapshot node = MakeNode(name, 8, "r1");
    node.allocatable.insert({{"cpu", cpu_milli}, {"memory", memory}});
    return node;
  };
  // "d" says nothing of either: it is not short of them.
  const std::vector<api::NodeSnapshot> nodes = {node("a", 64'000, 800), node("b", 47'999, 800), node("c", 64'000, 700),
                                                MakeNode("d", 8, "r1")};
  api::PodSnapshot eater = ForeignPod("a", 0);
  eater.requests["cpu"] = 16'000;
  const Yard yard = Yard::Build(nodes, {eater}, {}, kRackOptions);
  const auto count = [&yard](const api::Amounts& per_gpu) { return CountYard(yard, per_gpu).products.at(0); };
  EXPECT_EQ(count({}).tally.largest_gang, 32);
  EXPECT_EQ(count({{"cpu", 6000}}).tally.largest_gang, 24);
  EXPECT_EQ(count({{"cpu", 6000}, {"memory", 100}}).tally.largest_gang, 16);
  EXPECT_THAT(count({{"cpu", 6000}, {"memory", 100}}).in_domain, ElementsAre(16, 16));
  EXPECT_EQ(count({{"cpu", 6001}, {"memory", 101}}).tally.largest_gang, 8);
  const ProductCensus thirsty = count({{"cpu", 100'000}});
  EXPECT_EQ(thirsty.largest_in_node, 8) << "of d";
  EXPECT_EQ(thirsty.tally.free, 32) << "what is free does not hang on what somebody would ask";
}

TEST(Census, OnePodGetsAsManyGpusAsCpuAndPodsAllow) {
  api::NodeSnapshot small = MakeNode("a", 8);
  small.allocatable.insert({{"cpu", 20'000}, {"pods", 1}});
  const ProductCensus h100 = CountYard(Yard::Build({small}, {}, {}, kRackOptions), {{"cpu", 4000}}).products.at(0);
  EXPECT_EQ(h100.largest_in_node, 5);
  EXPECT_EQ(h100.largest_in_nvlink, 5);
  EXPECT_EQ(h100.tally.largest_gang, 0) << "no pod of all its GPUs";
  EXPECT_EQ(Count({small}, {ForeignPod("a", 0)}).products.at(0).largest_in_node, 0) << "no pod at all";
}

TEST(Census, BridgesLinkTheGpusOfAnIsland) {
  api::NodeSnapshot bridged = MakeNode("a", 4, "", "z", "NVIDIA-A30");
  bridged.annotations["trainyard.dev/gpu-links"] = "0-1/2-3";
  const ProductCensus a30 = Count({bridged}).products.at(0);
  EXPECT_EQ(a30.largest_in_node, 4);
  EXPECT_EQ(a30.largest_in_nvlink, 2);
}

TEST(Census, LeavesNodesWithoutGpusOut) {
  api::NodeSnapshot plain = MakeNode("cpu", 0);
  plain.labels.erase("nvidia.com/gpu.product");
  const Census census = Count({plain});
  EXPECT_THAT(census.products, IsEmpty());
  EXPECT_EQ(census.nodes_without_gpus, 1);
}

}  // namespace
}  // namespace trainyard::placement
