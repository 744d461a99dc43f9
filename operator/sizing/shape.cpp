#include "operator/sizing/shape.h"

#include <string_view>

#include "operator/base/quantity.h"
#include "operator/sizing/reference_shapes.h"

namespace trainyard::sizing {
namespace {

// Bounds far beyond any model, so that no product of two fields leaves 63 bits.
constexpr int64_t kMaxLayers = 10'000;
constexpr int64_t kMaxWidth = 1'000'000;
constexpr int64_t kMaxFfn = 10'000'000;
constexpr int64_t kMaxVocab = 100'000'000;

// Calls visit(name, rows, columns, in_block) for every tensor; columns 0 is a vector. No allocation: planning counts
// often.
template <typename Visit>
void VisitLlama(const ModelShape& m, Visit visit) {
  const int64_t h = m.hidden;
  const int64_t q = m.heads * m.HeadDim();
  const int64_t kv = m.kv_heads * m.HeadDim();
  auto linear = [&](const char* weight, const char* bias, int64_t out, int64_t in, bool has_bias) {
    visit(weight, out, in, true);
    if (has_bias) visit(bias, out, 0, true);
  };
  visit("model.embed_tokens.weight", m.vocab, h, false);
  visit("model.layers.N.input_layernorm.weight", h, 0, true);
  linear("model.layers.N.self_attn.q_proj.weight", "model.layers.N.self_attn.q_proj.bias", q, h, m.qkv_bias);
  linear("model.layers.N.self_attn.k_proj.weight", "model.layers.N.self_attn.k_proj.bias", kv, h, m.qkv_bias);
  linear("model.layers.N.self_attn.v_proj.weight", "model.layers.N.self_attn.v_proj.bias", kv, h, m.qkv_bias);
  linear("model.layers.N.self_attn.o_proj.weight", "model.layers.N.self_attn.o_proj.bias", h, q, m.output_bias);
  visit("model.layers.N.post_attention_layernorm.weight", h, 0, true);
  linear("model.layers.N.mlp.gate_proj.weight", "model.layers.N.mlp.gate_proj.bias", m.ffn, h, m.mlp_bias);
  linear("model.layers.N.mlp.up_proj.weight", "model.layers.N.mlp.up_proj.bias", m.ffn, h, m.mlp_bias);
  linear("model.layers.N.mlp.down_proj.weight", "model.layers.N.mlp.down_proj.bias", h, m.ffn, m.mlp_bias);
  visit("model.norm.weight", h, 0, false);
  if (!m.tied) visit("lm_head.weight", m.vocab, h, false);
}

// Conv1D of GPT-2 keeps its weights as [in, out].
template <typename Visit>
void VisitGpt2(const ModelShape& m, Visit visit) {
  const int64_t h = m.hidden;
  visit("transformer.wte.weight", m.vocab, h, false);
  visit("transformer.wpe.weight", m.max_positions, h, false);
  visit("transformer.h.N.ln_1.weight", h, 0, true);
  visit("transformer.h.N.ln_1.bias", h, 0, true);
  visit("transformer.h.N.attn.c_attn.weight", h, 3 * h, true);
  visit("transformer.h.N.attn.c_attn.bias", 3 * h, 0, true);
  visit("transformer.h.N.attn.c_proj.weight", h, h, true);
  visit("transformer.h.N.attn.c_proj.bias", h, 0, true);
  visit("transformer.h.N.ln_2.weight", h, 0, true);
  visit("transformer.h.N.ln_2.bias", h, 0, true);
  visit("transformer.h.N.mlp.c_fc.weight", h, m.ffn, true);
  visit("transformer.h.N.mlp.c_fc.bias", m.ffn, 0, true);
  visit("transformer.h.N.mlp.c_proj.weight", m.ffn, h, true);
  visit("transformer.h.N.mlp.c_proj.bias", h, 0, true);
  visit("transformer.ln_f.weight", h, 0, false);
  visit("transformer.ln_f.bias", h, 0, false);
  if (!m.tied) visit("lm_head.weight", m.vocab, h, false);
}

template <typename Visit>
void VisitTensors(const ModelShape& m, Visit visit) {
  if (m.block == BlockKind::kGpt2) {
    VisitGpt2(m, visit);
  } else {
    VisitLlama(m, visit);
  }
}

int64_t Elements(int64_t rows, int64_t columns) { return columns == 0 ? rows : rows * columns; }

tl::unexpected<Error> Bad(const std::string& field, const std::string& why) {
  return Fail(ErrorCode::kInvalidArgument, "spec.model.architecture." + field + ": " + why);
}

}  // namespace

int64_t TensorCount::Elements() const {
  int64_t n = copies;
  for (int64_t d : shape) n *= d;
  return n;
}

std::vector<TensorCount> Tensors(const ModelShape& shape) {
  std::vector<TensorCount> tensors;
  VisitTensors(shape, [&](const char* name, int64_t rows, int64_t columns, bool in_block) {
    std::vector<int64_t> dims = {rows};
    if (columns != 0) dims.push_back(columns);
    tensors.push_back({name, std::move(dims), in_block ? shape.layers : 1, in_block});
  });
  return tensors;
}

int64_t CountParameters(const ModelShape& shape) {
  return RootParameters(shape) + shape.layers * BlockParameters(shape);
}

int64_t BlockParameters(const ModelShape& shape) {
  int64_t n = 0;
  VisitTensors(shape, [&](const char*, int64_t rows, int64_t columns, bool in_block) {
    if (in_block) n += Elements(rows, columns);
  });
  return n;
}

int64_t RootParameters(const ModelShape& shape) {
  int64_t n = 0;
  VisitTensors(shape, [&](const char*, int64_t rows, int64_t columns, bool in_block) {
    if (!in_block) n += Elements(rows, columns);
  });
  return n;
}

Result<ModelShape> ShapeFromArchitecture(const api::Architecture& a) {
  struct Bound {
    const char* field;
    int64_t value;
    int64_t least;
    int64_t most;
  };
  const Bound bounds[] = {{"layers", a.layers, 1, kMaxLayers},
                          {"hiddenSize", a.hidden_size, 1, kMaxWidth},
                          {"attentionHeads", a.attention_heads, 1, kMaxWidth},
                          {"kvHeads", a.kv_heads, 0, kMaxWidth},
                          {"ffnSize", a.ffn_size, 0, kMaxFfn},
                          {"vocabSize", a.vocab_size, 1, kMaxVocab},
                          {"maxPositions", a.max_positions, 0, kMaxVocab}};
  for (const Bound& b : bounds) {
    if (b.value < b.least || b.value > b.most) {
      return Bad(b.field, std::to_string(b.value) + " is not between " + std::to_string(b.least) + " and " +
                              std::to_string(b.most));
    }
  }
  ModelShape m;
  m.layers = a.layers;
  m.hidden = a.hidden_size;
  m.heads = a.attention_heads;
  m.kv_heads = a.kv_heads != 0 ? a.kv_heads : a.attention_heads;
  m.ffn = a.ffn_size != 0 ? a.ffn_size : (a.hidden_size * 8 / 3 + 15) / 16 * 16;
  m.vocab = a.vocab_size;
  m.max_positions = a.max_positions;
  m.tied = a.tied_embeddings;
  if (m.hidden % m.heads != 0) {
    return Bad("hiddenSize",
               std::to_string(m.hidden) + " is not a multiple of attentionHeads " + std::to_string(m.heads));
  }
  if (m.heads % m.kv_heads != 0) {
    return Bad("kvHeads", std::to_string(m.kv_heads) + " does not divide attentionHeads " + std::to_string(m.heads));
  }
  m.parameters = CountParameters(m);
  m.name = "Llama of " + std::to_string(m.layers) + " layers, width " + std::to_string(m.hidden);
  return m;
}

Result<ModelShape> ShapeOf(const api::TrainingJob& job) {
  const api::Model& model = job.spec.model;
  if (model.architecture) {
    api::Architecture a = *model.architecture;
    if (a.vocab_size == 0 && (!job.spec.data || job.spec.data->format == api::DataFormat::kText)) a.vocab_size = 256;
    if (a.max_positions == 0) a.max_positions = job.spec.training.sequence_length;
    return ShapeFromArchitecture(a);
  }
  if (model.parameters.empty()) {
    return Fail(ErrorCode::kInvalidArgument, "spec.model: give parameters (such as 7B) or an architecture");
  }
  auto count = ParseCount(model.parameters);
  if (!count) return Fail(count.error().Wrap("spec.model.parameters"));
  return ShapeFromCount(*count);
}

}  // namespace trainyard::sizing
