// Logits, loss and gradients against Hugging Face's own models, from arrays that tests/golden/models/generate.py wrote.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>

#include "tests/trainer/engine/harness.h"
#include "trainer/checkpoint/huggingface.h"
#include "trainer/model/family.h"

namespace trainyard::model {
namespace {

using engine::testing::Named;
using engine::testing::PlainHost;
using engine::testing::RelativeError;
using nlohmann::json;

struct Golden {
  json config;
  Named tensors;
};

// A safetensors file: length of the header, the header, the bytes.
Golden Read(const std::string& name) {
  std::ifstream in(std::string(TRAINYARD_SOURCE_DIR) + "/tests/golden/models/" + name + ".safetensors",
                   std::ios::binary);
  std::stringstream content;
  content << in.rdbuf();
  const std::string bytes = content.str();
  uint64_t length = 0;
  if (bytes.size() < sizeof length) throw std::runtime_error(name + " cannot be read");
  std::memcpy(&length, bytes.data(), sizeof length);
  const char* data = bytes.data() + sizeof length + length;
  const json header = json::parse(bytes.data() + sizeof length, data);
  Golden golden{json::parse(header["__metadata__"]["config"].get<std::string>()), {}};
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
Config ConfigFrom(const json& config) {
  const auto description = checkpoint::ParseConfigJson(config);
  if (!description) throw std::runtime_error(description.error().message);
  return ConfigOf(*description);
}

class GoldenModel : public testing::TestWithParam<const char*> {};

// Both sides in float: each is off by a few units of the last place from the exact value.
constexpr double kTolerance = 3e-6;

TEST_P(GoldenModel, GivesTransformersLogitsLossAndGradients) {
  at::set_num_threads(1);
  const Golden golden = Read(GetParam());
  const Config config = ConfigFrom(golden.config);
  for (const auto mode :
       {ActivationCheckpointing::kNone, ActivationCheckpointing::kSelective, ActivationCheckpointing::kFull}) {
    PlainHost host(Units(config), at::kFloat, 1);
    size_t parameters = 0;
    host.ForEach([&](const engine::ParamSpec& spec, at::Tensor& p) {
      at::NoGradGuard no_grad;
      const at::Tensor& given = golden.tensors.at("p." + spec.name);
      ASSERT_EQ(p.sizes(), given.sizes()) << spec.name;
      p.copy_(given).div_(64);
      ++parameters;
    });
    const auto model = Make(config, host, mode);
    const at::Tensor& tokens = golden.tensors.at("tokens");
    const double logits =
        RelativeError(model->Logits(tokens.narrow(1, 0, tokens.size(1) - 1)), golden.tensors.at("logits"));
    const at::Tensor loss = model->LossSum(tokens);
    const double loss_error = RelativeError(loss.reshape({1}), golden.tensors.at("loss"));
    loss.backward();
    double worst = 0;
    std::string worst_name;
    host.ForEach([&](const engine::ParamSpec& spec, at::Tensor& p) {
      const double error = RelativeError(p.grad(), golden.tensors.at("g." + spec.name));
      EXPECT_LT(error, kTolerance) << spec.name;
      if (error > worst) worst = error, worst_name = spec.name;
    });
    EXPECT_LT(logits, kTolerance);
    EXPECT_LT(loss_error, kTolerance);
    // Every parameter of theirs is one of ours: parameters, gradients, tokens, logits, loss.
    EXPECT_EQ(golden.tensors.size(), 2 * parameters + 3);
    std::printf("%s: normwise differences: logits %.1e, loss %.1e, gradients at most %.1e (%s)\n", GetParam(), logits,
                loss_error, worst, worst_name.c_str());
  }
}

INSTANTIATE_TEST_SUITE_P(Models, GoldenModel,
                         testing::Values("llama_grouped_queries", "llama_one_key_head_tied", "llama_tied",
                                         "llama_rope_linear", "llama_rope_llama3_head_size", "llama_rope_yarn",
                                         "llama_rope_yarn_mscale", "llama_attention_bias", "mistral_window",
                                         "mistral_head_size", "qwen2_tied", "qwen2_window_in_upper_layers", "qwen3",
                                         "qwen3_bias_window_yarn", "gpt2_tied", "gpt2_untied"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace trainyard::model
