// What train_state.json of a checkpoint says of a session.
// Thread-safety: one thread.
#pragma once

#include <string>

#include <nlohmann/json_fwd.hpp>

#include "trainer/loop/session.h"

namespace trainyard::loop {

// {"version", "step", "consumedSequences", "consumedTokens", "skippedSteps", "seed", "sequenceLength",
// "globalBatchSize",
//  "dataFingerprint", "loss", "initialValidationLoss", "validationLoss", "resume", "worldSize", "threads", "optimizer",
//  "rate", "maxPositions", "model", "adapter", "base", "determinism"}
std::string TrainStateJson(const Session& session);
// Takes over what TrainStateJson wrote. Failures: kExitCheckpoint for a state that is not ours, kExitConfiguration for
// another seed or sequence length (the order of samples would change) or another optimizer, kExitData for other
// training data.
Outcome<Progress> ParseTrainState(const Session& session, const nlohmann::json& state);

// That the weights fit the job's model, its adapter and the base of that. `weights_only`: how the adapter was trained,
// its dropout and the type of the base, may differ. Failure: kExitCheckpoint.
Outcome<void> CheckModel(const Session& session, const nlohmann::json& state, bool weights_only = false);

// How the job was told to resume, as one word that a later attempt can compare: "Latest", "Never", "Step 200".
std::string ResumeDirective(const config::Checkpoint& checkpoint);

}  // namespace trainyard::loop
