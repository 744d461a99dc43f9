// Who holds what a gang that waits could use: for the words that it is told. Private to the room.
// Pure. Thread-safety: pure functions.
#pragma once

#include <vector>

#include "operator/placement/line.h"

namespace trainyard::placement {

// The line can name this job from now on.
void NameHolder(Line& line, const RunningGang& gang);

// The largest few of `running` that hold GPUs on nodes that the request may use, how many more do, and what pods of no
// job of ours hold there.
void NameHolders(const Yard& yard, const std::vector<const RunningGang*>& running, const GangRequest& request,
                 Line& line, LineEntry& entry);
// The last of these alone.
void CountForeign(const Yard& yard, const GangRequest& request, LineEntry& entry);

}  // namespace trainyard::placement
