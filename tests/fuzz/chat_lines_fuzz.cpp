// Any bytes as lines of conversations, for every chat template, and as lines of documents.
#include <string>

#include "operator/cli/data/encode.h"
#include "tests/fuzz/fuzz_target.h"

using trainyard::cli::InputFormat;
using trainyard::fuzz::Require;
using trainyard::fuzz::RequireOneLine;
using trainyard::tokenizer::ChatStyle;

namespace {

void Encode(const trainyard::cli::Recipe& recipe, const trainyard::cli::Block& block) {
  const auto encoded = EncodeBlock(recipe, block);
  if (!encoded) {
    RequireOneLine(encoded.error().message);
    Require(encoded.error().message.starts_with("file:"), "an error names the place");
    return;
  }
  size_t tokens = 0;
  for (const auto& document : encoded->documents) {
    Require(document.begin == tokens && document.size > 0, "documents follow each other");
    tokens += document.size;
  }
  Require(tokens == encoded->ids.size(), "every token is of a document");
  if (recipe.format != InputFormat::kChat) return;
  Require(encoded->counts.size() == tokens, "every token of a conversation counts or not");
  for (const auto& document : encoded->documents) {
    int64_t counted = 0;
    for (size_t i = 0; i < document.size; ++i) counted += encoded->counts[document.begin + i];
    Require(counted > 0, "something is to be learned of every conversation");
    Require(encoded->counts[document.begin + document.size - 1] == 0, "and never what parts them");
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const auto bytes = trainyard::tokenizer::Tokenizer::Open("bytes").value();
  trainyard::cli::Block block;
  block.text.assign(reinterpret_cast<const char*>(data), size);
  trainyard::cli::Recipe recipe;
  recipe.tokenizer = bytes.get();
  recipe.paths = {"file"};
  recipe.separator = 0;
  recipe.field = "text";
  recipe.format = InputFormat::kJsonl;
  Encode(recipe, block);
  recipe.field = "messages";
  recipe.format = InputFormat::kChat;
  for (const ChatStyle style : {ChatStyle::kQwen25, ChatStyle::kQwen3, ChatStyle::kLlama31, ChatStyle::kLlama2}) {
    recipe.style = style;
    Encode(recipe, block);
  }
  return 0;
}
