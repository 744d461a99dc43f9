#include "trainer/checkpoint/huggingface.h"

#include <map>

#include "trainer/checkpoint/adapter.h"
#include "trainer/checkpoint/box.h"
#include "trainer/checkpoint/model_identity.h"

namespace trainyard::checkpoint {
namespace {

using Shape = std::vector<int64_t>;

class TensorList {
 public:
  void Add(const std::string& name, Shape shape) {
    out.push_back({name, std::string(kModelGroup), "F32", std::move(shape)});
  }
  // A matrix [rows, columns] of GPT-2's Conv1D with its bias.
  void AddConv(const std::string& name, int64_t rows, int64_t columns) {
    Add(name + ".weight", {rows, columns});
    Add(name + ".bias", {columns});
  }
  void AddNorm(const std::string& name, int64_t size) {
    Add(name + ".weight", {size});
    Add(name + ".bias", {size});
  }
  std::vector<TensorInfo> out;
};

void AddLlama(const ModelDescription& m, TensorList& list) {
  const int64_t q = m.heads * m.HeadDim(), kv = m.kv_heads * m.HeadDim();
  const auto linear = [&](const std::string& name, int64_t out, int64_t in, bool bias) {
    list.Add(name + ".weight", {out, in});
    if (bias) list.Add(name + ".bias", {out});
  };
  list.Add("model.embed_tokens.weight", {m.vocab, m.hidden});
  for (int64_t layer = 0; layer < m.layers; ++layer) {
    const std::string at = "model.layers." + std::to_string(layer) + ".";
    linear(at + "self_attn.q_proj", q, m.hidden, m.qkv_bias);
    linear(at + "self_attn.k_proj", kv, m.hidden, m.qkv_bias);
    linear(at + "self_attn.v_proj", kv, m.hidden, m.qkv_bias);
    linear(at + "self_attn.o_proj", m.hidden, q, m.output_bias);
    if (m.qk_norm) list.Add(at + "self_attn.q_norm.weight", {m.HeadDim()});
    if (m.qk_norm) list.Add(at + "self_attn.k_norm.weight", {m.HeadDim()});
    list.Add(at + "mlp.gate_proj.weight", {m.ffn, m.hidden});
    list.Add(at + "mlp.up_proj.weight", {m.ffn, m.hidden});
    list.Add(at + "mlp.down_proj.weight", {m.hidden, m.ffn});
    list.Add(at + "input_layernorm.weight", {m.hidden});
    list.Add(at + "post_attention_layernorm.weight", {m.hidden});
  }
  list.Add("model.norm.weight", {m.hidden});
}

void AddGpt2(const ModelDescription& m, TensorList& list) {
  list.Add("transformer.wte.weight", {m.vocab, m.hidden});
  list.Add("transformer.wpe.weight", {m.max_positions, m.hidden});
  for (int64_t layer = 0; layer < m.layers; ++layer) {
    const std::string at = "transformer.h." + std::to_string(layer) + ".";
    list.AddNorm(at + "ln_1", m.hidden);
    list.AddConv(at + "attn.c_attn", m.hidden, 3 * m.hidden);
    list.AddConv(at + "attn.c_proj", m.hidden, m.hidden);
    list.AddNorm(at + "ln_2", m.hidden);
    list.AddConv(at + "mlp.c_fc", m.hidden, m.ffn);
    list.AddConv(at + "mlp.c_proj", m.ffn, m.hidden);
  }
  list.AddNorm("transformer.ln_f", m.hidden);
}

std::string ShapeWords(const Shape& shape) { return Box{Shape(shape.size(), 0), shape}.ToString(); }

// That the model tensors of the checkpoint are those of the description, no more and no less.
Status CheckTensors(const Reader& reader, const std::vector<TensorInfo>& expected) {
  const auto bad = [](const std::string& what) {
    return Fail(ErrorCode::kFailedPrecondition, what + ": it cannot be exported under the names of transformers");
  };
  std::map<std::string, const Shape*> shapes;
  for (const TensorInfo& tensor : expected) shapes[tensor.name] = &tensor.global_shape;
  for (const TensorInfo& tensor : reader.tensors()) {
    if (tensor.group != kModelGroup) continue;
    const auto found = shapes.find(tensor.name);
    if (found == shapes.end()) return bad("tensor " + tensor.name + " is not one of this model");
    if (*found->second != tensor.global_shape) {
      return bad("tensor " + tensor.name + " is " + ShapeWords(tensor.global_shape) + ", not " +
                 ShapeWords(*found->second));
    }
    shapes.erase(found);
  }
  if (!shapes.empty()) return bad("tensor " + shapes.begin()->first + " is missing");
  return {};
}

}  // namespace

std::vector<TensorInfo> TensorsOf(const ModelDescription& model) {
  TensorList list;
  model.family == ModelFamily::kGpt2 ? AddGpt2(model, list) : AddLlama(model, list);
  if (!model.tied) list.Add("lm_head.weight", {model.vocab, model.hidden});
  return std::move(list.out);
}

Result<ModelDescription> DescribeModel(const Reader& reader) {
  const nlohmann::json& state = reader.train_state();
  if (HoldsAdapter(state)) {
    return Fail(
        ErrorCode::kFailedPrecondition,
        "the checkpoint holds an adapter and not its base: merge the two (trainyard checkpoints merge), or export "
        "the adapter alone with --to peft");
  }
  ModelDescription m;
  try {
    m = FromIdentity(state.at("model"));
    // Checkpoints of before it was written: as far as the model was trained.
    m.max_positions = state.value("maxPositions", state.value("sequenceLength", int64_t{0}));
  } catch (const nlohmann::json::exception& bad) {
    return Fail(ErrorCode::kFailedPrecondition,
                std::string("train_state.json does not describe the model as our trainer does: ") + bad.what());
  }
  const TensorInfo* positions = reader.Find("transformer.wpe.weight");
  if (positions != nullptr) m.family = ModelFamily::kGpt2;
  if (positions != nullptr && !positions->global_shape.empty()) m.max_positions = positions->global_shape[0];
  const bool sized = m.hidden > 0 && m.heads > 0 && m.kv_heads > 0 && m.ffn > 0 && m.vocab > 0 && m.layers > 0;
  if (!sized || m.layers > static_cast<int64_t>(reader.tensors().size())) {
    return Fail(ErrorCode::kFailedPrecondition, "train_state.json describes a model of impossible sizes");
  }
  if (Status s = CheckTensors(reader, TensorsOf(m)); !s) return Fail(s.error());
  return m;
}

}  // namespace trainyard::checkpoint
