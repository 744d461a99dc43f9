// From what a person writes to the tokens that a model goes on from. Thread-safety: pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "operator/base/error.h"
#include "trainer/tokenizer/tokenizer.h"

namespace trainyard::generate {

struct Prompt {
  std::string text;
  bool chat = false;          // it is what a user says
  std::string chat_template;  // a name of tokenizer/chat.h; empty: the model's own
  std::string system;         // message before it; empty: none, or the template's own
};

// With the tokens that the model was trained to begin with. Errors: of Tokenizer::Encode and of chat templates;
// kInvalidArgument for a prompt without tokens.
Result<std::vector<uint32_t>> PromptTokens(const Prompt& prompt, const tokenizer::Tokenizer& tokenizer);

}  // namespace trainyard::generate
