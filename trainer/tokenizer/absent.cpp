// In place of hugging_face.cpp and sentence_piece.cpp where both libraries are left out
// (TRAINYARD_BUILD_TOKENIZERS=OFF).
#include "trainer/tokenizer/kinds.h"

namespace trainyard::tokenizer {
namespace {

Result<std::unique_ptr<Tokenizer>> LeftOut(const TokenizerFile& file) {
  return Fail(ErrorCode::kFailedPrecondition,
              file.path +
                  " cannot be used: this program was built with TRAINYARD_BUILD_TOKENIZERS=OFF, which leaves "
                  "bytes; build it with ON");
}

}  // namespace

Result<std::unique_ptr<Tokenizer>> OpenHuggingFace(const TokenizerFile& file, SpecialTokens /*special*/) {
  return LeftOut(file);
}
Result<std::unique_ptr<Tokenizer>> OpenSentencePiece(const TokenizerFile& file, SpecialTokens /*special*/) {
  return LeftOut(file);
}

}  // namespace trainyard::tokenizer
