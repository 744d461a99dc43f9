// The Hugging Face directory at the end of a job, or, of a job that trains an adapter, that in PEFT's layout
// (checkpoint.exportOnSuccess). Thread-safety: the rank's thread.
#pragma once

#include "trainer/loop/session.h"

namespace trainyard::loop {

// On rank 0, before training: that the place is free, or holds an export of this very job. Failure: kExitConfiguration,
// so that it is not found out after days of training.
Outcome<void> CheckExportPlace(const Session& session);

// After the last step and its save: rank 0 writes the model of that checkpoint beside the place and renames it into it;
// the others wait. An export of this job at this step that is there is left as it is, of another step it is replaced.
// Collective. Failures: kExitConfiguration for a place that somebody else has taken meanwhile; kExitCheckpoint;
// kExitStorage.
Outcome<void> ExportOnSuccess(Session& session);

}  // namespace trainyard::loop
