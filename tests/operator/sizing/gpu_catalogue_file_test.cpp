// A catalogue file of the user's: what it changes, and what is said of a wrong one.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "operator/sizing/gpu_catalogue.h"

namespace trainyard::sizing {
namespace {

using ::testing::Contains;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

Catalogue Read(const std::string& yaml) {
  auto catalogue = Catalogue::FromYaml(yaml, "gpus.yaml");
  EXPECT_TRUE(catalogue) << catalogue.error().message;
  return catalogue ? *catalogue : *Catalogue::Default();
}

std::string ErrorOf(const std::string& yaml) {
  auto catalogue = Catalogue::FromYaml(yaml, "gpus.yaml");
  if (catalogue) return "accepted";
  EXPECT_EQ(catalogue.error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(catalogue.error().message.find('\n'), std::string::npos) << catalogue.error().message;
  return catalogue.error().message;
}

TEST(GpuCatalogueFile, ARowChangesTheFieldsItGives) {
  const Catalogue c = Read("{currency: EUR, products: [{name: h100-sxm, pricePerHour: 2.95, mfu: 0.45}]}");
  const GpuProduct* h100 = c.Find("H100-SXM");
  ASSERT_NE(h100, nullptr);
  EXPECT_EQ(h100->name, "H100-SXM");
  EXPECT_EQ(h100->price_per_hour, 2.95);
  EXPECT_EQ(h100->currency, "EUR");
  EXPECT_EQ(h100->mfu, 0.45);
  EXPECT_EQ(h100->memory_mib, 81559);
  EXPECT_EQ(c.products().size(), Catalogue::Default()->products().size());
  EXPECT_FALSE(c.Find("A100-80GB-SXM")->price_per_hour);
  EXPECT_FALSE(Catalogue::Default()->Find("H100-SXM")->price_per_hour);
}

TEST(GpuCatalogueFile, ARowMayUseAnAliasAndAddAliases) {
  const Catalogue c = Read("products: [{name: NVIDIA-H200, aliases: [my-cloud-h200], relativeSpeed: 1.1}]");
  ASSERT_NE(c.Find("my-cloud-h200"), nullptr);
  EXPECT_EQ(c.Find("my-cloud-h200")->name, "H200-SXM");
  EXPECT_EQ(c.Find("H200")->relative_speed, 1.1);
  EXPECT_THAT(c.Find("H200")->aliases, Contains("NVIDIA-H200"));
}

TEST(GpuCatalogueFile, ANewProductNeedsMemoryAndArithmeticOnly) {
  const Catalogue c = Read("products: [{name: X1, memoryMiB: 65536, bf16TFLOPS: 400}]");
  const GpuProduct* x1 = c.Find("x1");
  ASSERT_NE(x1, nullptr);
  EXPECT_EQ(x1->link, Link::kPcie);
  EXPECT_EQ(x1->pcie_gbps, 32);
  EXPECT_EQ(x1->gpus_per_node, 8);
  EXPECT_EQ(x1->mfu, 0.40);
  EXPECT_EQ(x1->driver_reserve, 0.05);
  EXPECT_TRUE(c.products().back().Simulated());
  EXPECT_THAT(c.Nearest("X2", 1), Contains("X1"));
}

TEST(GpuCatalogueFile, ReplaceMakesItTheWholeList) {
  const Catalogue c = Read(
      "{replace: true, products: [{name: X1, memoryMiB: 65536, bf16TFLOPS: 400, link: NVSwitch, nvlinkGBps: 800}]}");
  ASSERT_EQ(c.products().size(), 2u);
  EXPECT_EQ(c.products()[0].name, "X1");
  EXPECT_TRUE(c.products()[1].Simulated());
  EXPECT_EQ(c.Find("H100-SXM"), nullptr);
  EXPECT_EQ(LinksOf(c.products()[0])[0].name, "NVLink");
  EXPECT_THAT(c.Require("H100-SXM").error().message, EndsWith("the nearest names are X1"));
}

TEST(GpuCatalogueFile, ErrorsNameFileRowAndField) {
  const std::string row = "gpus.yaml: products[0] (X1): ";
  const auto with = [](const std::string& fields) {
    return ErrorOf("products: [{name: X1, memoryMiB: 1024, bf16TFLOPS: 1, " + fields + "}]");
  };
  EXPECT_EQ(with("mfu: 1.4"), row + "mfu: 1.4 is not a number above 0.0 and up to 1.0");
  EXPECT_EQ(with("mfu: fast"), row + "mfu: \"fast\" is not a number above 0.0 and up to 1.0");
  EXPECT_THAT(with("pricePerHour: .nan"), HasSubstr("'.nan' is not a finite number"));
  EXPECT_EQ(with("pricePerHour: -1"), row + "pricePerHour: -1 is not a number from 0.0 to 1000000000.0");
  EXPECT_THAT(with("pricePerHour:"), HasSubstr("pricePerHour: null is not a number"));
  EXPECT_EQ(with("gpusPerNode: 0"), row + "gpusPerNode: 0 is not a whole number from 1 to 1024");
  EXPECT_THAT(with("gpusPerNode: 18446744073709551615"), HasSubstr("gpusPerNode: 18446744073709551615 is not a whole"));
  EXPECT_THAT(with("gpusPerNode: 7.5"), HasSubstr("gpusPerNode: 7.5 is not a whole number"));
  EXPECT_EQ(with("link: Nvlink"), row +
                                      "link: \"Nvlink\" is none of PCIe, PCIeNoPeer, NVLinkBridge, NVSwitch, "
                                      "NVLinkRack, InfinityFabric");
  EXPECT_EQ(with("link: NVSwitch"), row + "link: NVSwitch needs its nvlinkGBps, both directions together");
  EXPECT_THAT(with("nvlinkGBps: 900"), StartsWith(row + "nvlinkGBps: a product whose link is PCIe has none"));
  EXPECT_THAT(with("pricePerHr: 2"), StartsWith(row + "\"pricePerHr\" is no field of a product; the fields are name,"));
  EXPECT_THAT(with("aliases: H1"), HasSubstr("aliases: \"H1\" is not a list"));
  EXPECT_THAT(with("aliases: ['a b']"), HasSubstr("aliases: \"a b\" is not 1 to 63 letters"));
  EXPECT_THAT(with("aliases: [NVIDIA-H200]"), HasSubstr("products: 'NVIDIA-H200' names both H200-SXM and X1"));
  EXPECT_THAT(ErrorOf("products: [{memoryMiB: 1}]"), HasSubstr("products[0]: it has no name"));
  EXPECT_THAT(ErrorOf("products: [H100]"), HasSubstr("products[0]: \"H100\" is not a map"));
  EXPECT_EQ(ErrorOf("products: [{name: X1, memoryMiB: 1024}]"), row + "a new product needs memoryMiB and bf16TFLOPS");
  EXPECT_THAT(ErrorOf("products: [{name: H100, mfu: 0.4}, {name: H100-SXM, mfu: 0.5}]"),
              HasSubstr("products[1] (H100-SXM): an earlier row is about the same product"));
  EXPECT_THAT(ErrorOf("products: [{name: trainyard-simulated, memoryMiB: 1}]"), HasSubstr("cannot be changed"));
  EXPECT_THAT(ErrorOf("{replace: true, products: [{name: Simulated, memoryMiB: 1, bf16TFLOPS: 1}]}"),
              HasSubstr("cannot be changed"));
}

TEST(GpuCatalogueFile, TheFileItselfMustBeACatalogue) {
  EXPECT_EQ(ErrorOf(""), "gpus.yaml: 0 YAML documents; a GPU catalogue is one");
  EXPECT_EQ(ErrorOf("- 1"), "gpus.yaml: not a map with the key 'products'");
  EXPECT_EQ(ErrorOf("currency: EUR"), "gpus.yaml: the key 'products' is missing");
  EXPECT_EQ(ErrorOf("products: 3"), "gpus.yaml: products: not a list");
  EXPECT_EQ(ErrorOf("{products: [], replaces: true}"),
            "gpus.yaml: 'replaces' is no key of a catalogue; the keys are currency, replace and products");
  EXPECT_EQ(ErrorOf("{products: [], replace: yes}"), "gpus.yaml: replace: neither true nor false");
  EXPECT_THAT(ErrorOf("{products: [], replace: true}"), HasSubstr("leaves nothing to plan with"));
  EXPECT_THAT(ErrorOf("{products: [], currency: [EUR]}"), HasSubstr("currency: not a text"));
  EXPECT_THAT(ErrorOf("{products: ["), StartsWith("gpus.yaml:"));
}

}  // namespace
}  // namespace trainyard::sizing
