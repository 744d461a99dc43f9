#include "operator/placement/reservation.h"

#include <algorithm>
#include <tuple>

namespace trainyard::placement {
namespace {

// The request as it will be when the first `count` have left.
GangRequest After(const GangRequest& request, const std::vector<Departure>& departures, size_t count) {
  GangRequest later = request;
  for (size_t i = 0; i < count; ++i) {
    if (departures[i].running != nullptr) {
      later.released.insert(departures[i].running->uid);
      continue;
    }
    for (const auto& [node, gpus] : departures[i].going->reserved) {
      const auto held = later.held.find(node);
      if (held == later.held.end()) continue;
      held->second -= gpus;
      if (held->second <= 0) later.held.erase(held);
    }
  }
  return later;
}

}  // namespace

void SortDepartures(std::vector<Departure>& departures) {
  const auto order = [](const Departure& d) {
    const int when = d.stopping ? 0 : d.end ? 1 : d.running != nullptr ? 2 : 3;
    const std::string_view uid = d.running != nullptr ? d.running->uid : d.going->uid;
    return std::tuple(when, d.stopping ? TimePoint() : d.end.value_or(d.begin), uid);
  };
  std::sort(departures.begin(), departures.end(),
            [&order](const Departure& a, const Departure& b) { return order(a) < order(b); });
}

std::map<std::string, int64_t> KeepNow(const Yard& yard, const GangRequest& request, const GangPlacement& placement,
                                       const std::map<std::string, int64_t>& departing) {
  std::map<std::string, int64_t> keep;
  const auto of = [](const std::map<std::string, int64_t>& map, const std::string& node) {
    const auto found = map.find(node);
    return found == map.end() ? int64_t{0} : found->second;
  };
  for (const std::string& name : placement.nodes) {
    const YardNode* node = yard.Find(name);
    if (node == nullptr) continue;
    const int64_t free = node->free - of(request.held, name);
    const int64_t wanted = std::min(free, request.per_node - of(departing, name));
    if (wanted > 0) keep[name] = wanted;
  }
  return keep;
}

std::optional<Reservation> ReserveFor(const Yard& yard, const GangRequest& request,
                                      const std::vector<Departure>& departures) {
  const auto fits = [&](size_t count) { return FindPlace(yard, After(request, departures, count)); };
  // More room never makes a gang not fit, so that the fewest departures are found by halving; mostly few are needed.
  size_t too_few = 0, enough = 1;
  std::optional<GangPlacement> placed;
  while (true) {
    enough = std::min(enough, departures.size());
    if (enough <= too_few) return std::nullopt;
    if ((placed = fits(enough))) break;
    too_few = enough;
    enough *= 2;
  }
  while (enough - too_few > 1) {
    const size_t middle = too_few + (enough - too_few) / 2;
    if (auto there = fits(middle)) {
      enough = middle;
      placed = std::move(there);
    } else {
      too_few = middle;
    }
  }
  Reservation out;
  out.placement = *std::move(placed);
  const Departure& last = departures[enough - 1];
  if (!last.stopping) out.start = last.end;
  const std::set<std::string> nodes(out.placement.nodes.begin(), out.placement.nodes.end());
  // Only a departure of which something is known spares what is free now: else nothing would be kept of it for ever.
  std::map<std::string, int64_t> departing;
  for (size_t i = 0; i < enough; ++i) {
    const RunningGang* gang = departures[i].running;
    if (gang == nullptr || (!departures[i].stopping && !departures[i].end)) continue;
    bool here = false;
    for (const Booking& booking : gang->holds) {
      if (!nodes.contains(booking.node)) continue;
      departing[booking.node] += booking.gpus;
      here = true;
    }
    if (here && departures[i].stopping) out.leaving.push_back(gang->uid);
  }
  out.reserved = KeepNow(yard, request, out.placement, departing);
  return out;
}

}  // namespace trainyard::placement
