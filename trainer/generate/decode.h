// Token after token out of a model, each from all before it. Thread-safety: the thread of the model.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include <ATen/ATen.h>

#include "operator/base/error.h"
#include "trainer/model/model.h"

namespace trainyard::generate {

// Why there are no more: as many as were asked for; a token that ends the text; all positions of the model are used.
enum class Stop { kTokens, kEnd, kPositions };

struct DecodeOptions {
  int64_t tokens = 0;         // at most, at least 1
  int64_t positions = 0;      // of the model
  std::vector<int64_t> ends;  // tokens that end a text
};

struct Decoded {
  std::vector<int64_t> tokens;  // without the one that ended the text
  Stop stop = Stop::kTokens;
  double prompt_seconds = 0;  // until the first token was chosen
  double seconds = 0;         // for those after it
};

// The next token, out of its scores: [vocabulary], fp32, on the CPU; `position` counts the tokens that were chosen
// before. Ranks that share a model must choose the same.
using Choose = std::function<Result<int64_t>(const at::Tensor& logits, int64_t position)>;
// Told of each token but the one that ends the text; an error ends decoding.
using Tell = std::function<Status(int64_t token)>;

// Errors: kInvalidArgument for a prompt that leaves no position for a token; of `choose` and `tell`. Throws as Model.
Result<Decoded> Decode(model::Model& model, const at::Device& device, const std::vector<uint32_t>& prompt,
                       const DecodeOptions& options, const Choose& choose, const Tell& tell);

}  // namespace trainyard::generate
