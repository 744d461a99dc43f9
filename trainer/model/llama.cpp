#include "trainer/model/llama.h"

#include <cmath>
#include <stdexcept>
#include <string>

#include "trainer/model/ops.h"

namespace trainyard::model {
namespace {

// Places in a block's unit.
enum BlockPlace { kInputNorm, kQuery, kKey, kValue, kOutput, kPostNorm, kGate, kUp, kDown, kBlockParams };
// Places in the root unit.
enum RootPlace { kEmbedding, kFinalNorm, kHead };

engine::ParamSpec Matrix(std::string name, int64_t out, int64_t in, double std, int tensor_parallel_dim) {
  return {std::move(name), {out, in}, engine::Init::kNormal, std, /*decay=*/true, tensor_parallel_dim};
}
engine::ParamSpec Norm(std::string name, int64_t size) {
  return {std::move(name), {size}, engine::Init::kOnes, 0.0, /*decay=*/false, -1};
}

void CheckSizes(const LlamaConfig& c) {
  if (c.layers < 1 || c.hidden < 1 || c.heads < 1 || c.kv_heads < 1 || c.ffn < 1 || c.vocab < 1 ||
      c.max_positions < 1) {
    throw std::invalid_argument("llama: every size must be at least 1");
  }
  if (c.hidden % c.heads != 0 || (c.hidden / c.heads) % 2 != 0) {
    throw std::invalid_argument("llama: hidden size over attention heads must be an even number");
  }
  if (c.heads % c.kv_heads != 0) throw std::invalid_argument("llama: attention heads must be a multiple of kv heads");
}

}  // namespace

std::vector<engine::UnitSpec> LlamaUnits(const LlamaConfig& c) {
  CheckSizes(c);
  const int64_t kv = c.hidden / c.heads * c.kv_heads;
  const double std = 0.02;
  // Outputs that add to the residual stream start smaller with depth (Radford et al., GPT-2, 2019, section 2.3).
  const double residual_std = std / std::sqrt(2.0 * static_cast<double>(c.layers));
  std::vector<engine::UnitSpec> units;
  engine::UnitSpec root{"root", {}, /*reshard_after_forward=*/false};
  root.params.push_back(Matrix("model.embed_tokens.weight", c.vocab, c.hidden, std, 0));
  root.params.push_back(Norm("model.norm.weight", c.hidden));
  if (!c.tied) root.params.push_back(Matrix("lm_head.weight", c.vocab, c.hidden, std, 0));
  units.push_back(std::move(root));
  for (int64_t l = 0; l < c.layers; ++l) {
    const std::string at = "model.layers." + std::to_string(l);
    engine::UnitSpec block{at, {}, true};
    block.params = {
        Norm(at + ".input_layernorm.weight", c.hidden),
        Matrix(at + ".self_attn.q_proj.weight", c.hidden, c.hidden, std, 0),
        Matrix(at + ".self_attn.k_proj.weight", kv, c.hidden, std, 0),
        Matrix(at + ".self_attn.v_proj.weight", kv, c.hidden, std, 0),
        Matrix(at + ".self_attn.o_proj.weight", c.hidden, c.hidden, residual_std, 1),
        Norm(at + ".post_attention_layernorm.weight", c.hidden),
        Matrix(at + ".mlp.gate_proj.weight", c.ffn, c.hidden, std, 0),
        Matrix(at + ".mlp.up_proj.weight", c.ffn, c.hidden, std, 0),
        Matrix(at + ".mlp.down_proj.weight", c.hidden, c.ffn, residual_std, 1),
    };
    units.push_back(std::move(block));
  }
  return units;
}

Llama::Llama(const LlamaConfig& config, engine::ParameterHost& host, ActivationCheckpointing checkpointing)
    : Model({config.layers, config.vocab, config.max_positions, kBlockParams}, host, checkpointing), config_(config) {
  CheckSizes(config_);
}

void Llama::EnsureRope(const at::Tensor& like) {
  if (cos_.defined() && cos_.scalar_type() == like.scalar_type() && cos_.device() == like.device()) return;
  const int64_t half = config_.hidden / config_.heads / 2;
  at::Tensor angle = at::empty({config_.max_positions, 1, half}, at::kDouble);
  double* a = angle.mutable_data_ptr<double>();
  for (int64_t i = 0; i < half; ++i) {
    const double frequency = std::pow(config_.rope_theta, -static_cast<double>(i) / static_cast<double>(half));
    for (int64_t t = 0; t < config_.max_positions; ++t) a[t * half + i] = static_cast<double>(t) * frequency;
  }
  cos_ = angle.cos().to(like.options());
  sin_ = angle.sin().to(like.options());
}

at::Tensor Llama::Embed(const at::Tensor& tokens, const Documents& /*documents*/) {
  at::Tensor x = at::embedding(host_.Param(0, kEmbedding), tokens);
  EnsureRope(x);
  return x;
}

at::Tensor Llama::Block(int64_t layer, const at::Tensor& x, Keep keep, const Documents& documents) {
  const auto w = [&](BlockPlace p) -> const at::Tensor& { return BlockParam(layer, p); };
  const int64_t b = x.size(0), s = x.size(1), head_dim = config_.hidden / config_.heads;
  const at::Tensor rows = x.view({b * s, config_.hidden});  // 2-d, so that products need no batch handling
  const auto heads = [&](const at::Tensor& y, int64_t count) { return y.view({b, s, count, head_dim}); };

  const auto at_positions = [&](const at::Tensor& table) {
    if (!documents.positions.defined()) return table.narrow(0, 0, s);
    return table.index_select(0, documents.positions.view(-1)).view({b, s, 1, head_dim / 2});
  };

  const auto qkv = RmsNormLinears(keep, rows, w(kInputNorm), config_.norm_eps, {w(kQuery), w(kKey), w(kValue)});
  const at::Tensor mixed =
      RopeAttention(keep, heads(qkv[0], config_.heads), heads(qkv[1], config_.kv_heads),
                    heads(qkv[2], config_.kv_heads), at_positions(cos_), at_positions(sin_), documents.lengths);
  const at::Tensor mid = rows + at::linear(mixed, w(kOutput));

  const auto gate_up = RmsNormLinears(keep, mid, w(kPostNorm), config_.norm_eps, {w(kGate), w(kUp)});
  const at::Tensor out = mid + SwiGluLinear(keep, gate_up[0], gate_up[1], w(kDown));
  return out.view({b, s, config_.hidden});
}

at::Tensor Llama::FinalNorm(const at::Tensor& x) {
  return RmsNorm(x.view({-1, config_.hidden}), host_.Param(0, kFinalNorm), config_.norm_eps);
}

const at::Tensor& Llama::Head() const { return host_.Param(0, config_.tied ? kEmbedding : kHead); }

}  // namespace trainyard::model
