#include <sentencepiece_processor.h>

#include <algorithm>
#include <string>
#include <utility>

#include "trainer/tokenizer/kinds.h"
#include "trainer/tokenizer/utf8.h"

namespace trainyard::tokenizer {
namespace {

using sentencepiece::SentencePieceProcessor;

class SentencePiece final : public Tokenizer {
 public:
  SentencePiece(const TokenizerFile& file, std::unique_ptr<SentencePieceProcessor> model, SpecialTokens special)
      : Tokenizer("SentencePiece", file.path, file.hash, model->GetPieceSize(), std::move(special)),
        model_(std::move(model)) {
    for (int id = 0; id < model_->GetPieceSize(); ++id) {
      if (model_->IsControl(id)) control_.push_back(model_->IdToPiece(id));
    }
    // Of two that begin at the same place the longer one counts.
    std::sort(control_.begin(), control_.end(), [](const auto& a, const auto& b) { return a.size() > b.size(); });
  }

  Result<std::vector<uint32_t>> Encode(std::string_view text) const override {
    if (const Status valid = CheckUtf8(text); !valid) return Fail(valid.error());
    std::vector<int> ids;
    if (const auto status = model_->Encode(text, &ids); !status.ok()) return Refused(status);
    return std::vector<uint32_t>(ids.begin(), ids.end());
  }

  Result<std::vector<uint32_t>> EncodePrompt(std::string_view text) const override {
    Result<std::vector<uint32_t>> ids = Encode(text);
    const auto first = bos();
    if (ids && first && special().add_bos) ids->insert(ids->begin(), *first);
    return ids;
  }

  Result<TokensWithSpans> EncodeWithSpans(std::string_view text) const override {
    if (const Status valid = CheckUtf8(text); !valid) return Fail(valid.error());
    TokensWithSpans out;
    size_t at = 0;
    while (at < text.size()) {
      const auto [begin, name] = NextControl(text, at);
      if (begin > at) {
        if (const Status status = Append(text, {at, begin}, out); !status) return Fail(status.error());
      }
      if (name == nullptr) break;
      at = begin + name->size();
      out.ids.push_back(static_cast<uint32_t>(model_->PieceToId(*name)));
      out.spans.push_back({begin, at});
    }
    return out;
  }

  Result<std::string> DecodeIds(const std::vector<uint32_t>& ids, bool names) const override {
    std::string text;
    std::vector<int> plain;
    const auto flush = [&]() -> Status {
      std::string part;
      if (const auto status = model_->Decode(plain, &part); !status.ok()) return Refused(status);
      text += part;
      plain.clear();
      return {};
    };
    for (const uint32_t id : ids) {
      if (id >= vocab()) {
        return Fail(ErrorCode::kInvalidArgument, "token " + std::to_string(id) + " is not below the vocabulary of " +
                                                     std::to_string(vocab()) + " of " + path());
      }
      plain.push_back(static_cast<int>(id));
      if (!names || !model_->IsControl(plain.back())) continue;
      plain.pop_back();
      if (const Status status = flush(); !status) return Fail(status.error());
      text += NameOf(id);
    }
    if (const Status status = flush(); !status) return Fail(status.error());
    return text;
  }

  std::optional<uint32_t> Find(std::string_view name) const override {
    const int id = model_->PieceToId(name);  // that of the unknown token where there is none
    return model_->IdToPiece(id) == name ? std::optional(static_cast<uint32_t>(id)) : std::nullopt;
  }
  std::string NameOf(uint32_t id) const override {
    return id < vocab() ? model_->IdToPiece(static_cast<int>(id)) : std::string();
  }

 private:
  tl::unexpected<Error> Refused(const sentencepiece::util::Status& status) const {
    return Fail(ErrorCode::kInvalidArgument, path() + " refuses the text: " + status.message());
  }

  // The first name of a control token at or behind `at`, and where; text.size() and null where there is none.
  std::pair<size_t, const std::string*> NextControl(std::string_view text, size_t at) const {
    std::pair<size_t, const std::string*> next{text.size(), nullptr};
    for (const std::string& name : control_) {
      const size_t found = text.find(name, at);
      if (found < next.first) next = {found, &name};
    }
    return next;
  }

  Status Append(std::string_view text, Span part, TokensWithSpans& out) const {
    sentencepiece::ImmutableSentencePieceText pieces;
    const auto status = model_->Encode(text.substr(part.begin, part.end - part.begin), pieces.mutable_proto());
    if (!status.ok()) return Refused(status);
    for (size_t i = 0; i < pieces.pieces_size(); ++i) {
      const auto piece = pieces.pieces(static_cast<int>(i));
      out.ids.push_back(piece.id());
      out.spans.push_back({part.begin + piece.begin(), part.begin + piece.end()});
    }
    return {};
  }

  const std::unique_ptr<SentencePieceProcessor> model_;
  std::vector<std::string> control_;
};

}  // namespace

Result<std::unique_ptr<Tokenizer>> OpenSentencePiece(const TokenizerFile& file, SpecialTokens special) {
  auto model = std::make_unique<SentencePieceProcessor>();
  if (const auto status = model->LoadFromSerializedProto(file.bytes); !status.ok()) {
    return Fail(ErrorCode::kInvalidArgument, file.path + " is no SentencePiece model: " + status.message());
  }
  // The model knows its own, whatever no other file says.
  if (special.bos.empty() && model->bos_id() >= 0) special.bos = model->IdToPiece(model->bos_id());
  if (special.eos.empty() && model->eos_id() >= 0) special.eos = model->IdToPiece(model->eos_id());
  return std::make_unique<SentencePiece>(file, std::move(model), std::move(special));
}

}  // namespace trainyard::tokenizer
