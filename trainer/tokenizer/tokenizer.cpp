#include "trainer/tokenizer/tokenizer.h"

#include <cstdio>
#include <filesystem>

#include "trainer/tokenizer/kinds.h"
#include "trainer/tokenizer/tokenizer_file.h"

namespace trainyard::tokenizer {
namespace {

class Bytes final : public Tokenizer {
 public:
  Bytes() : Tokenizer(kBytes, kBytes, HashOf(kBytes).value(), 256, {}) {}

  Result<std::vector<uint32_t>> Encode(std::string_view text) const override {
    std::vector<uint32_t> ids;
    ids.reserve(text.size());
    for (const char c : text) ids.push_back(static_cast<uint8_t>(c));
    return ids;
  }
  Result<std::vector<uint32_t>> EncodePrompt(std::string_view text) const override { return Encode(text); }
  Result<TokensWithSpans> EncodeWithSpans(std::string_view text) const override {
    TokensWithSpans out{*Encode(text), {}};
    for (size_t i = 0; i < text.size(); ++i) out.spans.push_back({i, i + 1});
    return out;
  }
  Result<std::string> DecodeIds(const std::vector<uint32_t>& ids, bool /*names*/) const override {
    std::string text;
    for (const uint32_t id : ids) {
      if (id > 255) return Fail(ErrorCode::kInvalidArgument, "token " + std::to_string(id) + " is not a byte");
      text.push_back(static_cast<char>(id));
    }
    return text;
  }
  std::optional<uint32_t> Find(std::string_view /*name*/) const override { return std::nullopt; }
  std::string NameOf(uint32_t id) const override {
    char text[16] = "";
    if (id < 256) std::snprintf(text, sizeof text, "<0x%02X>", id);
    return text;
  }
};

}  // namespace

Result<std::unique_ptr<Tokenizer>> Tokenizer::Open(const std::string& path) {
  if (path == kBytes) return std::make_unique<Bytes>();
  const Result<TokenizerFile> file = ReadTokenizerFile(path);
  if (!file) return Fail(file.error());
  const std::filesystem::path parent = std::filesystem::path(file->path).parent_path();
  Result<SpecialTokens> special = ReadSpecialTokens(parent.empty() ? "." : parent.string());
  if (!special) return Fail(special.error());
  // A SentencePiece model is a protobuf message, which begins with the tag of its first piece.
  const size_t first = file->bytes.find_first_not_of(" \t\r\n\xef\xbb\xbf");
  const bool json = first != std::string::npos && file->bytes[first] == '{';
  return json ? OpenHuggingFace(*file, std::move(*special)) : OpenSentencePiece(*file, std::move(*special));
}

}  // namespace trainyard::tokenizer
