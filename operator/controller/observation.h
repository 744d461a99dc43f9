// What a decision is made from: the job as it was read, its pods, and what rank 0 says of its progress.
// Thread-safety: functions that may run on any thread.
#pragma once

#include "operator/cluster/progress.h"
#include "operator/controller/caches.h"
#include "operator/lifecycle/lifecycle.h"

namespace trainyard::controller {

// Everything but what the ledger says. A job that cannot be asked is no worse for it.
lifecycle::Input Observe(const JobRecord& record, Caches& caches, cluster::ProgressSource& progress, TimePoint now);

// What rank 0 says, by the pods of `input` as they are now: again after they were listed, since its last words may have
// come meanwhile.
void ReadProgress(lifecycle::Input& input, cluster::ProgressSource& progress);

}  // namespace trainyard::controller
