#include "tests/trainer/checkpoint/model_sample.h"

#include <stdexcept>

#include "trainer/checkpoint/fence.h"

namespace trainyard::checkpoint {

ModelDescription SmallLlama() {
  ModelDescription m;
  m.layers = 2, m.hidden = 16, m.heads = 4, m.kv_heads = 2, m.ffn = 24, m.vocab = 40, m.max_positions = 32;
  return m;
}

ModelDescription SmallMistral() {
  ModelDescription m = SmallLlama();
  m.family = ModelFamily::kMistral;
  return m;
}

ModelDescription SmallQwen2() {
  ModelDescription m = SmallLlama();
  m.family = ModelFamily::kQwen2;
  m.qkv_bias = true;
  return m;
}

ModelDescription SmallQwen3() {
  ModelDescription m = SmallLlama();
  m.family = ModelFamily::kQwen3;
  m.head_dim = 8;
  m.qk_norm = true;
  return m;
}

ModelDescription SmallGpt2() {
  ModelDescription m = SmallLlama();
  m.family = ModelFamily::kGpt2;
  m.kv_heads = m.heads;
  m.tied = true;
  return m;
}

namespace {

template <typename T>
void Need(const T& result) {
  if (!result) throw std::runtime_error(result.error().message);
}

std::string Save(const std::string& root, const std::vector<TensorInfo>& infos, const nlohmann::ordered_json& state,
                 int64_t step, int world, float scale = 1) {
  const Fence fence{"sample", 1, 0};
  Need(TakeOver(root, fence));
  std::vector<SampleTensor> tensors;
  for (const TensorInfo& tensor : infos) tensors.push_back({tensor.name, tensor.global_shape});
  std::vector<std::string> reports;
  for (int rank = 0; rank < world; ++rank) {
    const SampleShards shards(tensors, rank, world, step);
    SaveRequest request = SampleRequest(root, step, fence, rank, world);
    request.model = shards.model;
    for (const TensorSlice& slice : request.model) {
      auto* values = static_cast<float*>(slice.data);
      for (int64_t i = 0; i < *ElementCount(slice.shape); ++i) values[i] *= scale;
    }
    request.optim = shards.optim;
    const Result<RankReport> report = WriteShards(request);
    Need(report);
    reports.push_back(report->manifest);
  }
  const Result<CommitInfo> info = Commit(SampleRequest(root, step, fence, 0, world), state.dump(), reports);
  Need(info);
  return info->path;
}

nlohmann::ordered_json StateOf(const ModelDescription& model, int64_t step) {
  return {{"version", 1}, {"step", step}, {"maxPositions", model.max_positions}, {"model", ModelIdentity(model)}};
}

}  // namespace

std::string SaveModel(const std::string& root, const ModelDescription& model, int64_t step, int world, float scale) {
  return Save(root, TensorsOf(model), StateOf(model, step), step, world, scale);
}

std::string SaveAdapter(const std::string& root, const AdapterState& adapter, int64_t step, int world) {
  nlohmann::ordered_json state = StateOf(adapter.model, step);
  state["adapter"] = AdapterJson(adapter.adapter);
  if (adapter.base) state["base"] = BaseJson(*adapter.base);
  return Save(root, AdapterTensorsOf(adapter.model, adapter.adapter), state, step, world);
}

void WriteHuggingFace(const std::string& directory, const ModelDescription& model, const std::string& scratch,
                      const HuggingFaceOptions& options) {
  Result<Reader> reader = Reader::Open(SaveModel(scratch, model, 5, 2));
  Need(reader);
  Need(ExportHuggingFace(*reader, directory, options));
}

}  // namespace trainyard::checkpoint
