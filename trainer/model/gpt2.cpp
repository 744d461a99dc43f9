#include "trainer/model/gpt2.h"

#include <cmath>
#include <stdexcept>
#include <string>
#include <utility>

#include "trainer/model/selective.h"

namespace trainyard::model {
namespace {

// Places in a block's unit.
enum BlockPlace {
  kNorm1,
  kNorm1Bias,
  kQkv,
  kQkvBias,
  kOutput,
  kOutputBias,
  kNorm2,
  kNorm2Bias,
  kUp,
  kUpBias,
  kDown,
  kDownBias
};
// Places in the root unit.
enum RootPlace { kEmbedding, kPositions, kFinalNorm, kFinalNormBias, kHead };

using Specs = std::vector<engine::ParamSpec>;

void AddMatrix(Specs& specs, const std::string& name, int64_t rows, int64_t columns, double std, int tensor_dim) {
  specs.push_back({name, {rows, columns}, engine::Init::kNormal, std, /*decay=*/true, tensor_dim});
}
void AddVector(Specs& specs, const std::string& name, int64_t size, engine::Init init, int tensor_dim = -1) {
  specs.push_back({name, {size}, init, 0.0, /*decay=*/false, tensor_dim});
}
void AddNorm(Specs& specs, const std::string& name, int64_t size) {
  AddVector(specs, name + ".weight", size, engine::Init::kOnes);
  AddVector(specs, name + ".bias", size, engine::Init::kZeros);
}

void CheckSizes(const Gpt2Config& c) {
  if (c.layers < 1 || c.hidden < 1 || c.heads < 1 || c.ffn < 1 || c.vocab < 1 || c.max_positions < 1) {
    throw std::invalid_argument("gpt2: every size must be at least 1");
  }
  if (c.hidden % c.heads != 0) throw std::invalid_argument("gpt2: hidden size must be a multiple of attention heads");
}

}  // namespace

std::vector<engine::UnitSpec> Gpt2Units(const Gpt2Config& c) {
  CheckSizes(c);
  const double std = 0.02;
  // Section 2.3: outputs that add to the residual stream start smaller with depth.
  const double residual_std = std / std::sqrt(2.0 * static_cast<double>(c.layers));
  std::vector<engine::UnitSpec> units{{"root", {}, /*reshard_after_forward=*/false}};
  Specs& root = units.front().params;
  AddMatrix(root, "transformer.wte.weight", c.vocab, c.hidden, std, 0);
  AddMatrix(root, "transformer.wpe.weight", c.max_positions, c.hidden, std, -1);
  AddNorm(root, "transformer.ln_f", c.hidden);
  if (!c.tied) AddMatrix(root, "lm_head.weight", c.vocab, c.hidden, std, 0);
  for (int64_t l = 0; l < c.layers; ++l) {
    const std::string at = "transformer.h." + std::to_string(l);
    engine::UnitSpec block{at, {}, true};
    Specs& p = block.params;
    AddNorm(p, at + ".ln_1", c.hidden);
    AddMatrix(p, at + ".attn.c_attn.weight", c.hidden, 3 * c.hidden, std, 1);
    AddVector(p, at + ".attn.c_attn.bias", 3 * c.hidden, engine::Init::kZeros, 0);
    AddMatrix(p, at + ".attn.c_proj.weight", c.hidden, c.hidden, residual_std, 0);
    AddVector(p, at + ".attn.c_proj.bias", c.hidden, engine::Init::kZeros);
    AddNorm(p, at + ".ln_2", c.hidden);
    AddMatrix(p, at + ".mlp.c_fc.weight", c.hidden, c.ffn, std, 1);
    AddVector(p, at + ".mlp.c_fc.bias", c.ffn, engine::Init::kZeros, 0);
    AddMatrix(p, at + ".mlp.c_proj.weight", c.ffn, c.hidden, residual_std, 0);
    AddVector(p, at + ".mlp.c_proj.bias", c.hidden, engine::Init::kZeros);
    units.push_back(std::move(block));
  }
  return units;
}

Gpt2::Gpt2(const Gpt2Config& config, engine::ParameterHost& host, ActivationCheckpointing checkpointing,
           const std::optional<Adapter>& adapter)
    : Model({config.layers, config.vocab, config.max_positions, /*input_first=*/true}, Gpt2Units(config), adapter, host,
            checkpointing),
      config_(config) {}

at::Tensor Gpt2::Embed(const at::Tensor& tokens, const Pass& pass) {
  const at::Tensor& table = host_.Param(0, kPositions);
  const at::Tensor& positions = pass.documents->positions;
  const at::Tensor places =
      positions.defined() ? at::embedding(table, positions) : table.narrow(0, pass.position(), tokens.size(1));
  return at::embedding(host_.Param(0, kEmbedding), tokens) + places;
}

at::Tensor Gpt2::Block(int64_t layer, const at::Tensor& x, const Pass& pass) {
  const Keep keep = pass.keep;
  const auto w = [&](BlockPlace p) -> const at::Tensor& { return BlockParam(layer, p); };
  const auto linear = [&](BlockPlace p) { return BlockLinear(layer, p, /*bias=*/p + 1, pass); };
  const int64_t b = x.size(0), s = x.size(1), h = config_.hidden;
  const at::Tensor rows = x.view({b * s, h});  // 2-d, so that products need no batch handling

  const at::Tensor qkv = LayerNormLinear(keep, rows, w(kNorm1), w(kNorm1Bias), config_.norm_eps, linear(kQkv));
  const std::vector<at::Tensor> parts = qkv.split(h, 1);
  const auto heads = [&](int i) { return parts[i].view({b, s, config_.heads, h / config_.heads}); };
  at::Tensor keys = heads(1), values = heads(2);
  if (pass.cache != nullptr) {
    const KeyValueCache::View all = pass.cache->Append(layer, keys, values);
    keys = all.keys, values = all.values;
  }
  const at::Tensor mixed = CausalAttention(heads(0), keys, values, pass.documents->lengths);
  const at::Tensor mid = rows + Apply(linear(kOutput), mixed);

  const at::Tensor up = LayerNormLinear(keep, mid, w(kNorm2), w(kNorm2Bias), config_.norm_eps, linear(kUp));
  return (mid + GeluLinear(keep, up, linear(kDown))).view({b, s, h});
}

at::Tensor Gpt2::FinalNorm(const at::Tensor& x) {
  return at::layer_norm(x.view({-1, config_.hidden}), {config_.hidden}, host_.Param(0, kFinalNorm),
                        host_.Param(0, kFinalNormBias), config_.norm_eps);
}

const at::Tensor& Gpt2::Head() const { return host_.Param(0, config_.tied ? kEmbedding : kHead); }

}  // namespace trainyard::model
