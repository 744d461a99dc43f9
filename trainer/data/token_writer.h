// Writes a token file of any size: tokens in the order given, through a buffer, into a file beside the final one that
// Finish renames into place. Until then nothing has the final name; what is not finished is removed. Thread-safety: one
// thread at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "operator/base/error.h"
#include "trainer/data/token_file.h"

namespace trainyard::data {

class TokenWriter {
 public:
  // `header`: vocabulary, tokenizer, separator, target_bits; the rest is counted. Errors of all methods name the file:
  // kPermissionDenied, kNotFound (no such directory), kResourceExhausted (the disk is full), kUnavailable.
  static Result<TokenWriter> Create(const std::string& path, TokenHeader header);
  TokenWriter(TokenWriter&&) noexcept;
  TokenWriter& operator=(TokenWriter&&) = delete;
  // Removes what was written, unless Finish has been called.
  ~TokenWriter();

  // `count` tokens, each below the vocabulary. `counts`: as many bytes, 1 where the token counts as a target; null: all
  // do. Error: also kInternal for a token that is not below the vocabulary.
  Status Append(const uint32_t* tokens, size_t count, const uint8_t* counts = nullptr);
  // A document ends here; for the number of them.
  void EndDocument();

  int64_t tokens() const;
  int64_t documents() const;
  // Of the tokens that were given.
  int64_t counted() const;

  // On the disk and under its name, replacing what had it.
  Status Finish();

 private:
  struct State;
  explicit TokenWriter(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace trainyard::data
