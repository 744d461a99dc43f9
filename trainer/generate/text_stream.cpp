#include "trainer/generate/text_stream.h"

#include <algorithm>

#include "trainer/tokenizer/utf8.h"

namespace trainyard::generate {
namespace {

constexpr size_t kContext = 5;  // tokens of the context that are looked at: more than any character takes
constexpr std::string_view kReplacement = "\xef\xbf\xbd";  // U+FFFD: what libraries write for half a character

// How many bytes at the end of `text` may yet become a character: none or up to three.
size_t Unfinished(std::string_view text) {
  for (size_t n = 1; n <= std::min<size_t>(3, text.size()); ++n) {
    const auto byte = static_cast<uint8_t>(text[text.size() - n]);
    if ((byte & 0xc0) == 0x80) continue;  // one that follows
    const size_t length = byte >= 0xf0 && byte < 0xf5 ? 4 : byte >= 0xe0 ? 3 : byte >= 0xc2 ? 2 : 1;
    return byte < 0xf5 && length > n ? n : 0;
  }
  return 0;
}

// Every byte that is no part of a character as U+FFFD.
std::string Repaired(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const size_t valid = tokenizer::ValidUtf8Prefix(text);
    out += text.substr(0, valid);
    text.remove_prefix(valid);
    if (text.empty()) break;
    out += kReplacement;
    text.remove_prefix(1);
  }
  return out;
}

}  // namespace

TextStream::TextStream(const tokenizer::Tokenizer& tokenizer, const std::vector<uint32_t>& context)
    : tokenizer_(tokenizer),
      ids_(context.end() - static_cast<std::ptrdiff_t>(std::min(kContext, context.size())), context.end()),
      told_(ids_.size()) {}

Result<std::string> TextStream::Text(size_t begin, size_t end) const {
  return tokenizer_.Decode(
      {ids_.begin() + static_cast<std::ptrdiff_t>(begin), ids_.begin() + static_cast<std::ptrdiff_t>(end)});
}

// What ids_ has beyond what was told, as it is.
Result<std::string> TextStream::Fresh() const {
  const Result<std::string> before = Text(begin_, told_);
  if (!before) return before;
  Result<std::string> all = Text(begin_, ids_.size());
  if (!all) return all;
  // A context that ends within a character is another text than with its rest.
  if (!all->starts_with(*before)) return Text(told_, ids_.size());
  return all->substr(before->size());
}

Result<std::string> TextStream::Push(uint32_t id) {
  if (id >= tokenizer_.vocab()) {  // models may have more tokens than their tokenizers know
    Result<std::string> rest = End();
    if (rest) *rest += kReplacement;
    return rest;
  }
  ids_.push_back(id);
  const Result<std::string> fresh = Fresh();
  if (!fresh) return fresh;
  // Libraries write a character in the making as U+FFFD; after so many tokens it is one that the model meant.
  constexpr size_t kMostHeldBack = 8;
  const bool unfinished = fresh->ends_with(kReplacement) && ids_.size() - told_ < kMostHeldBack;
  if (fresh->empty() || unfinished) return std::string();
  begin_ = told_;
  told_ = ids_.size();
  rest_ += *fresh;
  const size_t whole = rest_.size() - Unfinished(rest_);
  std::string out = Repaired(std::string_view(rest_).substr(0, whole));
  rest_.erase(0, whole);
  return out;
}

Result<std::string> TextStream::End() {
  const Result<std::string> fresh = Fresh();
  if (!fresh) return fresh;
  begin_ = told_ = ids_.size();
  std::string out = Repaired(rest_ + *fresh);
  rest_.clear();
  return out;
}

}  // namespace trainyard::generate
