// Nodes as real clusters show them (tests/golden/nodes), and what may be said of each.
#include <gmock/gmock.h>

#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "operator/cluster/snapshot.h"
#include "operator/placement/constraints.h"
#include "operator/placement/place.h"

namespace trainyard::placement {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

api::NodeSnapshot Load(const std::string& name) {
  std::ifstream file(std::string(TRAINYARD_SOURCE_DIR) + "/tests/golden/nodes/" + name + ".json");
  EXPECT_TRUE(file) << name;
  auto node = cluster::NodeFromJson(nlohmann::json::parse(file));
  EXPECT_TRUE(node) << (node ? "" : node.error().message);
  return node ? *node : api::NodeSnapshot{};
}

YardOptions Topograph() {
  YardOptions options;
  options.topology = Topology::Of({{"block", "fabric.topograph.run/tier-1"}, {"rack", "fabric.topograph.run/tier-0"}});
  return options;
}

// Names of all fixtures: the first nine are whole and healthy.
constexpr const char* kAll[] = {"01_a100_sxm",
                                "02_a100_pcie",
                                "03_h100_sxm_eks",
                                "04_h100_pcie",
                                "05_h200_gke",
                                "06_rtx_4090",
                                "07_b200_hgx",
                                "08_gb200_tray",
                                "09_gb200_tray_other_clique",
                                "10_mig_single",
                                "11_mig_mixed",
                                "12_time_sliced",
                                "13_mi300x",
                                "14_one_gpu_unhealthy",
                                "15_cordoned",
                                "16_plugin_restarting",
                                "17_unreachable",
                                "18_gke_labels_only",
                                "19_dra_only"};

YardNode See(const std::string& name, const YardOptions& options = Topograph()) {
  return Yard::Build({Load(name)}, {}, {}, options).nodes().at(0);
}

TEST(NodeFixtures, DgxA100HasEightLinkedGpusUnderItsLeaf) {
  YardNode node = See("01_a100_sxm");
  EXPECT_TRUE(node.Eligible()) << node.ineligible;
  EXPECT_EQ(node.product, "A100-80GB-SXM");
  EXPECT_EQ(node.link, LinkClass::kNvSwitchNode);
  EXPECT_EQ(node.usable, 8);
  EXPECT_EQ(node.memory_mib, 81920);
  EXPECT_THAT(node.path, ElementsAre("spine-a1", "leaf-a03"));
}

TEST(NodeFixtures, PcieCardsHaveNoLinkThatLabelsCanTell) {
  YardNode node = See("02_a100_pcie");
  EXPECT_EQ(node.product, "A100-40GB-PCIe");
  EXPECT_EQ(node.link, LinkClass::kPcie);
  EXPECT_EQ(node.usable, 4);
  EXPECT_THAT(node.path, IsEmpty());
}

TEST(NodeFixtures, EksLayersReadFarToNear) {
  YardOptions options;
  options.topology = Topology::Of({{"core", "topology.k8s.aws/network-node-layer-1"},
                                   {"block", "topology.k8s.aws/network-node-layer-2"},
                                   {"rack", "topology.k8s.aws/network-node-layer-3"}});
  YardNode node = See("03_h100_sxm_eks", options);
  EXPECT_EQ(node.product, "H100-SXM");
  EXPECT_EQ(node.link, LinkClass::kNvSwitchNode);
  EXPECT_EQ(node.usable, 8);
  EXPECT_THAT(node.path, ElementsAre("nn-0a1b2c3d4e5f60718", "nn-1b2c3d4e5f6071829", "nn-2c3d4e5f607182930"));
}

TEST(NodeFixtures, H100PcieIsNotTheSxmModel) {
  YardNode node = See("04_h100_pcie");
  EXPECT_EQ(node.product, "H100-PCIe");
  EXPECT_EQ(node.link, LinkClass::kPcie);
  EXPECT_EQ(node.usable, 2);
}

TEST(NodeFixtures, GkeBlocksMakeThePath) {
  YardOptions options;
  options.topology = Topology::Of({{"block", "cloud.google.com/gce-topology-block"},
                                   {"rack", "cloud.google.com/gce-topology-subblock"},
                                   {"host", "cloud.google.com/gce-topology-host"}});
  YardNode node = See("05_h200_gke", options);
  EXPECT_EQ(node.product, "H200-SXM");
  EXPECT_EQ(node.usable, 8);
  EXPECT_EQ(node.memory_mib, 143771);
  EXPECT_THAT(node.path, ElementsAre("c7d3a1e0b94f4d1f", "51aa09c2de7741f0", "9b0f6c22a1d84e3b"));
}

TEST(NodeFixtures, WorkstationOf4090s) {
  YardNode node = See("06_rtx_4090");
  EXPECT_EQ(node.product, "RTX-4090");
  EXPECT_EQ(node.link, LinkClass::kPcie);
  EXPECT_EQ(node.usable, 4);
}

TEST(NodeFixtures, B200WithoutCliqueIsAnNvLinkDomainOfItsOwn) {
  YardNode node = See("07_b200_hgx");
  EXPECT_EQ(node.product, "B200");
  EXPECT_EQ(node.link, LinkClass::kNvSwitchNode);
  EXPECT_EQ(node.usable, 8);
  EXPECT_THAT(node.clique, IsEmpty());
}

TEST(NodeFixtures, Gb200TraysAreLinkedByTheWholeCliqueString) {
  YardOptions arm = Topograph();
  arm.tolerated_taints.push_back("kubernetes.io/arch");
  EXPECT_EQ(WhyBarred(See("08_gb200_tray"), {}), "taint kubernetes.io/arch=arm64:NoSchedule");
  YardNode node = See("08_gb200_tray", arm);
  EXPECT_TRUE(node.Eligible()) << node.ineligible;
  EXPECT_EQ(node.product, "GB200");
  EXPECT_EQ(node.link, LinkClass::kNvLinkMultiNode);
  EXPECT_EQ(node.clique, "7b968a6d-c8aa-45e1-9e07-e1e51be99c31.0");
  EXPECT_EQ(node.usable, 4);

  Yard yard = Yard::Build({Load("08_gb200_tray"), Load("09_gb200_tray_other_clique")}, {}, {}, arm);
  GangRequest both{.job_uid = "me", .gpus = 8, .per_node = 4, .nvlink = api::NvLink::kRequired};
  auto refused = Place(yard, both);
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message, HasSubstr("needs 8 GPUs of one NVLink domain; largest free domain has 4"));
  both.nvlink = api::NvLink::kPreferred;
  EXPECT_TRUE(Place(yard, both));
}

TEST(NodeFixtures, SlicedAndSharedGpusAreNotWholeOnes) {
  YardNode mig = See("10_mig_single");
  EXPECT_EQ(mig.usable, 0);
  EXPECT_THAT(mig.ineligible, HasSubstr("MIG"));
  YardNode shared = See("12_time_sliced");
  EXPECT_EQ(shared.usable, 0);
  EXPECT_THAT(shared.ineligible, HasSubstr("time-slicing"));
}

TEST(NodeFixtures, MixedMigCountsWhatIsAllocatable) {
  YardNode node = See("11_mig_mixed");
  EXPECT_TRUE(node.Eligible()) << node.ineligible;
  EXPECT_EQ(node.usable, 4);
}

TEST(NodeFixtures, NodesThatTakeNoNewGangSayWhy) {
  std::map<std::string, std::string> expected = {{"13_mi300x", "advertises no nvidia.com/gpu"},
                                                 {"14_one_gpu_unhealthy", "condition SysLogsXIDError=True"},
                                                 {"15_cordoned", "cordoned"},
                                                 {"16_plugin_restarting", "advertises no nvidia.com/gpu"},
                                                 {"17_unreachable", "not ready"},
                                                 {"19_dra_only", "advertises no nvidia.com/gpu"}};
  for (const auto& [name, why] : expected) EXPECT_THAT(See(name).ineligible, HasSubstr(why)) << name;
  EXPECT_EQ(See("14_one_gpu_unhealthy").usable, 7);
}

TEST(NodeFixtures, RestartingPluginNeverMakesFreeNegative) {
  api::PodSnapshot pod;
  pod.node = "h100-restart-3";
  pod.phase = api::PodPhase::kRunning;
  pod.gpus = 8;
  Yard yard = Yard::Build({Load("16_plugin_restarting")}, {pod}, {}, {});
  EXPECT_EQ(yard.nodes()[0].used, 8);
  EXPECT_EQ(yard.nodes()[0].free, 0);
}

TEST(NodeFixtures, GkeAcceleratorLabelNamesTheProduct) {
  YardNode node = See("18_gke_labels_only");
  EXPECT_EQ(node.product, "L4");
  EXPECT_EQ(node.usable, 4);
  EXPECT_GT(node.memory_mib, 0);
}

TEST(NodeFixtures, WholeGpusOfTheFirstNineAreFifty) {
  int64_t usable = 0;
  for (const char* name : {"01_a100_sxm", "02_a100_pcie", "03_h100_sxm_eks", "04_h100_pcie", "05_h200_gke",
                           "06_rtx_4090", "07_b200_hgx", "08_gb200_tray", "09_gb200_tray_other_clique"}) {
    usable += See(name).usable;
  }
  EXPECT_EQ(usable, 50);
}

TEST(NodeFixtures, MemoryIsTheLabelsWhereThereIsOne) {
  const std::map<std::string, int64_t> expected = {
      {"01_a100_sxm", 81920},  {"02_a100_pcie", 40960}, {"03_h100_sxm_eks", 81559}, {"04_h100_pcie", 81559},
      {"05_h200_gke", 143771}, {"06_rtx_4090", 24564},  {"07_b200_hgx", 183359},    {"08_gb200_tray", 189471}};
  for (const auto& [name, mib] : expected) EXPECT_EQ(See(name).memory_mib, mib) << name;
}

TEST(NodeFixtures, HealthyOnesAreNotOddAndOthersSayWhatIs) {
  for (size_t i = 0; i < std::size(kAll); ++i) {
    const std::string name = kAll[i], oddity = See(name).oddity;
    if (name == "14_one_gpu_unhealthy") {
      EXPECT_EQ(oddity, "nvidia.com/gpu.count is 8, but 7 are advertised");
    } else {
      EXPECT_EQ(oddity, "") << name;
    }
  }
}

TEST(NodeFixtures, TraysOfOneRackInTwoCliquesShareADomainAndNoNvLink) {
  const Yard yard = Yard::Build({Load("08_gb200_tray"), Load("09_gb200_tray_other_clique")}, {}, {}, {});
  EXPECT_THAT(yard.level_names(), ElementsAre("block", "rack", "domain"));
  EXPECT_EQ(yard.nodes()[0].path, yard.nodes()[1].path);
  EXPECT_NE(yard.nodes()[0].clique, yard.nodes()[1].clique);
}

TEST(NodeFixtures, ATrayTakesOnlyJobsThatTolerateItsArchitecture) {
  GangRequest tray{.job_uid = "me", .gpus = 4, .per_node = 4};
  const Yard yard = Yard::Build({Load("08_gb200_tray")}, {}, {}, {});
  EXPECT_FALSE(Place(yard, tray));
  tray.constraints.tolerations = {{"kubernetes.io/arch", "Equal", "arm64", "NoSchedule", {}}};
  EXPECT_TRUE(Place(yard, tray));
}

TEST(NodeFixtures, AQuarantinedNodeTakesNobodyWhateverIsTolerated) {
  GangRequest request{.job_uid = "me", .gpus = 8, .per_node = 8};
  request.constraints.tolerations = {{"", "Exists", "", "", {}}};
  EXPECT_FALSE(Place(Yard::Build({Load("15_cordoned")}, {}, {}, {}), request));
}

TEST(NodeFixtures, AllTogetherMakeOneYard) {
  std::vector<api::NodeSnapshot> nodes;
  for (const char* name : kAll) nodes.push_back(Load(name));
  const Yard yard = Yard::Build(nodes, {}, {}, {});
  ASSERT_EQ(yard.nodes().size(), std::size(kAll));
  // 50 of the first nine, 4 of mixed MIG, 7 of the node with a bad one, 8 each of the cordoned and the lost, 4 of GKE.
  int64_t usable = 0, eligible = 0;
  for (const YardNode& node : yard.nodes()) {
    usable += node.usable;
    if (node.Eligible()) eligible += node.usable;
  }
  EXPECT_EQ(usable, 81);
  EXPECT_EQ(eligible, 58);
}

}  // namespace
}  // namespace trainyard::placement
