#include "trainer/model/llama.h"

#include <cmath>
#include <stdexcept>
#include <string>

#include "trainer/model/ops.h"

namespace trainyard::model {
namespace {

// Places in a block's unit.
enum BlockParam { kInputNorm, kQuery, kKey, kValue, kOutput, kPostNorm, kGate, kUp, kDown };
// Places in the root unit.
enum RootParam { kEmbedding, kFinalNorm, kHead };

engine::ParamSpec Matrix(std::string name, int64_t out, int64_t in, double std, int tensor_parallel_dim) {
  return {std::move(name), {out, in}, engine::Init::kNormal, std, /*decay=*/true, tensor_parallel_dim};
}
engine::ParamSpec Norm(std::string name, int64_t size) {
  return {std::move(name), {size}, engine::Init::kOnes, 0.0, /*decay=*/false, -1};
}

void Check(const LlamaConfig& c) {
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
  Check(c);
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

Llama::Llama(const LlamaConfig& config, engine::ParameterHost& host) : config_(config), host_(host) { Check(config_); }

void Llama::EnsureRope(int64_t length, const at::Tensor& like) {
  if (length > config_.max_positions) throw std::invalid_argument("llama: sequence longer than max positions");
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

at::Tensor Llama::Block(int64_t layer, const at::Tensor& x) {
  const int unit = static_cast<int>(layer) + 1;
  const auto w = [&](BlockParam p) -> const at::Tensor& { return host_.Param(unit, p); };
  const int64_t b = x.size(0), s = x.size(1), head_dim = config_.hidden / config_.heads;
  const at::Tensor rows = x.view({b * s, config_.hidden});  // 2-d, so that products need no batch handling

  const at::Tensor a = RmsNorm(rows, w(kInputNorm), config_.norm_eps);
  const auto heads = [&](BlockParam p, int64_t count) { return at::linear(a, w(p)).view({b, s, count, head_dim}); };
  const at::Tensor cos = cos_.narrow(0, 0, s), sin = sin_.narrow(0, 0, s);
  const at::Tensor q = Rope(heads(kQuery, config_.heads), cos, sin).transpose(1, 2);
  const at::Tensor k = Rope(heads(kKey, config_.kv_heads), cos, sin).transpose(1, 2);
  const at::Tensor v = heads(kValue, config_.kv_heads).transpose(1, 2);
  const at::Tensor mixed = at::scaled_dot_product_attention(q, k, v, {}, 0.0, /*is_causal=*/true, std::nullopt,
                                                            /*enable_gqa=*/config_.heads != config_.kv_heads)
                               .transpose(1, 2)
                               .reshape({b * s, config_.hidden});
  const at::Tensor mid = rows + at::linear(mixed, w(kOutput));

  const at::Tensor m = RmsNorm(mid, w(kPostNorm), config_.norm_eps);
  const at::Tensor out = mid + at::linear(SwiGlu(at::linear(m, w(kGate)), at::linear(m, w(kUp))), w(kDown));
  return out.view({b, s, config_.hidden});
}

at::Tensor Llama::Hidden(const at::Tensor& tokens) {
  host_.PreForward(0);
  at::Tensor x = at::embedding(host_.Param(0, kEmbedding), tokens);
  EnsureRope(tokens.size(1), x);
  for (int64_t l = 0; l < config_.layers; ++l) {
    host_.PreForward(static_cast<int>(l) + 1);
    x = host_.PostForward(static_cast<int>(l) + 1, Block(l, x));
  }
  return RmsNorm(x.view({-1, config_.hidden}), host_.Param(0, kFinalNorm), config_.norm_eps);
}

at::Tensor Llama::Loss(const at::Tensor& tokens, const at::Tensor& weights) {
  const int64_t b = tokens.size(0), s = tokens.size(1) - 1;
  const at::Tensor x = Hidden(tokens.narrow(1, 0, s));
  const at::Tensor targets = tokens.narrow(1, 1, s).reshape({b * s});
  const at::Tensor per_token = !weights.defined()   ? weights
                               : weights.dim() == 2 ? weights.reshape({b * s})
                                                    : weights.unsqueeze(1).expand({b, s}).reshape({b * s});
  const at::Tensor& head = host_.Param(0, config_.tied ? kEmbedding : kHead);
  return host_.PostForward(0, HeadLossSum(x, head, targets, per_token));
}

at::Tensor Llama::LossSum(const at::Tensor& tokens) { return Loss(tokens, {}); }
at::Tensor Llama::LossSum(const at::Tensor& tokens, const at::Tensor& weights) { return Loss(tokens, weights); }

at::Tensor Llama::Logits(const at::Tensor& tokens) {
  const at::Tensor x = Hidden(tokens);
  const at::Tensor& head = host_.Param(0, config_.tied ? kEmbedding : kHead);
  return host_.PostForward(0, at::linear(x, head)).view({tokens.size(0), tokens.size(1), config_.vocab});
}

}  // namespace trainyard::model
