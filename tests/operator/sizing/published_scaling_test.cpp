// Published throughput at several sizes of the same run, against the model: every error is printed, and their sum is a
// number that may not grow. Sources: llm-foundry, scripts/train/benchmarking/README.md (tables "H100 80GB BF16" and
// "A100 40GB with 1600 Gbps node-node interconnect", 2,048 tokens per sequence); torchtitan, docs/performance.md
// (Llama 3.1 8B on H100, tokens per second and GPU). H100 servers have a 400 Gb/s port for each GPU, the A100 servers
// 200 Gb/s.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>

#include "operator/sizing/scaling.h"

namespace trainyard::sizing {
namespace {

constexpr double kH100 = 989e12, kA100 = 312e12;

struct Published {
  const char* run;
  double parameters;
  int64_t layers;
  double tokens;  // of one GPU and pass; every run takes one pass per step but where noted
  int64_t accumulation;
  api::Strategy strategy;  // kZero2: SHARD_GRAD_OP
  double recompute;        // 1: activation checkpointing
  double peak;
  int64_t reference_gpus;
  double reference;  // MFU in percent, or tokens/s
  int64_t gpus;
  double measured;  // in the same unit
  bool fitted;      // h was fitted on this one (and sigma, a loss per doubling, which came out as 0)
};

constexpr auto kFsdp = api::Strategy::kFsdp, kZero2 = api::Strategy::kZero2;

const Published kPublished[] = {
    {"7B H100", 6.659e9, 32, 12288, 1, kFsdp, 0, kH100, 8, 46.44, 128, 45.71, true},
    {"7B H100", 6.659e9, 32, 12288, 1, kFsdp, 0, kH100, 8, 46.44, 256, 44.15, true},
    {"7B H100", 6.659e9, 32, 12288, 1, kFsdp, 0, kH100, 8, 46.44, 512, 42.20, true},
    {"13B H100, 2 sequences", 12.854e9, 40, 4096, 1, kFsdp, 0, kH100, 8, 39.79, 16, 39.58, true},
    {"13B H100, 2 sequences", 12.854e9, 40, 4096, 1, kFsdp, 0, kH100, 8, 39.79, 32, 39.95, true},
    {"13B H100, 2 sequences", 12.854e9, 40, 4096, 1, kFsdp, 0, kH100, 8, 39.79, 64, 39.86, true},
    {"13B H100, 16 sequences", 12.854e9, 40, 32768, 1, kFsdp, 1, kH100, 128, 42.18, 256, 41.42, true},
    {"13B H100, 16 sequences", 12.854e9, 40, 32768, 1, kFsdp, 1, kH100, 128, 42.18, 512, 41.12, true},
    {"1B H100, 20 sequences", 1.316e9, 24, 40960, 1, kFsdp, 0, kH100, 16, 42.36, 32, 41.52, true},
    {"1B H100, 20 sequences", 1.316e9, 24, 40960, 1, kFsdp, 0, kH100, 16, 42.36, 64, 40.85, true},
    {"1B H100, 12 sequences", 1.316e9, 24, 24576, 1, kZero2, 0, kH100, 128, 40.60, 256, 39.15, true},
    {"1B H100, 12 sequences", 1.316e9, 24, 24576, 1, kZero2, 0, kH100, 128, 40.60, 512, 36.65, true},
    {"torchtitan 8B H100", 8.03e9, 32, 16384, 1, kFsdp, 0.5, kH100, 8, 5762, 128, 5605, true},

    {"torchtitan 8B H100, compiled", 8.03e9, 32, 16384, 1, kFsdp, 0.5, kH100, 8, 6667, 128, 6514, false},
    {"70B H100", 64.862e9, 80, 16384, 1, kFsdp, 1, kH100, 128, 43.36, 256, 42.42, false},
    {"70B H100", 64.862e9, 80, 16384, 1, kFsdp, 1, kH100, 128, 43.36, 512, 41.25, false},
    {"30B H100", 29.975e9, 48, 16384, 1, kFsdp, 1, kH100, 128, 41.85, 256, 40.89, false},
    {"30B H100", 29.975e9, 48, 16384, 1, kFsdp, 1, kH100, 128, 41.85, 512, 40.27, false},
    {"3B H100, 8 sequences", 2.652e9, 32, 16384, 1, kZero2, 0, kH100, 128, 42.43, 256, 41.25, false},
    {"3B H100, 8 sequences", 2.652e9, 32, 16384, 1, kZero2, 0, kH100, 128, 42.43, 512, 39.24, false},
    {"3B H100, 6 x 3 sequences", 2.652e9, 32, 12288, 3, kFsdp, 0, kH100, 32, 41.70, 64, 40.80, false},
    {"7B A100", 6.659e9, 32, 36864, 1, kFsdp, 1, kA100, 32, 51.55, 64, 50.73, false},
    {"7B A100", 6.659e9, 32, 36864, 1, kFsdp, 1, kA100, 32, 51.55, 128, 50.14, false},
    {"13B A100", 12.854e9, 40, 32768, 1, kFsdp, 1, kA100, 64, 52.04, 128, 51.93, false},
    {"3B A100", 2.652e9, 32, 12288, 1, kFsdp, 0, kA100, 32, 56.96, 64, 55.94, false},
    {"3B A100", 2.652e9, 32, 12288, 1, kFsdp, 0, kA100, 32, 56.96, 128, 54.80, false},
    {"760M A100", 0.760e9, 24, 24576, 1, kFsdp, 0, kA100, 16, 51.90, 64, 51.44, false},
    {"760M A100", 0.760e9, 24, 24576, 1, kFsdp, 0, kA100, 16, 51.90, 128, 50.73, false},
    {"350M A100", 0.356e9, 24, 36864, 1, kFsdp, 0, kA100, 16, 48.66, 64, 46.27, false},
    {"350M A100", 0.356e9, 24, 36864, 1, kFsdp, 0, kA100, 16, 48.66, 128, 45.61, false},
    {"125M A100", 0.125e9, 12, 53248, 1, kFsdp, 0, kA100, 16, 40.93, 64, 39.27, false},
    {"125M A100", 0.125e9, 12, 53248, 1, kFsdp, 0, kA100, 16, 40.93, 128, 38.86, false},
};

double Predicted(const Published& row, int64_t gpus) {
  StepTraffic s;
  const bool a100 = row.peak == kA100;
  s.strategy = row.strategy;
  s.parameters = row.parameters;
  s.layers = row.layers;
  s.tokens = row.tokens;
  s.accumulation = row.accumulation;
  s.recompute = row.recompute;
  s.gpus = gpus;
  s.peak_flops = row.peak;
  // What one GPU reaches: the reference run's own figure where it is one, 40 % for the one in tokens/s.
  s.mfu = row.reference < 100 ? row.reference / 100 : 0.40;
  s.gradient_bytes = a100 ? 2 : 4;  // the A100 runs reduce in BF16 ("PURE"), the others in FP32
  s.intra_bandwidth = a100 ? 300e9 * 0.78 : 450e9 * 0.80;
  s.inter_bandwidth = (a100 ? 25e9 : 50e9) * 0.75;
  return PhysicalEfficiency(s);
}

TEST(PublishedScaling, TheSumOfErrorsDoesNotGrow) {
  // Sums of absolute errors in points of efficiency, to two decimals. Smaller is better: write it here then.
  constexpr double kCommittedFitted = 22.16;
  constexpr double kCommittedHeldOut = 33.87;
  double sum[2] = {0, 0}, squares[2] = {0, 0}, null_squares[2] = {0, 0};
  int count[2] = {0, 0};
  std::printf("%-30s %11s %9s %9s %7s\n", "run", "GPUs", "measured", "model", "error");
  for (const Published& row : kPublished) {
    const double measured = 100 * row.measured / row.reference;
    const double model = 100 * Predicted(row, row.gpus) / Predicted(row, row.reference_gpus);
    std::printf("%-30s %4ld -> %4ld %8.1f%% %8.1f%% %+7.1f%s\n", row.run, static_cast<long>(row.reference_gpus),
                static_cast<long>(row.gpus), measured, model, model - measured, row.fitted ? "" : "  held out");
    const int i = row.fitted ? 0 : 1;
    sum[i] += std::abs(model - measured);
    squares[i] += (model - measured) * (model - measured);
    null_squares[i] += (100 - measured) * (100 - measured);
    ++count[i];
    EXPECT_NEAR(model, measured, 6) << row.run << " on " << row.gpus;
  }
  for (int i : {0, 1}) {
    std::printf("%s: %d ratios, sum of absolute errors %.2f points, RMS %.2f (always 100 %%: %.2f)\n",
                i == 0 ? "fitted" : "held out", count[i], sum[i], std::sqrt(squares[i] / count[i]),
                std::sqrt(null_squares[i] / count[i]));
    EXPECT_LT(squares[i], null_squares[i]) << "the model explains nothing";
  }
  EXPECT_NEAR(sum[0], kCommittedFitted, 0.005) << "commit the smaller sum, or explain the larger one";
  EXPECT_NEAR(sum[1], kCommittedHeldOut, 0.005) << "commit the smaller sum, or explain the larger one";
}

}  // namespace
}  // namespace trainyard::sizing
