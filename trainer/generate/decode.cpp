#include "trainer/generate/decode.h"

#include <algorithm>
#include <chrono>
#include <string>

namespace trainyard::generate {
namespace {

double Since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

}  // namespace

Result<Decoded> Decode(model::Model& model, const at::Device& device, const std::vector<uint32_t>& prompt,
                       const DecodeOptions& options, const Choose& choose, const Tell& tell) {
  const at::NoGradGuard no_grad;
  const auto length = static_cast<int64_t>(prompt.size());
  if (length > options.positions) {
    return Fail(ErrorCode::kInvalidArgument, "the prompt has " + std::to_string(length) + " tokens, the model " +
                                                 std::to_string(options.positions) + " positions");
  }
  // What the last token gives is looked at, but the last token itself is never put in.
  const int64_t most = std::min(options.tokens, options.positions - length + 1);
  Decoded out;
  out.stop = most < options.tokens ? Stop::kPositions : Stop::kTokens;
  model::KeyValueCache cache(length + most - 1);
  at::Tensor tokens = at::empty({1, length}, at::kLong);
  std::copy(prompt.begin(), prompt.end(), tokens.mutable_data_ptr<int64_t>());
  auto begin = std::chrono::steady_clock::now();
  for (int64_t i = 0; i < most; ++i) {
    const at::Tensor logits = model.NextLogits(tokens.to(device), cache)[0].to(at::kCPU, at::kFloat).contiguous();
    const Result<int64_t> chosen = choose(logits, i);
    if (!chosen) return Fail(chosen.error());
    if (i == 0) out.prompt_seconds = Since(begin), begin = std::chrono::steady_clock::now();
    if (std::find(options.ends.begin(), options.ends.end(), *chosen) != options.ends.end()) {
      out.stop = Stop::kEnd;
      break;
    }
    out.tokens.push_back(*chosen);
    if (const Status told = tell(*chosen); !told) return Fail(told.error());
    tokens = at::full({1, 1}, *chosen, at::kLong);
  }
  out.seconds = Since(begin);
  return out;
}

}  // namespace trainyard::generate
