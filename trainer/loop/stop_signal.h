// SIGTERM and SIGINT as a wish: the loop ends at the next step boundary on which all ranks agree. A second SIGINT ends
// the process at once. Thread-safety: StopRequested() may be called from any thread.
#pragma once

namespace trainyard::loop {

void WatchStopSignals();
bool StopRequested();

}  // namespace trainyard::loop
