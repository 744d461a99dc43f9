// What a model's directory says about its tokenizer besides the tokenizer itself: tokenizer_config.json,
// special_tokens_map.json, chat_template.jinja. Thread-safety: plain values; a free function.
#pragma once

#include <string>

#include "operator/base/error.h"

namespace trainyard::tokenizer {

struct SpecialTokens {
  std::string bos;  // name of the token that begins a text; empty: none is named
  std::string eos;  // that ends it
  bool add_bos = true;
  std::string chat_template;  // Jinja; empty: none
  std::string chat_template_file;
};

// Files that are not there say nothing. Error: kInvalidArgument for one that is not JSON, or not of the shape that
// transformers writes (names file and key).
Result<SpecialTokens> ReadSpecialTokens(const std::string& directory);

}  // namespace trainyard::tokenizer
