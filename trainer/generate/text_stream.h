// Tokens to text, one after another: what is given out at once are whole characters, and all together are the text that
// the tokens have when they are decoded in one go. Thread-safety: one thread at a time.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "operator/base/error.h"
#include "trainer/tokenizer/tokenizer.h"

namespace trainyard::generate {

class TextStream {
 public:
  // The text follows `context`, tokens of which nothing is given out, but which decide, for example, whether a space
  // stands between. `tokenizer` must outlive the stream.
  TextStream(const tokenizer::Tokenizer& tokenizer, const std::vector<uint32_t>& context);

  // What of the text is certain with this token: maybe nothing, when it ends within a character. A token that the
  // tokenizer does not have is U+FFFD.
  // Error: of Tokenizer::Decode.
  Result<std::string> Push(uint32_t id);
  // The rest. Bytes that are no character, if the text ends with some, are each U+FFFD.
  Result<std::string> End();

 private:
  // The text of ids_ from `begin` on, up to `end`.
  Result<std::string> Text(size_t begin, size_t end) const;
  Result<std::string> Fresh() const;

  const tokenizer::Tokenizer& tokenizer_;
  std::vector<uint32_t> ids_;
  // ids_[begin_, told_) were given out as text. They are decoded again together with what follows, since some
  // tokenizers write a token in another way when it comes first.
  size_t begin_ = 0, told_ = 0;
  std::string rest_;  // of that text, bytes at the end that may yet become a character
};

}  // namespace trainyard::generate
