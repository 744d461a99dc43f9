// One block of an input to tokens. Thread-safety: pure functions over what is immutable; many threads at once.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "operator/base/error.h"
#include "operator/cli/data/blocks.h"
#include "trainer/tokenizer/chat.h"
#include "trainer/tokenizer/tokenizer.h"

namespace trainyard::cli {

enum class InputFormat {
  kText,   // a file is a document
  kJsonl,  // a line is an object with the document in one field
  kChat,   // a line is an object with a conversation in one field
};

struct Recipe {
  const tokenizer::Tokenizer* tokenizer = nullptr;
  InputFormat format = InputFormat::kText;
  std::vector<std::string> paths;     // of the inputs, for messages
  std::string field;                  // of JSON
  tokenizer::ChatStyle style{};       // of conversations
  std::optional<uint32_t> first;      // put before each document
  std::optional<uint32_t> separator;  // put behind each document
};

// A document, or for text the part of one that a block holds.
struct EncodedDocument {
  int64_t line = 1;
  size_t begin = 0;  // of its tokens
  size_t size = 0;
  bool ends = true;
};

struct EncodedBlock {
  size_t file = 0;
  int64_t bytes = 0;  // of the input
  std::vector<uint32_t> ids;
  std::vector<uint8_t> counts;  // chat: 1 for each token of an answer; else empty: all
  std::vector<EncodedDocument> documents;
  int64_t empty = 0;  // lines whose document has no text: left out
};

// Errors: kInvalidArgument with "FILE:LINE: " in front: broken JSON, a field that is missing or no text, what the chat
// template refuses, text that is not UTF-8.
Result<EncodedBlock> EncodeBlock(const Recipe& recipe, const Block& block);

}  // namespace trainyard::cli
