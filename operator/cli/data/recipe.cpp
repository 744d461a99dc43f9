#include "operator/cli/data/recipe.h"

#include <charconv>
#include <filesystem>

namespace trainyard::cli {
namespace {

using tokenizer::Tokenizer;

tl::unexpected<Error> Invalid(std::string message) { return Fail(ErrorCode::kInvalidArgument, std::move(message)); }

// A name, or a number below the vocabulary.
Result<uint32_t> TokenOf(const Tokenizer& tokenizer, const std::string& text) {
  if (const auto found = tokenizer.Find(text)) return *found;
  uint32_t id = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), id);
  if (error == std::errc() && end == text.data() + text.size() && id < tokenizer.vocab()) return id;
  return Invalid("--separator: " + tokenizer.path() + " has no token '" + text + "', and it is no number below " +
                 std::to_string(tokenizer.vocab()));
}

// Of conversations: a token that occurs in none of them.
Result<std::optional<uint32_t>> ChatSeparator(const Tokenizer& tokenizer, tokenizer::ChatStyle style) {
  for (const std::string& name : tokenizer::ChatTokensOf(style, tokenizer.special()).separators) {
    if (const auto found = tokenizer.Find(name)) return found;
  }
  if (tokenizer.kind() == "bytes") return std::nullopt;
  return Invalid(tokenizer.path() + " has no token that usually parts conversations of " + ChatStyleName(style) +
                 "; name one that is in none of them with --separator, or say --separator none");
}

Result<std::optional<uint32_t>> SeparatorOf(const TokenizeFlags& flags, const Tokenizer& tokenizer,
                                            tokenizer::ChatStyle style) {
  if (flags.separator == "none") return std::nullopt;
  if (!flags.separator.empty()) {
    const Result<uint32_t> named = TokenOf(tokenizer, flags.separator);
    if (!named) return Fail(named.error());
    return *named;
  }
  if (flags.format == InputFormat::kChat) return ChatSeparator(tokenizer, style);
  if (const auto eos = tokenizer.eos()) return eos;
  if (tokenizer.kind() == "bytes") return std::nullopt;
  return Invalid("nothing beside " + tokenizer.path() +
                 " says which token ends a text; name it with --separator, or say --separator none");
}

Status CheckFlags(const TokenizeFlags& flags) {
  const bool chat = flags.format == InputFormat::kChat;
  if (!flags.chat_template.empty() && !chat) return Invalid("--template is for --format chat");
  if (flags.bos && chat)
    return Invalid("--bos is for --format text and jsonl: a chat template has its own first token");
  if (!flags.field.empty() && flags.format == InputFormat::kText)
    return Invalid("--field is for --format jsonl and chat");
  if (flags.sequence_length > 0 && flags.format == InputFormat::kText) {
    return Invalid("--sequence-length is for --format jsonl and chat: a text is cut into sequences when it is read");
  }
  if (flags.skip_long && flags.sequence_length == 0) return Invalid("--skip-long needs --sequence-length");
  for (const std::string& input : flags.inputs) {
    std::error_code missing;
    if (std::filesystem::equivalent(input, flags.output, missing)) {
      return Invalid("--output " + flags.output + " is one of the inputs");
    }
  }
  return {};
}

}  // namespace

Result<Recipe> MakeRecipe(const TokenizeFlags& flags, const Tokenizer& tokenizer) {
  if (Status status = CheckFlags(flags); !status) return Fail(status.error());
  Recipe recipe;
  recipe.tokenizer = &tokenizer;
  recipe.format = flags.format;
  recipe.paths = flags.inputs;
  recipe.field = !flags.field.empty() ? flags.field : flags.format == InputFormat::kChat ? "messages" : "text";
  if (flags.format == InputFormat::kChat) {
    const Result<tokenizer::ChatStyle> style = tokenizer::ChatStyleFor(tokenizer, flags.chat_template);
    if (!style) return Fail(style.error());
    recipe.style = *style;
  }
  const Result<std::optional<uint32_t>> separator = SeparatorOf(flags, tokenizer, recipe.style);
  if (!separator) return Fail(separator.error());
  recipe.separator = *separator;
  if (flags.sequence_length > 0 && !recipe.separator) {
    return Invalid("--sequence-length needs a token to fill sequences with: name one with --separator");
  }
  if (flags.bos) {
    recipe.first = tokenizer.bos();
    if (!recipe.first) return Invalid("--bos: nothing beside " + tokenizer.path() + " says which token begins a text");
  }
  return recipe;
}

}  // namespace trainyard::cli
