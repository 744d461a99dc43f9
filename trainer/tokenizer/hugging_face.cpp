#include <string>
#include <utility>

#include "trainer/tokenizer/crate.h"
#include "trainer/tokenizer/kinds.h"
#include "trainer/tokenizer/utf8.h"

namespace trainyard::tokenizer {
namespace {

// What the crate gave out, freed with it.
struct Text : TyText {
  Text() : TyText{nullptr, 0} {}
  ~Text() { ty_free_text(*this); }
  Text(const Text&) = delete;
  Text& operator=(const Text&) = delete;
  std::string str() const { return {data, size}; }
};
struct Tokens : TyTokens {
  Tokens() : TyTokens{nullptr, nullptr, 0} {}
  ~Tokens() { ty_free_tokens(*this); }
  Tokens(const Tokens&) = delete;
  Tokens& operator=(const Tokens&) = delete;
};
using Handle = std::unique_ptr<TyTokenizer, void (*)(TyTokenizer*)>;

class HuggingFace final : public Tokenizer {
 public:
  HuggingFace(const TokenizerFile& file, Handle handle, int64_t vocab, SpecialTokens special)
      : Tokenizer("tokenizer.json", file.path, file.hash, vocab, std::move(special)), handle_(std::move(handle)) {}

  Result<std::vector<uint32_t>> Encode(std::string_view text) const override { return Ids(text, false); }
  Result<std::vector<uint32_t>> EncodePrompt(std::string_view text) const override { return Ids(text, true); }

  Result<TokensWithSpans> EncodeWithSpans(std::string_view text) const override {
    Tokens tokens;
    if (const Status status = Run(text, false, true, tokens); !status) return Fail(status.error());
    TokensWithSpans out;
    out.ids.assign(tokens.ids, tokens.ids + tokens.size);
    for (size_t i = 0; i < tokens.size; ++i) out.spans.push_back({tokens.spans[2 * i], tokens.spans[2 * i + 1]});
    return out;
  }

  Result<std::string> DecodeIds(const std::vector<uint32_t>& ids, bool names) const override {
    for (const uint32_t id : ids) {
      if (id >= vocab()) {
        return Fail(ErrorCode::kInvalidArgument, "token " + std::to_string(id) + " is not below the vocabulary of " +
                                                     std::to_string(vocab()) + " of " + path());
      }
    }
    Text text, error;
    if (!ty_decode(handle_.get(), ids.data(), ids.size(), !names, &text, &error)) {
      return Fail(ErrorCode::kInvalidArgument, path() + ": " + error.str());
    }
    return text.str();
  }

  std::optional<uint32_t> Find(std::string_view name) const override {
    const int64_t id = ty_id_of(handle_.get(), name.data(), name.size());
    return id < 0 ? std::nullopt : std::optional(static_cast<uint32_t>(id));
  }
  std::string NameOf(uint32_t id) const override {
    Text name, error;
    return ty_token_of(handle_.get(), id, &name, &error) ? name.str() : std::string();
  }

 private:
  Status Run(std::string_view text, bool frame, bool spans, Tokens& tokens) const {
    if (Status valid = CheckUtf8(text); !valid) return valid;
    Text error;
    if (ty_encode(handle_.get(), text.data(), text.size(), frame, spans, &tokens, &error)) return {};
    return Fail(ErrorCode::kInvalidArgument, path() + " refuses the text: " + error.str());
  }
  Result<std::vector<uint32_t>> Ids(std::string_view text, bool frame) const {
    Tokens tokens;
    if (const Status status = Run(text, frame, false, tokens); !status) return Fail(status.error());
    return std::vector<uint32_t>(tokens.ids, tokens.ids + tokens.size);
  }

  const Handle handle_;
};

}  // namespace

Result<std::unique_ptr<Tokenizer>> OpenHuggingFace(const TokenizerFile& file, SpecialTokens special) {
  Text error;
  Handle handle(ty_open(file.bytes.data(), file.bytes.size(), &error), ty_close);
  if (!handle) {
    return Fail(ErrorCode::kInvalidArgument, file.path + " is no tokenizer.json of Hugging Face: " + error.str());
  }
  uint64_t vocab = 0;
  if (!ty_vocabulary(handle.get(), &vocab, &error)) {
    return Fail(ErrorCode::kInvalidArgument, file.path + ": " + error.str());
  }
  if (vocab == 0) return Fail(ErrorCode::kInvalidArgument, file.path + " has no tokens");
  return std::make_unique<HuggingFace>(file, std::move(handle), static_cast<int64_t>(vocab), std::move(special));
}

}  // namespace trainyard::tokenizer
