// The end of a job's checkpoints, for spec.checkpoint.onDelete: Delete. Thread-safety: called once, from the main
// thread.
#pragma once

#include <string>

#include "trainer/config/config.h"

namespace trainyard::loop {

// Removes the checkpoints of job $TRAINYARD_JOB_UID in $TRAINYARD_VOLUME_ROOT/`volume`/`path` and returns the
// contract's exit code: kExitSucceeded also where there are none, kExitFenced when the directory is another job's by
// now. A failure is one line on standard error, as that of a rank.
int RemoveCheckpoints(const config::GetEnv& get, const std::string& volume, const std::string& path);

}  // namespace trainyard::loop
