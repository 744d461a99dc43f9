// The tables that Trainyard is held to, all in one file and written out: what a model's state weighs and where it fits,
// adapters on one GPU, hours and cost of 2, 4 and 8 GPUs, what sizes scale like, what links carry.
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "operator/sizing/links.h"
#include "operator/sizing/plan.h"
#include "operator/sizing/scaling.h"

namespace trainyard::sizing {
namespace {

PlanRequest Request(int64_t parameters, const std::vector<std::string>& products) {
  PlanRequest request;
  auto shape = ShapeFromCount(parameters);
  EXPECT_TRUE(shape) << (shape ? "" : shape.error().message);
  if (shape) request.shape = *shape;
  for (const std::string& product : products) request.supply.push_back({.product = product});
  return request;
}

Plan Made(const PlanRequest& request) {
  auto plan = MakePlan(request);
  EXPECT_TRUE(plan) << (plan ? "" : plan.error().message);
  return plan ? *plan : Plan{};
}

// Model, GB of state at 16 bytes per parameter, product, its smallest count by the rule of thumb and for training.
TEST(ReferenceTables, MemoryOfOneToSeventyBillion) {
  struct Row {
    int64_t parameters;
    double state_gb;
    const char* product;
    int64_t state_only;
    int64_t training;
  };
  const Row rows[] = {
      {1'000'000'000, 16, "RTX-4090", 1, 1},           // one card of 24 to 32 GB
      {1'000'000'000, 16, "RTX-5090", 1, 1},           //
      {3'000'000'000, 48, "A100-80GB-SXM", 1, 1},      // one A100
      {7'000'000'000, 112, "A100-80GB-SXM", 2, 2},     // two of 80 GB
      {7'000'000'000, 112, "H100-SXM", 2, 2},          //
      {8'000'000'000, 128, "A100-80GB-SXM", 2, 4},     // two hold the state
      {8'000'000'000, 128, "H100-SXM", 2, 4},          //
      {13'000'000'000, 208, "A100-80GB-SXM", 4, 4},    // four
      {34'000'000'000, 544, "H100-SXM", 8, 16},        // eight hold the state
      {34'000'000'000, 544, "A100-80GB-SXM", 8, 16},   //
      {70'000'000'000, 1120, "H200-SXM", 8, 16},       // eight H200 hold the state
      {70'000'000'000, 1120, "H100-SXM", 16, 32},      // or several servers
      {70'000'000'000, 1120, "A100-80GB-SXM", 16, 32}  //
  };
  for (const Row& row : rows) {
    SCOPED_TRACE(std::to_string(row.parameters) + " on " + row.product);
    const Plan plan = Made(Request(row.parameters, {row.product}));
    EXPECT_EQ(static_cast<double>(plan.state_bytes) / 1e9, row.state_gb);
    EXPECT_EQ(plan.minimum_state_only, row.state_only);
    EXPECT_EQ(plan.minimum_full, row.training);
    ASSERT_EQ(plan.minimums.size(), 1u);
    const bool differ = row.state_only != row.training;
    EXPECT_EQ(plan.minimums[0].difference.rfind("State fits, training does not: ", 0) == 0, differ)
        << plan.minimums[0].difference;
  }
}

// A frozen base with adapters of rank 16 on every matrix: one GPU where it fits.
TEST(ReferenceTables, AdaptersOnOneGpu) {
  struct Row {
    int64_t parameters;
    AdapterType adapter;
    const char* product;
    int64_t gpus;
  };
  const Row rows[] = {
      {7'000'000'000, AdapterType::kQLora, "RTX-4090", 1}, {7'000'000'000, AdapterType::kLora, "RTX-4090", 1},
      {7'000'000'000, AdapterType::kLora, "L40S", 1},      {8'000'000'000, AdapterType::kQLora, "RTX-4090", 1},
      {8'000'000'000, AdapterType::kLora, "RTX-5090", 1},  {13'000'000'000, AdapterType::kQLora, "RTX-4090", 1},
      {13'000'000'000, AdapterType::kLora, "L40S", 1},     {34'000'000'000, AdapterType::kQLora, "L40S", 1},
      {34'000'000'000, AdapterType::kLora, "H200-SXM", 1}, {70'000'000'000, AdapterType::kQLora, "H100-SXM", 1},
      {70'000'000'000, AdapterType::kLora, "B200", 1},
  };
  for (const Row& row : rows) {
    SCOPED_TRACE(std::to_string(row.parameters) + (row.adapter == AdapterType::kLora ? " LoRA on " : " QLoRA on ") +
                 row.product);
    PlanRequest request = Request(row.parameters, {row.product});
    request.adapter.type = row.adapter;
    EXPECT_EQ(Made(request).minimum_full, row.gpus);
  }
}

struct TimeRow {
  int64_t gpus;
  double efficiency;
  double hours;
  double cost;
};

void ExpectTimes(const Plan& plan, const std::vector<TimeRow>& rows, double hours_within, double cost_within) {
  ASSERT_EQ(plan.options.size(), rows.size());
  for (size_t i = 0; i < rows.size(); ++i) {
    const PlanOption& option = plan.options[i];
    SCOPED_TRACE(rows[i].gpus);
    EXPECT_EQ(option.gpus, rows[i].gpus);
    EXPECT_TRUE(option.fits);
    EXPECT_NEAR(option.efficiency, rows[i].efficiency, 1e-12);
    ASSERT_TRUE(option.hours && option.cost);
    EXPECT_NEAR(*option.hours, rows[i].hours, hours_within);
    EXPECT_NEAR(*option.cost, rows[i].cost, cost_within);
  }
}

// 7B, 100 hours on one GPU, 255 per GPU-hour.
TEST(ReferenceTables, TwoFourAndEightH100) {
  PlanRequest request = Request(7'000'000'000, {"H100-SXM"});
  request.counts = {2, 4, 8};
  request.single_gpu_hours = 100;
  request.prices[""] = 255;
  ExpectTimes(Made(request), {{2, 0.90, 55.56, 28'333}, {4, 0.85, 29.41, 30'000}, {8, 0.80, 15.63, 31'875}}, 0.01, 0.5);
  request.round_hours = true;
  ExpectTimes(Made(request), {{2, 0.90, 56, 28'560}, {4, 0.85, 29, 29'580}, {8, 0.80, 16, 32'640}}, 0, 0);
}

// Four A100, each two and a half times slower, at 102 per GPU-hour: "75 hours, 30,600" in round numbers.
TEST(ReferenceTables, FourA100) {
  PlanRequest request = Request(7'000'000'000, {"A100-80GB-SXM"});
  request.counts = {4};
  request.single_gpu_hours = 250;
  request.prices[""] = 102;
  ExpectTimes(Made(request), {{4, 0.85, 73.53, 30'000}}, 0.01, 0.5);
  request.round_hours = true;
  ExpectTimes(Made(request), {{4, 0.85, 74, 30'192}}, 0, 0);
}

TEST(ReferenceTables, CeilingOfEfficiency) {
  const std::pair<int64_t, double> rows[] = {{1, 1.00}, {2, 0.90},  {3, 0.871}, {4, 0.85},  {6, 0.821},
                                             {8, 0.80}, {16, 0.79}, {64, 0.77}, {512, 0.74}};
  for (const auto& [gpus, efficiency] : rows) EXPECT_NEAR(CeilingEfficiency(gpus), efficiency, 5e-4) << gpus;
}

StepTraffic Replicas(const GpuProduct& product, double parameters, double tokens, int64_t gpus) {
  StepTraffic step;
  step.strategy = api::Strategy::kDdp;
  step.parameters = parameters;
  step.layers = 32;
  step.tokens = tokens;
  step.gpus = gpus;
  step.gpus_per_domain = product.gpus_per_node;
  step.peak_flops = product.bf16_tflops * 1e12;
  step.mfu = 0.45;
  step.intra_bandwidth = IntraNodeBandwidth(product);
  step.intra_latency = IntraNodeLatency(product);
  return step;
}

// Replicas of 7B, 8,192 tokens per GPU and step: 80-95 % on 2 GPUs, 70-90 % on 4, 60-90 % on 8.
TEST(ReferenceTables, BandsOfScalingOverNvlinkAndPcie) {
  struct Band {
    int64_t gpus;
    double least;
    double most;
  };
  for (const char* name : {"A100-80GB-SXM", "H100-SXM", "B200",                                     // NVLink 3, 4, 5
                           "A100-80GB-PCIe", "H100-PCIe", "L40S", "L4", "RTX-4090", "RTX-5090"}) {  // PCIe 4, 5
    const GpuProduct* product = Catalogue::Default()->Find(name);
    ASSERT_NE(product, nullptr) << name;
    for (const Band& band : {Band{2, 0.80, 0.95}, Band{4, 0.70, 0.90}, Band{8, 0.60, 0.90}}) {
      const double efficiency = PlannedEfficiency(Replicas(*product, 7e9, 8192, band.gpus));
      EXPECT_GE(efficiency, band.least) << band.gpus << " x " << name;
      EXPECT_LE(efficiency, band.most) << band.gpus << " x " << name;
    }
  }
}

// A small model that talks often: 125M on eight cards over PCIe, 3,500 tokens each, is four to five times one card. A
// plan counts gradients in FP32, twice the bytes, and attention's arithmetic, and warns.
TEST(ReferenceTables, EightPcieCardsAndASmallModel) {
  const GpuProduct* product = Catalogue::Default()->Find("RTX-4090");
  ASSERT_NE(product, nullptr);
  StepTraffic step = Replicas(*product, 125e6, 3500, 8);
  step.layers = 12;
  const double times = 8 * PlannedEfficiency(step);
  EXPECT_GE(times, 4);
  EXPECT_LE(times, 5);

  PlanRequest request = Request(125'000'000, {"RTX-4090"});
  request.strategy = api::Strategy::kDdp;
  request.counts = {8};
  request.sequence_length = 500;
  request.micro_batch = 7;
  request.global_batch = 56;
  const Plan plan = Made(request);
  ASSERT_FALSE(plan.warnings.empty());
  EXPECT_EQ(plan.warnings[0], "8 x RTX-4090 over PCIe without peer-to-peer copies: 4.0x, not 8x.");
}

// GB/s: NVLink is quoted both directions together, PCIe per direction; the table has both columns for all.
TEST(ReferenceTables, Links) {
  struct Row {
    const char* product;
    const char* link;
    double both_directions;
    double per_direction;
  };
  const Row rows[] = {
      {"A100-80GB-SXM", "NVLink 3", 600, 300}, {"H100-SXM", "NVLink 4", 900, 450},
      {"H200-SXM", "NVLink 4", 900, 450},      {"B200", "NVLink 5", 1800, 900},
      {"GB200", "NVLink 5", 1800, 900},        {"H100-PCIe", "NVLink 4", 600, 300},
      {"RTX-3090", "NVLink 3", 112.5, 56.25},  {"MI300X", "Infinity Fabric", 896, 448},
      {"A100-80GB-SXM", "PCIe 4", 64, 32},     {"RTX-4090", "PCIe 4", 64, 32},
      {"H100-SXM", "PCIe 5", 128, 64},         {"B300", "PCIe 6", 256, 128},
  };
  for (const Row& row : rows) {
    SCOPED_TRACE(std::string(row.product) + " " + row.link);
    const GpuProduct* product = Catalogue::Default()->Find(row.product);
    ASSERT_NE(product, nullptr);
    bool found = false;
    for (const LinkRate& link : LinksOf(*product)) {
      if (link.name.rfind(row.link, 0) != 0) continue;
      found = true;
      EXPECT_EQ(link.both_directions, row.both_directions);
      EXPECT_EQ(link.per_direction, row.per_direction);
    }
    EXPECT_TRUE(found);
  }
}

// "| weights | 2P | 14,000,000,000 |" of the worked example in docs/sizing.md, by term.
std::map<std::string, int64_t> WorkedExample() {
  std::ifstream in(std::string(TRAINYARD_SOURCE_DIR) + "/docs/sizing.md");
  std::map<std::string, int64_t> rows;
  bool inside = false;
  for (std::string line; std::getline(in, line);) {
    if (line.rfind("## ", 0) == 0) inside = line == "## A worked example";
    if (!inside || line.rfind("| ", 0) != 0) continue;
    const size_t name_end = line.find(" |", 2);
    const size_t last = line.rfind("| ", line.size() - 3);
    if (name_end == std::string::npos || last == std::string::npos) continue;
    std::string digits;
    for (const char c : line.substr(last)) {
      if (c >= '0' && c <= '9') digits += c;
    }
    if (!digits.empty()) rows[line.substr(2, name_end - 2)] = std::stoll(digits);
  }
  return rows;
}

TEST(ReferenceTables, WorkedExampleOfTheDocumentation) {
  PlanRequest request = Request(7'000'000'000, {"H100-SXM"});
  request.counts = {4};
  const Plan plan = Made(request);
  ASSERT_EQ(plan.options.size(), 1u);
  const PlanOption& option = plan.options[0];
  EXPECT_EQ(option.strategy, api::Strategy::kZero2);
  EXPECT_EQ(option.checkpointing, Checkpointing::kNone);
  EXPECT_TRUE(option.fits);
  EXPECT_TRUE(option.tight);
  EXPECT_EQ(BlockParameters(plan.shape), 202'383'360);
  EXPECT_EQ(RootParameters(plan.shape), 262'148'096);
  const PerGpuBytes& b = option.bytes;
  const std::map<std::string, int64_t> computed = {
      {"weights", b.weights},     {"gradients", b.gradients},     {"master", b.master},
      {"optimizer", b.optimizer}, {"activations", b.activations}, {"logits", b.logits},
      {"buffers", b.buffers},     {"overhead", b.overhead},       {"total", b.total},
      {"capacity", b.capacity}};
  EXPECT_EQ(WorkedExample(), computed);
  // And by hand, from the shape alone.
  EXPECT_EQ(b.activations, static_cast<int64_t>(32 * 22.75 * 2 * 4096 * 4096));
  EXPECT_EQ(b.logits, int64_t{14} * 4096 * 32000);
  EXPECT_EQ(b.buffers, int64_t{8} * 202'383'360 + int64_t{4} * 262'148'096);
}

}  // namespace
}  // namespace trainyard::sizing
