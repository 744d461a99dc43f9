// Low-rank adapters: logits, loss and gradients of PEFT's own (tests/golden/adapters), the same bits in all modes of
// activation checkpointing, the same gradients at every stage and world size, and what is refused.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <set>
#include <string>

#include "tests/trainer/model/golden.h"
#include "trainer/quant/nf4_tensor.h"

namespace trainyard::model {
namespace {

using engine::Engine;
using engine::ParamSpec;
using engine::testing::Gradients;
using engine::testing::Named;
using engine::testing::PlainHost;
using engine::testing::RelativeError;
using engine::testing::RunRanks;
using engine::testing::Tokens;

constexpr ActivationCheckpointing kModes[] = {ActivationCheckpointing::kNone, ActivationCheckpointing::kSelective,
                                              ActivationCheckpointing::kFull};
constexpr uint64_t kSeed = 21;

bool IsAdapter(const ParamSpec& spec) { return spec.name.find(".lora_") != std::string::npos; }

// Packs what is in NF4: plain hosts hold numbers.
void Pack(const ParamSpec& spec, at::Tensor& p) {
  if (spec.nf4) p = quant::Nf4Quantise(p.detach());
}

// ---- PEFT ----

Adapter AdapterFrom(const nlohmann::json& said) {
  return {.rank = said["rank"], .alpha = said["alpha"], .targets = said["targets"], .nf4 = said["nf4"]};
}

void Fill(PlainHost& host, const Golden& golden) {
  host.ForEach([&](const ParamSpec& spec, at::Tensor& p) {
    at::NoGradGuard no_grad;
    const at::Tensor& given = golden.tensors.at((IsAdapter(spec) ? "a." : "p.") + spec.name);
    ASSERT_EQ(p.sizes(), given.sizes()) << spec.name;
    p.copy_(given).div_(64);
    Pack(spec, p);
  });
}

class GoldenAdapter : public testing::TestWithParam<const char*> {};

// Both sides in float. PEFT's own gradients are up to 2.0e-6 off those that it computes in double (qwen2_some, the
// first q_proj's A), and ours are as far off.
constexpr double kTolerance = 5e-6;

TEST_P(GoldenAdapter, GivesPeftsLogitsLossAndGradients) {
  at::set_num_threads(1);
  const Golden golden = ReadGolden(GetParam(), "adapters");
  const Config config = ConfigFrom(golden.config);
  const Adapter adapter = AdapterFrom(golden.adapter);
  for (const auto mode : kModes) {
    PlainHost host(Units(config, adapter), at::kFloat, 1);
    Fill(host, golden);
    const auto model = Make(config, host, mode, adapter);
    const at::Tensor& tokens = golden.tensors.at("tokens");
    const double logits =
        RelativeError(model->Logits(tokens.narrow(1, 0, tokens.size(1) - 1)), golden.tensors.at("logits"));
    EXPECT_LT(logits, kTolerance);
    const at::Tensor loss = model->LossSum(tokens);
    EXPECT_LT(RelativeError(loss.reshape({1}), golden.tensors.at("loss")), kTolerance);
    loss.backward();
    double worst = 0;
    size_t trained = 0;
    host.ForEach([&](const ParamSpec& spec, at::Tensor& p) {
      EXPECT_EQ(p.grad().defined(), IsAdapter(spec)) << spec.name;
      if (!IsAdapter(spec)) return;
      ++trained;
      const double error = RelativeError(p.grad(), golden.tensors.at("g." + spec.name));
      EXPECT_LT(error, kTolerance) << spec.name;
      worst = std::max(worst, error);
    });
    const auto theirs = std::count_if(golden.tensors.begin(), golden.tensors.end(),
                                      [](const auto& t) { return t.first.starts_with("g."); });
    EXPECT_EQ(trained, static_cast<size_t>(theirs)) << "every adapter of theirs is one of ours";
    std::printf("%s: normwise differences: logits %.1e, gradients at most %.1e\n", GetParam(), logits, worst);
  }
}

// The product of the pair added to its matrix, as PEFT's merge_and_unload has it.
TEST_P(GoldenAdapter, MergedGivesTheLogitsOfBaseAndAdapter) {
  at::set_num_threads(1);
  const Golden golden = ReadGolden(GetParam(), "adapters");
  const Config config = ConfigFrom(golden.config);
  const Adapter adapter = AdapterFrom(golden.adapter);
  PlainHost host(Units(config), at::kFloat, 1);
  host.ForEach([&](const ParamSpec& spec, at::Tensor& p) {
    at::NoGradGuard no_grad;
    p.copy_(golden.tensors.at("p." + spec.name)).div_(64);
    if (adapter.nf4 && spec.shape.size() == 2 && !spec.name.ends_with("wte.weight") &&
        !spec.name.ends_with("wpe.weight") && !spec.name.ends_with("embed_tokens.weight") &&
        !spec.name.ends_with("lm_head.weight")) {
      p.copy_(quant::Nf4Dequantise(quant::Nf4Quantise(p.detach()), spec.row_size(), at::kFloat));
    }
    const std::string stem = spec.name.substr(0, spec.name.rfind('.'));
    const auto down = golden.tensors.find("a." + stem + ".lora_A.weight");
    if (down == golden.tensors.end() || !spec.name.ends_with(".weight")) return;
    at::Tensor sum = golden.tensors.at("a." + stem + ".lora_B.weight").to(at::kFloat).mm(down->second.to(at::kFloat));
    sum.mul_(adapter.alpha / static_cast<double>(adapter.rank) / 64 / 64);
    p.add_(std::holds_alternative<Gpt2Config>(config) ? sum.t() : sum);
  });
  const at::Tensor& tokens = golden.tensors.at("tokens");
  const at::Tensor logits = Make(config, host)->Logits(tokens.narrow(1, 0, tokens.size(1) - 1));
  EXPECT_LT(RelativeError(logits, golden.tensors.at("merged")), kTolerance);
  EXPECT_LT(RelativeError(logits, golden.tensors.at("logits")), kTolerance);
}

INSTANTIATE_TEST_SUITE_P(Models, GoldenAdapter,
                         testing::Values("llama", "llama_nf4", "qwen2_some", "qwen3_one_nf4", "gpt2", "gpt2_nf4"),
                         [](const auto& info) { return std::string(info.param); });

// ---- our own ----

Config SmallModel(bool gpt2) {
  if (gpt2) {
    return Gpt2Config{.layers = 2, .hidden = 12, .heads = 3, .ffn = 70, .vocab = 19, .max_positions = 16};
  }
  return LlamaConfig{
      .layers = 3, .hidden = 12, .heads = 6, .kv_heads = 1, .ffn = 70, .vocab = 19, .max_positions = 16, .tied = true};
}

// As after some training: B is no longer zero.
void Train(const ParamSpec& spec, at::Tensor& p) {
  at::NoGradGuard no_grad;
  if (spec.name.ends_with("lora_B.weight")) p.fill_(0.05).select(0, 0).fill_(-0.2);
}

Adapter Some(bool nf4, double dropout, std::vector<std::string> targets = {}) {
  return {.rank = 3, .alpha = 5, .dropout = dropout, .targets = std::move(targets), .nf4 = nf4, .seed = 77};
}

TEST(Adapter, FreezesTheBaseAndStandsAfterIt) {
  for (const bool gpt2 : {false, true}) {
    const auto base = Units(SmallModel(gpt2)), units = Units(SmallModel(gpt2), Some(true, 0));
    ASSERT_EQ(base.size(), units.size());
    for (size_t u = 0; u < units.size(); ++u) {
      std::vector<std::string> adapters;
      for (size_t i = 0; i < units[u].params.size(); ++i) {
        const ParamSpec& spec = units[u].params[i];
        EXPECT_EQ(spec.frozen, i < base[u].params.size()) << spec.name;
        if (i < base[u].params.size()) {
          EXPECT_EQ(spec.name, base[u].params[i].name);
          EXPECT_EQ(spec.nf4, u > 0 && spec.shape.size() == 2) << spec.name;
        } else {
          adapters.push_back(spec.name);
        }
      }
      EXPECT_EQ(adapters.size(), u == 0 ? 0u : gpt2 ? 8u : 14u);
    }
    const ParamSpec& down = units[1].params[base[1].params.size()];
    const ParamSpec& up = units[1].params[base[1].params.size() + 1];
    EXPECT_EQ(down.name,
              gpt2 ? "transformer.h.0.attn.c_attn.lora_A.weight" : "model.layers.0.self_attn.q_proj.lora_A.weight");
    EXPECT_EQ(up.name,
              gpt2 ? "transformer.h.0.attn.c_attn.lora_B.weight" : "model.layers.0.self_attn.q_proj.lora_B.weight");
    EXPECT_EQ(down.shape, (std::vector<int64_t>{3, 12}));
    EXPECT_EQ(up.shape, (std::vector<int64_t>{gpt2 ? 36 : 12, 3}));
  }
}

// PEFT: A within 1 / sqrt(in), evenly, so that its deviation is that by sqrt(3); B zero.
TEST(Adapter, StartsAsPeftHasIt) {
  const LlamaConfig wide{
      .layers = 1, .hidden = 256, .heads = 4, .kv_heads = 4, .ffn = 256, .vocab = 8, .max_positions = 8};
  Adapter adapter = Some(false, 0);
  adapter.rank = 64;
  PlainHost host(Units(wide, adapter), at::kFloat, kSeed);
  host.ForEach([&](const ParamSpec& spec, at::Tensor& p) {
    if (spec.name.ends_with("lora_B.weight")) {
      EXPECT_EQ(p.abs().max().item<double>(), 0.0);
    }
    if (!spec.name.ends_with("lora_A.weight")) return;
    EXPECT_LE(p.abs().max().item<double>(), 1.0 / 16);
    EXPECT_GT(p.abs().max().item<double>(), 0.999 / 16);
    EXPECT_NEAR(p.std().item<double>(), 1.0 / 16 / std::sqrt(3.0), 0.01 / 16);
    EXPECT_NEAR(p.mean().item<double>(), 0.0, 0.03 / 16);
  });
  for (const bool gpt2 : {false, true}) {
    PlainHost base(Units(SmallModel(gpt2)), at::kFloat, kSeed);
    PlainHost adapted(Units(SmallModel(gpt2), Some(false, 0)), at::kFloat, kSeed);
    const at::Tensor tokens = Tokens(2, 11, 19, 4);
    EXPECT_TRUE(at::equal(Make(SmallModel(gpt2), base)->Logits(tokens),
                          Make(SmallModel(gpt2), adapted, kModes[0], Some(false, 0))->Logits(tokens)));
  }
}

TEST(Adapter, RefusesWhatCannotBe) {
  try {
    Units(SmallModel(false), Some(false, 0, {"q_proj", "c_fc"}));
    FAIL();
  } catch (const std::invalid_argument& e) {
    EXPECT_STREQ(e.what(),
                 "model.adapter.targets: no matrix of the model's blocks is called 'c_fc'; there are q_proj, k_proj, "
                 "v_proj, o_proj, gate_proj, up_proj, down_proj");
  }
  EXPECT_THROW(Units(SmallModel(true), Some(false, 0, {"q_proj"})), std::invalid_argument);
  EXPECT_THROW(Units(SmallModel(false), Some(false, 0, {"embed_tokens"})), std::invalid_argument);
  EXPECT_THROW(Units(SmallModel(false), Some(false, 1.0)), std::invalid_argument);
  Adapter none = Some(false, 0);
  none.rank = 0;
  EXPECT_THROW(Units(SmallModel(false), none), std::invalid_argument);
}

struct Variant {
  bool gpt2, nf4;
  double dropout;
  std::vector<std::string> targets;
};
std::vector<Variant> Variants() {
  return {{false, false, 0, {}},           {false, true, 0.3, {}},
          {false, true, 0, {"down_proj"}}, {false, false, 0.3, {"q_proj", "v_proj"}},
          {true, false, 0.3, {}},          {true, true, 0, {"c_fc"}}};
}
std::string Name(const Variant& v) {
  return std::string(v.gpt2 ? "gpt2" : "llama") + (v.nf4 ? " nf4" : "") + " dropout " + std::to_string(v.dropout) +
         " targets " + std::to_string(v.targets.size());
}

struct Result {
  double loss = 0;
  Named gradients;
};
// One rank with plain parameters: the whole batch at once.
Result Plain(const Variant& v, ActivationCheckpointing mode, at::ScalarType compute, const at::Tensor& tokens) {
  const Adapter adapter = Some(v.nf4, v.dropout, v.targets);
  const auto master = compute == at::kDouble ? at::kDouble : at::kFloat;
  PlainHost host(Units(SmallModel(v.gpt2), adapter), master, kSeed, compute);
  host.ForEach(Train);
  host.ForEach(Pack);
  const auto model = Make(SmallModel(v.gpt2), host, mode, adapter);
  const at::Tensor loss = model->LossSum(tokens, {}, BatchPlace{4, 0});
  Result result{loss.item<double>(), {}};
  loss.backward();
  host.ForEach([&](const ParamSpec& spec, at::Tensor& p) {
    if (IsAdapter(spec)) result.gradients[spec.name] = p.grad();
  });
  return result;
}

TEST(Adapter, HasTheSameBitsInAllModesOfCheckpointing) {
  at::set_num_threads(1);
  const at::Tensor tokens = Tokens(3, 13, 19, 4);
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16, at::kDouble}) {
    for (const Variant& v : Variants()) {
      SCOPED_TRACE(Name(v));
      const Result none = Plain(v, kModes[0], type, tokens);
      for (const auto mode : {kModes[1], kModes[2]}) {
        const Result other = Plain(v, mode, type, tokens);
        EXPECT_EQ(other.loss, none.loss);
        for (const auto& [name, g] : none.gradients) {
          ASSERT_GT(g.abs().max().item<double>(), 0.0) << name;
          EXPECT_TRUE(at::equal(g, other.gradients.at(name))) << name << " " << type;
        }
      }
    }
  }
}

TEST(Adapter, DropsOnlyInTraining) {
  const at::Tensor tokens = Tokens(2, 13, 19, 4);
  const auto loss = [&](double dropout, std::optional<BatchPlace> place) {
    const Adapter adapter = Some(false, dropout);
    PlainHost host(Units(SmallModel(false), adapter), at::kDouble, kSeed);
    host.ForEach(Train);
    return Make(SmallModel(false), host, kModes[0], adapter)->LossSum(tokens, {}, place).item<double>();
  };
  EXPECT_EQ(loss(0.3, std::nullopt), loss(0, std::nullopt));
  EXPECT_NE(loss(0.3, BatchPlace{1, 0}), loss(0.3, std::nullopt));
  EXPECT_EQ(loss(0.3, BatchPlace{1, 0}), loss(0.3, BatchPlace{1, 0}));
  EXPECT_NE(loss(0.3, BatchPlace{1, 0}), loss(0.3, BatchPlace{2, 0}));
  EXPECT_NE(loss(0.3, BatchPlace{1, 0}), loss(0.3, BatchPlace{1, 2}));
}

// Each rank takes its sequences of the batch, one at a time; the second step is with recorded order.
Named OnRanks(const Variant& v, ActivationCheckpointing mode, int stage, int world, const at::Tensor& tokens) {
  const Adapter adapter = Some(v.nf4, v.dropout, v.targets);
  const auto units = Units(SmallModel(v.gpt2), adapter);
  Named full = engine::testing::Like(units, at::kDouble);
  RunRanks(world, [&](int rank, device::Device& device, dist::Comm& comm) {
    Engine engine(device, comm, units,
                  {.stage = stage, .compute_dtype = at::kDouble, .poison_freed = world == 3, .seed = kSeed});
    engine.VisitShards(true, [&](int, const std::vector<engine::ShardView>& shards) {
      for (const engine::ShardView& s : shards) {
        if (!s.name.ends_with("lora_B.weight")) continue;
        s.master.fill_(0.05);
        if (s.rows.lo == 0 && s.rows.size() > 0) s.master.select(0, 0).fill_(-0.2);
      }
    });
    engine.OnLoaded();
    const auto model = Make(SmallModel(v.gpt2), engine, mode, adapter);
    const int64_t mine = tokens.size(0) / world;
    for (int step = 0; step < 2; ++step) {
      engine.BeginStep();
      for (int64_t m = 0; m < mine; ++m) {
        const int64_t sequence = rank * mine + m;
        engine.Backward(model->LossSum(tokens.narrow(0, sequence, 1), {}, BatchPlace{4, sequence}), m + 1 == mine);
      }
      engine.FinishBackward();
    }
    engine::testing::CollectGradients(engine, full);
  });
  return full;
}

TEST(Adapter, HasTheGradientsOfOneRankAtEveryStageAndWorldSize) {
  const at::Tensor tokens = Tokens(6, 13, 19, 4);
  for (const Variant& v : Variants()) {
    const Result want = Plain(v, kModes[0], at::kDouble, tokens);
    for (const int stage : {0, 1, 2, 3}) {
      for (const int world : {1, 2, 3}) {
        for (const auto mode : kModes) {
          SCOPED_TRACE(Name(v) + ", stage " + std::to_string(stage) + ", " + std::to_string(world) + " ranks");
          const Named got = OnRanks(v, mode, stage, world, tokens);
          for (const auto& [name, g] : want.gradients) EXPECT_LT(RelativeError(got.at(name), g), 1e-12) << name;
        }
      }
    }
  }
}

}  // namespace
}  // namespace trainyard::model
