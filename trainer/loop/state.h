// Between the session and the bytes of a checkpoint: which tensors it has under which names, and train_state.json.
// Thread-safety: one thread.
#pragma once

#include <string>
#include <vector>

#include <ATen/ATen.h>
#include <nlohmann/json_fwd.hpp>

#include "trainer/checkpoint/format.h"
#include "trainer/loop/live_state.h"
#include "trainer/loop/session.h"

namespace trainyard::loop {

// The live state with memory to write from and to read into.
struct StateSlices {
  std::vector<checkpoint::TensorSlice> model, optim;
  // Memory that the slices point into: the live state where it is in host memory, else host copies.
  std::vector<at::Tensor> host;
  std::vector<at::Tensor> device;  // what each of `host` is a copy of
};
StateSlices SlicesOf(engine::Engine& engine);
// Copies host memory back where it is not the live state itself.
void StoreSlices(const StateSlices& slices);

// {"version", "step", "consumedSequences", "consumedTokens", "skippedSteps", "seed", "sequenceLength",
// "globalBatchSize",
//  "dataFingerprint", "loss", "initialValidationLoss", "validationLoss", "resume", "worldSize", "threads", "optimizer",
//  "rate", "model", "determinism"}
std::string TrainStateJson(const Session& session);
// Takes over what TrainStateJson wrote. Failures: kExitCheckpoint for a state that is not ours, kExitConfiguration for
// another seed or sequence length (the order of samples would change) or another optimizer, kExitData for other
// training data.
Outcome<Progress> ParseTrainState(const Session& session, const nlohmann::json& state);

// That the weights fit the job's model. Failure: kExitCheckpoint.
Outcome<void> CheckModel(const Session& session, const nlohmann::json& state);

// How the job was told to resume, as one word that a later attempt can compare: "Latest", "Never", "Step 200".
std::string ResumeDirective(const config::Checkpoint& checkpoint);

}  // namespace trainyard::loop
