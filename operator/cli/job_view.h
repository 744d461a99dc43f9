// What a job's status means to someone who watches it. Thread-safety: pure functions.
#pragma once

#include <string>

#include "operator/api/training_job.h"
#include "trainer/contract/contract.h"

namespace trainyard::cli {

// True while the live attempt trains: all ranks run and have begun with steps. Status keeps the last progress of the
// attempt before until the live one reports, hence the look at the times.
inline bool TrainsNow(const api::JobStatus& s) {
  if (s.phase != api::Phase::kRunning || s.stop || !s.progress) return false;
  if (!s.placing_since || !s.progress_time || *s.progress_time < *s.placing_since) return false;
  const std::string& phase = s.progress->trainer_phase;
  return phase == contract::phase::kTraining || phase == contract::phase::kEvaluating ||
         phase == contract::phase::kCheckpointing;
}

// Why the newest spec will not come about on nodes that stay as they are, such as simulated ones; null: nothing says
// so.
inline const api::Condition* Hindrance(const api::TrainingJob& job) {
  for (const api::Condition& c : job.status.conditions) {
    if (c.observed_generation != job.meta.generation) continue;
    if (c.type == "Planned" && c.status == "False") return &c;
    if (c.type == "Placed" && (c.reason == "ResizeWaits" || c.reason == "NoRoom")) return &c;
  }
  return nullptr;
}

}  // namespace trainyard::cli
