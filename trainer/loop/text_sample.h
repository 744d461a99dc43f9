// The text that a job makes of a prompt at each evaluation, so that people see what the model has learned.
// Thread-safety: as Session.
#pragma once

#include <memory>

#include "trainer/generate/decode.h"
#include "trainer/loop/failure.h"
#include "trainer/tokenizer/tokenizer.h"

namespace trainyard::loop {

struct Session;

struct TextSample {
  std::unique_ptr<tokenizer::Tokenizer> tokenizer;
  std::vector<uint32_t> prompt;
  generate::DecodeOptions options;

  // That it comes to.
  int64_t positions() const;
};

// With the tokenizer of model.pretrained, or bytes where the data are text. Null where the job wants none. Failure:
// kExitConfiguration: there is neither, or the prompt is more than the model's positions.
Outcome<std::unique_ptr<TextSample>> OpenTextSample(const Session& s);

// Makes the text and reports it. Every rank takes part, since each token takes the parameters of all; rank 0 chooses.
// Draws are the same at each evaluation, so that texts differ by the model alone. Scores that are not finite make no
// text and a warning. Collective. Throws CommError.
void MakeTextSample(Session& s);

}  // namespace trainyard::loop
