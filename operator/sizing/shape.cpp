#include "operator/sizing/shape.h"

#include <algorithm>

#include "operator/api/names.h"
#include "operator/base/quantity.h"
#include "operator/sizing/reference_shapes.h"
#include "operator/sizing/shape_tensors.h"

namespace trainyard::sizing {
namespace {

// Bounds far beyond any model, so that no product of two fields leaves 63 bits.
constexpr int64_t kMaxLayers = 10'000;
constexpr int64_t kMaxWidth = 1'000'000;
constexpr int64_t kMaxHeadSize = 1'024;
constexpr int64_t kMaxFfn = 10'000'000;
constexpr int64_t kMaxVocab = 100'000'000;

constexpr double kMostParameters = 1e14;

tl::unexpected<Error> Bad(const std::string& field, const std::string& why) {
  return Fail(ErrorCode::kInvalidArgument, "spec.model.architecture." + field + ": " + why);
}

}  // namespace

int64_t ModelShape::TokenFfn() const {
  const int64_t sparse = experts_per_token * expert_ffn + shared_expert_ffn;
  return SparseLayers() == 0 ? ffn : SparseLayers() == layers ? sparse : std::max(ffn, sparse);
}

int64_t TensorCount::Elements() const {
  int64_t n = copies;
  for (int64_t d : shape) n *= d;
  return n;
}

std::vector<TensorCount> Tensors(const ModelShape& shape) {
  std::vector<TensorCount> tensors;
  VisitTensors(shape, [&](const char* name, int64_t rows, int64_t columns, Part part) {
    std::vector<int64_t> dims = {rows};
    if (columns != 0) dims.push_back(columns);
    tensors.push_back({name, std::move(dims), CopiesOf(shape, part), part != Part::kRoot});
  });
  return tensors;
}

int64_t CountParameters(const ModelShape& shape) {
  int64_t n = 0;
  VisitTensors(shape, [&](const char*, int64_t rows, int64_t columns, Part part) {
    n += ElementsOf(rows, columns) * CopiesOf(shape, part);
  });
  return n;
}

int64_t ActiveParameters(const ModelShape& shape) {
  if (shape.SparseLayers() == 0) return shape.parameters;
  int64_t idle = 0;
  VisitTensors(shape, [&](const char*, int64_t rows, int64_t columns, Part part) {
    if (part == Part::kExpert) {
      idle += ElementsOf(rows, columns) * shape.SparseLayers() * (shape.experts - shape.experts_per_token);
    }
  });
  return shape.parameters - idle;
}

int64_t BlockParameters(const ModelShape& shape) {
  int64_t both = 0;
  int64_t dense = 0;
  int64_t sparse = 0;
  VisitTensors(shape, [&](const char*, int64_t rows, int64_t columns, Part part) {
    const int64_t n = ElementsOf(rows, columns);
    if (part == Part::kBlock) both += n;
    if (part == Part::kDenseBlock) dense += n;
    if (part == Part::kSparseBlock) sparse += n;
    if (part == Part::kExpert) sparse += n * shape.experts;
  });
  return both + std::max(dense, sparse);
}

int64_t RootParameters(const ModelShape& shape) {
  int64_t n = 0;
  VisitTensors(shape, [&](const char*, int64_t rows, int64_t columns, Part part) {
    if (part == Part::kRoot) n += ElementsOf(rows, columns);
  });
  return n;
}

Result<ModelShape> Counted(ModelShape m) {
  auto bad = [](const std::string& why) { return Fail(ErrorCode::kInvalidArgument, why); };
  if (m.head_dim == 0 && m.hidden % m.heads != 0) {
    return bad("the hidden size " + std::to_string(m.hidden) + " is not a multiple of the " + std::to_string(m.heads) +
               " attention heads");
  }
  if (m.kv_heads > m.heads || m.heads % m.kv_heads != 0) {
    return bad("the " + std::to_string(m.kv_heads) + " key-value heads do not divide the " + std::to_string(m.heads) +
               " attention heads");
  }
  if (m.experts_per_token > m.experts) {
    return bad("a token cannot be sent to " + std::to_string(m.experts_per_token) + " of " + std::to_string(m.experts) +
               " experts");
  }
  // In double first: sizes that are each within bounds can multiply beyond 63 bits.
  double parameters = 0;
  VisitTensors(m, [&](const char*, int64_t rows, int64_t columns, Part part) {
    parameters += static_cast<double>(ElementsOf(rows, columns)) * static_cast<double>(CopiesOf(m, part));
  });
  if (parameters > kMostParameters) {
    return bad("its tensors would hold " + std::to_string(static_cast<int64_t>(parameters / 1e12)) +
               "T parameters; at most 100T can be planned");
  }
  m.parameters = CountParameters(m);
  return m;
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
                          {"headSize", a.head_size, 0, kMaxHeadSize},
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
  if (a.head_size * m.heads != m.hidden) m.head_dim = a.head_size;
  m.qkv_bias = a.family == api::Family::kQwen2;
  m.qk_norm = a.family == api::Family::kQwen3;
  if (m.head_dim == 0 && m.hidden % m.heads != 0) {
    return Bad("hiddenSize",
               std::to_string(m.hidden) + " is not a multiple of attentionHeads " + std::to_string(m.heads));
  }
  if (m.heads % m.kv_heads != 0) {
    return Bad("kvHeads", std::to_string(m.kv_heads) + " does not divide attentionHeads " + std::to_string(m.heads));
  }
  if (a.family == api::Family::kGpt2) {
    m.block = BlockKind::kGpt2;
    m.kv_heads = m.heads;
    m.head_dim = 0;
    m.ffn = a.ffn_size != 0 ? a.ffn_size : 4 * a.hidden_size;
    m.gated = false;
    m.qkv_bias = m.output_bias = m.mlp_bias = true;
  }
  m.family = a.family;
  m.name = std::string(api::ToString(a.family)) + " of " + std::to_string(m.layers) + " layers, width " +
           std::to_string(m.hidden);
  auto counted = Counted(std::move(m));
  if (!counted) return Fail(counted.error().Wrap("spec.model.architecture"));
  return counted;
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
