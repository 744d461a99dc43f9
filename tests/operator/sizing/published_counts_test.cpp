// Parameter counts of published models from the fields of their config.json, against the totals that were published
// with the weights, to the last parameter. Source of each config: the model's page on Hugging Face. Source of each
// total, as noted: "safetensors", the number that the model's page shows, which Hugging Face adds up from the headers
// of the weights, or total_size of model.safetensors.index.json over two bytes; "KerasHub", the preset's metadata;
// "card", the text of the model's page, rounded.
#include <gtest/gtest.h>

#include <map>

#include "operator/api/names.h"
#include "operator/sizing/shape.h"
#include "trainer/checkpoint/huggingface.h"

namespace trainyard::sizing {
namespace {

using nlohmann::json;

struct Published {
  const char* model;
  const char* config;
  int64_t total;
  int64_t active;        // of mixtures of experts; 0: dense
  double card_billions;  // what the model's page says of them
};

const Published kPublished[] = {
    // safetensors
    {"meta-llama/Llama-2-7b-hf", R"({"architectures": ["LlamaForCausalLM"], "hidden_size": 4096,
      "intermediate_size": 11008, "num_attention_heads": 32, "num_hidden_layers": 32, "num_key_value_heads": 32,
      "vocab_size": 32000, "tie_word_embeddings": false})",
     6'738'415'616, 0, 0},
    // safetensors
    {"meta-llama/Llama-2-70b-hf", R"({"architectures": ["LlamaForCausalLM"], "hidden_size": 8192,
      "intermediate_size": 28672, "num_attention_heads": 64, "num_hidden_layers": 80, "num_key_value_heads": 8,
      "vocab_size": 32000, "tie_word_embeddings": false})",
     68'976'648'192, 0, 0},
    // safetensors
    {"meta-llama/Llama-3.1-8B", R"({"architectures": ["LlamaForCausalLM"], "hidden_size": 4096,
      "intermediate_size": 14336, "num_attention_heads": 32, "num_hidden_layers": 32, "num_key_value_heads": 8,
      "vocab_size": 128256, "tie_word_embeddings": false, "attention_bias": false, "mlp_bias": false})",
     8'030'261'248, 0, 0},
    // safetensors
    {"meta-llama/Llama-3.1-405B", R"({"architectures": ["LlamaForCausalLM"], "hidden_size": 16384,
      "intermediate_size": 53248, "num_attention_heads": 128, "num_hidden_layers": 126, "num_key_value_heads": 8,
      "vocab_size": 128256, "tie_word_embeddings": false})",
     405'853'388'800, 0, 0},
    // safetensors
    {"meta-llama/Llama-3.2-1B", R"({"architectures": ["LlamaForCausalLM"], "head_dim": 64, "hidden_size": 2048,
      "intermediate_size": 8192, "num_attention_heads": 32, "num_hidden_layers": 16, "num_key_value_heads": 8,
      "vocab_size": 128256, "tie_word_embeddings": true})",
     1'235'814'400, 0, 0},
    // safetensors
    {"mistralai/Mistral-7B-v0.1", R"({"architectures": ["MistralForCausalLM"], "hidden_size": 4096,
      "intermediate_size": 14336, "num_attention_heads": 32, "num_hidden_layers": 32, "num_key_value_heads": 8,
      "vocab_size": 32000, "tie_word_embeddings": false, "sliding_window": 4096})",
     7'241'732'096, 0, 0},
    // safetensors; its 32 heads of 128 are narrower than its width of 5120
    {"mistralai/Mistral-Nemo-Base-2407", R"({"architectures": ["MistralForCausalLM"], "head_dim": 128,
      "hidden_size": 5120, "intermediate_size": 14336, "num_attention_heads": 32, "num_hidden_layers": 40,
      "num_key_value_heads": 8, "vocab_size": 131072, "tie_word_embeddings": false})",
     12'247'782'400, 0, 0},
    // safetensors
    {"Qwen/Qwen2.5-0.5B", R"({"architectures": ["Qwen2ForCausalLM"], "hidden_size": 896, "intermediate_size": 4864,
      "num_attention_heads": 14, "num_hidden_layers": 24, "num_key_value_heads": 2, "vocab_size": 151936,
      "tie_word_embeddings": true})",
     494'032'768, 0, 0},
    // safetensors
    {"Qwen/Qwen2-7B", R"({"architectures": ["Qwen2ForCausalLM"], "hidden_size": 3584, "intermediate_size": 18944,
      "num_attention_heads": 28, "num_hidden_layers": 28, "num_key_value_heads": 4, "vocab_size": 152064,
      "tie_word_embeddings": false})",
     7'615'616'512, 0, 0},
    // safetensors
    {"Qwen/Qwen2.5-72B", R"({"architectures": ["Qwen2ForCausalLM"], "hidden_size": 8192, "intermediate_size": 29568,
      "num_attention_heads": 64, "num_hidden_layers": 80, "num_key_value_heads": 8, "vocab_size": 152064,
      "tie_word_embeddings": false})",
     72'706'203'648, 0, 0},
    // num_parameters() of the loaded model; its weights hold the tied head a second time, which makes 751,632,384
    {"Qwen/Qwen3-0.6B", R"({"architectures": ["Qwen3ForCausalLM"], "attention_bias": false, "head_dim": 128,
      "hidden_size": 1024, "intermediate_size": 3072, "num_attention_heads": 16, "num_hidden_layers": 28,
      "num_key_value_heads": 8, "vocab_size": 151936, "tie_word_embeddings": true})",
     596'049'920, 0, 0},
    // safetensors
    {"Qwen/Qwen3-8B", R"({"architectures": ["Qwen3ForCausalLM"], "attention_bias": false, "head_dim": 128,
      "hidden_size": 4096, "intermediate_size": 12288, "num_attention_heads": 32, "num_hidden_layers": 36,
      "num_key_value_heads": 8, "vocab_size": 151936, "tie_word_embeddings": false})",
     8'190'735'360, 0, 0},
    // KerasHub and safetensors
    {"google/gemma-2b", R"({"architectures": ["GemmaForCausalLM"], "attention_bias": false, "head_dim": 256,
      "hidden_size": 2048, "intermediate_size": 16384, "num_attention_heads": 8, "num_hidden_layers": 18,
      "num_key_value_heads": 1, "vocab_size": 256000})",
     2'506'172'416, 0, 0},
    // safetensors
    {"google/gemma-7b", R"({"architectures": ["GemmaForCausalLM"], "head_dim": 256, "hidden_size": 3072,
      "intermediate_size": 24576, "num_attention_heads": 16, "num_hidden_layers": 28, "num_key_value_heads": 16,
      "vocab_size": 256000})",
     8'537'680'896, 0, 0},
    // safetensors
    {"google/gemma-2-2b", R"({"architectures": ["Gemma2ForCausalLM"], "head_dim": 256, "hidden_size": 2304,
      "intermediate_size": 9216, "num_attention_heads": 8, "num_hidden_layers": 26, "num_key_value_heads": 4,
      "vocab_size": 256000, "sliding_window": 4096})",
     2'614'341'888, 0, 0},
    // safetensors
    {"google/gemma-2-9b", R"({"architectures": ["Gemma2ForCausalLM"], "head_dim": 256, "hidden_size": 3584,
      "intermediate_size": 14336, "num_attention_heads": 16, "num_hidden_layers": 42, "num_key_value_heads": 8,
      "vocab_size": 256000})",
     9'241'705'984, 0, 0},
    // KerasHub and safetensors
    {"google/gemma-3-1b-pt", R"({"architectures": ["Gemma3ForCausalLM"], "model_type": "gemma3_text", "head_dim": 256,
      "hidden_size": 1152, "intermediate_size": 6912, "num_attention_heads": 4, "num_hidden_layers": 26,
      "num_key_value_heads": 1, "vocab_size": 262144})",
     999'885'952, 0, 0},
    // KerasHub and safetensors
    {"microsoft/Phi-3-mini-4k-instruct", R"({"architectures": ["Phi3ForCausalLM"], "hidden_size": 3072,
      "intermediate_size": 8192, "num_attention_heads": 32, "num_hidden_layers": 32, "num_key_value_heads": 32,
      "vocab_size": 32064, "tie_word_embeddings": false})",
     3'821'079'552, 0, 0},
    // safetensors
    {"microsoft/phi-4", R"({"architectures": ["Phi3ForCausalLM"], "hidden_size": 5120, "intermediate_size": 17920,
      "num_attention_heads": 40, "num_hidden_layers": 40, "num_key_value_heads": 10, "vocab_size": 100352,
      "tie_word_embeddings": false})",
     14'659'507'200, 0, 0},
    // KerasHub
    {"openai-community/gpt2", R"({"architectures": ["GPT2LMHeadModel"], "n_embd": 768, "n_head": 12, "n_layer": 12,
      "n_positions": 1024, "vocab_size": 50257})",
     124'439'808, 0, 0},
    // KerasHub
    {"openai-community/gpt2-xl", R"({"architectures": ["GPT2LMHeadModel"], "n_embd": 1600, "n_head": 25, "n_layer": 48,
      "n_positions": 1024, "vocab_size": 50257})",
     1'557'611'200, 0, 0},
    // the table of sizes on the model's page
    {"EleutherAI/pythia-1b", R"({"architectures": ["GPTNeoXForCausalLM"], "hidden_size": 2048,
      "intermediate_size": 8192, "num_attention_heads": 8, "num_hidden_layers": 16, "vocab_size": 50304,
      "tie_word_embeddings": false, "use_parallel_residual": true})",
     1'011'781'632, 0, 0},
    // the table of sizes on the model's page
    {"EleutherAI/pythia-6.9b", R"({"architectures": ["GPTNeoXForCausalLM"], "hidden_size": 4096,
      "intermediate_size": 16384, "num_attention_heads": 32, "num_hidden_layers": 32, "vocab_size": 50432,
      "tie_word_embeddings": false})",
     6'857'302'016, 0, 0},
    // the table of sizes on the model's page
    {"EleutherAI/gpt-neox-20b", R"({"architectures": ["GPTNeoXForCausalLM"], "hidden_size": 6144,
      "intermediate_size": 24576, "num_attention_heads": 64, "num_hidden_layers": 44, "vocab_size": 50432,
      "tie_word_embeddings": false})",
     20'554'567'680, 0, 0},
    // KerasHub and safetensors; active: the announcement of Mistral
    {"mistralai/Mixtral-8x7B-v0.1", R"({"architectures": ["MixtralForCausalLM"], "hidden_size": 4096,
      "intermediate_size": 14336, "num_attention_heads": 32, "num_hidden_layers": 32, "num_key_value_heads": 8,
      "num_experts_per_tok": 2, "num_local_experts": 8, "vocab_size": 32000, "tie_word_embeddings": false})",
     46'702'792'704, 12'879'925'248, 12.9},
    // safetensors; active: the announcement of Mistral, "39B"
    {"mistral-community/Mixtral-8x22B-v0.1", R"({"architectures": ["MixtralForCausalLM"], "hidden_size": 6144,
      "intermediate_size": 16384, "num_attention_heads": 48, "num_hidden_layers": 56, "num_key_value_heads": 8,
      "num_experts_per_tok": 2, "num_local_experts": 8, "vocab_size": 32000, "tie_word_embeddings": false})",
     140'620'634'112, 39'152'031'744, 39},
    // KerasHub; active: the card, "2.7B activated"
    {"Qwen/Qwen1.5-MoE-A2.7B", R"({"architectures": ["Qwen2MoeForCausalLM"], "decoder_sparse_step": 1,
      "hidden_size": 2048, "intermediate_size": 5632, "moe_intermediate_size": 1408, "num_attention_heads": 16,
      "num_experts": 60, "num_experts_per_tok": 4, "num_hidden_layers": 24, "num_key_value_heads": 16,
      "shared_expert_intermediate_size": 5632, "vocab_size": 151936, "tie_word_embeddings": false})",
     14'315'784'192, 2'689'173'504, 2.7},
    // safetensors; active: the card, "3.3B activated"
    {"Qwen/Qwen3-30B-A3B", R"({"architectures": ["Qwen3MoeForCausalLM"], "decoder_sparse_step": 1, "head_dim": 128,
      "hidden_size": 2048, "intermediate_size": 6144, "mlp_only_layers": [], "moe_intermediate_size": 768,
      "num_attention_heads": 32, "num_experts": 128, "num_experts_per_tok": 8, "num_hidden_layers": 48,
      "num_key_value_heads": 4, "vocab_size": 151936, "tie_word_embeddings": false})",
     30'532'122'624, 3'353'032'704, 3.3},
    // safetensors; active: the card, "22B activated"
    {"Qwen/Qwen3-235B-A22B", R"({"architectures": ["Qwen3MoeForCausalLM"], "decoder_sparse_step": 1, "head_dim": 128,
      "hidden_size": 4096, "intermediate_size": 12288, "mlp_only_layers": [], "moe_intermediate_size": 1536,
      "num_attention_heads": 64, "num_experts": 128, "num_experts_per_tok": 8, "num_hidden_layers": 94,
      "num_key_value_heads": 4, "vocab_size": 151936, "tie_word_embeddings": false})",
     235'093'634'560, 22'190'763'520, 22},
};

TEST(PublishedCounts, AreMetToTheLastParameter) {
  for (const Published& p : kPublished) {
    auto shape = ShapeFromConfigJson(json::parse(p.config));
    ASSERT_TRUE(shape) << p.model << ": " << shape.error().message;
    EXPECT_EQ(shape->parameters, p.total) << p.model;
    EXPECT_TRUE(shape->assumption.empty()) << p.model << ": " << shape->assumption;
    int64_t sum = 0;
    for (const TensorCount& t : Tensors(*shape)) sum += t.Elements();
    EXPECT_EQ(sum, p.total) << p.model << ": tensor by tensor";
    const int64_t blocks = p.total - RootParameters(*shape);
    EXPECT_EQ(blocks, shape->layers * BlockParameters(*shape)) << p.model << ": all of its blocks are alike";
  }
}

// The trainer makes the tensors that the plan counts, by name and shape.
TEST(PublishedCounts, AreThoseOfTheTensorsThatTheTrainerMakes) {
  size_t trained = 0;
  for (const Published& p : kPublished) {
    const json config = json::parse(p.config);
    const auto shape = ShapeFromConfigJson(config);
    ASSERT_TRUE(shape) << p.model;
    if (!shape->family) {
      EXPECT_FALSE(checkpoint::ParseConfigJson(config)) << p.model;
      continue;
    }
    const auto description = checkpoint::ParseConfigJson(config);
    ASSERT_TRUE(description) << p.model << ": " << description.error().message;
    EXPECT_EQ(checkpoint::FamilyName(description->family), api::ToString(*shape->family)) << p.model;
    std::map<std::string, std::vector<int64_t>> made, planned;
    int64_t sum = 0;
    for (const checkpoint::TensorInfo& tensor : checkpoint::TensorsOf(*description)) {
      made[tensor.name] = tensor.global_shape;
      sum += *checkpoint::ElementCount(tensor.global_shape);
    }
    EXPECT_EQ(sum, p.total) << p.model;
    for (const TensorCount& tensor : Tensors(*shape)) {
      for (int64_t layer = 0; layer < (tensor.in_block ? shape->layers : 1); ++layer) {
        std::string name = tensor.name;
        if (tensor.in_block) name.replace(name.find(".N."), 3, "." + std::to_string(layer) + ".");
        planned[name] = tensor.shape;
      }
    }
    EXPECT_EQ(made, planned) << p.model;
    ++trained;
  }
  EXPECT_EQ(trained, 14u) << "Llama, Mistral, Qwen2, Qwen3, GPT-2";
}

TEST(PublishedCounts, ActiveParametersAreWhatTheCardsRound) {
  for (const Published& p : kPublished) {
    auto shape = ShapeFromConfigJson(json::parse(p.config));
    ASSERT_TRUE(shape) << p.model << ": " << shape.error().message;
    const int64_t active = ActiveParameters(*shape);
    if (p.active == 0) {
      EXPECT_EQ(active, p.total) << p.model << ": a dense model";
      continue;
    }
    EXPECT_EQ(active, p.active) << p.model;
    // Cards round, or cut off, after two or three digits.
    EXPECT_NEAR(static_cast<double>(active) / 1e9, p.card_billions, 0.02 * p.card_billions) << p.model;
  }
}

}  // namespace
}  // namespace trainyard::sizing
