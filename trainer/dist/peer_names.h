// Peers are named by their addresses. c10d looks up the name of every peer that connects to its store, to log it, on
// the one thread that serves all ranks, and glibc waits up to 10 s for a name server that does not answer: 64 ranks
// would take minutes to meet, though nobody reads those names. Thread-safety: pure functions.
#pragma once

namespace trainyard::dist {

// True when all libraries of this process use our getnameinfo(), which answers in digits and asks no server. So it is
// in every program that links this file; calling this links it.
bool PeersAreNamedByAddress();

}  // namespace trainyard::dist
