#include "trainer/generate/prompt.h"

#include "trainer/tokenizer/chat.h"

namespace trainyard::generate {
namespace {

Result<std::vector<uint32_t>> ChatTokens(const Prompt& prompt, const tokenizer::Tokenizer& tokenizer) {
  const Result<tokenizer::ChatStyle> style = tokenizer::ChatStyleFor(tokenizer, prompt.chat_template);
  if (!style) return Fail(style.error());
  std::vector<tokenizer::Message> messages;
  if (!prompt.system.empty()) messages.push_back({"system", prompt.system, ""});
  messages.push_back({"user", prompt.text, ""});
  const Result<std::string> text = tokenizer::RenderChatPrompt(*style, std::move(messages), tokenizer.special());
  if (!text) return Fail(text.error());
  Result<tokenizer::TokensWithSpans> tokens = tokenizer.EncodeWithSpans(*text);
  if (!tokens) return Fail(tokens.error());
  return std::move(tokens->ids);
}

}  // namespace

Result<std::vector<uint32_t>> PromptTokens(const Prompt& prompt, const tokenizer::Tokenizer& tokenizer) {
  Result<std::vector<uint32_t>> tokens =
      prompt.chat ? ChatTokens(prompt, tokenizer) : tokenizer.EncodePrompt(prompt.text);
  if (!tokens) return Fail(tokens.error().Wrap("the prompt"));
  if (!tokens->empty()) return tokens;
  if (const auto bos = tokenizer.bos()) return std::vector<uint32_t>{*bos};
  return Fail(ErrorCode::kInvalidArgument,
              "the prompt is empty, and nothing beside " + tokenizer.path() + " says which token begins a text");
}

}  // namespace trainyard::generate
