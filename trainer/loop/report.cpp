#include "trainer/loop/report.h"

#include <chrono>
#include <cinttypes>
#include <cstdio>

#include "operator/base/files.h"
#include "trainer/contract/contract.h"
#include "trainer/observe/log.h"

namespace trainyard::loop {
namespace {

constexpr std::chrono::milliseconds kStatusInterval{200};
constexpr std::chrono::seconds kLineInterval{10};  // a log is read by people: the step log has every step

std::string InRunDir(const config::RankEnv& env, std::string_view file) {
  return env.run_dir + "/" + std::string(file);
}

}  // namespace

Report::Report(const config::RankEnv& env, int64_t steps)
    : active_(env.rank == 0), file_(InRunDir(env, contract::kStatusFile), kStatusInterval) {
  status_.job_uid = env.uid;
  status_.attempt = env.attempt;
  status_.round = env.round;
  status_.world_size = env.world;
  status_.steps = steps;
  status_.phase = contract::phase::kStarting;
  if (!active_) return;
  Check(MakeDirectories(env.run_dir));
  auto log = observe::StepLog::Open(InRunDir(env, contract::kStepLogFile));
  if (log) {
    log_ = std::move(*log);
  } else {
    Check(Fail(log.error()));
  }
}

void Report::Phase(std::string_view phase) {
  status_.phase = phase;
  Flush();
}

void Report::Step(const observe::StepRecord& record) {
  if (!active_) return;
  status_.phase = contract::phase::kTraining;
  status_.step = record.step;
  status_.loss = record.loss;
  status_.tokens_per_second = record.tokens_per_second;
  status_.step_seconds = record.step_seconds;
  status_.data_seconds = record.data_seconds;
  const auto now = std::chrono::steady_clock::now();
  Check(file_.Update(status_, now));
  if (log_) Check(log_->Append(record));
  if (now - last_line_ >= kLineInterval || record.step == status_.steps) {
    last_line_ = now;
    char line[200];
    std::snprintf(line, sizeof line,
                  "step %" PRId64 " of %" PRId64 ": loss %.4f, learning rate %.3g, gradient norm %.3f, %.0f tokens/s",
                  record.step, status_.steps, record.loss, record.learning_rate, record.gradient_norm,
                  record.tokens_per_second);
    observe::Info(line);
  }
}

void Report::Flush() {
  if (active_) Check(file_.Write(status_, std::chrono::steady_clock::now()));
}

void Report::Check(const Status& written) {
  if (written || warned_) return;
  warned_ = true;
  observe::Warn(written.error().message + "; training goes on without it");
}

}  // namespace trainyard::loop
