// The token file: a 32-byte header, then tokens, all little endian.
//   0  8 bytes  "TYTOKEN1"
//   8  u32      version, 1
//  12  u32      bytes per token, 2 or 4
//  16  u64      tokens
//  24  u64      vocabulary size: every token is below it
// Thread-safety: pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "operator/base/error.h"

namespace trainyard::data {

inline constexpr int64_t kTokenHeaderBytes = 32;

struct TokenHeader {
  int bytes_per_token = 2;
  int64_t tokens = 0;
  int64_t vocab = 0;
};

// Reads a header from the start of a file of `file_bytes`. Errors: kInvalidArgument (no token file, another version or
// width), kDataLoss (file_bytes is not what the header says).
Result<TokenHeader> ParseTokenHeader(std::string_view start, int64_t file_bytes);

// The whole file for `tokens`, as bytes: 2 per token where the vocabulary allows it. For tools and tests; a caller with
// more tokens than memory writes header and tokens by itself. Error: kInvalidArgument for a token outside [0, vocab).
Result<std::string> EncodeTokenFile(const std::vector<int64_t>& tokens, int64_t vocab);

}  // namespace trainyard::data
