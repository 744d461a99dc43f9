#include "trainer/loop/text_sample.h"

#include <algorithm>
#include <string>

#include "trainer/generate/prompt.h"
#include "trainer/generate/sampler.h"
#include "trainer/generate/source.h"
#include "trainer/generate/text_stream.h"
#include "trainer/loop/exchange.h"
#include "trainer/loop/session.h"
#include "trainer/observe/log.h"
#include "trainer/tokenizer/tokenizer_file.h"

namespace trainyard::loop {
namespace {

tl::unexpected<Failure> Wrong(const std::string& what) {
  return Fails(contract::kExitConfiguration, "training.evaluation.sample: " + what);
}

// Path for Tokenizer::Open; empty: nothing says how text becomes tokens.
std::string TokenizerOf(const Session& s) {
  if (s.job.data.format == config::DataFormat::kText) return tokenizer::kBytes;
  return s.job.model.pretrained ? s.job.model.pretrained->Resolve(s.env.volume_root) : "";
}

Result<std::string> TextOf(const TextSample& sample, const std::vector<int64_t>& tokens) {
  generate::TextStream stream(*sample.tokenizer, sample.prompt);
  std::string text;
  for (const int64_t token : tokens) {
    const Result<std::string> piece = stream.Push(static_cast<uint32_t>(token));
    if (!piece) return piece;
    text += *piece;
  }
  const Result<std::string> rest = stream.End();
  if (!rest) return rest;
  return text + *rest;
}

}  // namespace

int64_t TextSample::positions() const {
  return std::min(options.positions, static_cast<int64_t>(prompt.size()) + options.tokens);
}

Outcome<std::unique_ptr<TextSample>> OpenTextSample(const Session& s) {
  if (!s.job.training.sample) return std::unique_ptr<TextSample>();
  const config::Sample& wanted = *s.job.training.sample;
  const std::string path = TokenizerOf(s);
  if (path.empty()) {
    return Wrong(
        "token files do not say what their tokens spell; a sample needs model.pretrained, whose tokenizer "
        "does, or data.format Text");
  }
  auto sample = std::make_unique<TextSample>();
  auto opened = tokenizer::Tokenizer::Open(path);
  if (!opened) return Wrong(opened.error().message);
  sample->tokenizer = std::move(*opened);
  const int64_t vocab = s.description.vocab;
  if (sample->tokenizer->vocab() > vocab) {
    return Wrong("the tokenizer " + sample->tokenizer->path() + " has " + std::to_string(sample->tokenizer->vocab()) +
                 " tokens, the model " + std::to_string(vocab));
  }
  auto prompt = generate::PromptTokens({wanted.prompt, false, "", ""}, *sample->tokenizer);
  if (!prompt) return Wrong(prompt.error().message);
  sample->prompt = std::move(*prompt);
  sample->options = {wanted.tokens, s.description.max_positions, {}};
  if (static_cast<int64_t>(sample->prompt.size()) > sample->options.positions) {
    return Wrong("the prompt has " + std::to_string(sample->prompt.size()) + " tokens, the model " +
                 std::to_string(sample->options.positions) + " positions");
  }
  auto ends = generate::EndTokens(path, vocab, *sample->tokenizer);
  if (!ends) return Wrong(ends.error().message);
  sample->options.ends = std::move(*ends);
  if (s.job.data.document_separator) sample->options.ends.push_back(*s.job.data.document_separator);
  return sample;
}

void MakeTextSample(Session& s) {
  if (!s.text_sample) return;
  const TextSample& sample = *s.text_sample;
  const config::Sample& wanted = *s.job.training.sample;
  generate::Sampler sampler({.temperature = wanted.temperature, .seed = s.job.training.seed});
  Result<int64_t> drawn = int64_t{0};  // by rank 0
  const auto choose = [&](const at::Tensor& logits, int64_t position) -> Result<int64_t> {
    if (s.env.rank == 0) {
      drawn = sampler.Draw({logits.const_data_ptr<float>(), static_cast<size_t>(logits.numel())}, position);
    }
    const std::string told = BroadcastText(*s.world, std::to_string(drawn.value_or(-1)), "token of a sample");
    const int64_t token = std::stoll(told);
    if (token < 0) return Fail(ErrorCode::kDataLoss, drawn ? "rank 0 has no scores" : drawn.error().message);
    return token;
  };
  const auto made = generate::Decode(*s.model, s.device->torch(), sample.prompt, sample.options, choose,
                                     [](int64_t) { return Status(); });
  if (s.env.rank != 0) return;
  const Result<std::string> text = made ? TextOf(sample, made->tokens) : Result<std::string>(Fail(made.error()));
  if (text) {
    s.report->Sampled(s.progress.step, wanted.prompt, *text);
  } else {
    observe::Warn("no sample after step " + std::to_string(s.progress.step) + ": " + text.error().message);
  }
}

}  // namespace trainyard::loop
