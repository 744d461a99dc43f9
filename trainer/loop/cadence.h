// When the next save is due where the job does not say it in steps, what saves cost training, and when the next one is
// to be expected. Rank 0 keeps it; the others learn from the vote of a step. Thread-safety: one thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <optional>

#include "trainer/config/config.h"

namespace trainyard::loop {

class Cadence {
 public:
  using Time = std::chrono::steady_clock::time_point;
  // Begins with what saves cost in an earlier attempt, where the job says it.
  Cadence(const config::Checkpoint& job, Time now);

  // A step has taken so long; `saving`: beside a save.
  void Stepped(double seconds, bool saving);
  // A save begins.
  void Began(Time now);
  // It has been committed so long after it began, and training has stood still for a part of that.
  void Saved(double seconds, double stall_seconds);

  // Whether a save is due by time; false where the cadence is in steps or there is none.
  bool Due(Time now) const;
  // Seconds between the starts of two saves, as they are in force; nothing where the cadence is in steps or there is
  // none.
  std::optional<double> interval_seconds() const;
  // What a save takes from training: its stall, and what the steps beside it were slower by than the median of the
  // others; half the last one, half those before. Nothing while none is known.
  std::optional<double> cost_seconds() const { return cost_; }
  // The step after which the next save is to be expected, after `step`; nothing when that cannot be told.
  std::optional<int64_t> NextStep(int64_t step, Time now) const;

 private:
  std::optional<double> MedianStep() const;

  const config::Checkpoint job_;
  Time began_;                // of the last save, at first of training
  std::deque<double> steps_;  // seconds of the last steps without a save
  double beside_ = 0;         // seconds of the steps beside this save
  int64_t beside_count_ = 0;
  std::optional<double> cost_, save_seconds_;
};

}  // namespace trainyard::loop
