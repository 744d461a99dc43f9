// Tokens on disk as one long sequence: memory-mapped files, concatenated in the order given.
// The files must not shrink while they are mapped: reading what is gone ends the process (SIGBUS).
// Thread-safety: immutable after Open; all methods may be called from any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "operator/base/error.h"

namespace trainyard::data {

enum class Format {
  kText,    // every byte is a token (vocabulary 256)
  kTokens,  // a header, then tokens of 2 or 4 bytes, little endian: see token_file.h
};

// Where tokens come from, as far as their files know.
struct TokenOrigin {
  uint64_t tokenizer = 0;            // hash; 0: not known
  std::string tokenizer_file;        // a data file that says so
  std::optional<int64_t> separator;  // the token that ends a document
  std::string separator_file;
};

// Error: kInvalidArgument where both are known and differ; names both files.
Status CheckSameOrigin(const TokenOrigin& a, const TokenOrigin& b);

class TokenSource {
 public:
  // Maps `paths`. Every token of a file must be below `vocab`, as its header says; a token that is not is found when it
  // is copied. Errors name the file: kNotFound, kPermissionDenied, kInvalidArgument (not a token file, wrong version,
  // vocabulary larger than the model's, no tokens at all), kDataLoss (shorter or longer than its header says).
  static Result<std::unique_ptr<TokenSource>> Open(Format format, const std::vector<std::string>& paths, int64_t vocab);

  virtual ~TokenSource() = default;
  TokenSource(const TokenSource&) = delete;
  TokenSource& operator=(const TokenSource&) = delete;

  // Tokens in all files together.
  virtual int64_t tokens() const = 0;
  // Copies tokens [pos, pos + n) to `out`. Errors: kInvalidArgument outside [0, tokens()), kDataLoss for a token that
  // is not below the vocabulary (names file, token and byte).
  virtual Status Copy(int64_t pos, int64_t n, int64_t* out) const = 0;
  // Whether a file says of its tokens which count in the loss.
  virtual bool has_target_bits() const = 0;
  // out[i] = 1 where token pos + i counts as a target, else 0. Error: kInvalidArgument outside [0, tokens()).
  virtual Status CopyTargetBits(int64_t pos, int64_t n, uint8_t* out) const = 0;
  // What the headers of the files say; those that say nothing agree with all others.
  virtual const TokenOrigin& origin() const = 0;
  // 16 hex digits (XXH3-64 over format, sizes and sampled blocks of each file, in order): the same for the same data
  // wherever it is mounted, kept in checkpoints so that a resume on other data is noticed.
  virtual const std::string& fingerprint() const = 0;

 protected:
  TokenSource() = default;
};

// 16 hex digits: XXH3-64 of `text`. For fingerprints of several sources together.
std::string Digest(const std::string& text);

}  // namespace trainyard::data
