// What rank 0 tells the world: status.json, the step log, TensorBoard events and lines for people. On other ranks
// everything is silent. A report that cannot be written is warned about once and never ends training. Thread-safety:
// one thread.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>

#include "trainer/config/config.h"
#include "trainer/observe/append_file.h"
#include "trainer/observe/event_file.h"
#include "trainer/observe/spike.h"
#include "trainer/observe/status_file.h"
#include "trainer/observe/step_log.h"

namespace trainyard::loop {

class Report {
 public:
  // `env.run_dir` is made when missing, and the directory of `observe.tensorboard`.
  Report(const config::RankEnv& env, const config::Observe& observe, int64_t steps);

  // The status that goes out next; change it freely.
  observe::TrainerStatus& status() { return status_; }
  // Enters a phase of the contract and says so.
  void Phase(std::string_view phase);
  // Training goes on after this step, 0 for a new job: what viewers show of later ones is void.
  void Begin(int64_t step);
  // Held-out loss in nats per token after `step`.
  void Evaluated(int64_t step, double loss);
  // What the model made of a prompt after `step`.
  void Sampled(int64_t step, const std::string& prompt, const std::string& text);
  // After a step.
  void Step(const observe::StepRecord& record);
  // Writes the status now.
  void Flush();

 private:
  // Warns of each file once.
  void Check(std::string_view file, const Status& written);
  void Alert(const observe::StepRecord& record);
  void Line(const observe::StepRecord& record);

  const bool active_;
  const std::string text_file_;
  observe::TrainerStatus status_;
  observe::StatusFile file_;
  std::optional<observe::StepLog> log_;
  std::optional<observe::EventFile> events_;
  std::optional<observe::AppendFile> texts_;  // from the first text on
  observe::SpikeDetector spikes_;
  std::set<std::string_view> warned_;  // of these files
  std::chrono::steady_clock::time_point last_line_{};
};

}  // namespace trainyard::loop
