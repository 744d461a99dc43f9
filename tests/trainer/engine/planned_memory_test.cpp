// The plan's formulas for our trainer against the bytes that its engine holds, over Gloo, one process per rank. The
// parent runs no LibTorch operator: ranks are forks of it.
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "operator/sizing/memory.h"
#include "tests/trainer/dist/fork_ranks.h"
#include "trainer/device/device.h"
#include "trainer/dist/gloo_comm.h"
#include "trainer/engine/engine.h"
#include "trainer/model/family.h"

namespace trainyard::engine {
namespace {

struct Size {
  std::string name;
  model::Config model;
  int64_t micro_batch, sequence;
  bool bf16;
  optim::Options optimizer;  // AdamW
  model::ActivationCheckpointing checkpointing = model::ActivationCheckpointing::kNone;
  std::string plain = {};  // the name of the same without checkpointing
  std::optional<model::Adapter> adapter = {};
};

// Rows that no rank count divides, grouped queries, a tied head, more tokens than one chunk of logits, fewer logits
// than gradients of an MLP, GPT-2, biases, norms of heads: each in one. The smallest once with each optimizer; at two
// ranks, which is enough to see what operations keep, all of them under each activation checkpointing. LoRA and QLoRA:
// on all matrices and on some, in either precision, of rows that are no whole blocks of NF4.
std::vector<Size> Sizes(int world) {
  Size tiny{"0.3M", {}, 4, 64, false}, small{"1.6M", {}, 2, 128, true}, medium{"7.5M", {}, 2, 256, false};
  Size wide{"1.4M", {}, 4, 128, false}, gpt{"0.8MG", {}, 4, 128, false};
  tiny.model = model::LlamaConfig{
      .layers = 4, .hidden = 64, .heads = 4, .kv_heads = 4, .ffn = 171, .vocab = 257, .max_positions = 64};
  small.model = model::LlamaConfig{.layers = 6,
                                   .hidden = 128,
                                   .heads = 8,
                                   .kv_heads = 2,
                                   .ffn = 352,
                                   .vocab = 1001,
                                   .max_positions = 128,
                                   .tied = true};
  medium.model = model::LlamaConfig{
      .layers = 4, .hidden = 256, .heads = 8, .kv_heads = 4, .ffn = 683, .vocab = 9001, .max_positions = 256};
  wide.model = model::LlamaConfig{
      .layers = 3, .hidden = 192, .heads = 4, .kv_heads = 2, .ffn = 512, .vocab = 256, .max_positions = 128};
  gpt.model = model::Gpt2Config{.layers = 4, .hidden = 128, .heads = 4, .ffn = 512, .vocab = 259, .max_positions = 128};
  Size momentum = tiny, none = tiny, eight_bit = tiny, factored = tiny;
  eight_bit.name = "0.3M8", eight_bit.optimizer = optim::AdamW8bitOptions{};
  factored.name = "0.3Mf", factored.optimizer = optim::AdafactorOptions{};
  momentum.name = "0.3Mm", momentum.optimizer = optim::SgdOptions{0.9};
  none.name = "0.3Ms", none.optimizer = optim::SgdOptions{};
  // As Qwen2, and as Qwen3 with heads of their own size.
  Size biased = wide, normed = wide;
  biased.name = "1.4MB", normed.name = "1.5MN";
  std::get<model::LlamaConfig>(biased.model).qkv_bias = true;
  auto& qwen3 = std::get<model::LlamaConfig>(normed.model);
  qwen3.qk_norm = true, qwen3.head_dim = 64;
  Size lora = small, some = tiny, qlora = wide, gpt_qlora = gpt;
  lora.name = "1.6ML", lora.adapter = model::Adapter{.rank = 8};
  some.name = "0.3MLs", some.adapter = model::Adapter{.rank = 5, .targets = {"q_proj", "v_proj"}};
  qlora.name = "1.4MQ", qlora.bf16 = true, qlora.adapter = model::Adapter{.rank = 4, .nf4 = true};
  gpt_qlora.name = "0.8MGQ", gpt_qlora.adapter = model::Adapter{.rank = 8, .targets = {"c_attn"}, .nf4 = true};
  std::vector<Size> sizes{tiny, small,  medium, momentum, none, eight_bit, factored, wide,
                          gpt,  biased, normed, lora,     some, qlora,     gpt_qlora};
  for (Size& size : sizes) size.plain = size.name;
  if (world != 2) return sizes;
  for (const auto& [letter, mode] : {std::pair{"S", model::ActivationCheckpointing::kSelective},
                                     std::pair{"F", model::ActivationCheckpointing::kFull}}) {
    for (Size size : {tiny, small, medium, wide, gpt, biased, normed, lora, qlora}) {
      size.plain = size.name;
      size.name += letter;
      size.checkpointing = mode;
      sizes.push_back(size);
    }
  }
  return sizes;
}

std::vector<int> Stages(const Size& size) {
  return size.checkpointing == model::ActivationCheckpointing::kNone ? std::vector<int>{0, 1, 2, 3}
                                                                     : std::vector<int>{0, 3};
}

sizing::ModelShape ShapeOf(const model::LlamaConfig& c) {
  sizing::ModelShape shape;
  shape.layers = c.layers, shape.hidden = c.hidden, shape.heads = c.heads, shape.kv_heads = c.kv_heads;
  shape.ffn = c.ffn, shape.vocab = c.vocab, shape.max_positions = c.max_positions, shape.tied = c.tied;
  shape.head_dim = c.head_dim;
  shape.qkv_bias = c.qkv_bias, shape.output_bias = c.output_bias, shape.qk_norm = c.qk_norm;
  return shape;
}

sizing::ModelShape ShapeOf(const model::Gpt2Config& c) {
  sizing::ModelShape shape;
  shape.block = sizing::BlockKind::kGpt2, shape.gated = false;
  shape.qkv_bias = shape.output_bias = shape.mlp_bias = true;
  shape.layers = c.layers, shape.hidden = c.hidden, shape.heads = shape.kv_heads = c.heads;
  shape.ffn = c.ffn, shape.vocab = c.vocab, shape.max_positions = c.max_positions, shape.tied = c.tied;
  return shape;
}

sizing::MemoryInput InputOf(const Size& size, int stage, int world) {
  sizing::MemoryInput in;
  in.shape = std::visit([](const auto& config) { return ShapeOf(config); }, size.model);
  in.shape.name = size.name;
  in.shape.parameters = sizing::CountParameters(in.shape);
  constexpr api::Strategy kStages[] = {api::Strategy::kDdp, api::Strategy::kZero1, api::Strategy::kZero2,
                                       api::Strategy::kFsdp};
  in.strategy = kStages[stage];
  in.ranks = world;
  in.micro_batch = size.micro_batch;
  in.sequence = size.sequence;
  const auto precision = size.bf16 ? api::Precision::kBf16 : api::Precision::kFp32;
  in.recipe = sizing::RecipeOf(precision);
  in.engine = sizing::TrainerTraits(precision, sizing::Machine::kCpu);
  constexpr sizing::Checkpointing kModes[] = {sizing::Checkpointing::kNone, sizing::Checkpointing::kSelective,
                                              sizing::Checkpointing::kFull};
  in.checkpointing = kModes[static_cast<int>(size.checkpointing)];
  if (const auto* sgd = std::get_if<optim::SgdOptions>(&size.optimizer)) {
    in.optimizer = sizing::Optimizer::kSgd;
    in.momentum = sgd->momentum > 0;
  }
  if (size.adapter) {
    in.adapter = {size.adapter->nf4 ? sizing::AdapterType::kQLora : sizing::AdapterType::kLora, size.adapter->rank,
                  size.adapter->targets};
  }
  if (std::holds_alternative<optim::AdamW8bitOptions>(size.optimizer)) in.optimizer = sizing::Optimizer::kAdamW8bit;
  if (std::holds_alternative<optim::AdafactorOptions>(size.optimizer)) in.optimizer = sizing::Optimizer::kAdafactor;
  return in;
}

at::Tensor Tokens(const Size& size, uint64_t seed) {
  at::Generator generator = at::detail::createCPUGenerator(seed);
  return at::randint(0, InputOf(size, 0, 1).shape.vocab, {size.micro_batch, size.sequence + 1}, generator,
                     at::dtype(at::kLong));
}

// What one rank held in the second of two steps of two micro batches: state between steps, gradients between micro
// batches, and of what operations made what was kept at the end of forward and the most at any moment.
struct Held {
  int64_t params = 0, master = 0, gradients = 0, optimizer = 0, kept = 0, peak = 0;
  std::string hash;  // of the parameters after the two steps
};
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Held, params, master, gradients, optimizer, kept, peak, hash)

Held Measure(const Size& size, int stage, dist::Comm& comm) {
  auto device = device::Open("CPU").value();
  EngineOptions options;
  options.stage = stage;
  options.compute_dtype = size.bf16 ? at::kBFloat16 : at::kFloat;
  options.optimizer = size.optimizer;
  Engine engine(*device, comm, model::Units(size.model, size.adapter), options);
  const auto model = model::Make(size.model, engine, size.checkpointing, size.adapter);
  Held held;
  for (int step = 1; step <= 2; ++step) {
    engine.BeginStep();
    const at::Tensor tokens = Tokens(size, static_cast<uint64_t>(step));
    device->ResetPeak();
    const int64_t before = device->OperationStats().current_bytes;
    at::Tensor loss = model->LossSum(tokens);
    held.kept = device->OperationStats().current_bytes - before;
    engine.Backward(std::move(loss), false);
    held.peak = device->OperationStats().peak_bytes - before;
    held.gradients = engine.memory().gradients;
    engine.Backward(model->LossSum(tokens), true);
    engine.FinishBackward();
    engine.Step(1e-3, 1.0, step);
  }
  held.params = engine.memory().params;
  held.master = engine.memory().master;
  held.optimizer = engine.memory().optimizer;
  held.hash = engine.ParameterHash();
  return held;
}

// Of rank 0, to which the row rule gives no fewer rows than to any other: all stages of these sizes, in order.
std::vector<Held> Measure(const std::vector<Size>& sizes, int world) {
  const int port = dist::FreePort();
  const auto outcomes = dist::ForkRanks(world, [&](int rank) -> std::string {
    at::set_num_threads(1);
    dist::Rendezvous to;
    to.host = "127.0.0.1";
    to.port = port;
    to.prefix = "planned/1/0";
    to.rank = rank;
    to.world = world;
    to.timeout = std::chrono::seconds(50);
    auto comm = dist::ConnectGloo(to);
    if (!comm) return comm.error().message;
    nlohmann::json all = nlohmann::json::array();
    for (const Size& size : sizes) {
      for (const int stage : Stages(size)) all.push_back(Measure(size, stage, **comm));
    }
    return all.dump();
  });
  const auto all = nlohmann::json::parse(outcomes.at(0).text, nullptr, /*allow_exceptions=*/false);
  EXPECT_TRUE(all.is_array()) << sizes.front().name << " to " << sizes.back().name << ": " << outcomes[0].text;
  return all.is_array() ? all.get<std::vector<Held>>() : std::vector<Held>{};
}

// Some at a time: processes of their own live for a minute at most.
std::vector<Held> MeasureAll(int world) {
  constexpr size_t kTogether = 6;
  const std::vector<Size> sizes = Sizes(world);
  std::vector<Held> all;
  for (size_t first = 0; first < sizes.size(); first += kTogether) {
    const auto begin = sizes.begin() + static_cast<std::ptrdiff_t>(first);
    const auto count = static_cast<std::ptrdiff_t>(std::min(kTogether, sizes.size() - first));
    const std::vector<Held> part = Measure(std::vector<Size>(begin, begin + count), world);
    all.insert(all.end(), part.begin(), part.end());
  }
  return all;
}

// Shares of what was measured that the plan may be off.
constexpr double kKeptError = 0.02, kPeakError = 0.12;

class PlannedMemory : public testing::TestWithParam<int> {};

TEST_P(PlannedMemory, IsWhatTheEngineHolds) {
  const int world = GetParam();
  const std::vector<Held> all = MeasureAll(world);
  std::printf(
      "%d ranks, bytes of one; state exact, ZeRO-1 gradients with the padding of their buffer; m: SGD with momentum, "
      "s: without; 8: AdamW8bit; f: Adafactor; S: selective activation checkpointing, F: full\n%-5s %5s %10s %10s %10s"
      " | %10s %10s %6s | %10s %10s %6s\n",
      world, "model", "stage", "weights", "gradients", "optimizer", "kept", "planned", "error", "peak", "planned",
      "error");
  size_t i = 0;
  std::map<std::string, std::map<int, std::string>> hashes;
  for (const Size& size : Sizes(world)) {
    for (const int stage : Stages(size)) {
      ASSERT_LT(i, all.size());
      const Held& held = all[i++];
      const sizing::MemoryInput in = InputOf(size, stage, world);
      const std::string what = size.name + " stage " + std::to_string(stage);
      EXPECT_EQ(sizing::WeightBytes(in) + sizing::MasterBytes(in), static_cast<double>(held.params + held.master))
          << what;
      EXPECT_EQ(sizing::GradientBytes(in) + sizing::GradientPaddingBytes(in), static_cast<double>(held.gradients))
          << what;
      EXPECT_EQ(sizing::OptimizerBytes(in), static_cast<double>(held.optimizer)) << what;
      // The head keeps its gradients, its own only where it is trained, and the last norm its input; they are in the
      // plan's logits.
      const double e = in.recipe.compute, h = static_cast<double>(in.shape.hidden);
      const int64_t trained = size.adapter ? 0 : in.shape.vocab;
      const double head = e * h * static_cast<double>(trained + 2 * size.micro_batch * size.sequence);
      // Before the first norm of a frozen model nothing wants a gradient, so it keeps neither its input nor its row
      // statistics: one hidden state of which the plan knows nothing.
      const bool first_norm = size.adapter && size.checkpointing == model::ActivationCheckpointing::kNone;
      const double unkept = first_norm ? (e * h + 4) * static_cast<double>(size.micro_batch * size.sequence) : 0;
      const double kept = static_cast<double>(held.kept) - head + unkept, planned_kept = sizing::ActivationBytes(in);
      const double peak = static_cast<double>(held.peak);
      const double planned_peak = planned_kept + sizing::LogitBytes(in) + sizing::BackwardExtraBytes(in);
      // Matrices without an adapter keep nothing of their input, of which the plan knows nothing.
      const bool some = size.adapter && !size.adapter->targets.empty();
      if (some) {
        EXPECT_GE(planned_kept, kept) << what;
      } else {
        EXPECT_NEAR(planned_kept, kept, kKeptError * kept) << what << ", kept at the end of forward";
      }
      if (!some) {
        EXPECT_NEAR(planned_peak, peak, kPeakError * peak) << what << ", peak";
      }
      if (size.checkpointing == model::ActivationCheckpointing::kNone) hashes[size.name][stage] = held.hash;
      EXPECT_EQ(held.hash, hashes[size.plain][stage]) << what << ": parameters differ from those of the plain run";
      std::printf("%-5s %5d %10" PRId64 " %10" PRId64 " %10" PRId64
                  " | %10.0f %10.0f %+5.1f%% | %10.0f %10.0f %+5.1f%%\n",
                  size.name.c_str(), stage, held.params + held.master, held.gradients, held.optimizer, kept,
                  planned_kept, 100 * (planned_kept / kept - 1), peak, planned_peak, 100 * (planned_peak / peak - 1));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Ranks, PlannedMemory, testing::Values(2, 4), testing::PrintToStringParamName());

}  // namespace
}  // namespace trainyard::engine
