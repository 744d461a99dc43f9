#include "operator/placement/line.h"

#include <algorithm>
#include <set>
#include <tuple>
#include <utility>

#include "operator/placement/line_holders.h"
#include "operator/placement/line_rules.h"
#include "operator/placement/reservation.h"

namespace trainyard::placement {
namespace {

// Gangs that turn out not to fit, per forming: those further back wait untried. As Slurm's bf_max_job_test.
constexpr int kMaxTries = 128;
// A node that is not ready may be back in such a time: a kubelet that restarts, a network that fails for a moment.
constexpr Milliseconds kMissingNode{120'000};

using GpusByNode = std::map<std::string, int64_t>;

void Add(GpusByNode& sum, const GpusByNode& more) {
  for (const auto& [node, gpus] : more) sum[node] += gpus;
}

class Former {
 public:
  Former(const Yard& yard, const std::vector<const WaitingGang*>& waiting, const std::function<RunningGangs()>& running,
         TimePoint now, const Line* previous)
      : yard_(yard), ask_running_(running), previous_(previous) {
    line_.formed_at = now;
    for (const WaitingGang* gang : waiting) {
      if (!HoldsNothing(yard, gang->request)) leftovers_.insert(gang->request.job_uid);
    }
    // Counting what is free pays where many may be told at a glance that it is not enough.
    constexpr size_t kMany = 16;
    if (waiting.size() <= kMany) return;
    for (const YardNode& node : yard.nodes()) {
      if (node.Eligible()) line_.free[node.product] += node.free;
    }
  }

  void Take(const WaitingGang& gang) {
    if (gang.not_before > line_.formed_at) return Until(gang.not_before);
    LineEntry& entry = Enter(line_, gang);
    const size_t at = line_.entries.size() - 1;
    if (!Start(gang, entry)) Wait(gang, entry, at);
  }

  Line Finish() {
    for (const size_t head : line_.heads) {
      if (const auto& start = line_.entries[head].expected_start) Until(*start);
    }
    return std::move(line_);
  }

 private:
  void Until(TimePoint when) {
    if (when > line_.formed_at && (!line_.until || when < *line_.until)) line_.until = when;
  }

  GangRequest Beside(const WaitingGang& gang, const std::vector<size_t>& heads) const {
    GangRequest request = gang.request;
    request.held = going_;
    for (const size_t head : heads) Add(request.held, line_.entries[head].reserved);
    return request;
  }

  // What it had before, if that is still there and it still asks for the same.
  std::optional<GangPlacement> Kept(const WaitingGang& gang, const std::vector<size_t>& heads) const {
    const LineEntry* before = previous_ != nullptr ? previous_->Find(gang.uid) : nullptr;
    if (before == nullptr || !before->fits || !(*before->asked == gang.request)) return std::nullopt;
    GpusByNode held;  // of these nodes alone: thousands may keep theirs
    for (const std::string& node : before->placement->nodes) {
      if (const auto going = going_.find(node); going != going_.end()) held[node] += going->second;
      for (const size_t head : heads) {
        const GpusByNode& reserved = line_.entries[head].reserved;
        if (const auto kept = reserved.find(node); kept != reserved.end()) held[node] += kept->second;
      }
    }
    if (!CanTakeAll(yard_, gang.request, *before->placement, std::move(held))) return std::nullopt;
    return before->placement;
  }

  bool Start(const WaitingGang& gang, LineEntry& entry) {
    if (Hopeless(yard_, line_, gang.request)) return false;
    const std::vector<size_t> heads = InTheWay(line_, gang);
    auto placed = Kept(gang, heads);
    if (!placed) {
      if (Refused(yard_, line_, gang.request, heads)) return false;
      entry.untried = tries_ >= kMaxTries;
      if (entry.untried) return false;
      placed = FindPlace(yard_, Beside(gang, heads));
    }
    if (!placed) {
      ++tries_;
      line_.refused.push_back({gang.request, heads});
      if (HoldsNothing(yard_, gang.request)) line_.refused.back().request.job_uid.clear();
      return false;
    }
    for (const std::string& node : placed->nodes) entry.reserved[node] = entry.per_node;
    entry.fits = true;
    entry.asked = gang.request;
    entry.placement = *std::move(placed);
    Add(going_, entry.reserved);
    if (const auto free = line_.free.find(entry.placement->product); free != line_.free.end()) {
      free->second -= entry.gpus;
    }
    return true;
  }

  void Wait(const WaitingGang& gang, LineEntry& entry, size_t at) {
    if (entry.untried) return;  // nobody stops, and nothing is kept, for one that may fit as it is
    if (const auto head = HeadOf(yard_, line_, gang.request)) {
      if (!StopOthersBehind(gang, entry, at, *head)) entry.ahead = *head + 1;
      return;
    }
    if (IsNever(gang)) {
      entry.never = true;
      return;
    }
    GangRequest request = Beside(gang, line_.heads);
    request.released = leftovers_;
    const bool has_place = Preempt(gang, request, entry, at) || Reserve(request, entry) || KeepForAWhile(gang, entry);
    if (!has_place) {
      never_.push_back(&gang);
      entry.never = true;
      CountForeign(yard_, gang.request, entry);
      return;
    }
    NameHolders(yard_, Running(), gang.request, line_, entry);
    line_.heads.push_back(at);
  }

  bool IsNever(const WaitingGang& gang) const {
    return std::any_of(never_.begin(), never_.end(),
                       [&gang](const WaitingGang* other) { return other->request == gang.request; });
  }

  // Others have stopped for it, and a node of its place is not there now: it may be back before yet others have
  // stopped.
  bool MissesANode(const WaitingGang& gang) const {
    const LineEntry* before = previous_ != nullptr ? previous_->Find(gang.uid) : nullptr;
    if (before == nullptr || !before->making_room) return false;
    if (line_.formed_at >= before->lost_since.value_or(line_.formed_at) + kMissingNode) return false;
    const std::vector<std::string>& nodes = before->placement->nodes;
    return std::any_of(nodes.begin(), nodes.end(), [this, &before](const std::string& name) {
      const YardNode* node = yard_.Find(name);
      return node == nullptr || !node->Eligible() || node->usable < before->per_node;
    });
  }

  // It had a place, and a node of that is not there now: what it kept stays kept until that is known to last.
  bool KeepForAWhile(const WaitingGang& gang, LineEntry& entry) {
    const LineEntry* before = previous_ != nullptr ? previous_->Find(gang.uid) : nullptr;
    if (before == nullptr || !before->placement) return false;
    const TimePoint since = before->lost_since.value_or(line_.formed_at);
    if (line_.formed_at >= since + kMissingNode || before->gpus != entry.gpus || before->per_node != entry.per_node) {
      return false;
    }
    entry.lost_since = since;
    entry.placement = before->placement;
    entry.making_room = before->making_room;
    entry.reserved = KeepNow(yard_, Beside(gang, line_.heads), *entry.placement, {});
    Until(since + kMissingNode);
    return true;
  }

  // A head that stops nobody, because it may not or nobody's stop would do, is no reason not to stop others for one
  // behind it, elsewhere than where that head is to start; where the last attempt of the head came to nothing, there as
  // well.
  bool StopOthersBehind(const WaitingGang& gang, LineEntry& entry, size_t at, size_t head) {
    constexpr size_t kMaxStopTries = 16;
    if (!gang.may_preempt || line_.heads.size() >= kMaxHeads || stop_refused_.size() >= kMaxStopTries) return false;
    if (line_.entries[head].making_room) return false;
    const bool refused = std::any_of(stop_refused_.begin(), stop_refused_.end(), [&gang](const WaitingGang* other) {
      return other->priority == gang.priority && other->request == gang.request;
    });
    if (refused) return false;
    GangRequest request = Beside(gang, line_.heads);
    request.released = leftovers_;
    for (const size_t one : line_.heads) {
      const LineEntry& other = line_.entries[one];
      if (other.failed_start) continue;
      for (const std::string& node : other.placement->nodes) {
        const auto reserved = other.reserved.find(node);
        request.held[node] += other.per_node - (reserved == other.reserved.end() ? 0 : reserved->second);
      }
    }
    if (Preempt(gang, std::move(request), entry, at)) {
      line_.heads.push_back(at);
      return true;
    }
    stop_refused_.push_back(&gang);
    return false;
  }

  // Its GPUs come free soon, whatever it was doing: for whom it stops does not matter.
  bool Leaves(const RunningGang& gang) const { return gang.Leaves(line_.formed_at) || line_.stops.contains(gang.uid); }

  bool Preempt(const WaitingGang& gang, GangRequest request, LineEntry& entry, size_t at) {
    RunningGangs candidates;
    for (const RunningGang* other : Running()) {
      if (Leaves(*other)) {
        request.released.insert(other->uid);
      } else if (!other->stopping && gang.may_preempt && other->preemptible && other->priority < gang.priority) {
        candidates.push_back(other);
      }
    }
    std::optional<GangPlacement> placed;
    if (!request.released.empty()) placed = FindPlace(yard_, request);
    if (!placed && MissesANode(gang)) return KeepForAWhile(gang, entry);
    if (!placed) {
      auto preemption = FindVictims(yard_, request, std::move(candidates), line_.formed_at);
      if (!preemption) return false;
      placed = std::move(preemption->placement);
      for (const RunningGang* victim : preemption->victims) {
        entry.victims.push_back(victim->uid);
        line_.stops[victim->uid] = at;
        NameHolder(line_, *victim);
        request.released.insert(victim->uid);
      }
    }
    // What those that leave give back need not be kept of what is free now.
    GpusByNode leaving;
    const std::set<std::string> nodes(placed->nodes.begin(), placed->nodes.end());
    for (const RunningGang* other : Running()) {
      if (!request.released.contains(other->uid)) continue;
      bool here = false;
      for (const Booking& booking : other->holds) {
        if (!nodes.contains(booking.node)) continue;
        leaving[booking.node] += booking.gpus;
        here = true;
      }
      if (!here || !other->stopping) continue;
      entry.leaving.push_back(other->uid);
      NameHolder(line_, *other);
    }
    entry.reserved = KeepNow(yard_, request, *placed, leaving);
    entry.placement = *std::move(placed);
    entry.making_room = true;
    return true;
  }

  // False: not even when all have ended.
  bool Reserve(const GangRequest& request, LineEntry& entry) {
    std::vector<Departure> departures;
    departures.reserve(Running().size() + line_.entries.size());
    for (const RunningGang* other : Running()) {
      const bool known = other->expected_end && *other->expected_end > line_.formed_at;
      departures.push_back(
          {other, nullptr, known ? other->expected_end : std::nullopt, other->placed_at, Leaves(*other)});
    }
    for (const LineEntry& other : line_.entries) {
      if (!other.fits) continue;
      std::optional<TimePoint> end;
      if (other.estimate) end = line_.formed_at + *other.estimate;
      departures.push_back({nullptr, &other, end, line_.formed_at});
    }
    SortDepartures(departures);
    auto reservation = ReserveFor(yard_, request, departures);
    if (!reservation) return false;
    entry.expected_start = reservation->start;
    entry.leaving = std::move(reservation->leaving);
    for (const RunningGang* other : Running()) {
      if (std::find(entry.leaving.begin(), entry.leaving.end(), other->uid) != entry.leaving.end())
        NameHolder(line_, *other);
    }
    entry.reserved = std::move(reservation->reserved);
    entry.placement = std::move(reservation->placement);
    return true;
  }

  const RunningGangs& Running() {
    if (!running_) {
      running_ = ask_running_();
      // An estimate that runs out changes what is expected.
      for (const RunningGang* gang : *running_) {
        if (gang->expected_end) Until(*gang->expected_end);
      }
    }
    return *running_;
  }

  const Yard& yard_;
  const std::function<RunningGangs()>& ask_running_;
  const Line* const previous_;
  Line line_;
  std::optional<RunningGangs> running_;
  std::set<std::string> leftovers_;  // UIDs of those that wait and have not given back yet what they held
  GpusByNode going_;                 // kept for those that fit
  std::vector<const WaitingGang*> never_;
  std::vector<const WaitingGang*> stop_refused_;  // behind heads, for whom nobody's stop would do
  int tries_ = 0;
};

}  // namespace

Line FormLine(const Yard& yard, std::vector<const WaitingGang*> waiting, const std::function<RunningGangs()>& running,
              TimePoint now, const Line* previous) {
  std::sort(waiting.begin(), waiting.end(),
            [](const WaitingGang* a, const WaitingGang* b) { return TurnOf(*a) < TurnOf(*b); });
  Former former(yard, waiting, running, now, previous);
  for (const WaitingGang* gang : waiting) former.Take(*gang);
  return former.Finish();
}

Line FormLine(const Yard& yard, const std::vector<WaitingGang>& waiting, const std::vector<RunningGang>& running,
              TimePoint now, const Line* previous) {
  std::vector<const WaitingGang*> gangs;
  gangs.reserve(waiting.size());
  for (const WaitingGang& gang : waiting) gangs.push_back(&gang);
  const auto ask = [&running] {
    RunningGangs all;
    all.reserve(running.size());
    for (const RunningGang& gang : running) all.push_back(&gang);
    return all;
  };
  return FormLine(yard, std::move(gangs), ask, now, previous);
}

}  // namespace trainyard::placement
