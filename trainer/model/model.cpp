#include "trainer/model/model.h"

#include <string>
#include <vector>

#include "trainer/model/ops.h"
#include "trainer/model/recompute.h"
#include "trainer/model/row_product.h"

namespace trainyard::model {

void Model::CheckTokens(const at::Tensor& tokens, int64_t positions) const {
  if (tokens.dim() != 2 || tokens.scalar_type() != at::kLong || tokens.size(0) < 1 || positions < 1) {
    throw std::invalid_argument("model: tokens must be rows of 64-bit integers, at least one row and one position");
  }
  if (positions > sizes_.max_positions) {
    throw std::invalid_argument("model: " + std::to_string(positions) + " positions are more than the model's " +
                                std::to_string(sizes_.max_positions));
  }
  if (!tokens.is_cpu()) return;
  const auto [least, most] = at::aminmax(tokens);
  const int64_t lowest = least.item<int64_t>(), highest = most.item<int64_t>();
  if (lowest >= 0 && highest < sizes_.vocab) return;
  throw TokenError("model: token " + std::to_string(lowest < 0 ? lowest : highest) + " is not in the vocabulary of " +
                   std::to_string(sizes_.vocab) + "; data and model belong to different tokenizers");
}

at::Tensor Model::CheckpointedBlock(int64_t layer, const at::Tensor& x, const Pass& pass) {
  if (checkpointing_ != ActivationCheckpointing::kFull) return Block(layer, x, pass);
  std::vector<at::Tensor> parameters;
  for (int i = 0; i < sizes_.block_parameters; ++i) parameters.push_back(BlockParam(layer, i));
  return Recomputed(
      host_,
      [this, layer, told = pass](const at::Tensor& input, Run run) {
        Pass again = told;
        if (run == Run::kAgain) again.keep = Keep::kAllButValue;
        return Block(layer, input, again);
      },
      x, parameters);
}

Pass Model::PassOf(const at::Tensor& tokens) const {
  Pass pass;
  if (checkpointing_ == ActivationCheckpointing::kSelective) pass.keep = Keep::kProducts;
  pass.documents = std::make_shared<const Documents>(separator_ ? FindDocuments(tokens, *separator_) : Documents{});
  return pass;
}

at::Tensor Model::Hidden(const at::Tensor& tokens, const Pass& pass) {
  host_.PreForward(0);
  at::Tensor x = Embed(tokens, pass);
  for (int64_t l = 0; l < sizes_.layers; ++l) {
    const int unit = static_cast<int>(l) + 1;
    host_.PreForward(unit);
    x = host_.PostForward(unit, CheckpointedBlock(l, x, pass));
  }
  return x;
}

at::Tensor Model::LossSum(const at::Tensor& tokens, const at::Tensor& weights) {
  const int64_t b = tokens.size(0), s = tokens.size(-1) - 1;
  CheckTokens(tokens, s);
  const at::Tensor inputs = tokens.narrow(1, 0, s);
  const at::Tensor x = FinalNorm(Hidden(inputs, PassOf(inputs)));
  const at::Tensor targets = tokens.narrow(1, 1, s).reshape({b * s});
  at::Tensor per_target = weights;
  if (weights.defined()) {
    if (weights.size(0) != b || weights.dim() > 2 || (weights.dim() == 2 && weights.size(1) != s)) {
      throw std::invalid_argument("model: weights must be one per row, or one per target");
    }
    per_target = (weights.dim() == 1 ? weights.unsqueeze(1) : weights).expand({b, s}).reshape({b * s});
  }
  return host_.PostForward(0, HeadLossSum(x, Head(), targets, per_target));
}

at::Tensor Model::Logits(const at::Tensor& tokens) {
  CheckTokens(tokens, tokens.size(-1));
  const at::Tensor x = FinalNorm(Hidden(tokens, PassOf(tokens)));
  return host_.PostForward(0, at::linear(x, Head())).view({tokens.size(0), tokens.size(1), sizes_.vocab});
}

at::Tensor Model::NextLogits(const at::Tensor& tokens, KeyValueCache& cache) {
  const at::NoGradGuard no_grad;
  const int64_t s = tokens.size(-1);
  CheckTokens(tokens, s < 1 ? s : cache.length() + s);
  Pass pass;
  pass.documents = std::make_shared<const Documents>();
  pass.cache = &cache;
  const at::Tensor x = Hidden(tokens, pass);
  cache.Advance(s);
  const at::Tensor last = FinalNorm(x.narrow(1, s - 1, 1).contiguous());
  return host_.PostForward(0, LinearProduct(last, Head()));
}

}  // namespace trainyard::model
