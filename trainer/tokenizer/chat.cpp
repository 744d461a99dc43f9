#include "trainer/tokenizer/chat.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "trainer/tokenizer/utf8.h"

namespace trainyard::tokenizer {
namespace {

// White space as Python's str.strip knows it, in UTF-8.
constexpr std::array<std::string_view, 29> kSpaces = {
    "\t",           "\n",           "\v",           "\f",           "\r",
    "\x1c",         "\x1d",         "\x1e",         "\x1f",         " ",
    "\xc2\x85",     "\xc2\xa0",     "\xe1\x9a\x80", "\xe2\x80\x80", "\xe2\x80\x81",
    "\xe2\x80\x82", "\xe2\x80\x83", "\xe2\x80\x84", "\xe2\x80\x85", "\xe2\x80\x86",
    "\xe2\x80\x87", "\xe2\x80\x88", "\xe2\x80\x89", "\xe2\x80\x8a", "\xe2\x80\xa8",
    "\xe2\x80\xa9", "\xe2\x80\xaf", "\xe2\x81\x9f", "\xe3\x80\x80"};

// Without white space at both ends.
std::string_view Strip(std::string_view text) {
  const auto begins = [&](std::string_view space) { return text.starts_with(space); };
  const auto ends = [&](std::string_view space) { return text.ends_with(space); };
  for (auto s = kSpaces.begin(); (s = std::find_if(kSpaces.begin(), kSpaces.end(), begins)) != kSpaces.end();) {
    text.remove_prefix(s->size());
  }
  for (auto s = kSpaces.begin(); (s = std::find_if(kSpaces.begin(), kSpaces.end(), ends)) != kSpaces.end();) {
    text.remove_suffix(s->size());
  }
  return text;
}
// Without any of the characters `what` at both ends.
std::string_view StripOf(std::string_view text, std::string_view what) {
  const size_t begin = text.find_first_not_of(what);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(what) - begin + 1);
}
std::string_view StripLeft(std::string_view text, std::string_view what) {
  return text.substr(std::min(text.size(), text.find_first_not_of(what)));
}

std::string Or(const std::string& name, const char* usual) { return name.empty() ? usual : name; }

// A conversation in the making.
class Script {
 public:
  void Say(std::string_view text) { rendered_.text += text; }
  void Answer(std::string_view text) {
    const size_t begin = rendered_.text.size();
    Say(text);
    rendered_.answers.push_back({begin, rendered_.text.size()});
  }
  RenderedChat Take() { return std::move(rendered_); }

 private:
  RenderedChat rendered_;
};

tl::unexpected<Error> Wrong(size_t index, const std::string& what) {
  return Fail(ErrorCode::kInvalidArgument, "message " + std::to_string(index + 1) + " " + what);
}

// What no style can render, or nothing could be learned from.
Status CheckMessages(const std::vector<Message>& messages) {
  bool answered = false;
  for (size_t i = 0; i < messages.size(); ++i) {
    const Message& m = messages[i];
    if (m.role != "system" && m.role != "user" && m.role != "assistant") {
      return Wrong(i, "has the role '" + Brief(m.role) + "'; system, user and assistant are known");
    }
    if (m.role == "system" && i > 0) return Wrong(i, "is of the system; only the first one may be");
    if (m.role != "assistant") continue;
    answered = true;
    if (Strip(m.content).empty()) return Wrong(i, "is an empty answer: there is nothing to learn from it");
  }
  if (!answered) return Fail(ErrorCode::kInvalidArgument, "no message is of the assistant: there is nothing to learn");
  return {};
}

// User and assistant in turns, from the user on, behind a system message where `system` says so.
Status CheckTurns(const std::vector<Message>& messages, bool system) {
  const bool first_is_system = messages.front().role == "system";
  if (first_is_system && !system) return Wrong(0, "is of the system, which this template has no place for");
  for (size_t i = first_is_system ? 1 : 0; i < messages.size(); ++i) {
    const char* role = (i - (first_is_system ? 1 : 0)) % 2 == 0 ? "user" : "assistant";
    if (messages[i].role != role) {
      return Wrong(i, "is of the " + messages[i].role + " where this template needs one of the " + role);
    }
  }
  return {};
}

constexpr const char* kQwen2System = "You are a helpful assistant.";
constexpr const char* kQwen25System = "You are Qwen, created by Alibaba Cloud. You are a helpful assistant.";
constexpr const char* kSmolLM2System = "You are a helpful AI assistant named SmolLM, trained by Hugging Face";

void ChatMLTurn(Script& script, const std::string& role, const std::string& content) {
  script.Say("<|im_start|>" + role + "\n");
  if (role == "assistant") {
    script.Answer(content + "<|im_end|>");
  } else {
    script.Say(content + "<|im_end|>");
  }
  script.Say("\n");
}

RenderedChat ChatML(const std::vector<Message>& messages, const char* system) {
  Script script;
  if (system != nullptr && messages.front().role != "system") ChatMLTurn(script, "system", system);
  for (const Message& m : messages) ChatMLTurn(script, m.role, m.content);
  return script.Take();
}

// Thoughts are told apart from the answer, and only kept behind the last question: in the last message always, in
// others where there are some.
RenderedChat Qwen3(const std::vector<Message>& messages) {
  size_t last_question = messages.size() - 1;
  for (size_t i = 0; i < messages.size(); ++i) {
    if (messages[i].role == "user") last_question = i;
  }
  Script script;
  for (size_t i = 0; i < messages.size(); ++i) {
    const Message& m = messages[i];
    if (m.role != "assistant") {
      ChatMLTurn(script, m.role, m.content);
      continue;
    }
    std::string_view content = m.content, thoughts = m.reasoning;
    const std::string_view open = "<think>", close = "</think>";
    if (const size_t end = content.find(close); thoughts.empty() && end != std::string_view::npos) {
      thoughts = content.substr(0, end);
      while (thoughts.ends_with('\n')) thoughts.remove_suffix(1);
      if (const size_t begin = thoughts.rfind(open); begin != std::string_view::npos) {
        thoughts.remove_prefix(begin + open.size());
      }
      thoughts = StripLeft(thoughts, "\n");
      content = StripLeft(content.substr(content.rfind(close) + close.size()), "\n");
    }
    std::string text(content);
    if (i > last_question && (i + 1 == messages.size() || !thoughts.empty())) {
      text =
          "<think>\n" + std::string(StripOf(thoughts, "\n")) + "\n</think>\n\n" + std::string(StripLeft(content, "\n"));
    }
    ChatMLTurn(script, m.role, text);
  }
  return script.Take();
}

void Llama3Turn(Script& script, const std::string& role, std::string_view content) {
  script.Say("<|start_header_id|>" + role + "<|end_header_id|>\n\n");
  const std::string text = std::string(content) + "<|eot_id|>";
  if (role == "assistant") {
    script.Answer(text);
  } else {
    script.Say(text);
  }
}

RenderedChat Llama3(const std::vector<Message>& messages, const std::string& bos, bool dates) {
  Script script;
  script.Say(bos);
  const bool system = messages.front().role == "system";
  if (dates) {
    Llama3Turn(script, "system",
               "Cutting Knowledge Date: December 2023\nToday Date: 26 Jul 2024\n\n" +
                   std::string(system ? Strip(messages.front().content) : ""));
  }
  for (size_t i = dates && system ? 1 : 0; i < messages.size(); ++i) {
    Llama3Turn(script, messages[i].role, Strip(messages[i].content));
  }
  return script.Take();
}

RenderedChat Llama2(const std::vector<Message>& messages, const std::string& bos, const std::string& eos) {
  Script script;
  std::string system;
  if (messages.front().role == "system") system = "<<SYS>>\n" + messages.front().content + "\n<</SYS>>\n\n";
  for (const Message& m : messages) {
    if (m.role == "user") {
      script.Say(bos + "[INST] " + std::string(Strip(system + m.content)) + " [/INST]");
      system.clear();
    } else if (m.role == "assistant") {
      script.Answer(" " + std::string(Strip(m.content)) + " " + eos);
    }
  }
  return script.Take();
}

RenderedChat Mistral(const std::vector<Message>& messages, const std::string& bos, const std::string& eos) {
  Script script;
  script.Say(bos);
  for (const Message& m : messages) {
    if (m.role == "user") {
      script.Say("[INST] " + m.content + " [/INST]");
    } else {
      script.Answer(m.content + eos);
    }
  }
  return script.Take();
}

constexpr const char* kLlama3Bos = "<|begin_of_text|>";
constexpr const char* kBos = "<s>";
constexpr const char* kEos = "</s>";

}  // namespace

ChatTokens ChatTokensOf(ChatStyle style, const SpecialTokens& special) {
  switch (style) {
    case ChatStyle::kChatML:
    case ChatStyle::kQwen2:
    case ChatStyle::kQwen25:
    case ChatStyle::kSmolLM2:
    case ChatStyle::kQwen3:
      return {{"<|im_start|>", "<|im_end|>"}, {"<|endoftext|>"}};
    case ChatStyle::kLlama3:
    case ChatStyle::kLlama31:
      return {{Or(special.bos, kLlama3Bos), "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"},
              {"<|end_of_text|>"}};
    case ChatStyle::kLlama2:
    case ChatStyle::kMistral:
      break;
  }
  // The end of a text ends every answer here, so another token has to part conversations; none of them is ever learned.
  return {{Or(special.bos, kBos), Or(special.eos, kEos)}, {"<unk>"}};
}

Result<RenderedChat> RenderChat(ChatStyle style, const std::vector<Message>& messages, const SpecialTokens& special) {
  if (const Status status = CheckMessages(messages); !status) return Fail(status.error());
  if (style == ChatStyle::kLlama2 || style == ChatStyle::kMistral) {
    const Status status = CheckTurns(messages, style == ChatStyle::kLlama2);
    if (!status) return Fail(status.error());
  }
  switch (style) {
    case ChatStyle::kChatML:
      return ChatML(messages, nullptr);
    case ChatStyle::kQwen2:
      return ChatML(messages, kQwen2System);
    case ChatStyle::kQwen25:
      return ChatML(messages, kQwen25System);
    case ChatStyle::kSmolLM2:
      return ChatML(messages, kSmolLM2System);
    case ChatStyle::kQwen3:
      return Qwen3(messages);
    case ChatStyle::kLlama3:
      return Llama3(messages, Or(special.bos, kLlama3Bos), false);
    case ChatStyle::kLlama31:
      return Llama3(messages, Or(special.bos, kLlama3Bos), true);
    case ChatStyle::kLlama2:
      return Llama2(messages, Or(special.bos, kBos), Or(special.eos, kEos));
    case ChatStyle::kMistral:
      return Mistral(messages, Or(special.bos, kBos), Or(special.eos, kEos));
  }
  return Fail(ErrorCode::kInternal, "a chat style without a template");
}

Result<std::string> RenderChatPrompt(ChatStyle style, std::vector<Message> messages, const SpecialTokens& special) {
  messages.push_back({"assistant", "-", ""});  // what it says does not matter: the text ends where it would begin
  Result<RenderedChat> rendered = RenderChat(style, messages, special);
  if (!rendered) return Fail(rendered.error());
  rendered->text.resize(rendered->answers.back().begin);
  return std::move(rendered->text);
}

}  // namespace trainyard::tokenizer
