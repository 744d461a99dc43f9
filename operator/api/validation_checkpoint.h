// What spec.checkpoint must keep. Private to the room. Thread-safety: pure functions.
#pragma once

#include "operator/api/checks.h"
#include "operator/api/training_job.h"

namespace trainyard::api {

void CheckCheckpoint(Checks& c, const TrainingJob& job);

}  // namespace trainyard::api
