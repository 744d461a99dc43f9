#include "operator/sizing/gpu_catalogue.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <fstream>
#include <set>
#include <sstream>

namespace trainyard::sizing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(GpuCatalogue, ListsEveryShortNameOnce) {
  std::vector<std::string> names;
  for (const GpuProduct& p : Catalogue::Default()->products()) names.push_back(p.name);
  EXPECT_THAT(names,
              ElementsAre("RTX-3090", "RTX-4090", "RTX-5090", "L4", "L40S", "A10", "A30", "A100-40GB-SXM",
                          "A100-40GB-PCIe", "A100-80GB-SXM", "A100-80GB-PCIe", "H100-SXM", "H100-PCIe", "H100-NVL",
                          "H200-SXM", "H200-NVL", "B200", "GB200", "B300", "GB300", "MI300X", "Simulated"));
}

TEST(GpuCatalogue, NoNameMeansTwoProducts) {
  std::set<std::string> seen;
  for (const GpuProduct& p : Catalogue::Default()->products()) {
    std::set<std::string> own = {p.name};
    own.insert(p.aliases.begin(), p.aliases.end());
    std::set<std::string> lower;
    for (std::string name : own) {
      std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) { return std::tolower(c); });
      lower.insert(name);
    }
    for (const std::string& name : lower) EXPECT_TRUE(seen.insert(name).second) << name;
  }
}

// Values of nvidia.com/gpu.product as GPU Feature Discovery writes them.
TEST(GpuCatalogue, FindsProductsByLabelValue) {
  const std::pair<const char*, const char*> labels[] = {{"NVIDIA-H100-80GB-HBM3", "H100-SXM"},
                                                        {"NVIDIA-H100-PCIe", "H100-PCIe"},
                                                        {"NVIDIA-H100-NVL", "H100-NVL"},
                                                        {"NVIDIA-H200", "H200-SXM"},
                                                        {"NVIDIA-A100-SXM4-80GB", "A100-80GB-SXM"},
                                                        {"A100-SXM4-40GB", "A100-40GB-SXM"},
                                                        {"NVIDIA-A100-PCIE-40GB", "A100-40GB-PCIe"},
                                                        {"NVIDIA-A100-80GB-PCIe", "A100-80GB-PCIe"},
                                                        {"NVIDIA-GeForce-RTX-4090", "RTX-4090"},
                                                        {"NVIDIA-L40S", "L40S"},
                                                        {"NVIDIA-A10G", "A10"},
                                                        {"NVIDIA-B300-SXM6-AC", "B300"},
                                                        {"AMD_Instinct_MI300X_OAM", "MI300X"},
                                                        {"nvidia-h100-80gb", "H100-SXM"},
                                                        {"trainyard-simulated", "Simulated"},
                                                        {"h100-sxm", "H100-SXM"}};
  for (const auto& [label, name] : labels) {
    const GpuProduct* product = Catalogue::Default()->Find(label);
    ASSERT_NE(product, nullptr) << label;
    EXPECT_EQ(product->name, name) << label;
  }
}

TEST(GpuCatalogue, SharedAndSlicedGpusAreNoProducts) {
  EXPECT_EQ(Catalogue::Default()->Find("NVIDIA-H100-80GB-HBM3-SHARED"), nullptr);
  EXPECT_EQ(Catalogue::Default()->Find("NVIDIA-A100-SXM4-80GB-MIG-1g.10gb"), nullptr);
  EXPECT_EQ(Catalogue::Default()->Find(""), nullptr);
}

TEST(GpuCatalogue, UnknownProductsGetTheNearestNames) {
  auto product = Catalogue::Default()->Require("H100-SXM4");
  ASSERT_FALSE(product);
  EXPECT_EQ(product.error().code, ErrorCode::kInvalidArgument);
  EXPECT_THAT(product.error().message,
              HasSubstr("'H100-SXM4' is no known GPU product; the nearest names are H100-SXM"));
  EXPECT_EQ(Catalogue::Default()->Nearest("rtx4090", 1), std::vector<std::string>{"RTX-4090"});
  EXPECT_EQ(Catalogue::Default()->Nearest("A100-80-SXM", 1), std::vector<std::string>{"A100-80GB-SXM"});
  EXPECT_EQ(Catalogue::Default()->Nearest("MI300", 1), std::vector<std::string>{"MI300X"});
}

TEST(GpuCatalogue, LinksAreAsTheReferenceStatesThem) {
  EXPECT_EQ(Catalogue::Default()->Find("H100-SXM")->nvlink_gbps, 900);       // both directions
  EXPECT_EQ(Catalogue::Default()->Find("A100-80GB-SXM")->nvlink_gbps, 600);  // both directions
  EXPECT_EQ(Catalogue::Default()->Find("L40S")->pcie_gbps, 32);              // per direction
  EXPECT_EQ(Catalogue::Default()->Find("H100-PCIe")->pcie_gbps, 64);         // per direction
  EXPECT_TRUE(Catalogue::Default()->Find("H100-SXM")->HasNvlinkInNode());
  EXPECT_FALSE(Catalogue::Default()->Find("H100-PCIe")->HasNvlinkInNode());
  EXPECT_FALSE(Catalogue::Default()->Find("RTX-4090")->HasNvlinkInNode());
}

TEST(GpuCatalogue, LinksHaveBothFigures) {
  auto links = LinksOf(*Catalogue::Default()->Find("H100-SXM"));
  ASSERT_EQ(links.size(), 3u);
  EXPECT_EQ(links[0].name, "NVLink 4, NVSwitch");
  EXPECT_EQ(links[0].both_directions, 900);
  EXPECT_EQ(links[0].per_direction, 450);
  EXPECT_EQ(links[1].name, "PCIe 5 x16");
  EXPECT_EQ(links[1].both_directions, 128);
  EXPECT_EQ(links[1].per_direction, 64);
  EXPECT_EQ(links[2].name, "network");
  EXPECT_EQ(links[2].per_direction, 50);
  links = LinksOf(*Catalogue::Default()->Find("RTX-4090"));
  ASSERT_EQ(links.size(), 2u);
  EXPECT_EQ(links[0].name, "PCIe 4 x16");
  EXPECT_EQ(LinksOf(*Catalogue::Default()->Find("MI300X"))[0].name, "Infinity Fabric, full mesh of 8");
  EXPECT_TRUE(LinksOf(*Catalogue::Default()->Find(kSimulatedProduct)).empty());
}

TEST(GpuCatalogue, NoPriceIsCompiledIn) {
  EXPECT_EQ(Catalogue::Default()->currency(), "");
  for (const GpuProduct& p : Catalogue::Default()->products()) {
    EXPECT_FALSE(p.price_per_hour) << p.name;
    EXPECT_EQ(p.driver_reserve, 0.05) << p.name;
  }
}

// The table of docs/sizing.md, row by row.
TEST(GpuCatalogue, DocumentationHasTheSameFigures) {
  std::ifstream in(std::string(TRAINYARD_SOURCE_DIR) + "/docs/sizing.md");
  ASSERT_TRUE(in);
  std::ostringstream text;
  text << in.rdbuf();
  for (const GpuProduct& p : Catalogue::Default()->products()) {
    if (p.Simulated()) continue;
    std::ostringstream row;
    row << "| " << p.name << " | " << p.memory_mib << " | " << p.bf16_tflops << " | " << p.hbm_gbps << " | ";
    if (p.nvlink_gbps > 0) {
      row << p.nvlink_gbps << " | " << p.nvlink_gbps / 2 << " | ";
    } else {
      row << "- | - | ";
    }
    row << 2 * p.pcie_gbps << " | " << p.pcie_gbps << " | " << p.gpus_per_node << " |\n";
    EXPECT_THAT(text.str(), HasSubstr(row.str()));
  }
}

}  // namespace
}  // namespace trainyard::sizing
