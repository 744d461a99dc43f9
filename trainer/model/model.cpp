#include "trainer/model/model.h"

#include <string>
#include <utility>
#include <vector>

#include "trainer/engine/init.h"
#include "trainer/model/ops.h"
#include "trainer/model/recompute.h"
#include "trainer/model/row_product.h"

namespace trainyard::model {

Model::Model(const Sizes& sizes, std::vector<engine::UnitSpec> units, const std::optional<Adapter>& adapter,
             engine::ParameterHost& host, ActivationCheckpointing checkpointing)
    : host_(host), sizes_(sizes), adapter_(adapter), units_(std::move(units)), checkpointing_(checkpointing) {
  if (adapter_) AddAdapters(*adapter_, sizes_.input_first, units_);
  adapter_places_ = AdapterPlaces(units_.at(1));
}

Linear Model::BlockLinear(int64_t layer, int index, int bias, const Pass& pass) const {
  Linear linear;
  linear.weight = BlockParam(layer, index);
  if (bias >= 0) linear.bias = BlockParam(layer, bias);
  linear.form.input_first = sizes_.input_first;
  if (!adapter_) return linear;
  const std::vector<engine::ParamSpec>& specs = units_[static_cast<size_t>(layer) + 1].params;
  if (specs[static_cast<size_t>(index)].nf4) linear.form.packed_row = specs[static_cast<size_t>(index)].row_size();
  const int place = adapter_places_[static_cast<size_t>(index)];
  if (place < 0) return linear;
  linear.down = BlockParam(layer, place), linear.up = BlockParam(layer, place + 1);
  linear.form.scale = adapter_->alpha / static_cast<double>(adapter_->rank);
  if (pass.place && adapter_->dropout > 0) {
    linear.form.scale /= 1 - adapter_->dropout;  // on average as much as without
    linear.form.dropout = {adapter_->dropout, engine::StreamKey(adapter_->seed, specs[static_cast<size_t>(place)].name),
                           *pass.place, pass.length};
  }
  return linear;
}

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
  for (int i = 0; i < static_cast<int>(units_[1].params.size()); ++i) parameters.push_back(BlockParam(layer, i));
  return Recomputed(
      host_,
      [this, layer, told = pass](const at::Tensor& input, Run run) {
        Pass again = told;
        if (run == Run::kAgain) again.keep = Keep::kAllButValue;
        return Block(layer, input, again);
      },
      x, parameters);
}

Pass Model::PassOf(const at::Tensor& tokens, std::optional<BatchPlace> place) const {
  Pass pass;
  pass.place = place;
  pass.length = tokens.size(1);
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

at::Tensor Model::LossSum(const at::Tensor& tokens, const at::Tensor& weights, std::optional<BatchPlace> place) {
  const int64_t b = tokens.size(0), s = tokens.size(-1) - 1;
  CheckTokens(tokens, s);
  const at::Tensor inputs = tokens.narrow(1, 0, s);
  const at::Tensor x = FinalNorm(Hidden(inputs, PassOf(inputs, place)));
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
  const at::Tensor x = FinalNorm(Hidden(tokens, PassOf(tokens, std::nullopt)));
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
