// What a decision is made from: the job as it was read, its pods, and what rank 0 says of its progress.
// Thread-safety: functions that may run on any thread.
#pragma once

#include "operator/cluster/progress.h"
#include "operator/controller/caches.h"
#include "operator/lifecycle/lifecycle.h"

namespace trainyard::controller {

// Everything but what the ledger says. A job that cannot be asked is no worse for it.
lifecycle::Input Observe(const JobRecord& record, Caches& caches, cluster::ProgressSource& progress, TimePoint now);

}  // namespace trainyard::controller
