// In place of hugging_face.cpp where the crate is left out (TRAINYARD_BUILD_TOKENIZERS=OFF).
#include "trainer/tokenizer/kinds.h"

namespace trainyard::tokenizer {

Result<std::unique_ptr<Tokenizer>> OpenHuggingFace(const TokenizerFile& file, SpecialTokens /*special*/) {
  return Fail(ErrorCode::kFailedPrecondition,
              file.path +
                  " cannot be used: this program was built with TRAINYARD_BUILD_TOKENIZERS=OFF; build it with "
                  "ON, or use a SentencePiece model or bytes");
}

}  // namespace trainyard::tokenizer
