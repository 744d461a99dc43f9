// Ranks as threads of one process: the same Comm without sockets, for tests of everything above dist.
// Thread-safety: each Comm belongs to one rank's thread; together they may run concurrently.
#pragma once

#include <memory>
#include <vector>

#include "trainer/dist/comm.h"

namespace trainyard::dist {

// The `world` ends of one group, index = rank. Sums are made in rank order, also for Reduce::kSum. Calls that differ
// between ranks end in CommError (kUsage) on all of them; a Comm destroyed while others wait for it is a lost peer.
std::vector<std::unique_ptr<Comm>> MakeInProcessComms(int world);

// A group of one rank.
std::unique_ptr<Comm> MakeSelfComm();

}  // namespace trainyard::dist
