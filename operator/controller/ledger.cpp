#include "operator/controller/ledger.h"

#include <algorithm>
#include <chrono>
#include <tuple>

namespace trainyard::controller {

namespace {

// Of those in the line that are looked at whenever GPUs come free.
constexpr size_t kFirstFew = 16;

bool Frees(const Ledger::UsePtr& old, const Ledger::UsePtr& now) {
  return old && (!now || now->node != old->node || now->gpus < old->gpus || now->requests != old->requests);
}

std::map<std::string, int64_t> ByNode(const Ledger::Bookings& bookings) {
  std::map<std::string, int64_t> gpus;
  for (const placement::Booking& booking : bookings) gpus[booking.node] += booking.gpus;
  return gpus;
}

bool Frees(const Ledger::Bookings& before, const Ledger::Bookings& now) {
  auto left = ByNode(now);
  const auto was = ByNode(before);
  return std::any_of(was.begin(), was.end(), [&left](const auto& held) { return left[held.first] < held.second; });
}

// Running jobs say anew with each step when they will end, and with each checkpoint what they would lose.
bool OnlyTimesDiffer(const Ledger::Standing& a, const Ledger::Standing& b) {
  if (!a.running || !b.running || a.waiting || b.waiting) return false;
  placement::RunningGang moved = *a.running;
  moved.saved_at = b.running->saved_at, moved.expected_end = b.running->expected_end;
  return moved == *b.running;
}

}  // namespace

void Ledger::SetNode(const NodePtr& node) {
  std::lock_guard lock(mutex_);
  yard_.SetNode(node);
  stale_ = true;
}

void Ledger::RemoveNode(const std::string& name) {
  std::lock_guard lock(mutex_);
  yard_.RemoveNode(name);
  stale_ = true;
}

void Ledger::ChangePod(const UsePtr& old, const UsePtr& now) {
  if (old == now) return;
  std::lock_guard lock(mutex_);
  yard_.ChangePod(old, now);
  // What is taken is seen by those who fit there (StillFits); nobody fits who did not before. But others may be
  // stopping for what a pod of somebody else has taken.
  if (Frees(old, now) || (now && now->job_uid.empty() && CountedOn(now->node))) stale_ = true;
}

bool Ledger::SetJob(const std::string& job_uid, const Bookings& claims, const Standing& standing) {
  std::lock_guard lock(mutex_);
  const Bookings before = BookingsOf(job_uid);
  SettleLocked(job_uid, claims);
  const bool frees = BookLocked(job_uid, before);
  stands_[job_uid] = standing;
  return StandLocked(job_uid) || frees;
}

bool Ledger::Settle(const std::string& job_uid, const Bookings& claims, const Standing& standing) {
  std::lock_guard lock(mutex_);
  const Bookings before = BookingsOf(job_uid);
  reserved_.erase(job_uid);
  SettleLocked(job_uid, claims);
  const bool frees = BookLocked(job_uid, before);
  pending_.erase(job_uid);
  stands_[job_uid] = standing;
  return StandLocked(job_uid) || frees;
}

void Ledger::SettleLocked(const std::string& job_uid, const Bookings& claims) {
  if (claims.empty()) {
    settled_.erase(job_uid);
  } else {
    settled_[job_uid] = claims;
  }
}

bool Ledger::StandLocked(const std::string& job_uid) {
  const auto pending = pending_.find(job_uid);
  const auto stands = stands_.find(job_uid);
  Standing now;
  if (pending != pending_.end()) {
    now = pending->second;
  } else if (stands != stands_.end()) {
    now = stands->second;
  }
  if (stands != stands_.end() && stands->second == Standing()) stands_.erase(stands);
  const auto before = counted_.find(job_uid);
  const Standing old = before == counted_.end() ? Standing() : before->second;
  if (now == old) return false;
  if (OnlyTimesDiffer(old, now)) {
    counted_[job_uid] = now;
    stale_ = stale_ || EndsOtherwise(*now.running);
    return false;
  }
  if (now == Standing()) {
    counted_.erase(before);
  } else {
    counted_[job_uid] = now;
  }
  if (stale_) return old.waiting.has_value();
  if (old == Standing() && now.waiting) {
    stale_ = !placement::JoinAtEnd(yard_.Current(), line_, *now.waiting);
    return false;
  }
  const bool runs_on = old.running && now.running && old.running->holds == now.running->holds;
  if (runs_on && placement::StopAsDue(line_, *now.running)) {
    victims_ = line_.stops.size();
    return false;
  }
  const bool starts = old.waiting && now.running && placement::LeaveToStart(line_, job_uid, now.running->holds);
  if (!starts) stale_ = true;
  return old.waiting.has_value() && !starts;
}

bool Ledger::EndsOtherwise(const placement::RunningGang& gang) const {
  constexpr Milliseconds kLittle{60'000};
  constexpr int kPartOfTheRest = 10;
  const auto counted = ends_.find(gang.uid);
  if (counted == ends_.end()) return false;  // nobody who waits has asked since
  if (!counted->second || !gang.expected_end) return counted->second != gang.expected_end;
  const TimePoint end = *counted->second, now = *gang.expected_end;
  return std::max(end, now) - std::min(end, now) >
         std::max<TimePoint::duration>(kLittle, (end - line_.formed_at) / kPartOfTheRest);
}

bool Ledger::CountedOn(const std::string& node) const {
  return std::any_of(line_.heads.begin(), line_.heads.end(), [&](size_t head) {
    const std::vector<std::string>& nodes = line_.entries[head].placement->nodes;
    return std::find(nodes.begin(), nodes.end(), node) != nodes.end();
  });
}

const placement::Line& Ledger::LineLocked(TimePoint now, const std::string& asking) {
  const placement::Yard& yard = yard_.Current();
  bool fresh = !stale_ && now >= line_.formed_at && (!line_.until || now < *line_.until);
  if (fresh && !asking.empty()) {
    const placement::LineEntry* entry = line_.Find(asking);
    fresh = entry != nullptr && (!entry->fits || placement::StillFits(yard, line_, *entry));
  }
  if (fresh) return line_;
  std::vector<const placement::WaitingGang*> waiting;
  for (const auto& [uid, standing] : counted_) {
    if (standing.waiting) waiting.push_back(&*standing.waiting);
  }
  ends_.clear();
  const auto running = [this] {
    placement::RunningGangs gangs;
    for (const auto& [uid, standing] : counted_) {
      if (!standing.running) continue;
      gangs.push_back(&*standing.running);
      ends_[uid] = standing.running->expected_end;
    }
    return gangs;
  };
  line_ = placement::FormLine(yard, std::move(waiting), running, now, &line_);
  victims_ = line_.stops.size();
  stale_ = false;
  return line_;
}

Ledger::Bookings Ledger::BookingsOf(const std::string& job_uid) const {
  // The same booking may be in both; one of each attempt and node counts, the larger.
  std::map<std::tuple<int64_t, std::string>, placement::Booking> merged;
  for (const auto* books : {&settled_, &reserved_}) {
    const auto found = books->find(job_uid);
    if (found == books->end()) continue;
    for (const placement::Booking& booking : found->second) {
      placement::Booking& entry = merged.try_emplace({booking.attempt, booking.node}, booking).first->second;
      entry.gpus = std::max(entry.gpus, booking.gpus);
    }
  }
  Bookings all;
  all.reserve(merged.size());
  for (auto& [key, booking] : merged) all.push_back(std::move(booking));
  return all;
}

bool Ledger::BookLocked(const std::string& job_uid, const Bookings& before) {
  Bookings now = BookingsOf(job_uid);
  if (now == before) return false;
  const bool frees = Frees(before, now);
  yard_.SetClaims(job_uid, std::move(now));
  if (frees) stale_ = true;
  return frees;
}

const api::NodeSnapshot* Ledger::View::FindNode(const std::string& name) const {
  const auto [node, first] = nodes_.try_emplace(name);
  if (first) node->second = find_node_(name);
  return node->second.get();
}

const placement::Line& Ledger::View::LastLine() const {
  if (!lock_) lock_ = std::unique_lock(ledger_.mutex_);
  return ledger_.line_;
}

const placement::Yard& Ledger::View::Yard() const {
  if (!lock_) lock_ = std::unique_lock(ledger_.mutex_);
  return ledger_.yard_.Current();
}

const placement::Line& Ledger::View::Line(const placement::WaitingGang* asking) const {
  if (!lock_) lock_ = std::unique_lock(ledger_.mutex_);
  if (asking == nullptr) return ledger_.LineLocked(now_, "");
  asked_ = asking->uid;
  ledger_.pending_[asked_] = {*asking, std::nullopt};
  ledger_.StandLocked(asked_);
  return ledger_.LineLocked(now_, asked_);
}

std::vector<lifecycle::PathNeighbour> Ledger::View::PathNeighbours(const lifecycle::PathUser& asking) const {
  if (!lock_) lock_ = std::unique_lock(ledger_.mutex_);
  return path_neighbours_(asking);
}

Ledger::View::~View() {
  if (asked_.empty()) return;
  if (!lock_) lock_ = std::unique_lock(ledger_.mutex_);
  ledger_.pending_.erase(asked_);
  ledger_.StandLocked(asked_);
}

bool Ledger::View::Reserve(const std::string& job_uid, const Bookings& claims, const Standing& standing) {
  if (!lock_) lock_ = std::unique_lock(ledger_.mutex_);
  const auto settled = ledger_.settled_.find(job_uid);
  if (claims != (settled == ledger_.settled_.end() ? Bookings() : settled->second)) {
    const Bookings before = ledger_.BookingsOf(job_uid);
    ledger_.reserved_[job_uid] = claims;
    ledger_.BookLocked(job_uid, before);
  }
  if (asked_ == job_uid) asked_.clear();
  ledger_.pending_[job_uid] = standing;
  return ledger_.StandLocked(job_uid);
}

Ledger::Snapshot Ledger::Look(TimePoint now) {
  std::lock_guard lock(mutex_);
  const placement::Yard& yard = yard_.Current();
  return {placement::CountYard(yard), yard.level_names(), LineLocked(now, "")};
}

std::vector<std::string> Ledger::Called(TimePoint now) {
  std::lock_guard lock(mutex_);
  const placement::Line& line = LineLocked(now, "");
  std::vector<std::string> called;
  for (size_t i = 0; i < line.entries.size(); ++i) {
    const placement::LineEntry& entry = line.entries[i];
    if (!entry.started && (entry.fits || entry.elastic || !entry.victims.empty() || i < kFirstFew))
      called.push_back(entry.uid);
  }
  return called;
}

std::set<std::string> Ledger::InLine() {
  std::lock_guard lock(mutex_);
  std::set<std::string> uids;
  for (const auto& [uid, standing] : counted_) {
    if (standing.waiting) uids.insert(uid);
  }
  return uids;
}

}  // namespace trainyard::controller
