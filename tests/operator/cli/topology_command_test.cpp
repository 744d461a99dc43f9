// What `trainyard topology` says of machines of each kind, and its exit codes.
#include "operator/cli/topology_command.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <sstream>

#include "operator/cli/exit_codes.h"

namespace trainyard::cli {
namespace {

using testing::HasSubstr;

struct Output {
  int code = -1;
  std::string out, err;
};

Output Explain(std::vector<std::string> arguments) {
  CLI::App app("test", "trainyard");
  std::ostringstream out, err;
  Output result;
  AddTopologyCommand(app, result.code, out, err);
  std::reverse(arguments.begin(), arguments.end());  // as CLI11 takes them
  arguments.emplace_back("topology");
  try {
    app.parse(arguments);
  } catch (const CLI::ParseError& error) {
    result.code = kExitBadInput;
  }
  result.out = out.str();
  result.err = err.str();
  return result;
}

std::string File(const std::string& name) {
  return std::string(TRAINYARD_SOURCE_DIR) + "/tests/fuzz/corpus/topo_matrix/" + name + ".txt";
}

TEST(TopologyCommand, ExplainsAMachineWithSwitches) {
  const Output result = Explain({File("hgx_h100")});
  EXPECT_EQ(result.code, kExitOk);
  EXPECT_EQ(result.out,
            "8 GPUs, 2 network adapters\n"
            "island: GPU0-7, every pair linked by NVLink (NV18)\n"
            "sizes: any number of GPUs from 1 to 8 stays on NVLink\n"
            "adapter NIC0 (mlx5_0): nearest to GPU0, over one PCIe switch (PIX)\n"
            "adapter NIC1 (mlx5_1): nearest to GPU4, over one PCIe switch (PIX)\n"
            "to tell the operator: kubectl annotate node NODE --overwrite trainyard.dev/gpu-links=0-7\n");
}

TEST(TopologyCommand, ExplainsBridgedPairs) {
  const Output result = Explain({File("bridged_pairs"), "--node", "ws-1"});
  EXPECT_EQ(result.code, kExitOk);
  EXPECT_THAT(result.out,
              HasSubstr("island: GPU0-1, every pair linked by NVLink (NV4)\n"
                        "island: GPU2-3, every pair linked by NVLink (NV4)\n"
                        "sizes: 1 or 2 GPUs stay on NVLink, the device plugin's preferred allocation given; 4 "
                        "are the whole machine, linked by PCIe between islands; sizes between them cut an "
                        "island\n"));
  EXPECT_THAT(result.out, HasSubstr("kubectl annotate node ws-1 --overwrite trainyard.dev/gpu-links=0-1/2-3\n"));
}

TEST(TopologyCommand, PrintsWhatTheDocsShow) {
  std::ifstream file(TRAINYARD_SOURCE_DIR "/docs/placement.md");
  const std::string docs{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  EXPECT_THAT(docs, HasSubstr("```\n" + Explain({File("bridged_pairs"), "--node", "ws-1"}).out + "```\n"));
}

TEST(TopologyCommand, ExplainsMachinesWithoutNvLinkAndMeshes) {
  const Output pcie = Explain({File("pcie_two_sockets")});
  EXPECT_THAT(pcie.out, HasSubstr("no NVLink: GPU0-3\n"));
  EXPECT_THAT(pcie.out, HasSubstr("gpus.nvlink: Required is refused here"));
  EXPECT_THAT(Explain({File("cube_mesh")}).out,
              HasSubstr("but not every pair: the farthest goes over the link between sockets (SYS)"));
  EXPECT_THAT(Explain({File("one_gpu")}).out, HasSubstr("1 GPU, 0 network adapters\nno NVLink: GPU0\nsizes: one GPU"));
}

TEST(TopologyCommand, MissingLinksAreDamage) {
  const Output result = Explain({File("link_group_down")});
  EXPECT_EQ(result.code, kExitJobFailed);
  EXPECT_THAT(result.out,
              HasSubstr("links are missing: GPU3 has at most 16 NVLinks to a GPU of its island, others have 18"));
}

TEST(TopologyCommand, PrintsOnlyTheCommandForTheAnnotation) {
  const Output result = Explain({"--annotation", File("pasted")});
  EXPECT_EQ(result.code, kExitOk);
  EXPECT_EQ(result.out, "kubectl annotate node NODE --overwrite trainyard.dev/gpu-links=0-1/2-3\n");
}

TEST(TopologyCommand, TheNodeOfTheCommandIsAName) {
  const std::string longest =
      std::string(63, 'a') + "." + std::string(63, 'b') + "." + std::string(63, 'c') + "." + std::string(61, 'd');
  for (const std::string& node : {std::string("a"), std::string("gpu-7.example.com"), longest}) {
    const Output result = Explain({"--annotation", File("pasted"), "--node", node});
    EXPECT_EQ(result.code, kExitOk) << node;
    EXPECT_EQ(result.out, "kubectl annotate node " + node + " --overwrite trainyard.dev/gpu-links=0-1/2-3\n");
  }
  for (const std::string& node :
       {std::string(""), std::string("a b"), std::string("x; reboot"), std::string("$(id)"), std::string("Node"),
        std::string("-a"), std::string("a..b"), std::string("a\nb"), longest + "d", std::string("--all")}) {
    const Output result = Explain({"--annotation", File("pasted"), "--node=" + node});
    EXPECT_EQ(result.code, kExitBadInput) << node;
    EXPECT_EQ(result.out, "") << node;
    if (node.empty()) continue;  // the parser of flags has said so already
    EXPECT_THAT(result.err, testing::StartsWith("trainyard: --node: '")) << node;
    EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1) << result.err;
  }
}

TEST(TopologyCommand, WhatIsNoMatrixIsBadInput) {
  for (const char* name : {"driver_down", "device_lost"}) {
    const Output result = Explain({File(name)});
    EXPECT_EQ(result.code, kExitBadInput);
    EXPECT_EQ(result.out, "");
    EXPECT_THAT(result.err, HasSubstr(".txt: no matrix of nvidia-smi topo -m"));
  }
  EXPECT_EQ(Explain({"/nonexistent/file"}).code, kExitNotFound);
  EXPECT_EQ(Explain({}).code, kExitBadInput);
  const Output directory = Explain({TRAINYARD_SOURCE_DIR "/tests"});
  EXPECT_EQ(directory.code, kExitBadInput);
  EXPECT_EQ(directory.err, "trainyard: cannot read " TRAINYARD_SOURCE_DIR "/tests: it is a directory, not a file\n");
}

}  // namespace
}  // namespace trainyard::cli
