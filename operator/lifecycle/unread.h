// A job whose spec or status cannot be read is left as it is; but its finalizer must not keep it.
// Thread-safety: pure functions.
#pragma once

#include <string>

#include "operator/lifecycle/lifecycle.h"

namespace trainyard::lifecycle {

// Actions and events that let such a job go where it is being deleted, since nobody can tell what its finalizer waits
// for; else nothing. Only metadata of `job` is looked at, and the status is what it was.
Decision LetGoUnread(const api::TrainingJob& job, const std::string& problem);

}  // namespace trainyard::lifecycle
