// What rank 0 tells the world: status.json, the step log and lines for people. On other ranks everything is silent.
// A report that cannot be written is warned about once and never ends training. Thread-safety: one thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "trainer/config/config.h"
#include "trainer/observe/status_file.h"
#include "trainer/observe/step_log.h"

namespace trainyard::loop {

class Report {
 public:
  // `env.run_dir` is made when missing.
  Report(const config::RankEnv& env, int64_t steps);

  // The status that goes out next; change it freely.
  observe::TrainerStatus& status() { return status_; }
  // Enters a phase of the contract and says so.
  void Phase(std::string_view phase);
  // After a step.
  void Step(const observe::StepRecord& record);
  // Writes the status now.
  void Flush();

 private:
  void Check(const Status& written);

  const bool active_;
  observe::TrainerStatus status_;
  observe::StatusFile file_;
  std::optional<observe::StepLog> log_;
  bool warned_ = false;
  std::chrono::steady_clock::time_point last_line_{};
};

}  // namespace trainyard::loop
