// Saving a checkpoint of all ranks. Thread-safety: one thread; every rank calls it after the same step.
#pragma once

#include "trainer/loop/session.h"

namespace trainyard::loop {

// Every rank writes its shards, rank 0 commits and prunes. Returns when the checkpoint is durable on every rank's word.
// A step that is saved already is not saved again; without job.checkpoint nothing happens. After a failure nothing
// half-written is valid. Failures: kExitStorage, kExitFenced. Throws CommError (also when another rank failed).
Outcome<void> Save(Session& session);

}  // namespace trainyard::loop
