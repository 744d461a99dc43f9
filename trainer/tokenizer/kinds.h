// The kinds of tokenizers, each behind the class of tokenizer.h. Thread-safety: free functions.
#pragma once

#include <memory>
#include <string>

#include "operator/base/error.h"
#include "trainer/tokenizer/tokenizer.h"
#include "trainer/tokenizer/tokenizer_file.h"

namespace trainyard::tokenizer {

// Error: kInvalidArgument, kFailedPrecondition; see Tokenizer::Open. Messages name the file.
Result<std::unique_ptr<Tokenizer>> OpenHuggingFace(const TokenizerFile& file, SpecialTokens special);
Result<std::unique_ptr<Tokenizer>> OpenSentencePiece(const TokenizerFile& file, SpecialTokens special);

}  // namespace trainyard::tokenizer
