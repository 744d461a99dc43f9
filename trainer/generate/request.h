// What trainyard-generate is asked to do: one JSON value on its command line, written by `trainyard generate`.
// Thread-safety: plain values; pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "operator/base/error.h"

namespace trainyard::generate {

struct Request {
  // Where the weights are: one of the two.
  std::string checkpoint;  // one of ours
  std::string model;       // Hugging Face directory
  std::string adapter;     // of it, as checkpoint::AdapterSource takes it; empty: none
  std::string tokenizer;   // as Tokenizer::Open takes it; empty: the model's own
  std::string precision;   // "BF16", "FP32"; empty: as the weights are stored

  std::string prompt;
  bool chat = false;          // the prompt is what a user says
  std::string chat_template;  // a name of tokenizer/chat.h; empty: the model's own
  std::string system;         // message before it

  int64_t tokens = 128;     // at most
  bool ignore_end = false;  // go on behind the end of the text
  double temperature = 0;
  int64_t top_k = 0;
  double top_p = 1;
  uint64_t seed = 0;

  int threads = 0;  // 0: all cores
  bool json = false;
  bool verbose = false;

  friend bool operator==(const Request&, const Request&) = default;
};

// That every text of the request is UTF-8, which JSON has to be. Error: kInvalidArgument, naming the flag and the byte.
Status CheckText(const Request& request);
// Throws nlohmann::json::exception where CheckText is not content.
std::string ToJson(const Request& request);
// Error: kInvalidArgument for what ToJson does not write.
Result<Request> ParseRequest(const std::string& json);

}  // namespace trainyard::generate
