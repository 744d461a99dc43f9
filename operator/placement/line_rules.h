// The rules of the line that forming it and joining it share. Private to the room.
// Pure. Thread-safety: pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <tuple>
#include <vector>

#include "operator/placement/line.h"

namespace trainyard::placement {

// Each reservation costs a search per forming; whoever comes after so many waits without one. As Slurm's
// bf_max_job_part.
constexpr size_t kMaxHeads = 16;

// Whoever has the smaller one comes first; of a WaitingGang or its LineEntry, and valid as long as that.
template <typename Gang>
std::tuple<int64_t, TimePoint, std::string_view> TurnOf(const Gang& gang) {
  return {-gang.priority, gang.since, gang.uid};
}

LineEntry& Enter(Line& line, const WaitingGang& gang);

// Those ahead whose reservation the gang must respect, ascending.
std::vector<size_t> InTheWay(const Line& line, const WaitingGang& gang);

// A gang that has run before and asks for what it holds nothing of: that it has run says nothing then.
bool HoldsNothing(const Yard& yard, const GangRequest& request);

// Whether there is so little left that nobody needs to look where. What a job holds counts as free for itself, so that
// it must look.
bool Hopeless(const Yard& yard, const Line& line, const GangRequest& request);

// Whether somebody who asks for the same and may use no less was tried already; `heads` ascends.
bool Refused(const Yard& yard, const Line& line, const GangRequest& request, const std::vector<size_t>& heads);

// The head behind which a gang waits: the first that is to start on a node that the gang could use as well, or just the
// first where there can be no more heads. None: it is a head itself.
std::optional<size_t> HeadOf(const Yard& yard, const Line& line, const GangRequest& request);

}  // namespace trainyard::placement
