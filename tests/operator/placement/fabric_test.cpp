// Which profile a gang gets from what its nodes advertise, and files of profiles.
#include "operator/placement/fabric.h"

#include <gmock/gmock.h>

#include <fstream>
#include <iterator>

#include "operator/sizing/gpu_catalogue.h"
#include "tests/operator/placement/yard_fixture.h"

namespace trainyard::placement {
namespace {

using testing::Contains;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Key;
using testing::Not;
using testing::Pair;

struct Box {
  std::string product = "NVIDIA-H100-80GB-HBM3";
  std::map<std::string, int64_t> resources;
  std::string clique;
};

Fabric Of(const std::vector<Box>& boxes, const YardOptions& options = {},
          const std::vector<api::PodSnapshot>& pods = {}) {
  std::vector<api::NodeSnapshot> nodes;
  std::vector<std::string> names;
  for (const Box& box : boxes) {
    names.push_back("n" + std::to_string(names.size()));
    api::NodeSnapshot node = MakeNode(names.back(), 8, "", "z", box.product);
    node.allocatable.insert(box.resources.begin(), box.resources.end());
    if (!box.clique.empty()) node.labels["nvidia.com/gpu.clique"] = box.clique;
    nodes.push_back(node);
  }
  return FabricOf(Yard::Build(nodes, pods, {}, options), names);
}

FabricProfiles Read(const std::string& yaml) {
  auto profiles = FabricProfiles::FromYaml(yaml, "fabrics.yaml");
  EXPECT_TRUE(profiles) << profiles.error().message;
  return profiles ? *profiles : *FabricProfiles::Default();
}

std::string ErrorOf(const std::string& yaml) {
  auto profiles = FabricProfiles::FromYaml(yaml, "fabrics.yaml");
  if (profiles) return "accepted";
  EXPECT_EQ(profiles.error().message.find('\n'), std::string::npos) << profiles.error().message;
  return profiles.error().message;
}

TEST(Fabric, OneNodeOfLinkedGpusNeedsTheCommonOnly) {
  const Fabric fabric = Of({{}});
  EXPECT_EQ(fabric.profile, "NVLink");
  EXPECT_THAT(fabric.environment, Contains(Pair("NCCL_DEBUG", "WARN")));
  EXPECT_THAT(fabric.environment, Contains(Pair("TORCH_FR_BUFFER_SIZE", "2000")));
  EXPECT_THAT(fabric.environment, Not(Contains(Key("NCCL_SOCKET_IFNAME"))));
}

TEST(Fabric, OneNodeWithoutNvLinkIsPcie) {
  EXPECT_EQ(Of({{.product = "NVIDIA-GeForce-RTX-4090", .resources = {}, .clique = ""}}).profile, "PCIe");
}

TEST(Fabric, SeveralNodesByWhatTheyAllAdvertise) {
  const Box plain,
      ib{.product = "NVIDIA-H100-80GB-HBM3", .resources = {{"rdma/hca_shared_devices_a", 63}}, .clique = ""};
  const Box efa{.product = "NVIDIA-H100-80GB-HBM3", .resources = {{"vpc.amazonaws.com/efa", 32}}, .clique = ""};
  const Box nics{.product = "NVIDIA-B200", .resources = {{"nvidia.com/mlnxnics", 8}}, .clique = ""};
  EXPECT_EQ(Of({plain, plain}).profile, "Ethernet");
  EXPECT_EQ(Of({ib, ib}).profile, "InfiniBand");
  EXPECT_EQ(Of({nics, nics}).profile, "InfiniBand");
  EXPECT_EQ(Of({efa, efa}).profile, "EFA");
  EXPECT_THAT(Of({efa, efa}).environment, Contains(Pair("FI_PROVIDER", "efa")));
  EXPECT_EQ(Of({ib, plain}).profile, "Ethernet") << "one node without it, and it is of no use";
  EXPECT_THAT(Of({ib, ib}).why, HasSubstr("2 nodes that all advertise rdma/hca_shared_devices_a"));
  EXPECT_THAT(Of({plain, plain}).environment, Not(Contains(Key("NCCL_IB_DISABLE"))));
}

TEST(Fabric, OneCliqueIsNvLinkAcrossNodes) {
  const auto tray = [](const std::string& id) {
    return Box{.product = "NVIDIA-GB200",
               .resources = {{"rdma/ib", 4}},
               .clique = "7b968a6d-c8aa-45e1-9e07-e1e51be99c31." + id};
  };
  const Fabric one = Of({tray("0"), tray("0")});
  EXPECT_EQ(one.profile, "MNNVL");
  EXPECT_THAT(one.environment, Contains(Pair("NCCL_MNNVL_ENABLE", "2")));
  EXPECT_EQ(Of({tray("0"), tray("1")}).profile, "InfiniBand");
}

TEST(Fabric, APodOfAWholeNodeAsksForItsAdapters) {
  const Box efa{.product = "NVIDIA-H100-80GB-HBM3", .resources = {{"vpc.amazonaws.com/efa", 32}}, .clique = ""};
  const Box shared{.product = "NVIDIA-H100-80GB-HBM3", .resources = {{"rdma/shared", 1000}}, .clique = ""};
  Box ib{.product = "NVIDIA-H100-80GB-HBM3", .resources = {{"rdma/ib", 8}}, .clique = ""};
  EXPECT_THAT(Of({efa, efa}).resources, testing::ElementsAre(Pair("vpc.amazonaws.com/efa", 32)));
  EXPECT_THAT(Of({shared, shared}).resources, testing::ElementsAre(Pair("rdma/shared", 1)));
  Box fewer = ib;
  fewer.resources["rdma/ib"] = 4;
  EXPECT_THAT(Of({ib, fewer}).resources, testing::ElementsAre(Pair("rdma/ib", 4)));
  api::PodSnapshot taker = ForeignPod("n1", 0);
  taker.requests["rdma/ib"] = 1;
  const Fabric taken = Of({ib, ib}, {}, {taker});
  EXPECT_EQ(taken.profile, "InfiniBand");
  EXPECT_THAT(taken.resources, IsEmpty()) << "a pod that asked for all of them could not go there";
}

TEST(Fabric, SimulatedAndUnknownNodesSayNothing) {
  EXPECT_EQ(Of({{.product = sizing::kSimulatedLabelValue, .resources = {}, .clique = ""}}).profile, "");
  EXPECT_THAT(FabricOf(Yard::Build({}, {}, {}, {}), {"gone"}).environment, IsEmpty());
}

TEST(Fabric, AFileChangesWhatGangsGet) {
  YardOptions options;
  options.fabrics = std::make_shared<const FabricProfiles>(
      Read("profiles: [{name: Ethernet, variables: [{name: NCCL_SOCKET_IFNAME, value: net1, reason: second network},"
           " {name: NCCL_DEBUG, value: INFO}, {name: NCCL_SOCKET_NTHREADS, value: null}]}]"));
  const Fabric fabric = Of({{}, {}}, options);
  EXPECT_THAT(fabric.environment, Contains(Pair("NCCL_SOCKET_IFNAME", "net1")));
  EXPECT_THAT(fabric.environment, Contains(Pair("NCCL_DEBUG", "INFO"))) << "the profile's own wins over the common one";
  EXPECT_THAT(fabric.environment, Contains(Pair("NCCL_NSOCKS_PERTHREAD", "4"))) << "what it does not give stays";
  EXPECT_THAT(fabric.environment, Not(Contains(Key("NCCL_SOCKET_NTHREADS"))));
}

TEST(FabricProfiles, EveryVariableThatIsCompiledInHasItsReason) {
  EXPECT_EQ(FabricProfiles::Default()->profiles().size(), 7u);
  for (const FabricProfile& profile : FabricProfiles::Default()->profiles()) {
    for (const FabricVariable& variable : profile.variables) EXPECT_NE(variable.reason, "") << variable.name;
  }
}

TEST(FabricProfiles, StandInTheDocsAsTheyAre) {
  std::ifstream file(TRAINYARD_SOURCE_DIR "/docs/placement.md");
  const std::string docs{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  for (const FabricProfile& profile : FabricProfiles::Default()->profiles()) {
    if (profile.name == "Common") continue;
    const size_t row = docs.find("| `" + profile.name + "` | ");
    ASSERT_NE(row, std::string::npos) << profile.name;
    std::string variables;
    for (const FabricVariable& variable : profile.variables) {
      variables += (variables.empty() ? "`" : ", `") + variable.name + "`";
    }
    const std::string line = docs.substr(row, docs.find('\n', row) - row);
    EXPECT_THAT(line, variables.empty() ? HasSubstr("| none") : HasSubstr("| " + variables + " |"));
  }
}

TEST(FabricProfiles, TheFileOfTheDocsReads) {
  std::ifstream file(TRAINYARD_SOURCE_DIR "/docs/placement.md");
  const std::string docs{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  const size_t begin = docs.find("```yaml\nprofiles:");
  ASSERT_NE(begin, std::string::npos);
  const size_t end = docs.find("```", begin + 3);
  const FabricProfiles profiles = Read(docs.substr(begin + 8, end - begin - 8));
  for (const FabricVariable& variable : profiles.Find("InfiniBand")->variables) {
    EXPECT_NE(variable.name, "NCCL_CROSS_NIC");
    if (variable.name == "NCCL_IB_GID_INDEX") {
      EXPECT_EQ(variable.value, "3");
    }
  }
  EXPECT_EQ(profiles.Find("InfiniBand")->variables.size(), 3u);
}

TEST(FabricProfiles, ReplaceForgetsWhatIsCompiledIn) {
  const FabricProfiles none = Read("{replace: true, profiles: []}");
  ASSERT_NE(none.Find("Common"), nullptr);
  EXPECT_THAT(none.Find("Common")->variables, IsEmpty());
}

TEST(FabricProfiles, SayWhatIsWrong) {
  EXPECT_THAT(ErrorOf("[]"), HasSubstr("fabrics.yaml: not a map"));
  EXPECT_THAT(ErrorOf("{}"), HasSubstr("profiles: not a list"));
  EXPECT_THAT(ErrorOf("{profiles: [], extra: 1}"), HasSubstr("'extra' is no key here"));
  EXPECT_THAT(ErrorOf("profiles: [{name: RoCE}]"),
              HasSubstr("profiles[0]: 'RoCE' is no profile; the profiles are Common, "));
  EXPECT_THAT(ErrorOf("profiles: [{name: EFA}, {name: EFA}]"), HasSubstr("profiles[1]: EFA is there twice"));
  EXPECT_THAT(ErrorOf("profiles: [{name: EFA, variables: [{value: a}]}]"), HasSubstr("EFA: a variable without a name"));
  EXPECT_THAT(ErrorOf("profiles: [{name: EFA, variables: [{name: A}]}]"), HasSubstr("A: the key 'value' is missing"));
  EXPECT_THAT(ErrorOf("profiles: [{name: EFA, variables: [{name: A, value: 3}]}]"),
              HasSubstr("A.value: not a text; quote numbers"));
  EXPECT_THAT(ErrorOf("profiles: [{name: EFA, variables: [{name: 'A B', value: x}]}]"), HasSubstr("'A B' is no name"));
  EXPECT_THAT(ErrorOf("profiles: [{name: EFA, variables: [{name: RANK, value: x}]}]"),
              HasSubstr("RANK is set by the operator itself"));
  EXPECT_THAT(ErrorOf("profiles: [{name: EFA, variables: [{name: A, value: \"a\\nb\"}]}]"),
              HasSubstr("control character"));
  EXPECT_THAT(ErrorOf("a: 1\n---\nb: 2"), HasSubstr("2 YAML documents"));
}

}  // namespace
}  // namespace trainyard::placement
