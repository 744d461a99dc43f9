#include "trainer/model/llama.h"

#include <cmath>
#include <stdexcept>
#include <string>

#include "trainer/model/ops.h"

namespace trainyard::model {
namespace {

// Places in a block's unit; those of the options follow.
enum BlockPlace { kInputNorm, kQuery, kKey, kValue, kOutput, kPostNorm, kGate, kUp, kDown, kCommonParams };
// Places in the root unit.
enum RootPlace { kEmbedding, kFinalNorm, kHead };

engine::ParamSpec Matrix(std::string name, int64_t out, int64_t in, double std, int tensor_parallel_dim) {
  return {std::move(name), {out, in}, engine::Init::kNormal, std, /*decay=*/true, tensor_parallel_dim};
}
engine::ParamSpec Norm(std::string name, int64_t size) {
  return {std::move(name), {size}, engine::Init::kOnes, 0.0, /*decay=*/false, -1};
}

engine::ParamSpec Bias(std::string name, int64_t size, int tensor_parallel_dim) {
  return {std::move(name), {size}, engine::Init::kZeros, 0.0, /*decay=*/false, tensor_parallel_dim};
}

struct OptionalPlaces {
  int qkv_bias = kCommonParams;  // and the two after it
  int output_bias, query_norm, key_norm;
  explicit OptionalPlaces(const LlamaConfig& c)
      : output_bias(qkv_bias + (c.qkv_bias ? 3 : 0)),
        query_norm(output_bias + (c.output_bias ? 1 : 0)),
        key_norm(query_norm + 1) {}
};

void AddOptional(const LlamaConfig& c, const std::string& at, std::vector<engine::ParamSpec>& params) {
  const int64_t q = c.heads * c.HeadDim(), kv = c.kv_heads * c.HeadDim();
  if (c.qkv_bias) {
    params.push_back(Bias(at + ".self_attn.q_proj.bias", q, 0));
    params.push_back(Bias(at + ".self_attn.k_proj.bias", kv, 0));
    params.push_back(Bias(at + ".self_attn.v_proj.bias", kv, 0));
  }
  if (c.output_bias) params.push_back(Bias(at + ".self_attn.o_proj.bias", c.hidden, -1));
  if (c.qk_norm) {
    params.push_back(Norm(at + ".self_attn.q_norm.weight", c.HeadDim()));
    params.push_back(Norm(at + ".self_attn.k_norm.weight", c.HeadDim()));
  }
}

void CheckSizes(const LlamaConfig& c) {
  if (c.layers < 1 || c.hidden < 1 || c.heads < 1 || c.kv_heads < 1 || c.ffn < 1 || c.vocab < 1 ||
      c.max_positions < 1) {
    throw std::invalid_argument("llama: every size must be at least 1");
  }
  if (c.head_dim < 0 || (c.head_dim == 0 && c.hidden % c.heads != 0) || c.HeadDim() % 2 != 0) {
    throw std::invalid_argument("llama: the head size, hidden size over attention heads unless given, must be even");
  }
  if (c.heads % c.kv_heads != 0) throw std::invalid_argument("llama: attention heads must be a multiple of kv heads");
  if (c.window < 0) throw std::invalid_argument("llama: a window cannot be negative");
  for (const int64_t layer : c.windowed_layers) {
    if (layer < 0 || layer >= c.layers) throw std::invalid_argument("llama: a window in a layer that does not exist");
  }
}

}  // namespace

std::vector<engine::UnitSpec> LlamaUnits(const LlamaConfig& c) {
  CheckSizes(c);
  const int64_t q = c.heads * c.HeadDim(), kv = c.kv_heads * c.HeadDim();
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
        Matrix(at + ".self_attn.q_proj.weight", q, c.hidden, std, 0),
        Matrix(at + ".self_attn.k_proj.weight", kv, c.hidden, std, 0),
        Matrix(at + ".self_attn.v_proj.weight", kv, c.hidden, std, 0),
        Matrix(at + ".self_attn.o_proj.weight", c.hidden, q, residual_std, 1),
        Norm(at + ".post_attention_layernorm.weight", c.hidden),
        Matrix(at + ".mlp.gate_proj.weight", c.ffn, c.hidden, std, 0),
        Matrix(at + ".mlp.up_proj.weight", c.ffn, c.hidden, std, 0),
        Matrix(at + ".mlp.down_proj.weight", c.hidden, c.ffn, residual_std, 1),
    };
    AddOptional(c, at, block.params);
    units.push_back(std::move(block));
  }
  return units;
}

Llama::Llama(const LlamaConfig& config, engine::ParameterHost& host, ActivationCheckpointing checkpointing,
             const std::optional<Adapter>& adapter)
    : Model({config.layers, config.vocab, config.max_positions}, LlamaUnits(config), adapter, host, checkpointing),
      config_(config),
      windows_(static_cast<size_t>(config.layers), 0) {
  for (const int64_t layer : config_.windowed_layers) windows_[layer] = config_.window;
}

void Llama::EnsureRope(const at::Tensor& like) {
  const at::Tensor& cos = rope_.cos;
  if (cos.defined() && cos.scalar_type() == like.scalar_type() && cos.device() == like.device()) return;
  rope_ = MakeRopeTable(config_.rope_theta, config_.HeadDim(), config_.rope, config_.max_positions, like);
}

at::Tensor Llama::Embed(const at::Tensor& tokens, const Pass& /*pass*/) {
  at::Tensor x = at::embedding(host_.Param(0, kEmbedding), tokens);
  EnsureRope(x);
  return x;
}

at::Tensor Llama::Block(int64_t layer, const at::Tensor& x, const Pass& pass) {
  const Keep keep = pass.keep;
  const Documents& documents = *pass.documents;
  const auto w = [&](int place) -> const at::Tensor& { return BlockParam(layer, place); };
  const int64_t b = x.size(0), s = x.size(1), head_dim = config_.HeadDim();
  const OptionalPlaces places(config_);
  const at::Tensor rows = x.view({b * s, config_.hidden});  // 2-d, so that products need no batch handling
  const auto heads = [&](const at::Tensor& y, int64_t count) { return y.view({b, s, count, head_dim}); };

  const auto at_positions = [&](const at::Tensor& table) {
    if (!documents.positions.defined()) return table.narrow(0, pass.position(), s);
    return table.index_select(0, documents.positions.view(-1)).view({b, s, 1, head_dim / 2});
  };

  const auto linear = [&](int place, int bias = -1) { return BlockLinear(layer, place, bias, pass); };
  const auto qkv_bias = [&](int i) { return config_.qkv_bias ? places.qkv_bias + i : -1; };
  AttentionOptions options;
  options.window = windows_[layer];
  options.cache = pass.cache, options.layer = layer;
  if (config_.qk_norm) {
    options.query_norm = w(places.query_norm), options.key_norm = w(places.key_norm);
    options.norm_eps = config_.norm_eps;
  }
  const auto qkv =
      RmsNormLinears(keep, rows, w(kInputNorm), config_.norm_eps,
                     {linear(kQuery, qkv_bias(0)), linear(kKey, qkv_bias(1)), linear(kValue, qkv_bias(2))});
  const at::Tensor mixed = RopeAttention(keep, heads(qkv[0], config_.heads), heads(qkv[1], config_.kv_heads),
                                         heads(qkv[2], config_.kv_heads), at_positions(rope_.cos),
                                         at_positions(rope_.sin), documents.lengths, options);
  const at::Tensor mid = rows + Apply(linear(kOutput, config_.output_bias ? places.output_bias : -1), mixed);

  const auto gate_up = RmsNormLinears(keep, mid, w(kPostNorm), config_.norm_eps, {linear(kGate), linear(kUp)});
  const at::Tensor out = mid + SwiGluLinear(keep, gate_up[0], gate_up[1], linear(kDown));
  return out.view({b, s, config_.hidden});
}

at::Tensor Llama::FinalNorm(const at::Tensor& x) {
  return RmsNorm(x.view({-1, config_.hidden}), host_.Param(0, kFinalNorm), config_.norm_eps);
}

const at::Tensor& Llama::Head() const { return host_.Param(0, config_.tied ? kEmbedding : kHead); }

}  // namespace trainyard::model
