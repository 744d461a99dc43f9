// Text to tokens and back, as a published model does it: a Hugging Face tokenizer.json, a SentencePiece model, or plain
// bytes. Thread-safety: immutable after Open; all methods may be called from many threads at once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "operator/base/error.h"
#include "trainer/tokenizer/special_tokens.h"

namespace trainyard::tokenizer {

// Bytes [begin, end) of a text.
struct Span {
  size_t begin = 0;
  size_t end = 0;
};

struct TokensWithSpans {
  std::vector<uint32_t> ids;
  std::vector<Span> spans;  // of the text that each token stands for; empty ones for what is not in the text
};

class Tokenizer {
 public:
  // `path`: a file; a model's directory, where tokenizer.json goes before a SentencePiece model (tokenizer.model and
  // its other usual names); or "bytes": every byte is a token. Special tokens and the chat template are read from
  // tokenizer_config.json and its companions in the same directory. Errors name the file: kNotFound, kInvalidArgument
  // (no tokenizer in it, or one that its library refuses), kUnavailable, kFailedPrecondition (a
  // program that was built for bytes alone).
  static Result<std::unique_ptr<Tokenizer>> Open(const std::string& path);

  virtual ~Tokenizer() = default;
  Tokenizer(const Tokenizer&) = delete;
  Tokenizer& operator=(const Tokenizer&) = delete;

  // The tokens of `text` and no others. Error: kInvalidArgument where it is not UTF-8 (names the byte), except for
  // bytes.
  virtual Result<std::vector<uint32_t>> Encode(std::string_view text) const = 0;
  // With the tokens before it that the model was trained to begin with (and after it, should the file ask for some).
  virtual Result<std::vector<uint32_t>> EncodePrompt(std::string_view text) const = 0;
  // As Encode, with the place of each token. The name of a special token in `text` is that token, for every kind but
  // bytes: for a text that a chat template made.
  virtual Result<TokensWithSpans> EncodeWithSpans(std::string_view text) const = 0;
  // Special tokens leave no text. Error: kInvalidArgument for an id that is not below vocab().
  Result<std::string> Decode(const std::vector<uint32_t>& ids) const { return DecodeIds(ids, /*names=*/false); }
  // The same with special tokens by their names: for eyes, not for a model.
  Result<std::string> Spell(const std::vector<uint32_t>& ids) const { return DecodeIds(ids, /*names=*/true); }

  // The token of this name, such as "</s>"; none: there is no such token.
  virtual std::optional<uint32_t> Find(std::string_view name) const = 0;
  // The other way round; empty for an id without a token.
  virtual std::string NameOf(uint32_t id) const = 0;

  // "tokenizer.json", "SentencePiece" or "bytes".
  const std::string& kind() const { return kind_; }
  // The file, or "bytes".
  const std::string& path() const { return path_; }
  // Every id is below it.
  int64_t vocab() const { return vocab_; }
  // HashOf (tokenizer_file.h): says whether two token files come of the same tokenizer.
  uint64_t hash() const { return hash_; }
  const SpecialTokens& special() const { return special_; }
  // The token that ends a text, where the model's files name one that exists.
  std::optional<uint32_t> eos() const { return special_.eos.empty() ? std::nullopt : Find(special_.eos); }
  std::optional<uint32_t> bos() const { return special_.bos.empty() ? std::nullopt : Find(special_.bos); }

 protected:
  Tokenizer(std::string kind, std::string path, uint64_t hash, int64_t vocab, SpecialTokens special)
      : kind_(std::move(kind)), path_(std::move(path)), hash_(hash), vocab_(vocab), special_(std::move(special)) {}

 private:
  virtual Result<std::string> DecodeIds(const std::vector<uint32_t>& ids, bool names) const = 0;

  const std::string kind_, path_;
  const uint64_t hash_;
  const int64_t vocab_;
  const SpecialTokens special_;
};

}  // namespace trainyard::tokenizer
