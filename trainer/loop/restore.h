// Where a session starts: at a checkpoint or from the beginning. Thread-safety: one thread; every rank calls it once.
#pragma once

#include "trainer/loop/session.h"

namespace trainyard::loop {

// Takes the checkpoint directory over (rank 0, before anyone reads), chooses the checkpoint, lets every rank read just
// the boxes that it owns, and sets the session's progress. A checkpoint that turns out to be damaged while it is read
// is named, and the next older one is taken.
// resume Latest: the newest valid one, or a fresh start when there is none. Never and Step speak about what was there
// before this job: the first attempt follows them (later checkpoints are moved aside), later attempts of the same job
// go on from their own. resumeFrom is where a job starts that would start from the beginning; that checkpoint is only
// read, and must be readable.
// Failures: kExitFenced; kExitCheckpoint when no checkpoint can be read although there are some or one was named, or
// when it is of another model; kExitConfiguration; kExitData; kExitStorage. Throws CommError.
Outcome<void> Restore(Session& session);

}  // namespace trainyard::loop
