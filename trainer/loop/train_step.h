// One optimizer step of all ranks: micro-batches forward and backward, what the ranks must agree on, the update.
// Thread-safety: one thread; every rank calls it for the same step.
#pragma once

#include <cstdint>

#include "trainer/loop/session.h"

namespace trainyard::loop {

struct StepResult {
  // Mean nats per token of the global batch, before the update; same bits on every rank. Not finite: the step was
  // skipped, or its gradient norm is not finite either.
  double loss = 0;
  double gradient_norm = 0;  // before clipping
  double learning_rate = 0;
  int64_t tokens = 0;     // targets of the global batch
  bool stop = false;      // at least one rank was asked to stop: all ranks know it after the same step
  bool saving = false;    // the same of a rank that is at work for a save
  bool save_due = false;  // the same of rank 0's clock
};

// Runs step `step` (from 1), advances the session's progress and books its time on session.watch. The loss is a sum
// over tokens, divided once by the global token count. A loss or gradient norm that is not finite ends training
// (kExitNonFinite, on every rank and before the update) or, with SkipStep, passes over the update alone. Failures
// besides: kExitData. Throws CommError.
Outcome<StepResult> TrainStep(Session& session, int64_t step);

}  // namespace trainyard::loop
