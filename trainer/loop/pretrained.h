// A job that starts from a Hugging Face directory: its weights straight into the shards. Thread-safety: the rank's
// thread.
#pragma once

#include "trainer/loop/session.h"

namespace trainyard::loop {

// Of a job with an adapter: reads the frozen weights from model.pretrained, each rank the bytes of its rows alone, and
// sets session.base; nothing without one. Engine::OnLoaded comes after it. Collective. Failures: kExitData for a
// directory that does not hold the model; kExitStorage.
Outcome<void> ReadBase(Session& session);

// Reads the weights of model.pretrained into the engine: each rank the bytes of its rows alone; with an adapter
// ReadBase has done so. What the directory has besides is carried along with the job's checkpoints. Optimizer, data and
// step begin at the start. Says how much was read, in the log and in the status. Collective. Failures: as above.
Outcome<void> StartFromPretrained(Session& session);

// On rank 0: what the checkpoints that a job takes over from another directory carry along comes with them.
Outcome<void> TakeSourceFiles(const Session& session, const std::string& from_root);

}  // namespace trainyard::loop
