#include "trainer/tokenizer/utf8.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>

namespace trainyard::tokenizer {
namespace {

// Length of the well-formed sequence that begins at `at`; 0: none does.
size_t SequenceAt(std::string_view text, size_t at) {
  const auto byte = [&](size_t i) { return i < text.size() ? static_cast<uint8_t>(text[i]) : uint8_t{0}; };
  const auto within = [&](size_t i, uint8_t low, uint8_t high) { return byte(i) >= low && byte(i) <= high; };
  const uint8_t lead = byte(at);
  if (lead < 0x80) return 1;
  if (lead >= 0xc2 && lead <= 0xdf) return within(at + 1, 0x80, 0xbf) ? 2 : 0;
  if (lead >= 0xe0 && lead <= 0xef) {  // neither overlong forms nor surrogates
    const bool second = within(at + 1, lead == 0xe0 ? 0xa0 : 0x80, lead == 0xed ? 0x9f : 0xbf);
    return second && within(at + 2, 0x80, 0xbf) ? 3 : 0;
  }
  if (lead >= 0xf0 && lead <= 0xf4) {
    const bool second = within(at + 1, lead == 0xf0 ? 0x90 : 0x80, lead == 0xf4 ? 0x8f : 0xbf);
    return second && within(at + 2, 0x80, 0xbf) && within(at + 3, 0x80, 0xbf) ? 4 : 0;
  }
  return 0;
}

}  // namespace

size_t ValidUtf8Prefix(std::string_view text) {
  size_t at = 0;
  while (at < text.size()) {
    uint64_t eight = 0;  // ASCII in strides
    while (at + sizeof eight <= text.size()) {
      std::memcpy(&eight, text.data() + at, sizeof eight);
      if ((eight & 0x8080808080808080u) != 0) break;
      at += sizeof eight;
    }
    if (at == text.size()) break;
    const size_t length = SequenceAt(text, at);
    if (length == 0) return at;
    at += length;
  }
  return at;
}

Status CheckUtf8(std::string_view text) {
  const size_t valid = ValidUtf8Prefix(text);
  if (valid == text.size()) return {};
  return Fail(ErrorCode::kInvalidArgument, "byte " + std::to_string(valid) + " is not UTF-8");
}

std::string Brief(std::string_view text) {
  constexpr size_t kMost = 40;
  size_t end = std::min(text.size(), kMost);
  while (end > 0 && end < text.size() && (static_cast<uint8_t>(text[end]) & 0xc0) == 0x80) --end;
  std::string brief(text.substr(0, end));
  for (char& c : brief) {
    if (static_cast<uint8_t>(c) < 0x20 || c == 0x7f) c = ' ';
  }
  return end < text.size() ? brief + "..." : brief;
}

}  // namespace trainyard::tokenizer
