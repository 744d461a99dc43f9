// The token file, all little endian: a header, the tokens and, where not all of them are to be learned, a bit for each.
//   0  8 bytes  "TYTOKEN1"
//   8  u32      version, 2
//  12  u32      bytes per token, 2 or 4
//  16  u64      tokens
//  24  u64      vocabulary size: every token is below it
//  32  u64      hash of the tokenizer (tokenizer.h); 0: not known
//  40  u32      flags; 1: bits follow the tokens
//  44  u32      one more than the token that ends a document; 0: none does, or it is not known
//  48  u64      documents; 0: not known
//  56  u64      0
//  64           tokens; then, with the flag, ceil(tokens / 8) bytes: bit i % 8 of byte i / 8 says that token i counts,
//               where it is a target of the loss
// Version 1 ends its header after the vocabulary size: its tokens begin at byte 32, and the rest is not known.
// Thread-safety: pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "operator/base/error.h"

namespace trainyard::data {

inline constexpr int64_t kTokenHeaderBytes = 64;  // the most that a header takes

struct TokenHeader {
  int bytes_per_token = 2;
  int64_t tokens = 0;
  int64_t vocab = 0;
  uint64_t tokenizer = 0;             // hash; 0: not known
  bool target_bits = false;           // bits follow the tokens
  std::optional<int64_t> separator;   // the token that ends a document
  int64_t documents = 0;              // 0: not known
  int64_t bytes = kTokenHeaderBytes;  // of the header: where the tokens begin
};

// The narrower of the two widths that holds every token.
inline int TokenWidth(int64_t vocab) { return vocab <= 1 << 16 ? 2 : 4; }

// Reads a header from the start of a file of `file_bytes`. Errors: kInvalidArgument (no token file, another version or
// width), kDataLoss (file_bytes is not what the header says).
Result<TokenHeader> ParseTokenHeader(std::string_view start, int64_t file_bytes);

// kTokenHeaderBytes of version 2.
std::string EncodeTokenHeader(const TokenHeader& header);

// The whole file for `tokens`, as bytes: 2 per token where the vocabulary allows it. For tools and tests;
// token_writer.h writes what does not fit into memory. Error: kInvalidArgument for a token outside [0, vocab).
Result<std::string> EncodeTokenFile(const std::vector<int64_t>& tokens, int64_t vocab);

}  // namespace trainyard::data
