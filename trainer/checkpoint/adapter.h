// Low-rank adapters (Hu et al., "LoRA", 2021) as checkpoints have them: matrices A [rank, in] and B [out, rank] beside
// a frozen matrix W, so that y = W x + alpha / rank * B A x; and the frozen model that they belong to, by its hash.
// Thread-safety: plain values and pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "operator/base/error.h"
#include "trainer/checkpoint/format.h"
#include "trainer/checkpoint/model_description.h"
#include "trainer/checkpoint/reader.h"

namespace trainyard::checkpoint {

struct AdapterDescription {
  int64_t rank = 0;
  double alpha = 0;
  double dropout = 0;                // of what goes into A, in training
  std::vector<std::string> targets;  // last words of the names of matrices, sorted; never empty
  bool nf4 = false;                  // trained on a base in 4 bits (QLoRA)

  double Scale() const { return alpha / static_cast<double>(rank); }
  bool operator==(const AdapterDescription&) const = default;
};

// What the adapters were trained on: the parameters of a model as the files of its directory have them.
struct BaseReference {
  uint64_t hash = 0;      // base_hash.h
  int64_t tensors = 0;    // a tied head is not counted
  int64_t bytes = 0;      // of these in the files
  std::string directory;  // where it was; for people, no part of what it is
};

// A matrix of the blocks.
struct BlockMatrix {
  std::string name;         // "model.layers.0.self_attn.q_proj", without ".weight"
  int64_t in = 0, out = 0;  // features
  bool transposed = false;  // stored [in, out] (GPT-2), else [out, in]

  std::string word() const { return name.substr(name.rfind('.') + 1); }
  std::string a() const { return name + ".lora_A.weight"; }
  std::string b() const { return name + ".lora_B.weight"; }
};
// All of them, in the order of TensorsOf.
std::vector<BlockMatrix> BlockMatrices(const ModelDescription& model);

// The targets, sorted and each once; without any all that the model has. Error: kInvalidArgument for one that it has
// not, with those that it has.
Result<std::vector<std::string>> ResolveTargets(const ModelDescription& model, const std::vector<std::string>& targets);
// Those of the matrices that have an adapter.
std::vector<BlockMatrix> AdaptedMatrices(const ModelDescription& model, const AdapterDescription& adapter);
// Their A and B, as F32 of the group "model".
std::vector<TensorInfo> AdapterTensorsOf(const ModelDescription& model, const AdapterDescription& adapter);

// Members "adapter" and "base" of train_state.json.
nlohmann::ordered_json AdapterJson(const AdapterDescription& adapter);
nlohmann::ordered_json BaseJson(const BaseReference& base);

// What a checkpoint of adapters says in its train state.
struct AdapterState {
  ModelDescription model;  // of the base
  AdapterDescription adapter;
  std::optional<BaseReference> base;  // nothing: imported without it
};
// True for a checkpoint of adapters, whatever else it says.
bool HoldsAdapter(const nlohmann::json& train_state);
// The base of one; nothing where it was imported without. Error: kFailedPrecondition for a member "base" that is none
// of ours.
Result<std::optional<BaseReference>> BaseOf(const nlohmann::json& train_state);
// Of a checkpoint that holds exactly the tensors of AdapterTensorsOf. Errors: kFailedPrecondition for one of a whole
// model, a train state that does not say it, or tensors that are missing, surplus or of other shapes.
Result<AdapterState> DescribeAdapter(const Reader& reader);

}  // namespace trainyard::checkpoint
