// What a formed line answers, and how it follows a gang that comes, starts or stops without being formed anew.
#include <algorithm>
#include <utility>

#include "operator/placement/line.h"
#include "operator/placement/line_holders.h"
#include "operator/placement/line_rules.h"
#include "operator/placement/reservation.h"

namespace trainyard::placement {

namespace {

// Whether the nodes are still as near to each other as they must be: labels may have changed since they were chosen.
bool StillTogether(const Yard& yard, const GangRequest& request, const GangPlacement& placement) {
  const YardNode* first = yard.Find(placement.nodes.front());
  const bool one_level = request.level_required && !request.level.empty();
  const std::optional<size_t> level = one_level ? yard.LevelIndex(request.level) : std::nullopt;
  if (one_level && !level) return false;
  return std::all_of(placement.nodes.begin(), placement.nodes.end(), [&](const std::string& name) {
    const YardNode* node = yard.Find(name);
    if (node == nullptr || first == nullptr || node->product != first->product) return false;
    if (placement.nodes.size() == 1) return true;
    if (request.nvlink == api::NvLink::kRequired && (node->clique.empty() || node->clique != first->clique))
      return false;
    if (!level) return true;
    return node->path.size() > *level && first->path.size() > *level &&
           std::equal(first->path.begin(), first->path.begin() + static_cast<std::ptrdiff_t>(*level) + 1,
                      node->path.begin());
  });
}

}  // namespace

bool CanTakeAll(const Yard& yard, GangRequest request, const GangPlacement& placement,
                std::map<std::string, int64_t> held) {
  if (!StillTogether(yard, request, placement)) return false;
  request.held = std::move(held);
  return std::all_of(placement.nodes.begin(), placement.nodes.end(), [&](const std::string& name) {
    const YardNode* node = yard.Find(name);
    return node != nullptr && CanTake(yard, *node, request);
  });
}

int64_t RunningGang::Gpus() const {
  int64_t gpus = 0;
  for (const Booking& booking : holds) gpus += booking.gpus;
  return gpus;
}

const LineEntry* Line::Find(std::string_view uid) const {
  const auto found = index.find(std::string(uid));
  return found == index.end() ? nullptr : &entries[found->second];
}

bool Line::EndsBefore(const std::optional<Milliseconds>& estimate, const LineEntry& entry) const {
  return estimate && entry.expected_start && formed_at + *estimate <= *entry.expected_start;
}

bool JoinAtEnd(const Yard& yard, Line& line, const WaitingGang& gang) {
  if (gang.not_before > line.formed_at || line.entries.empty() || line.index.contains(gang.uid)) return false;
  if (TurnOf(gang) < TurnOf(line.entries.back())) return false;
  const auto head = HeadOf(yard, line, gang.request);
  if (!head) return false;
  if (!Hopeless(yard, line, gang.request) && !Refused(yard, line, gang.request, InTheWay(line, gang))) return false;
  Enter(line, gang).ahead = *head + 1;
  return true;
}

bool LeaveToStart(Line& line, std::string_view uid, const std::vector<Booking>& claims) {
  const auto found = line.index.find(std::string(uid));
  if (found == line.index.end()) return false;
  LineEntry& entry = line.entries[found->second];
  std::map<std::string, int64_t> claimed;
  for (const Booking& booking : claims) claimed[booking.node] += booking.gpus;
  if (!entry.fits || claimed != entry.reserved) return false;
  entry.reserved.clear();
  entry.started = true;
  line.index.erase(found);
  return true;
}

bool StopAsDue(Line& line, const RunningGang& gang) {
  const auto stop = line.stops.find(gang.uid);
  if (!gang.stopping || stop == line.stops.end()) return false;
  LineEntry& entry = line.entries[stop->second];
  const std::vector<std::string>& nodes = entry.placement->nodes;
  std::erase(entry.victims, gang.uid);
  const bool here = std::any_of(gang.holds.begin(), gang.holds.end(), [&nodes](const Booking& booking) {
    return std::find(nodes.begin(), nodes.end(), booking.node) != nodes.end();
  });
  if (here) entry.leaving.push_back(gang.uid);
  NameHolder(line, gang);
  if (gang.expected_end && (!line.until || *gang.expected_end < *line.until)) line.until = gang.expected_end;
  line.stops.erase(stop);
  return true;
}

bool StillFits(const Yard& yard, const Line& line, const LineEntry& entry) {
  if (!entry.fits || !entry.placement) return false;
  std::map<std::string, int64_t> held = line.HeldFor(entry.uid);
  return CanTakeAll(yard, *entry.asked, *entry.placement, std::move(held));
}

std::map<std::string, int64_t> Line::HeldFor(std::string_view uid) const {
  const LineEntry* self = Find(uid);
  return HeldFor(uid, self != nullptr ? self->estimate : std::nullopt);
}

std::map<std::string, int64_t> Line::HeldFor(std::string_view uid, const std::optional<Milliseconds>& estimate) const {
  const LineEntry* self = Find(uid);
  std::map<std::string, int64_t> held;
  for (const LineEntry& entry : entries) {
    if (&entry == self) break;
    if (!entry.fits && EndsBefore(estimate, entry)) continue;
    for (const auto& [node, gpus] : entry.reserved) held[node] += gpus;
  }
  return held;
}

const LineEntry* Line::PreemptedBy(std::string_view uid) const {
  const auto found = stops.find(std::string(uid));
  return found == stops.end() ? nullptr : &entries[found->second];
}

}  // namespace trainyard::placement
