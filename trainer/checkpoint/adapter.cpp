#include "trainer/checkpoint/adapter.h"

#include <algorithm>
#include <charconv>
#include <set>

#include "trainer/checkpoint/huggingface.h"
#include "trainer/checkpoint/model_identity.h"

namespace trainyard::checkpoint {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

constexpr std::string_view kWeight = ".weight";
constexpr std::string_view kGpt2Blocks = "transformer.h.";
constexpr std::string_view kLlamaBlocks = "model.layers.";

std::string Joined(const std::vector<std::string>& words) {
  std::string out;
  for (const std::string& word : words) out += (out.empty() ? "" : ", ") + word;
  return out;
}

// Throws json::exception.
AdapterDescription AdapterFrom(const json& adapter) {
  AdapterDescription out;
  out.rank = adapter.at("rank").get<int64_t>();
  out.alpha = adapter.at("alpha").get<double>();
  out.dropout = adapter.at("dropout").get<double>();
  out.targets = adapter.at("targets").get<std::vector<std::string>>();
  out.nf4 = adapter.at("quantizeBase").get<std::string>() == "NF4";
  if (out.rank < 1 || out.rank > 1'000'000 || out.targets.empty()) {
    throw json::other_error::create(
        501,
        "an adapter of rank " + std::to_string(out.rank) + " for " + std::to_string(out.targets.size()) + " targets",
        nullptr);
  }
  return out;
}

tl::unexpected<Error> NotOurs(const json::exception& bad) {
  return Fail(ErrorCode::kFailedPrecondition,
              std::string("train_state.json does not describe an adapter as our trainer does: ") + bad.what());
}

// Throws json::exception.
BaseReference BaseFrom(const json& base) {
  BaseReference out;
  const std::string hash = base.at("hash").get<std::string>();
  const auto [end, error] = std::from_chars(hash.data(), hash.data() + hash.size(), out.hash, 16);
  if (error != std::errc() || end != hash.data() + hash.size() || hash.size() != 16) {
    throw json::other_error::create(501, "base.hash has not 16 hex digits", nullptr);
  }
  out.tensors = base.at("tensors").get<int64_t>();
  out.bytes = base.at("bytes").get<int64_t>();
  out.directory = base.value("directory", "");
  return out;
}

// That the tensors are those that the train state promises.
Status CheckTensors(const Reader& reader, const std::vector<TensorInfo>& expected) {
  std::set<std::string> names;
  for (const TensorInfo& tensor : expected) {
    const TensorInfo* found = reader.Find(tensor.name);
    if (found == nullptr) {
      return Fail(ErrorCode::kFailedPrecondition, "tensor " + tensor.name + " of the adapter is missing");
    }
    if (found->global_shape != tensor.global_shape) {
      return Fail(ErrorCode::kFailedPrecondition,
                  "tensor " + tensor.name + " has not the shape that rank and model of the adapter give it");
    }
    names.insert(tensor.name);
  }
  for (const TensorInfo& tensor : reader.tensors()) {
    if (tensor.group == kModelGroup && !names.contains(tensor.name)) {
      return Fail(ErrorCode::kFailedPrecondition, "tensor " + tensor.name + " is not one of the adapter");
    }
  }
  return {};
}

}  // namespace

std::vector<BlockMatrix> BlockMatrices(const ModelDescription& model) {
  const bool transposed = model.family == ModelFamily::kGpt2;
  std::vector<BlockMatrix> out;
  for (const TensorInfo& tensor : TensorsOf(model)) {
    const std::vector<int64_t>& shape = tensor.global_shape;
    if (shape.size() != 2 || !tensor.name.starts_with(transposed ? kGpt2Blocks : kLlamaBlocks)) continue;
    out.push_back({.name = tensor.name.substr(0, tensor.name.size() - kWeight.size()),
                   .in = shape[transposed ? 0 : 1],
                   .out = shape[transposed ? 1 : 0],
                   .transposed = transposed});
  }
  return out;
}

Result<std::vector<std::string>> ResolveTargets(const ModelDescription& model,
                                                const std::vector<std::string>& targets) {
  std::vector<std::string> all;
  for (const BlockMatrix& matrix : BlockMatrices(model)) {
    if (std::find(all.begin(), all.end(), matrix.word()) == all.end()) all.push_back(matrix.word());
  }
  for (const std::string& target : targets) {
    if (std::find(all.begin(), all.end(), target) != all.end()) continue;
    return Fail(ErrorCode::kInvalidArgument,
                "the model has no matrix " + target + " in its blocks: it has " + Joined(all));
  }
  std::set<std::string> sorted(targets.begin(), targets.end());
  if (targets.empty()) sorted.insert(all.begin(), all.end());
  return std::vector<std::string>(sorted.begin(), sorted.end());
}

std::vector<BlockMatrix> AdaptedMatrices(const ModelDescription& model, const AdapterDescription& adapter) {
  std::vector<BlockMatrix> out = BlockMatrices(model);
  std::erase_if(out, [&](const BlockMatrix& matrix) {
    return std::find(adapter.targets.begin(), adapter.targets.end(), matrix.word()) == adapter.targets.end();
  });
  return out;
}

std::vector<TensorInfo> AdapterTensorsOf(const ModelDescription& model, const AdapterDescription& adapter) {
  std::vector<TensorInfo> out;
  for (const BlockMatrix& matrix : AdaptedMatrices(model, adapter)) {
    out.push_back({matrix.a(), std::string(kModelGroup), "F32", {adapter.rank, matrix.in}});
    out.push_back({matrix.b(), std::string(kModelGroup), "F32", {matrix.out, adapter.rank}});
  }
  return out;
}

ordered_json AdapterJson(const AdapterDescription& adapter) {
  return {{"rank", adapter.rank},
          {"alpha", adapter.alpha},
          {"dropout", adapter.dropout},
          {"targets", adapter.targets},
          {"quantizeBase", adapter.nf4 ? "NF4" : "None"}};
}

ordered_json BaseJson(const BaseReference& base) {
  return {
      {"hash", HexDigest(base.hash)}, {"tensors", base.tensors}, {"bytes", base.bytes}, {"directory", base.directory}};
}

bool HoldsAdapter(const json& train_state) { return train_state.is_object() && train_state.contains("adapter"); }

Result<std::optional<BaseReference>> BaseOf(const json& train_state) {
  const auto base = train_state.find("base");
  if (base == train_state.end()) return std::optional<BaseReference>();
  try {
    return std::optional<BaseReference>(BaseFrom(*base));
  } catch (const json::exception& bad) {
    return NotOurs(bad);
  }
}

Result<AdapterState> DescribeAdapter(const Reader& reader) {
  const json& state = reader.train_state();
  if (!HoldsAdapter(state)) {
    return Fail(ErrorCode::kFailedPrecondition, "the checkpoint is of a whole model, and not of an adapter");
  }
  AdapterState out;
  try {
    out.model = FromIdentity(state.at("model"));
    out.model.max_positions = state.value("maxPositions", int64_t{0});
    out.adapter = AdapterFrom(state.at("adapter"));
  } catch (const json::exception& bad) {
    return NotOurs(bad);
  }
  const Result<std::optional<BaseReference>> base = BaseOf(state);
  if (!base) return Fail(base.error());
  out.base = *base;
  // GPT-2 and Llama tell themselves apart by their tensors.
  for (const TensorInfo& tensor : reader.tensors()) {
    if (tensor.name.starts_with(kGpt2Blocks)) out.model.family = ModelFamily::kGpt2;
  }
  const ModelDescription& m = out.model;
  const bool sized = m.hidden > 0 && m.heads > 0 && m.kv_heads > 0 && m.ffn > 0 && m.vocab > 0 && m.layers > 0;
  if (!sized || m.layers > static_cast<int64_t>(reader.tensors().size())) {
    return Fail(ErrorCode::kFailedPrecondition, "train_state.json describes a model of impossible sizes");
  }
  if (Status s = CheckTensors(reader, AdapterTensorsOf(out.model, out.adapter)); !s) return Fail(s.error());
  return out;
}

}  // namespace trainyard::checkpoint
