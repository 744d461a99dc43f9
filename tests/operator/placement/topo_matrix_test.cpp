// What nvidia-smi topo -m prints on machines of each kind (tests/fuzz/corpus/topo_matrix), and what may be said of it.
#include "operator/placement/topo_matrix.h"

#include <gmock/gmock.h>

#include <fstream>
#include <sstream>

namespace trainyard::placement {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

std::string Text(const std::string& name) {
  std::ifstream file(std::string(TRAINYARD_SOURCE_DIR) + "/tests/fuzz/corpus/topo_matrix/" + name + ".txt");
  EXPECT_TRUE(file) << name;
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

TopoMatrix Read(const std::string& text) {
  auto matrix = ParseTopoMatrix(text);
  EXPECT_TRUE(matrix) << matrix.error().message;
  return matrix ? *matrix : TopoMatrix{};
}

TopoFacts Facts(const std::string& name) { return Study(Read(Text(name))); }

std::string ErrorOf(const std::string& text) {
  const auto matrix = ParseTopoMatrix(text);
  if (matrix) return "accepted";
  EXPECT_EQ(matrix.error().message.find('\n'), std::string::npos) << matrix.error().message;
  return matrix.error().message;
}

// "GPU0<TAB>GPU1" and so on, from cells apart by blanks.
std::string Tabbed(std::string text) {
  for (char& c : text) c = c == ' ' ? '\t' : c;
  return text;
}

TEST(TopoMatrix, EightGpusBehindSwitchesAreOneIsland) {
  const TopoMatrix matrix = Read(Text("hgx_h100"));
  EXPECT_EQ(matrix.gpus.size(), 8u);
  ASSERT_EQ(matrix.nics.size(), 2u);
  EXPECT_EQ(matrix.nics[0].device, "mlx5_0");
  const TopoFacts facts = Study(matrix);
  EXPECT_EQ(facts.link, LinkClass::kNvSwitchNode);
  EXPECT_EQ(IslandsText(facts.islands), "0-7");
  EXPECT_EQ(facts.worst[0], (TopoCell{TopoCode::kNvLink, 18}));
  EXPECT_THAT(facts.faults, IsEmpty());
  ASSERT_EQ(facts.nics.size(), 2u);
  EXPECT_EQ(facts.nics[0].nic, "NIC0 (mlx5_0)");
  EXPECT_EQ(facts.nics[0].cell.code, TopoCode::kSwitch);
  EXPECT_THAT(facts.nics[0].gpus, ElementsAre(0));
  EXPECT_THAT(facts.nics[1].gpus, ElementsAre(4));
}

TEST(TopoMatrix, ATrayOfFourIsOneIsland) {
  const TopoFacts facts = Facts("gb200_tray");
  EXPECT_EQ(facts.link, LinkClass::kNvSwitchNode);
  EXPECT_EQ(IslandsText(facts.islands), "0-3");
  EXPECT_THAT(facts.nics, IsEmpty());
}

TEST(TopoMatrix, CardsWithoutNvLinkAreIslandsOfOne) {
  const TopoFacts facts = Facts("pcie_two_sockets");
  EXPECT_EQ(facts.link, LinkClass::kPcie);
  EXPECT_EQ(IslandsText(facts.islands), "0/1/2/3");
}

TEST(TopoMatrix, BridgedPairsAreTwoIslands) {
  const TopoFacts facts = Facts("bridged_pairs");
  EXPECT_EQ(facts.link, LinkClass::kNvLinkBridges);
  EXPECT_EQ(IslandsText(facts.islands), "0-1/2-3");
  EXPECT_THAT(facts.faults, IsEmpty());
}

TEST(TopoMatrix, AGpuWithFewerLinksThanItsIslandIsNamed) {
  const TopoFacts facts = Facts("link_group_down");
  EXPECT_EQ(facts.link, LinkClass::kNvSwitchNode);
  EXPECT_THAT(facts.faults, ElementsAre("GPU3 has at most 16 NVLinks to a GPU of its island, others have 18"));
}

TEST(TopoMatrix, APairWithFewerLinksThanOthersIsNamed) {
  const TopoFacts facts = Study(Read(Tabbed(" GPU0 GPU1 GPU2\nGPU0 X NV4 NV2\nGPU1 NV4 X NV4\nGPU2 NV2 NV4 X\n")));
  EXPECT_THAT(facts.faults, ElementsAre("GPU0 and GPU2 have 2 NVLinks between them, other pairs have 4"));
}

TEST(TopoMatrix, AMeshWithoutALinkBetweenEveryPairIsAnIslandWithoutFaults) {
  const TopoFacts facts = Facts("cube_mesh");
  EXPECT_EQ(IslandsText(facts.islands), "0-3");
  EXPECT_EQ(facts.link, LinkClass::kNvLinkBridges) << "not every pair is linked";
  EXPECT_EQ(facts.worst[0].code, TopoCode::kSystem);
  EXPECT_THAT(facts.faults, IsEmpty());
}

TEST(TopoMatrix, OneGpuHasNothingToLink) {
  const TopoFacts facts = Facts("one_gpu");
  EXPECT_EQ(IslandsText(facts.islands), "0");
  EXPECT_EQ(facts.link, LinkClass::kPcie);
}

TEST(TopoMatrix, TextFromATicketHasBlanksAndCellsThatGrewTogether) {
  const TopoMatrix matrix = Read(Text("pasted"));
  EXPECT_EQ(matrix.gpus[0][2].code, TopoCode::kNode);
  EXPECT_EQ(matrix.gpus[0][3].code, TopoCode::kNode);
  ASSERT_EQ(matrix.nics.size(), 1u);
  EXPECT_EQ(matrix.nics[0].name, "mlx5_0");
  const TopoFacts facts = Study(matrix);
  EXPECT_EQ(IslandsText(facts.islands), "0-1/2-3");
  EXPECT_EQ(facts.nics[0].nic, "mlx5_0");
  EXPECT_THAT(facts.nics[0].gpus, ElementsAre(0, 1));
}

TEST(TopoMatrix, TheSameWithCarriageReturnsAndTheEscapeBeforeTheFirstTab) {
  std::string text = Text("gb200_tray");
  text = "\x1b[4m" + text;
  for (size_t at = 0; (at = text.find('\n', at)) != std::string::npos; at += 2) text.replace(at, 1, "\r\n");
  EXPECT_EQ(IslandsText(Study(Read(text)).islands), "0-3");
}

TEST(TopoMatrix, WhatTheToolSaysInsteadIsQuoted) {
  EXPECT_THAT(ErrorOf(Text("device_lost")), HasSubstr("it says 'Unable to determine the device handle for"));
  EXPECT_THAT(ErrorOf(Text("driver_down")), HasSubstr("it says 'NVIDIA-SMI has failed because it couldn't"));
  EXPECT_THAT(ErrorOf(""), HasSubstr("empty"));
  EXPECT_THAT(ErrorOf(" \n\t\n"), HasSubstr("empty"));
  EXPECT_THAT(ErrorOf("GPU0\tX\tNV4\nGPU1\tNV4\tX\n"), HasSubstr("no line begins with GPU0 as a header"));
  EXPECT_THAT(ErrorOf(std::string((1 << 20) + 1, 'a')), HasSubstr("longer than 1 MiB"));
}

TEST(TopoMatrix, ErrorsNameRowAndColumn) {
  EXPECT_EQ(ErrorOf(Tabbed(" GPU0 GPU1\nGPU0 X ABC\nGPU1 ABC X\n")),
            "row GPU0, column GPU1: 'ABC' is no distance; known are X, SYS, NODE, PHB, PXB, PIX and NV#");
  EXPECT_THAT(ErrorOf(Tabbed(" GPU0 GPU1\nGPU0 X NV0\nGPU1 NV0 X\n")), HasSubstr("row GPU0, column GPU1: 'NV0'"));
  EXPECT_EQ(ErrorOf(Tabbed(" GPU0 GPU1\nGPU0 X NV4\nGPU1 NV3 X\n")),
            "row GPU0, column GPU1: NV4, but the other way round NV3");
  EXPECT_EQ(ErrorOf(Tabbed(" GPU0 GPU1\nGPU0 PHB PHB\nGPU1 PHB X\n")), "row GPU0, column GPU0: PHB where X belongs");
  EXPECT_EQ(ErrorOf(Tabbed(" GPU0 GPU1\nGPU0 X X\nGPU1 X X\n")), "row GPU0, column GPU1: X off the diagonal");
  EXPECT_EQ(ErrorOf(Tabbed(" GPU0 GPU1\nGPU0 X NV4\n")), "row GPU1 is missing");
  EXPECT_EQ(ErrorOf(Tabbed(" GPU0 GPU1\nGPU0 X\nGPU1 NV4 X\n")),
            "row GPU0: column GPU1 is missing; the header has 2 columns");
  EXPECT_EQ(ErrorOf(Tabbed(" GPU0 GPU1\nGPU0 X NV4\nGPU0 X NV4\n")), "row GPU0 is there twice");
  EXPECT_EQ(ErrorOf(Tabbed(" GPU0 GPU1\nGPU0 X NV4\nGPU1 NV4 X\nGPU2 NV4 NV4\n")),
            "row GPU2 is no column of the header");
  EXPECT_EQ(ErrorOf(Tabbed(" GPU0 GPU2\nGPU0 X NV4\n")), "header: 'GPU2' is out of order");
  EXPECT_EQ(ErrorOf(Tabbed(" GPU0 NIC0 GPU1\nGPU0 X PIX NV4\n")), "header: 'GPU1' is out of order");
  EXPECT_EQ(ErrorOf(Tabbed(" GPU0 NIC0 NIC0\nGPU0 X PIX PIX\n")), "header: column NIC0 is there twice");
  EXPECT_EQ(ErrorOf(Tabbed(" GPU0 NIC0\nGPU0 X NV4\n")), "row GPU0, column NIC0: an adapter is at no such distance");
}

TEST(GpuLinks, TheShortFormIsTheSameBothWays) {
  for (const char* text : {"0-7", "0-1/2-3", "0+2/1+3", "0", "0/1/2/3", "0-2+4/3/5-6"}) {
    const auto islands = ParseIslands(text);
    ASSERT_TRUE(islands) << islands.error().message;
    EXPECT_EQ(IslandsText(*islands), text);
  }
}

TEST(GpuLinks, WhatIsNoIslandsIsNamed) {
  const auto error = [](const std::string& text) {
    const auto islands = ParseIslands(text);
    return islands ? "accepted" : islands.error().message;
  };
  EXPECT_EQ(error("0-1/1-2"), "'0-1/1-2' are no islands of GPUs: GPU 1 is there twice");
  EXPECT_EQ(error("0-1/3"), "'0-1/3' are no islands of GPUs: GPU 2 is missing");
  for (const char* text : {"", "/", "0/", "a", "1-0", "0-", "-1", "0-999999", "0 1", "0,1", "0-99999999999999999999"}) {
    EXPECT_THAT(error(text), HasSubstr("is neither a GPU nor a range such as 0-3")) << text;
  }
  EXPECT_THAT(error(std::string(3000, '/')), HasSubstr("too long"));
}

}  // namespace
}  // namespace trainyard::placement
