#include "operator/placement/line.h"

#include <algorithm>
#include <tuple>

namespace trainyard::placement {
namespace {

bool Before(const WaitingGang* a, const WaitingGang* b) {
  return std::tuple(-a->priority, a->since, std::string_view(a->uid)) <
         std::tuple(-b->priority, b->since, std::string_view(b->uid));
}

}  // namespace

int64_t RunningGang::Gpus() const {
  int64_t gpus = 0;
  for (const Booking& booking : holds) gpus += booking.gpus;
  return gpus;
}

const LineEntry* Line::Find(std::string_view uid) const {
  const auto found = index.find(std::string(uid));
  return found == index.end() ? nullptr : &entries[found->second];
}

std::map<std::string, int64_t> Line::HeldFor(std::string_view uid) const {
  std::map<std::string, int64_t> held;
  for (const LineEntry& entry : entries) {
    if (entry.uid == uid) break;
    for (const auto& [node, gpus] : entry.reserved) held[node] += gpus;
  }
  return held;
}

const LineEntry* Line::PreemptedBy(std::string_view uid) const {
  const auto found = stops.find(std::string(uid));
  return found == stops.end() ? nullptr : &entries[found->second];
}

Line FormLine(const Yard& yard, std::vector<const WaitingGang*> waiting, const std::vector<const RunningGang*>&,
              TimePoint now, const Line*) {
  Line line;
  std::sort(waiting.begin(), waiting.end(), Before);
  for (const WaitingGang* gang : waiting) {
    if (gang->not_before > now) continue;
    LineEntry& entry = line.entries.emplace_back();
    entry.uid = gang->uid;
    entry.name = gang->name;
    entry.priority = gang->priority;
    entry.gpus = gang->request.gpus;
    entry.per_node = gang->request.per_node;
    entry.products = gang->request.products;
    entry.since = gang->since;
    entry.position = static_cast<int64_t>(line.entries.size());
    line.index[gang->uid] = line.entries.size() - 1;
    if (auto placed = Place(yard, gang->request)) {
      entry.fits = true;
      entry.placement = *std::move(placed);
    }
  }
  return line;
}

Line FormLine(const Yard& yard, const std::vector<WaitingGang>& waiting, const std::vector<RunningGang>& running,
              TimePoint now, const Line* previous) {
  std::vector<const WaitingGang*> gangs;
  for (const WaitingGang& gang : waiting) gangs.push_back(&gang);
  std::vector<const RunningGang*> holders;
  for (const RunningGang& gang : running) holders.push_back(&gang);
  return FormLine(yard, std::move(gangs), holders, now, previous);
}

std::string WhyWaits(const Line& line, const LineEntry& entry, TimePoint) {
  if (entry.fits || entry.ahead == 0) return "";
  const LineEntry& first = line.entries[entry.ahead - 1];
  return "behind " + first.name + " (" + std::to_string(first.gpus) + (first.gpus == 1 ? " GPU" : " GPUs") +
         ", priority " + std::to_string(first.priority) + ")";
}

}  // namespace trainyard::placement
