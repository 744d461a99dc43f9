// Defaults that follow from other fields; constant ones are the initial values in training_job.h and in the CRD.
// Thread-safety: pure functions.
#pragma once

#include "operator/api/training_job.h"

namespace trainyard::api {

// Fills in kvHeads = attentionHeads, ffnSize = 8/3 of hiddenSize rounded up to a multiple of 16, vocabSize = 256 for
// Text, maxPositions = training.sequenceLength, checkpoint.path = the job's name, metadata.namespace = "default".
// Idempotent; touches no field that is set; safe on input that Validate would refuse.
void ApplyDefaults(TrainingJob& job);

// Steps of the decay at the end of WarmupStableDecay: decaySteps, or where that is 0 a tenth of steps, rounded up, but
// no more than the warm-up leaves.
int64_t DecaySteps(const Training& training);

}  // namespace trainyard::api
