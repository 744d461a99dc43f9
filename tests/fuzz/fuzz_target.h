// What a fuzz target and its driver share. A target defines LLVMFuzzerTestOneInput, as libFuzzer calls it; driver.cpp
// runs it on a corpus and on random changes of it. Thread-safety: one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>

#include <nlohmann/json.hpp>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace trainyard::fuzz {

// Ends the process when a promise is broken, which is what a fuzzer looks for.
inline void Require(bool holds, const std::string& promise) {
  if (holds) return;
  std::fprintf(stderr, "broken promise: %s\n", promise.c_str());
  std::abort();
}

// Every error is one line that a person can read.
inline void RequireOneLine(const std::string& message) {
  Require(!message.empty(), "an error says what is wrong");
  Require(message.size() < 1000, "an error is short: " + std::to_string(message.size()) + " bytes");
  for (const char c : message) {
    Require(static_cast<unsigned char>(c) >= 0x20 && c != 0x7f, "an error is one line of text: " + message);
  }
}

// What a status or an event may carry.
inline void RequireUtf8(const std::string& message) {
  bool good = true;
  try {
    nlohmann::json(message).dump();
  } catch (const nlohmann::json::type_error&) {
    good = false;
  }
  Require(good, "an error about UTF-8 text is UTF-8 text");
}

}  // namespace trainyard::fuzz
