// What `trainyard data tokenize` and `trainyard data show` do. Thread-safety: call from one thread.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "operator/base/clock.h"
#include "operator/cli/data/encode.h"
#include "operator/cli/run/printer.h"

namespace trainyard::cli {

struct TokenizeFlags {
  std::string tokenizer;  // path, or "bytes"
  std::vector<std::string> inputs;
  InputFormat format = InputFormat::kText;
  std::string output;
  std::string field;          // empty: "text", or "messages" for chat
  std::string chat_template;  // empty: the one that the model's directory names
  std::string separator;      // name or number of a token, "none"; empty: the tokenizer's end of text
  bool bos = false;
  int64_t sequence_length = 0;
  bool skip_long = false;
  int threads = 0;  // 0: all cores
  bool json = false;
};

// Writes flags.output, or nothing under that name. Returns an exit code (exit_codes.h); `interrupted` ends it early
// with kExitInterrupted. Progress goes to the console: a live line on a terminal, else a line every ten seconds.
int RunDataTokenize(const TokenizeFlags& flags, Console console, const Clock& clock,
                    const std::function<bool()>& interrupted);

// What the header of a token file says and, with a tokenizer, its first `tokens` tokens as text, and which are learned.
int RunDataShow(const std::string& path, const std::string& tokenizer, int64_t tokens, bool json, Console console);

}  // namespace trainyard::cli
