// Conversations as the published chat models were trained on them. The templates of the common families are written out
// here, as functions; a model's own Jinja text only says which of them it is. Thread-safety: pure functions and
// constants.
#pragma once

#include <string>
#include <vector>

#include "operator/base/error.h"
#include "trainer/tokenizer/tokenizer.h"

namespace trainyard::tokenizer {

struct Message {
  std::string role;  // system, user, assistant
  std::string content;
  std::string reasoning;  // of an assistant: what it thought before it answered (Qwen 3)
};

struct RenderedChat {
  std::string text;
  // Of each assistant message, in order: what the model is to learn to say, with the token that ends its turn.
  std::vector<Span> answers;
};

enum class ChatStyle {
  kChatML,   // <|im_start|>role\ncontent<|im_end|>\n
  kQwen2,    // ChatML with a system message where there is none
  kQwen25,   // the same with another one
  kSmolLM2,  // the same with another one
  kQwen3,    // ChatML; the last answer begins with its thoughts, or with empty ones
  kLlama3,   // <|start_header_id|>role<|end_header_id|>\n\ncontent<|eot_id|>
  kLlama31,  // the same with a system message that tells two dates (3.2 and 3.3 too; the date is always 26 Jul 2024)
  kLlama2,   // <s>[INST] <<SYS>>\nsystem\n<</SYS>>\n\nuser [/INST] answer </s>
  kMistral,  // <s>[INST] user [/INST]answer</s>
};

// "chatml, qwen2, qwen2.5, smollm2, qwen3, llama3, llama3.1, llama2, mistral".
std::string ChatStyleNames();
std::string ChatStyleName(ChatStyle style);
// Error: kInvalidArgument; names the choices.
Result<ChatStyle> ChatStyleOf(const std::string& name);
// The style of a Jinja template: each has expressions that all templates of the family share, and the white space, kind
// of quotes and comments around them do not matter. Error: kInvalidArgument for one that is none of ours; it names the
// choices.
Result<ChatStyle> RecogniseChatStyle(const std::string& jinja);

// The style of this name or, without one, of the tokenizer's own chat template; every token that it needs exists.
// Errors: kInvalidArgument; they speak of the flag --template.
Result<ChatStyle> ChatStyleFor(const Tokenizer& tokenizer, const std::string& name);

// What a style needs of a tokenizer.
struct ChatTokens {
  std::vector<std::string> needed;      // must be tokens
  std::vector<std::string> separators;  // the first that exists ends a conversation: it occurs nowhere inside of one
};
ChatTokens ChatTokensOf(ChatStyle style, const SpecialTokens& special);

// Errors: kInvalidArgument (a role that the style does not have, roles in an order that it does not have, no answer, an
// empty answer), each with the number of the message, from 1.
Result<RenderedChat> RenderChat(ChatStyle style, const std::vector<Message>& messages, const SpecialTokens& special);
// The text that the assistant's next message follows. Errors: as above, but there need not be an answer yet.
Result<std::string> RenderChatPrompt(ChatStyle style, std::vector<Message> messages, const SpecialTokens& special);

}  // namespace trainyard::tokenizer
