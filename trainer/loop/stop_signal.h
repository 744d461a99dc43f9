// SIGTERM and SIGINT as a wish: the loop ends at the next step boundary on which all ranks agree. Before training has
// anything to lose they end the process at once, as stopped on purpose. A second SIGINT always does.
// Thread-safety: StopRequested() may be called from any thread.
#pragma once

namespace trainyard::loop {

// From now on a stop signal ends the process with kExitStopped.
void WatchStopSignals();
// From now on a stop signal is only noted.
void DeferStopSignals();
bool StopRequested();

}  // namespace trainyard::loop
