// A debugging aid: which sequences this rank really read, one JSON line each: {"step", "cursor", "digest"}. The digest
// is of the tokens, so that the log shows what was trained on and not what was meant to be. Written when the variable
// TRAINYARD_SAMPLE_LOG is set: 1 for the run directory, or a directory that outlives the pods. Thread-safety: one
// thread.
#pragma once

#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>

#include <ATen/ATen.h>

#include "operator/base/error.h"

namespace trainyard::loop {

inline constexpr const char* kEnvSampleLog = "TRAINYARD_SAMPLE_LOG";

// samples-RANK.jsonl in the run directory, which one attempt has for itself, or samples-ATTEMPT-RANK.jsonl in `where`
// when that is a path.
std::string SampleLogPath(const std::string& where, const std::string& run_dir, int64_t attempt, int rank);

class SampleLog {
 public:
  // Appends to `path`. Error: kUnavailable names it.
  static Result<SampleLog> Open(const std::string& path);
  // tokens: [rows, s+1] int64 on the CPU, the sequences at cursors [cursor, cursor + rows).
  void Append(int64_t step, int64_t cursor, const at::Tensor& tokens);

 private:
  struct Closer {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  explicit SampleLog(std::FILE* file) : file_(file) {}
  std::unique_ptr<std::FILE, Closer> file_;
};

}  // namespace trainyard::loop
