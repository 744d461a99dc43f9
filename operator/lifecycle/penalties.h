// Nodes that failed a job's gangs: each failure counts, the more of them the longer the node is avoided while others
// fit, and time forgives. Only this job's gangs avoid them: no node is marked for anybody else.
// Private to the room. Thread-safety: pure functions.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "operator/api/training_job.h"
#include "operator/base/clock.h"

namespace trainyard::lifecycle {

// What is left of status.excludedNodes: a number is halved for every whole `period` since it was set. One whose time is
// not known, since an older operator wrote it, counts in full.
std::map<std::string, int64_t> ActivePenalties(const api::JobStatus& status, TimePoint now, Milliseconds period);

// One more failure of `node`, on top of what is left of those before it.
void AddPenalty(api::JobStatus& status, const std::string& node, TimePoint now, Milliseconds period);

// Drops what time has forgiven, and lets the clock of the numbers begin that have none. For writes that happen anyway.
void ForgetOldPenalties(api::JobStatus& status, TimePoint now, Milliseconds period);

}  // namespace trainyard::lifecycle
