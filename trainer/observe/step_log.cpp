#include "trainer/observe/step_log.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <nlohmann/json.hpp>
#include <utility>

namespace trainyard::observe {

double Round9(double value) {
  char text[40];
  std::snprintf(text, sizeof text, "%.9g", value);
  return std::strtod(text, nullptr);
}

std::string ToJson(const StepRecord& record) {
  nlohmann::ordered_json json;
  json["step"] = record.step;
  const auto put = [&json](const char* name, double value) {
    if (std::isfinite(value)) json[name] = Round9(value);
  };
  put("loss", record.loss);
  put("learningRate", record.learning_rate);
  put("gradientNorm", record.gradient_norm);
  json["tokens"] = record.tokens;
  put("tokensPerSecond", record.tokens_per_second);
  if (record.mfu) put("mfu", *record.mfu);
  put("stepSeconds", record.step_seconds);
  put("dataSeconds", record.data_seconds);
  put("computeSeconds", record.compute_seconds);
  put("communicationSeconds", record.communication_seconds);
  put("optimizerSeconds", record.optimizer_seconds);
  put("checkpointSeconds", record.checkpoint_seconds);
  json["cursor"] = record.cursor;
  if (record.ranks) {
    const auto rounded = [](const std::vector<double>& values) {
      nlohmann::ordered_json list = nlohmann::ordered_json::array();
      for (const double value : values) list.push_back(Round9(value));
      return list;
    };
    json["ranks"] = {{"peakBytes", record.ranks->peak_bytes},
                     {"residentBytes", record.ranks->resident_bytes},
                     {"dataSeconds", rounded(record.ranks->data_seconds)},
                     {"computeSeconds", rounded(record.ranks->compute_seconds)},
                     {"communicationSeconds", rounded(record.ranks->communication_seconds)}};
  }
  if (record.skipped_steps > 0) json["skippedSteps"] = record.skipped_steps;
  return json.dump();
}

Result<StepLog> StepLog::Open(const std::string& path) {
  const int fd = open(path.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (fd < 0) return Fail(ErrorCode::kUnavailable, "cannot open the step log " + path + ": " + std::strerror(errno));
  char last = '\n';
  const off_t size = lseek(fd, 0, SEEK_END);
  if (size > 0 && pread(fd, &last, 1, size - 1) == 1 && last != '\n') {
    [[maybe_unused]] const ssize_t n = write(fd, "\n", 1);  // if this fails, so does the first Append, which says so
  }
  return StepLog(fd, path);
}

StepLog::StepLog(StepLog&& other) noexcept : fd_(std::exchange(other.fd_, -1)), path_(std::move(other.path_)) {}

StepLog& StepLog::operator=(StepLog&& other) noexcept {
  std::swap(fd_, other.fd_);
  std::swap(path_, other.path_);
  return *this;
}

StepLog::~StepLog() {
  if (fd_ >= 0) close(fd_);
}

Status StepLog::Append(const StepRecord& record) {
  const std::string line = ToJson(record) + "\n";
  // One write(2) past all buffers: the line is in the kernel when it returns, and survives the process.
  const ssize_t n = write(fd_, line.data(), line.size());
  if (n == static_cast<ssize_t>(line.size())) return {};
  return Fail(ErrorCode::kUnavailable,
              "cannot append to the step log " + path_ + ": " + (n < 0 ? std::strerror(errno) : "disk full"));
}

}  // namespace trainyard::observe
