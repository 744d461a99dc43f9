// Tells the story of a job from one look at it to the next: what happened, as events for people and for programs.
// Thread-safety: one thread.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "operator/api/training_job.h"

namespace trainyard::cli {

// One thing that happened. `kind` is plan, phase, progress, evaluation, checkpoint, resize, warning or summary.
struct StoryEvent {
  std::string kind;
  std::string text;       // one line
  nlohmann::json fields;  // an object, without `event`
};

class Narrator {
 public:
  // `progress_every`: at most one progress event in this time.
  explicit Narrator(Milliseconds progress_every) : progress_every_(progress_every) {}

  // What happened since the last look.
  std::vector<StoryEvent> See(const api::TrainingJob& job, TimePoint now);
  // The last line: phase, step, held-out loss, resizes, last checkpoint, time.
  StoryEvent Summary(const api::TrainingJob& job, TimePoint now) const;

 private:
  struct Resize {
    int64_t from = 0;
    int64_t to = 0;
    int64_t step = 0;
  };

  void SeePlan(const api::TrainingJob& job, std::vector<StoryEvent>& out);
  void SeePhase(const api::TrainingJob& job, std::vector<StoryEvent>& out);
  void SeeResize(const api::TrainingJob& job, std::vector<StoryEvent>& out);
  void SeeHealth(const api::TrainingJob& job, std::vector<StoryEvent>& out);
  void SeeProgress(const api::TrainingJob& job, TimePoint now, std::vector<StoryEvent>& out);

  const Milliseconds progress_every_;
  std::optional<TimePoint> first_;
  api::JobStatus last_;
  bool seen_ = false;
  std::optional<TimePoint> last_progress_;
  int64_t told_step_ = -1;
  std::string told_problem_;
  std::optional<double> told_evaluation_;
  int64_t running_gpus_ = 0;  // of the last attempt that ran
  int64_t running_attempt_ = 0;
  std::vector<Resize> resizes_;
};

// The plan in one line: GPUs, strategy, bytes, why.
std::string DescribePlan(const api::PlanStatus& plan);
// "Running  step 120/400 [######..............] 30%  loss 2.531  18.2k tokens/s  ETA 1m 20s  2 GPUs".
std::string LiveLine(const api::TrainingJob& job);

}  // namespace trainyard::cli
