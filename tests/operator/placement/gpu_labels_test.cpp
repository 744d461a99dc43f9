// Labels and annotations that cannot be so: named per node, left out, and nothing else happens.
#include <gmock/gmock.h>

#include "operator/placement/gpu_links.h"
#include "tests/operator/placement/yard_fixture.h"

namespace trainyard::placement {
namespace {

using testing::HasSubstr;

YardNode With(const std::map<std::string, std::string>& labels, int64_t gpus = 8, const std::string& links = "") {
  api::NodeSnapshot node = MakeNode("n", gpus);
  for (const auto& [key, value] : labels) node.labels[key] = value;
  if (!links.empty()) node.annotations[kGpuLinksAnnotation] = links;
  const YardNode seen = Yard::Build({node}, {}, {}, {}).nodes().at(0);
  EXPECT_EQ(seen.usable, gpus) << "supply is what is allocatable, whatever labels say";
  return seen;
}

YardNode Pcie(const std::string& links, int64_t gpus = 4) {
  return With({{"nvidia.com/gpu.product", "NVIDIA-A100-PCIE-40GB"}}, gpus, links);
}

TEST(GpuLabels, GoodOnesAreNotOdd) {
  const YardNode node = With({{"nvidia.com/gpu.count", "8"}, {"nvidia.com/gpu.memory", "81559"}});
  EXPECT_EQ(node.oddity, "");
  EXPECT_EQ(node.memory_mib, 81559);
}

TEST(GpuLabels, ACountThatIsNotWhatIsAdvertisedIsNamed) {
  EXPECT_EQ(With({{"nvidia.com/gpu.count", "4"}}).oddity, "nvidia.com/gpu.count is 4, but 8 are advertised");
  EXPECT_EQ(With({{"nvidia.com/gpu.count", "8"}}, 7).oddity, "nvidia.com/gpu.count is 8, but 7 are advertised");
  EXPECT_EQ(With({{"nvidia.com/gpu.count", "many"}}).oddity, "nvidia.com/gpu.count is 'many', which is no number");
  EXPECT_EQ(With({{"nvidia.com/gpu.count", "8"}, {"nvidia.com/mig.strategy", "mixed"}}, 4).oddity, "")
      << "with mixed MIG the count has the sliced ones too";
}

TEST(GpuLabels, AMemoryThatNoSuchGpuHasIsNotPlannedWith) {
  for (const char* memory : {"80GB", "", "-1", "0", "1", "99999999999999999999", "81559.5", "8155900"}) {
    const YardNode node = With({{"nvidia.com/gpu.memory", memory}});
    EXPECT_EQ(node.memory_mib, 81559) << memory << ": the catalogue's";
    EXPECT_THAT(node.oddity, HasSubstr("nvidia.com/gpu.memory is '" + std::string(memory) + "', which")) << memory;
  }
}

TEST(GpuLabels, AProductThatNobodyKnowsIsNamed) {
  EXPECT_EQ(With({{"nvidia.com/gpu.product", "ACME-9000"}}).oddity, "GPU product 'ACME-9000' is not in the catalogue");
  const YardNode none = With({{"nvidia.com/gpu.product", ""}});
  EXPECT_EQ(none.oddity, "no label nvidia.com/gpu.product says which GPUs these are");
  EXPECT_FALSE(Place(Yard::Build({*none.snapshot}, {}, {}, {}), Want(8, 8))) << "nobody can ask for it";
}

TEST(GpuLabels, AMalformedCliqueIsNoClique) {
  for (const char* clique : {"", "0", ".1", "uuid.", "uuid", "32766", "32767", ".32767", "uuid.x", "uuid.-1",
                             "00000000-0000-0000-0000-000000000000.0"}) {
    const YardNode node = With({{"nvidia.com/gpu.clique", clique}});
    EXPECT_EQ(node.clique, "") << clique;
    EXPECT_EQ(node.link, LinkClass::kNvSwitchNode) << clique << ": its own node is linked as ever";
    EXPECT_THAT(node.oddity, HasSubstr("nvidia.com/gpu.clique is '" + std::string(clique) + "', which is not"))
        << clique;
  }
  EXPECT_EQ(With({{"nvidia.com/gpu.clique", "7b968a6d-c8aa-45e1-9e07-e1e51be99c31.32766"}}).oddity, "");
}

TEST(GpuLabels, NodesWithAMalformedCliqueShareNone) {
  std::vector<api::NodeSnapshot> nodes = {MakeNode("a", 4, "", "z", "NVIDIA-GB200"),
                                          MakeNode("b", 4, "", "z", "NVIDIA-GB200")};
  for (api::NodeSnapshot& node : nodes) node.labels["nvidia.com/gpu.clique"] = "0";
  GangRequest both = Want(8, 4);
  both.nvlink = api::NvLink::kRequired;
  EXPECT_FALSE(Place(Yard::Build(nodes, {}, {}, {}), both));
  for (api::NodeSnapshot& node : nodes) node.labels["nvidia.com/gpu.clique"] = "7b968a6d-c8aa-45e1-9e07-e1e51be99c31.0";
  EXPECT_TRUE(Place(Yard::Build(nodes, {}, {}, {}), both));
}

TEST(GpuLabels, OneLineOfPrintableText) {
  const YardNode node = With({{"nvidia.com/gpu.count", "a\nb"}, {"nvidia.com/gpu.clique", std::string(5000, '\x01')}});
  EXPECT_EQ(node.oddity.find('\n'), std::string::npos);
  EXPECT_EQ(node.oddity.find('\x01'), std::string::npos);
  EXPECT_LT(node.oddity.size(), 800u);
}

TEST(GpuLinksAnnotation, RefinesPcieBoxes) {
  EXPECT_EQ(Pcie("").link, LinkClass::kPcie);
  const YardNode pairs = Pcie("0-1/2-3");
  EXPECT_EQ(pairs.link, LinkClass::kNvLinkBridges);
  EXPECT_EQ(pairs.island, 2);
  EXPECT_TRUE(pairs.Linked(1) && pairs.Linked(2));
  EXPECT_FALSE(pairs.Linked(3) || pairs.Linked(4));
  EXPECT_EQ(Pcie("0-3").link, LinkClass::kNvSwitchNode);
  EXPECT_EQ(Pcie("0/1/2/3").link, LinkClass::kPcie);
  EXPECT_EQ(Pcie("0-2/3").island, 3);
  EXPECT_EQ(Pcie("0-1/2-3", 3).link, LinkClass::kNvLinkBridges) << "one of them is unhealthy now";
}

TEST(GpuLinksAnnotation, WhatWasMeasuredWinsOverTheModel) {
  EXPECT_EQ(With({}, 8, "0-3/4-7").island, 4);
  EXPECT_EQ(With({}, 8, "0-7").link, LinkClass::kNvSwitchNode);
  EXPECT_EQ(With({}, 1, "0").link, LinkClass::kNvSwitchNode);
}

TEST(GpuLinksAnnotation, AWrongOneIsNamedAndIgnored) {
  EXPECT_THAT(Pcie("0-1;2-3").oddity,
              HasSubstr("annotation trainyard.dev/gpu-links: '0-1;2-3' are no islands of GPUs"));
  EXPECT_EQ(Pcie("0-1;2-3").link, LinkClass::kPcie);
  EXPECT_EQ(Pcie("0-1").oddity, "annotation trainyard.dev/gpu-links knows 2 of 4 GPUs");
  EXPECT_EQ(Pcie("0-1").link, LinkClass::kPcie);
}

TEST(GpuLinksAnnotation, RequiredNvLinkOnABridgedBoxMeansAPair) {
  const Yard yard = Yard::Build({*Pcie("0-1/2-3").snapshot}, {}, {}, {});
  GangRequest pair = Want(2, 2), whole = Want(4, 4);
  pair.nvlink = whole.nvlink = api::NvLink::kRequired;
  EXPECT_TRUE(Place(yard, pair));
  EXPECT_FALSE(Place(yard, whole));
  whole.nvlink = api::NvLink::kPreferred;
  EXPECT_TRUE(Place(yard, whole));
}

TEST(DuplicateHostnames, AreHarmlessSincePodsArePinnedByNodeName) {
  std::vector<api::NodeSnapshot> nodes = {MakeNode("a", 8, "r"), MakeNode("b", 8, "r")};
  for (api::NodeSnapshot& node : nodes) node.labels["kubernetes.io/hostname"] = "localhost";
  const Yard yard = Yard::Build(nodes, {ForeignPod("a", 8)}, {}, kRackOptions);
  EXPECT_EQ(yard.Find("a")->free, 0);
  EXPECT_EQ(yard.Find("b")->free, 8);
  const auto placed = Place(yard, Want(8, 8));
  ASSERT_TRUE(placed);
  EXPECT_EQ(placed->nodes, std::vector<std::string>{"b"});
}

}  // namespace
}  // namespace trainyard::placement
