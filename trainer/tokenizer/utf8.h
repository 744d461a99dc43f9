// UTF-8: which bytes are, and how to quote them. Thread-safety: pure functions.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "operator/base/error.h"

namespace trainyard::tokenizer {

// The first byte that is not part of well-formed UTF-8 (Unicode 15, table 3-7), or text.size() where all is.
size_t ValidUtf8Prefix(std::string_view text);
// Error: kInvalidArgument with the byte.
Status CheckUtf8(std::string_view text);
// What a message may quote of somebody's UTF-8: one line, at most 40 bytes of whole characters, "..." for the rest.
std::string Brief(std::string_view text);

}  // namespace trainyard::tokenizer
