// A fingerprint of what the ranks hold in memory: to compare the state before and after a change of their number.
// Thread-safety: one thread.
#pragma once

#include <string>

#include "trainer/loop/session.h"

namespace trainyard::loop {

// 16 hex digits over the fp32 master weights and the optimizer's state of what is trained, row by row, of all ranks:
// the same for the same state at every number of ranks and under every strategy. Costs one pass over the state of a
// rank, through host memory. Collective. Throws CommError, OffloadError.
std::string StateHash(Session& session);

}  // namespace trainyard::loop
