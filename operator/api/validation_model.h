// What spec.model must keep. Private to the room. Thread-safety: pure functions.
#pragma once

#include "operator/api/checks.h"
#include "operator/api/training_job.h"

namespace trainyard::api {

void CheckModel(Checks& c, const Spec& spec);

}  // namespace trainyard::api
