// Any bytes as the start of a token file that goes on or not.
#include <algorithm>
#include <string_view>

#include "tests/fuzz/fuzz_target.h"
#include "trainer/data/token_file.h"

using trainyard::data::kTokenHeaderBytes;
using trainyard::fuzz::Require;
using trainyard::fuzz::RequireOneLine;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto bytes = static_cast<int64_t>(size);
  const std::string_view start(reinterpret_cast<const char*>(data),
                               std::min(size, static_cast<size_t>(kTokenHeaderBytes)));
  const auto header = trainyard::data::ParseTokenHeader(start, bytes);
  if (!header) {
    RequireOneLine(header.error().message);
    return 0;
  }
  const auto& h = *header;
  Require(h.tokens >= 0 && h.tokens <= bytes / h.bytes_per_token, "all tokens are in the file");
  Require(h.bytes + h.tokens * h.bytes_per_token + (h.target_bits ? (h.tokens + 7) / 8 : 0) == bytes, "and all bits");
  Require(h.vocab > 0 && h.vocab <= int64_t{1} << (8 * h.bytes_per_token), "tokens hold the vocabulary");
  Require(!h.separator || (*h.separator >= 0 && *h.separator < h.vocab), "the separator is a token");
  if (h.bytes == kTokenHeaderBytes) {
    const auto again = trainyard::data::ParseTokenHeader(EncodeTokenHeader(h), bytes);
    Require(again && again->tokens == h.tokens && again->separator == h.separator && again->tokenizer == h.tokenizer,
            "what is written again is the same header");
  }
  return 0;
}
