// Small models of transformers with what they computed: the arrays that the scripts of tests/golden/models and of
// tests/golden/adapters wrote.
// Thread-safety: plain values.
#pragma once

#include <cstdint>
#include <cstring>
#include <fstream>
#include <map>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "tests/trainer/engine/harness.h"
#include "trainer/checkpoint/huggingface.h"
#include "trainer/model/family.h"

namespace trainyard::model {

inline constexpr const char* kGoldenModels[] = {"llama_grouped_queries",
                                                "llama_one_key_head_tied",
                                                "llama_tied",
                                                "llama_rope_linear",
                                                "llama_rope_llama3_head_size",
                                                "llama_rope_yarn",
                                                "llama_rope_yarn_mscale",
                                                "llama_attention_bias",
                                                "mistral_window",
                                                "mistral_head_size",
                                                "qwen2_tied",
                                                "qwen2_window_in_upper_layers",
                                                "qwen3",
                                                "qwen3_bias_window_yarn",
                                                "gpt2_tied",
                                                "gpt2_untied"};

struct Golden {
  nlohmann::json config;
  nlohmann::json adapter;  // of those that have one
  engine::testing::Named tensors;

  // The parameters; returns how many.
  size_t GiveTo(engine::testing::PlainHost& host) const {
    at::NoGradGuard no_grad;
    size_t parameters = 0;
    host.ForEach([&](const engine::ParamSpec& spec, at::Tensor& p) {
      const at::Tensor& given = tensors.at("p." + spec.name);
      if (p.sizes() != given.sizes()) throw std::runtime_error(spec.name + " has another shape");
      p.copy_(given).div_(64);
      ++parameters;
    });
    return parameters;
  }
};

// A safetensors file: length of the header, the header, the bytes.
inline Golden ReadGolden(const std::string& name, const std::string& directory = "models") {
  std::ifstream in(std::string(TRAINYARD_SOURCE_DIR) + "/tests/golden/" + directory + "/" + name + ".safetensors",
                   std::ios::binary);
  std::stringstream content;
  content << in.rdbuf();
  const std::string bytes = content.str();
  uint64_t length = 0;
  if (bytes.size() < sizeof length) throw std::runtime_error(name + " cannot be read");
  std::memcpy(&length, bytes.data(), sizeof length);
  const char* data = bytes.data() + sizeof length + length;
  const nlohmann::json header = nlohmann::json::parse(bytes.data() + sizeof length, data);
  const nlohmann::json& said = header["__metadata__"];
  Golden golden;
  golden.config = nlohmann::json::parse(said["config"].get<std::string>());
  if (said.contains("adapter")) golden.adapter = nlohmann::json::parse(said["adapter"].get<std::string>());
  const std::map<std::string, at::ScalarType> types{{"F32", at::kFloat}, {"I8", at::kChar}, {"I64", at::kLong}};
  for (const auto& [key, entry] : header.items()) {
    if (key == "__metadata__") continue;
    const at::Tensor t = at::empty(entry["shape"].get<std::vector<int64_t>>(), types.at(entry["dtype"]));
    std::memcpy(t.mutable_data_ptr(), data + entry["data_offsets"][0].get<int64_t>(), t.nbytes());
    golden.tensors[key] = t;
  }
  return golden;
}

// As an import reads it.
inline Config ConfigFrom(const nlohmann::json& config) {
  const auto description = checkpoint::ParseConfigJson(config);
  if (!description) throw std::runtime_error(description.error().message);
  return ConfigOf(*description);
}

}  // namespace trainyard::model
