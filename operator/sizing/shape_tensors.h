// The tensors of each family of models, once: VisitTensors calls visit(name, rows, columns, part) for every one, in the
// order of the forward pass; columns 0 is a vector. No allocation: planning counts often. Private to the room.
// Thread-safety: pure functions.
#pragma once

#include <cstdint>

#include "operator/sizing/shape.h"

namespace trainyard::sizing {

// Where a tensor is, and so how often.
enum class Part { kRoot, kBlock, kDenseBlock, kSparseBlock, kExpert };

inline int64_t CopiesOf(const ModelShape& m, Part part) {
  switch (part) {
    case Part::kRoot:
      return 1;
    case Part::kBlock:
      return m.layers;
    case Part::kDenseBlock:
      return m.layers - m.SparseLayers();
    case Part::kSparseBlock:
      return m.SparseLayers();
    case Part::kExpert:
      return m.SparseLayers() * m.experts;
  }
  return 0;
}

inline int64_t ElementsOf(int64_t rows, int64_t columns) { return columns == 0 ? rows : rows * columns; }

template <typename Visit>
void VisitAttention(const ModelShape& m, Visit visit) {
  const int64_t h = m.hidden;
  const int64_t q = m.AttentionWidth();
  const int64_t kv = m.KvWidth();
  auto linear = [&](const char* weight, const char* bias, int64_t out, int64_t in, bool has_bias) {
    visit(weight, out, in, Part::kBlock);
    if (has_bias) visit(bias, out, 0, Part::kBlock);
  };
  if (m.fused_projections) {
    linear("model.layers.N.self_attn.qkv_proj.weight", "model.layers.N.self_attn.qkv_proj.bias", q + 2 * kv, h,
           m.qkv_bias);
  } else {
    linear("model.layers.N.self_attn.q_proj.weight", "model.layers.N.self_attn.q_proj.bias", q, h, m.qkv_bias);
    linear("model.layers.N.self_attn.k_proj.weight", "model.layers.N.self_attn.k_proj.bias", kv, h, m.qkv_bias);
    linear("model.layers.N.self_attn.v_proj.weight", "model.layers.N.self_attn.v_proj.bias", kv, h, m.qkv_bias);
  }
  if (m.qk_norm) {
    visit("model.layers.N.self_attn.q_norm.weight", m.HeadDim(), 0, Part::kBlock);
    visit("model.layers.N.self_attn.k_norm.weight", m.HeadDim(), 0, Part::kBlock);
  }
  linear("model.layers.N.self_attn.o_proj.weight", "model.layers.N.self_attn.o_proj.bias", h, q, m.output_bias);
}

template <typename Visit>
void VisitMlp(const ModelShape& m, Visit visit) {
  const int64_t h = m.hidden;
  auto linear = [&](const char* weight, const char* bias, int64_t out, int64_t in) {
    visit(weight, out, in, Part::kDenseBlock);
    if (m.mlp_bias) visit(bias, out, 0, Part::kDenseBlock);
  };
  if (m.fused_projections) {
    linear("model.layers.N.mlp.gate_up_proj.weight", "model.layers.N.mlp.gate_up_proj.bias", 2 * m.ffn, h);
  } else {
    if (m.gated) linear("model.layers.N.mlp.gate_proj.weight", "model.layers.N.mlp.gate_proj.bias", m.ffn, h);
    linear("model.layers.N.mlp.up_proj.weight", "model.layers.N.mlp.up_proj.bias", m.ffn, h);
  }
  linear("model.layers.N.mlp.down_proj.weight", "model.layers.N.mlp.down_proj.bias", h, m.ffn);
}

// Router, experts, and the expert that every token sees.
template <typename Visit>
void VisitExperts(const ModelShape& m, Visit visit) {
  const int64_t h = m.hidden;
  if (m.mixtral_names) {
    visit("model.layers.N.block_sparse_moe.gate.weight", m.experts, h, Part::kSparseBlock);
    visit("model.layers.N.block_sparse_moe.experts.E.w1.weight", m.expert_ffn, h, Part::kExpert);
    visit("model.layers.N.block_sparse_moe.experts.E.w3.weight", m.expert_ffn, h, Part::kExpert);
    visit("model.layers.N.block_sparse_moe.experts.E.w2.weight", h, m.expert_ffn, Part::kExpert);
    return;
  }
  visit("model.layers.N.mlp.gate.weight", m.experts, h, Part::kSparseBlock);
  visit("model.layers.N.mlp.experts.E.gate_proj.weight", m.expert_ffn, h, Part::kExpert);
  visit("model.layers.N.mlp.experts.E.up_proj.weight", m.expert_ffn, h, Part::kExpert);
  visit("model.layers.N.mlp.experts.E.down_proj.weight", h, m.expert_ffn, Part::kExpert);
  if (m.shared_expert_ffn == 0) return;
  visit("model.layers.N.mlp.shared_expert.gate_proj.weight", m.shared_expert_ffn, h, Part::kSparseBlock);
  visit("model.layers.N.mlp.shared_expert.up_proj.weight", m.shared_expert_ffn, h, Part::kSparseBlock);
  visit("model.layers.N.mlp.shared_expert.down_proj.weight", h, m.shared_expert_ffn, Part::kSparseBlock);
  visit("model.layers.N.mlp.shared_expert_gate.weight", 1, h, Part::kSparseBlock);
}

template <typename Visit>
void VisitLlama(const ModelShape& m, Visit visit) {
  const int64_t h = m.hidden;
  visit("model.embed_tokens.weight", m.vocab, h, Part::kRoot);
  visit("model.layers.N.input_layernorm.weight", h, 0, Part::kBlock);
  VisitAttention(m, visit);
  visit("model.layers.N.post_attention_layernorm.weight", h, 0, Part::kBlock);
  if (m.norms == 4) visit("model.layers.N.pre_feedforward_layernorm.weight", h, 0, Part::kBlock);
  if (m.experts == 0 || m.dense_layers > 0) VisitMlp(m, visit);
  if (m.SparseLayers() > 0) VisitExperts(m, visit);
  if (m.norms == 4) visit("model.layers.N.post_feedforward_layernorm.weight", h, 0, Part::kBlock);
  visit("model.norm.weight", h, 0, Part::kRoot);
  if (!m.tied) visit("lm_head.weight", m.vocab, h, Part::kRoot);
}

// Conv1D of GPT-2 keeps its weights as [in, out].
template <typename Visit>
void VisitGpt2(const ModelShape& m, Visit visit) {
  const int64_t h = m.hidden;
  visit("transformer.wte.weight", m.vocab, h, Part::kRoot);
  visit("transformer.wpe.weight", m.max_positions, h, Part::kRoot);
  visit("transformer.h.N.ln_1.weight", h, 0, Part::kBlock);
  visit("transformer.h.N.ln_1.bias", h, 0, Part::kBlock);
  visit("transformer.h.N.attn.c_attn.weight", h, 3 * h, Part::kBlock);
  visit("transformer.h.N.attn.c_attn.bias", 3 * h, 0, Part::kBlock);
  visit("transformer.h.N.attn.c_proj.weight", h, h, Part::kBlock);
  visit("transformer.h.N.attn.c_proj.bias", h, 0, Part::kBlock);
  visit("transformer.h.N.ln_2.weight", h, 0, Part::kBlock);
  visit("transformer.h.N.ln_2.bias", h, 0, Part::kBlock);
  visit("transformer.h.N.mlp.c_fc.weight", h, m.ffn, Part::kBlock);
  visit("transformer.h.N.mlp.c_fc.bias", m.ffn, 0, Part::kBlock);
  visit("transformer.h.N.mlp.c_proj.weight", m.ffn, h, Part::kBlock);
  visit("transformer.h.N.mlp.c_proj.bias", h, 0, Part::kBlock);
  visit("transformer.ln_f.weight", h, 0, Part::kRoot);
  visit("transformer.ln_f.bias", h, 0, Part::kRoot);
  if (!m.tied) visit("lm_head.weight", m.vocab, h, Part::kRoot);
}

template <typename Visit>
void VisitGptNeox(const ModelShape& m, Visit visit) {
  const int64_t h = m.hidden;
  visit("gpt_neox.embed_in.weight", m.vocab, h, Part::kRoot);
  visit("gpt_neox.layers.N.input_layernorm.weight", h, 0, Part::kBlock);
  visit("gpt_neox.layers.N.input_layernorm.bias", h, 0, Part::kBlock);
  visit("gpt_neox.layers.N.post_attention_layernorm.weight", h, 0, Part::kBlock);
  visit("gpt_neox.layers.N.post_attention_layernorm.bias", h, 0, Part::kBlock);
  visit("gpt_neox.layers.N.attention.query_key_value.weight", 3 * h, h, Part::kBlock);
  if (m.qkv_bias) visit("gpt_neox.layers.N.attention.query_key_value.bias", 3 * h, 0, Part::kBlock);
  visit("gpt_neox.layers.N.attention.dense.weight", h, h, Part::kBlock);
  if (m.output_bias) visit("gpt_neox.layers.N.attention.dense.bias", h, 0, Part::kBlock);
  visit("gpt_neox.layers.N.mlp.dense_h_to_4h.weight", m.ffn, h, Part::kBlock);
  visit("gpt_neox.layers.N.mlp.dense_h_to_4h.bias", m.ffn, 0, Part::kBlock);
  visit("gpt_neox.layers.N.mlp.dense_4h_to_h.weight", h, m.ffn, Part::kBlock);
  visit("gpt_neox.layers.N.mlp.dense_4h_to_h.bias", h, 0, Part::kBlock);
  visit("gpt_neox.final_layer_norm.weight", h, 0, Part::kRoot);
  visit("gpt_neox.final_layer_norm.bias", h, 0, Part::kRoot);
  if (!m.tied) visit("embed_out.weight", m.vocab, h, Part::kRoot);
}

template <typename Visit>
void VisitTensors(const ModelShape& m, Visit visit) {
  switch (m.block) {
    case BlockKind::kLlama:
      return VisitLlama(m, visit);
    case BlockKind::kGpt2:
      return VisitGpt2(m, visit);
    case BlockKind::kGptNeox:
      return VisitGptNeox(m, visit);
  }
}

}  // namespace trainyard::sizing
