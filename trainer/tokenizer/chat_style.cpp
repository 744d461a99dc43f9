// Which chat template a Jinja text is.
#include <algorithm>
#include <array>
#include <string_view>

#include "trainer/tokenizer/chat.h"

namespace trainyard::tokenizer {
namespace {

struct Known {
  ChatStyle style;
  const char* name;
  // In the form of Normal: a template of this style has all of the first and none of the second.
  std::vector<std::string_view> has, has_not;
};

constexpr std::string_view kChatMLTurn = R"('<|im_start|>'+message.role+'\n'+message.content+'<|im_end|>')";
constexpr std::string_view kQwenTurn = R"('<|im_start|>'+message.role+'\n')";
constexpr std::string_view kLlama3Turn =
    R"('<|start_header_id|>'+message.role+'<|end_header_id|>\n\n'+message.content|trim+'<|eot_id|>')";

const std::array<Known, 9>& Styles() {
  static const std::array<Known, 9> styles = {{
      {ChatStyle::kChatML,
       "chatml",
       {kChatMLTurn},
       {R"(<|im_start|>system\n)", "<think>", "|trim", "strip(", "bos_token"}},
      {ChatStyle::kQwen2,
       "qwen2",
       {kQwenTurn, R"(<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n)"},
       {"<think>"}},
      {ChatStyle::kQwen25,
       "qwen2.5",
       {kQwenTurn, "You are Qwen, created by Alibaba Cloud. You are a helpful assistant."},
       {"<think>"}},
      {ChatStyle::kSmolLM2,
       "smollm2",
       {kQwenTurn,
        R"(<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n)"},
       {"<think>"}},
      {ChatStyle::kQwen3,
       "qwen3",
       {R"('<|im_start|>'+message.role+'\n<think>\n'+reasoning_content.strip('\n')+'\n</think>\n\n'+content.lstrip('\n'))",
        "ns.last_query_index", "'</think>'"},
       {}},
      {ChatStyle::kLlama3, "llama3", {kLlama3Turn, "bos_token"}, {"Cutting Knowledge Date"}},
      {ChatStyle::kLlama31,
       "llama3.1",
       {kLlama3Turn, "bos_token", R"('Cutting Knowledge Date: December 2023\n')",
        R"('Today Date: '+date_string+'\n\n')"},
       {}},
      {ChatStyle::kLlama2,
       "llama2",
       {R"('<<SYS>>\n'+system_message+'\n<</SYS>>\n\n'+message.content)",
        "bos_token+'[INST] '+content.strip()+' [/INST]'", "' '+content.strip()+' '+eos_token"},
       {}},
      {ChatStyle::kMistral,
       "mistral",
       {"bos_token", "'[INST] '+message.content+' [/INST]'", "message.content+eos_token"},
       {"' '+message.content+eos_token", "eos_token+' '", "system_message"}},
  }};
  return styles;
}

void ReplaceAll(std::string& text, std::string_view from, std::string_view to) {
  for (size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size())) {
    text.replace(at, from.size(), to);
  }
}

// The expressions of a Jinja template in one spelling: no comments, no white space outside of literals, single quotes,
// "\n" for a line break inside of a literal, message.role for message['role'].
std::string Normal(std::string_view jinja) {
  std::string out;
  char quote = 0;  // of the literal that is open
  for (size_t i = 0; i < jinja.size(); ++i) {
    const char c = jinja[i];
    if (quote == 0 && jinja.substr(i, 2) == "{#") {
      const size_t end = jinja.find("#}", i);
      if (end == std::string_view::npos) break;
      i = end + 1;
    } else if (quote != 0 && c == '\\' && i + 1 < jinja.size()) {
      out.append(jinja.substr(i++, 2));
    } else if (quote != 0 && c == '\n') {
      out += "\\n";
    } else if ((quote == 0 && (c == '\'' || c == '"')) || (quote != 0 && c == quote)) {
      quote = quote == 0 ? c : 0;
      out += '\'';
    } else if (quote != 0 || std::string_view(" \t\r\n").find(c) == std::string_view::npos) {
      out += c;
    }
  }
  ReplaceAll(out, "['role']", ".role");
  ReplaceAll(out, "['content']", ".content");
  return out;
}

}  // namespace

std::string ChatStyleNames() {
  std::string names;
  for (const Known& known : Styles()) names += (names.empty() ? "" : ", ") + std::string(known.name);
  return names;
}

std::string ChatStyleName(ChatStyle style) {
  const auto known = std::find_if(Styles().begin(), Styles().end(), [&](const Known& k) { return k.style == style; });
  return known->name;
}

Result<ChatStyle> ChatStyleOf(const std::string& name) {
  for (const Known& known : Styles()) {
    if (name == known.name) return known.style;
  }
  return Fail(ErrorCode::kInvalidArgument, "'" + name + "' is no chat template; there are " + ChatStyleNames());
}

Result<ChatStyle> RecogniseChatStyle(const std::string& jinja) {
  const std::string text = Normal(jinja);
  const auto in_text = [&](std::string_view part) { return text.find(part) != std::string::npos; };
  for (const Known& known : Styles()) {
    if (std::all_of(known.has.begin(), known.has.end(), in_text) &&
        std::none_of(known.has_not.begin(), known.has_not.end(), in_text)) {
      return known.style;
    }
  }
  return Fail(ErrorCode::kInvalidArgument,
              "is none of " + ChatStyleNames() + "; name the one that fits with --template");
}

Result<ChatStyle> ChatStyleFor(const Tokenizer& tokenizer, const std::string& name) {
  const auto invalid = [](const std::string& message) { return Fail(ErrorCode::kInvalidArgument, message); };
  Result<ChatStyle> style = ChatStyleOf(name);
  if (name.empty()) {
    const SpecialTokens& special = tokenizer.special();
    if (special.chat_template.empty()) {
      return invalid("nothing beside " + tokenizer.path() + " has a chat template; say --template with one of " +
                     ChatStyleNames());
    }
    style = RecogniseChatStyle(special.chat_template);
    if (!style) return invalid("the chat template in " + special.chat_template_file + " " + style.error().message);
  }
  if (!style) return Fail(style.error().Wrap("--template"));
  if (tokenizer.kind() == "bytes") return style;  // spelled out
  for (const std::string& needed : ChatTokensOf(*style, tokenizer.special()).needed) {
    if (!tokenizer.Find(needed)) {
      return invalid(tokenizer.path() + " has no token '" + needed + "', which the chat template " +
                     ChatStyleName(*style) + " needs");
    }
  }
  return style;
}

}  // namespace trainyard::tokenizer
