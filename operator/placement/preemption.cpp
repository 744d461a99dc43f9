// Who has to stop for a more important gang. A search for the smallest set would be as hard as set cover; this takes
// the cheapest by a fixed order and then whoever turns out not to be needed away again, so that nobody stops for
// nothing.
#include <algorithm>
#include <tuple>

#include "operator/placement/reservation.h"

namespace trainyard::placement {
namespace {

using Gangs = std::vector<const RunningGang*>;

// Alone each of so many is tried; if none of the cheapest is enough, several are taken.
constexpr size_t kSinglesTried = 64;
// Of so many victims each is tried without; each try is a search.
constexpr size_t kPruned = 256;

double LostGpuSeconds(const RunningGang& gang, TimePoint now) {
  const double seconds = std::max(0.0, std::chrono::duration<double>(now - gang.saved_at).count());
  return seconds * static_cast<double>(gang.Gpus());
}

std::optional<GangPlacement> PlaceWithout(const Yard& yard, GangRequest request, const Gangs& gone) {
  for (const RunningGang* gang : gone) request.released.insert(gang->uid);
  return FindPlace(yard, request);
}

bool HoldsAny(const RunningGang& gang, const std::set<std::string>& nodes) {
  return std::any_of(gang.holds.begin(), gang.holds.end(), [&](const Booking& b) { return nodes.contains(b.node); });
}

// The fewest of `order`, from the front, that make room; all of them do.
size_t ShortestPrefix(const Yard& yard, const GangRequest& request, const Gangs& order) {
  size_t too_few = 0, enough = order.size();
  for (size_t step = 1; too_few + step < order.size(); step *= 2) {  // mostly few are needed
    const size_t count = too_few + step;
    if (PlaceWithout(yard, request, {order.begin(), order.begin() + static_cast<std::ptrdiff_t>(count)})) {
      enough = count;
      break;
    }
    too_few = count;
  }
  while (enough - too_few > 1) {
    const size_t middle = too_few + (enough - too_few) / 2;
    const Gangs some(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(middle));
    (PlaceWithout(yard, request, some) ? enough : too_few) = middle;
  }
  return enough;
}

}  // namespace

std::optional<Preemption> FindVictims(const Yard& yard, const GangRequest& request, Gangs candidates, TimePoint now) {
  if (candidates.empty() || !PlaceWithout(yard, request, candidates)) return std::nullopt;
  std::map<const RunningGang*, double> lost;
  for (const RunningGang* gang : candidates) lost[gang] = LostGpuSeconds(*gang, now);
  // Least important first, then the least lost, then the youngest.
  std::sort(candidates.begin(), candidates.end(), [&lost](const RunningGang* a, const RunningGang* b) {
    return std::tuple(a->priority, lost[a], b->placed_at, std::string_view(a->uid)) <
           std::tuple(b->priority, lost[b], a->placed_at, std::string_view(b->uid));
  });
  size_t enough = ShortestPrefix(yard, request, candidates);
  // Whatever is chosen, one of this priority is among them, and none of a higher one.
  const int64_t highest = candidates[enough - 1]->priority;
  size_t tried = 0;
  for (const RunningGang* gang : candidates) {
    if (gang->priority != highest) continue;
    if (++tried > kSinglesTried) break;
    if (auto placed = PlaceWithout(yard, request, {gang})) return Preemption{*std::move(placed), {gang}};
  }
  Gangs victims(candidates.begin(), candidates.begin() + static_cast<std::ptrdiff_t>(enough));
  auto placed = PlaceWithout(yard, request, victims);
  const std::set<std::string> nodes(placed->nodes.begin(), placed->nodes.end());
  Gangs here;
  for (const RunningGang* gang : victims) {
    if (HoldsAny(*gang, nodes)) here.push_back(gang);
  }
  if (auto there = PlaceWithout(yard, request, here)) {
    victims = std::move(here);
    placed = std::move(there);
  }
  // The most important first, and of those the one that would lose most. Of very many, only so many are looked at.
  size_t looked_at = 0;
  for (size_t i = victims.size(); i-- > 0 && victims.size() > 1 && looked_at < kPruned; ++looked_at) {
    Gangs fewer = victims;
    fewer.erase(fewer.begin() + static_cast<std::ptrdiff_t>(i));
    if (auto there = PlaceWithout(yard, request, fewer)) {
      victims = std::move(fewer);
      placed = std::move(there);
    }
  }
  return Preemption{*std::move(placed), std::move(victims)};
}

}  // namespace trainyard::placement
