// Checkpoints of whole models of all families, as our trainer writes them, for the tests of export and import. Values
// are those of sample.h. Thread-safety: free functions.
#pragma once

#include <cstdint>
#include <string>

#include "tests/trainer/checkpoint/sample.h"
#include "trainer/checkpoint/adapter.h"
#include "trainer/checkpoint/export.h"
#include "trainer/checkpoint/huggingface.h"

namespace trainyard::checkpoint {

// Two layers: hidden 16, 4 heads (2 for keys and values but in GPT-2; of 8 numbers in Qwen3), MLP of 24, 40 tokens, 32
// positions; no window.
ModelDescription SmallLlama();
ModelDescription SmallMistral();
ModelDescription SmallQwen2();
ModelDescription SmallQwen3();
ModelDescription SmallGpt2();

// Saves weights and both moments of AdamW at `step`, from `world` ranks, into a fresh `root`; returns the path. Weights
// are those of sample.h times `scale`.
std::string SaveModel(const std::string& root, const ModelDescription& model, int64_t step, int world, float scale = 1);
inline constexpr float kFitsF16 = 1.0F / 256;  // such a scale

// The same of an adapter of such a model.
std::string SaveAdapter(const std::string& root, const AdapterState& state, int64_t step, int world);
// Writes the model, saved in a fresh directory `scratch`, as a Hugging Face directory.
void WriteHuggingFace(const std::string& directory, const ModelDescription& model, const std::string& scratch,
                      const HuggingFaceOptions& options = {});

}  // namespace trainyard::checkpoint
