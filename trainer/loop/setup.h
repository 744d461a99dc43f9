// From environment and resolved job to a session that can train. Thread-safety: called once, from the main thread.
#pragma once

#include "trainer/loop/session.h"

namespace trainyard::loop {

// Everything local, for session.env: job, data, device, number of threads. Nothing is said to other ranks yet, so that
// a wrong job ends every rank by itself with a clear error.
Outcome<void> Prepare(Session& session, const config::GetEnv& get);
// Connects the ranks: session.world.
Outcome<void> Connect(Session& session);
// Groups the ranks of session.world as the job's parallelism says, and builds engine and model with their initial
// weights over them. Collective.
void BuildModel(Session& session);

}  // namespace trainyard::loop
