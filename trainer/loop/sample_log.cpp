#include "trainer/loop/sample_log.h"

#include <cerrno>
#include <cinttypes>
#include <cstring>
#include <string_view>

#include "operator/base/ids.h"

namespace trainyard::loop {

std::string SampleLogPath(const std::string& where, const std::string& run_dir, int64_t attempt, int rank) {
  const std::string last = std::to_string(rank) + ".jsonl";
  if (where.find('/') == std::string::npos) return run_dir + "/samples-" + last;
  return where + "/samples-" + std::to_string(attempt) + "-" + last;
}

Result<SampleLog> SampleLog::Open(const std::string& path) {
  std::FILE* file = std::fopen(path.c_str(), "ae");
  if (file == nullptr) return Fail(ErrorCode::kUnavailable, "cannot open " + path + ": " + std::strerror(errno));
  return SampleLog(file);
}

void SampleLog::Append(int64_t step, int64_t cursor, const at::Tensor& tokens) {
  const auto row_bytes = static_cast<size_t>(tokens.size(1)) * sizeof(int64_t);
  const char* bytes = static_cast<const char*>(tokens.const_data_ptr());
  for (int64_t row = 0; row < tokens.size(0); ++row) {
    const uint64_t digest = StableHash(std::string_view(bytes + static_cast<size_t>(row) * row_bytes, row_bytes));
    std::fprintf(file_.get(), "{\"step\":%" PRId64 ",\"cursor\":%" PRId64 ",\"digest\":\"%016" PRIx64 "\"}\n", step,
                 cursor + row, digest);
  }
  std::fflush(file_.get());
}

}  // namespace trainyard::loop
