// Where the tokenizer of a model lies, and the hash by which token files name it. Reads files and makes no tokenizer.
// Thread-safety: free functions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "operator/base/error.h"

namespace trainyard::tokenizer {

inline constexpr const char* kBytes = "bytes";  // in place of a path: every byte is a token

struct TokenizerFile {
  std::string path;
  std::string bytes;
  uint64_t hash = 0;
};

// The file that `path`, a file or a model's directory, means. Errors: as Tokenizer::Open.
Result<TokenizerFile> ReadTokenizerFile(const std::string& path);

// XXH3-64 of the file, or of the text "bytes" for kBytes; never 0. Errors: as Tokenizer::Open for files.
Result<uint64_t> HashOf(const std::string& path);
// That of the tokenizer in `directory`; none where there is no directory, or no tokenizer in it.
Result<std::optional<uint64_t>> HashIn(const std::string& directory);
// 16 hex digits.
std::string HashText(uint64_t hash);

}  // namespace trainyard::tokenizer
