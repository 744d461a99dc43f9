// GPT-2 (Radford et al., "Language models are unsupervised multitask learners", 2019) in plain ATen: learned positions,
// LayerNorm before attention and MLP, GELU in its tanh form, biases everywhere. Parameter names and orientation are
// Hugging Face's, so matrices of the blocks are [in, out] (its Conv1D). Thread-safety: as Model.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include <ATen/ATen.h>

#include "trainer/engine/param_spec.h"
#include "trainer/engine/parameter_host.h"
#include "trainer/model/model.h"

namespace trainyard::model {

struct Gpt2Config {
  int64_t layers = 0, hidden = 0, heads = 0, ffn = 0, vocab = 0, max_positions = 0;
  bool tied = true;
  double norm_eps = 1e-5;
};

// Error: std::invalid_argument for impossible sizes.
std::vector<engine::UnitSpec> Gpt2Units(const Gpt2Config& config);

class Gpt2 final : public Model {
 public:
  // `host` was built from Gpt2Units(config), with the adapters where there are some, and must outlive the model.
  Gpt2(const Gpt2Config& config, engine::ParameterHost& host,
       ActivationCheckpointing checkpointing = ActivationCheckpointing::kNone,
       const std::optional<Adapter>& adapter = std::nullopt);

 private:
  at::Tensor Embed(const at::Tensor& tokens, const Pass& pass) override;
  at::Tensor Block(int64_t layer, const at::Tensor& x, const Pass& pass) override;
  at::Tensor FinalNorm(const at::Tensor& x) override;
  const at::Tensor& Head() const override;

  const Gpt2Config config_;
};

}  // namespace trainyard::model
