// Levels of the tree of domains: the flag, the presets, the choice among them, and paths.
#include "operator/placement/topology.h"

#include <gmock/gmock.h>

#include <fstream>
#include <iterator>
#include <set>

#include "operator/placement/live_yard.h"
#include "tests/operator/placement/yard_fixture.h"

namespace trainyard::placement {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

std::string ErrorOf(const std::string& text) {
  const auto topology = Topology::Parse(text);
  if (topology) return "accepted";
  EXPECT_EQ(topology.error().message.find('\n'), std::string::npos);
  return topology.error().message;
}

api::NodeSnapshot At(const std::string& name, const std::map<std::string, std::string>& labels) {
  api::NodeSnapshot node = MakeNode(name, 8, "", "");
  node.labels.insert(labels.begin(), labels.end());
  return node;
}

Yard Auto(const std::vector<api::NodeSnapshot>& nodes) { return Yard::Build(nodes, {}, {}, {}); }

TEST(TopologyFlag, ReadsAListFarToNear) {
  const auto topology = Topology::Parse("zone=topology.kubernetes.io/zone, rack=example.com/rack");
  ASSERT_TRUE(topology) << topology.error().message;
  ASSERT_EQ(topology->schemes.size(), 1u);
  EXPECT_THAT(topology->schemes[0].levels, ElementsAre(TopologyLevel{"zone", "topology.kubernetes.io/zone"},
                                                       TopologyLevel{"rack", "example.com/rack"}));
}

TEST(TopologyFlag, ReadsPresetsWhateverTheirCase) {
  for (const TopologyScheme& preset : Topology::Presets()) {
    const auto topology = Topology::Parse(preset.name);
    ASSERT_TRUE(topology) << topology.error().message;
    EXPECT_EQ(topology->schemes.at(0).levels, preset.levels);
  }
  EXPECT_EQ(Topology::Parse("gke")->schemes.at(0).name, "GKE");
  EXPECT_EQ(Topology::Parse("auto")->schemes.size(), Topology::Presets().size());
  EXPECT_THAT(Topology::Parse("None")->schemes, IsEmpty());
}

TEST(TopologyFlag, SaysWhatIsWrong) {
  EXPECT_THAT(ErrorOf("Azure"), HasSubstr("'Azure' is no topology: write Auto, None, one of Topograph, "));
  EXPECT_THAT(ErrorOf(""), HasSubstr("is no topology"));
  EXPECT_THAT(ErrorOf("zone=a,rack"), HasSubstr("'rack' is no level"));
  EXPECT_THAT(ErrorOf("zone=a,"), HasSubstr("'' is no level"));
  EXPECT_THAT(ErrorOf("Zone=a"), HasSubstr("'Zone' is no name of a level"));
  EXPECT_THAT(ErrorOf("zone="), HasSubstr("level zone: '' is no key of a node label"));
  EXPECT_THAT(ErrorOf("zone=a b"), HasSubstr("'a b' is no key"));
  EXPECT_THAT(ErrorOf("zone=a,zone=b"), HasSubstr("level zone is there twice"));
  EXPECT_THAT(ErrorOf("zone=a,rack=a"), HasSubstr("label a is there twice"));
  std::string many = "l0=k0";
  for (int i = 1; i < 17; ++i) many += ",l" + std::to_string(i) + "=k" + std::to_string(i);
  EXPECT_THAT(ErrorOf(many), HasSubstr("more than 16 levels"));
}

TEST(TopologyPresets, StandInTheDocsAsTheyAre) {
  std::ifstream file(TRAINYARD_SOURCE_DIR "/docs/placement.md");
  const std::string docs{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  for (const TopologyScheme& preset : Topology::Presets()) {
    std::string row = "| `" + preset.name + "` | ";
    for (const TopologyLevel& level : preset.levels) row += (&level == preset.levels.data() ? "" : ", ") + level.name;
    EXPECT_THAT(docs, HasSubstr(row + " | `"));
  }
}

TEST(TopologyPresets, NameEachLevelAndLabelOnce) {
  for (const TopologyScheme& preset : Topology::Presets()) {
    ASSERT_LT(preset.anchor, preset.levels.size()) << preset.name;
    std::set<std::string> names, keys;
    for (const TopologyLevel& level : preset.levels) {
      EXPECT_TRUE(names.insert(level.name).second) << preset.name;
      EXPECT_TRUE(keys.insert(level.key).second) << preset.name;
    }
  }
}

TEST(TopologyAuto, TakesTheFirstPresetThatAnyNodeSpeaks) {
  const Yard yard = Auto(
      {At("a", {{"topology.kubernetes.io/zone", "z1"}}), At("b", {{"topology.kubernetes.io/zone", "z1"},
                                                                  {"oci.oraclecloud.com/host.network_block_id", "blk"},
                                                                  {"oci.oraclecloud.com/host.rack_id", "r1"}})});
  EXPECT_THAT(yard.level_names(), ElementsAre("zone", "block", "rack"));
  EXPECT_THAT(yard.Find("a")->path, ElementsAre("z1")) << "what it does not say is unknown";
  EXPECT_THAT(yard.Find("b")->path, ElementsAre("z1", "blk", "r1"));
  EXPECT_EQ(yard.LevelIndex("rack"), 2u);
  EXPECT_EQ(yard.LevelIndex("row"), std::nullopt);
}

TEST(TopologyAuto, ReadsEverySpellingOfTopograph) {
  const Yard now = Auto({At("a", {{"fabric.topograph.run/tier-1", "s1"}, {"fabric.topograph.run/tier-0", "l1"}})});
  EXPECT_THAT(now.level_names(), ElementsAre("block", "rack"));
  EXPECT_THAT(now.nodes()[0].path, ElementsAre("s1", "l1"));
  const Yard tiers =
      Auto({At("a", {{"network.topology.nvidia.com/tier-0", "l1"}, {"xclr.topology.nvidia.com/domain", "d"}})});
  EXPECT_THAT(tiers.level_names(), ElementsAre("rack", "domain"));
  const Yard leaf = Auto({At("a", {{"network.topology.nvidia.com/core", "c"},
                                   {"network.topology.nvidia.com/spine", "s"},
                                   {"network.topology.nvidia.com/leaf", "l"},
                                   {"network.topology.nvidia.com/accelerator", "d"}})});
  EXPECT_THAT(leaf.nodes()[0].path, ElementsAre("c", "s", "l", "d"));
}

TEST(TopologyAuto, ReadsTheProviders) {
  EXPECT_THAT(Auto({At("a", {{"topology.kubernetes.io/zone", "z"},
                             {"topology.k8s.aws/network-node-layer-1", "1"},
                             {"topology.k8s.aws/network-node-layer-2", "2"},
                             {"topology.k8s.aws/network-node-layer-3", "3"}})})
                  .nodes()[0]
                  .path,
              ElementsAre("z", "1", "2", "3"));
  EXPECT_THAT(Auto({At("a", {{"topology.kubernetes.io/zone", "z"},
                             {"cloud.google.com/gce-topology-block", "b"},
                             {"cloud.google.com/gce-topology-subblock", "s"},
                             {"cloud.google.com/gce-topology-host", "h"}})})
                  .nodes()[0]
                  .path,
              ElementsAre("z", "b", "s", "h"));
  EXPECT_THAT(Auto({At("a", {{"ds.coreweave.com/nvlink.domain", "d"}})}).nodes()[0].path, ElementsAre("d"));
  EXPECT_THAT(Auto({At("a", {{"topology.kubernetes.io/zone", "z"}})}).nodes()[0].path, ElementsAre("z"));
  EXPECT_THAT(Auto({At("a", {})}).level_names(), IsEmpty());
}

TEST(TopologyAuto, OneOddNodeNeitherMakesAFarLevelNorTakesIt) {
  const auto leaf = [](const std::string& name, bool tier_2) {
    std::map<std::string, std::string> labels = {{"fabric.topograph.run/tier-1", "s"},
                                                 {"fabric.topograph.run/tier-0", "l"}};
    if (tier_2) labels["fabric.topograph.run/tier-2"] = "c";
    return At(name, labels);
  };
  const Yard without = Auto({leaf("a", false), leaf("b", false), leaf("odd", true)});
  EXPECT_THAT(without.level_names(), ElementsAre("block", "rack"));
  EXPECT_THAT(without.Find("odd")->path, ElementsAre("s", "l"));
  const Yard with = Auto({leaf("a", true), leaf("b", true), leaf("odd", false)});
  EXPECT_THAT(with.level_names(), ElementsAre("core", "block", "rack"));
  EXPECT_THAT(with.Find("odd")->path, IsEmpty()) << "it does not say under which core it is";
}

TEST(TopologyAuto, FollowsTheLabelsOfALiveYard) {
  LiveYard live{YardOptions()};
  const auto set = [&](const api::NodeSnapshot& node) {
    live.SetNode(std::make_shared<const api::NodeSnapshot>(node));
  };
  set(At("a", {{"topology.kubernetes.io/zone", "z"}}));
  set(At("b", {{"topology.kubernetes.io/zone", "z"}}));
  EXPECT_THAT(live.Current().level_names(), ElementsAre("zone"));
  set(At("a", {{"topology.kubernetes.io/zone", "z"}, {"fabric.topograph.run/tier-0", "leaf-1"}}));
  EXPECT_THAT(live.Current().level_names(), ElementsAre("rack"));
  EXPECT_THAT(live.Current().Find("a")->path, ElementsAre("leaf-1"));
  EXPECT_THAT(live.Current().Find("b")->path, IsEmpty());
  live.RemoveNode("a");
  EXPECT_THAT(live.Current().level_names(), ElementsAre("zone"));
  EXPECT_THAT(live.Current().Find("b")->path, ElementsAre("z"));
}

TEST(TopologyPath, AnEmptyOrMissingValueIsUnknownAndNeverTheSamePlace) {
  const auto node = [](const std::string& name, const std::string& zone, const std::string& rack) {
    api::NodeSnapshot out = MakeNode(name, 8);
    out.labels["zone"] = zone;
    out.labels["rack"] = rack;
    return out;
  };
  const Yard yard = Yard::Build({node("a", "z", ""), node("b", "z", ""), node("c", "", "r1"), node("d", "", "r1")}, {},
                                {}, kRackOptions);
  EXPECT_THAT(yard.Find("a")->path, ElementsAre("z"));
  EXPECT_THAT(yard.Find("c")->path, IsEmpty()) << "a rack says something under its zone only";
  EXPECT_EQ(RingCrossings(yard, {"a", "b"}, 1), 2);
  EXPECT_EQ(RingCrossings(yard, {"c", "d"}, 1), 2);
  EXPECT_EQ(RingCrossings(yard, {"a", "b"}, 0), 0);
}

}  // namespace
}  // namespace trainyard::placement
