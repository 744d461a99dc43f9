#include "operator/controller/ledger.h"

#include <algorithm>
#include <tuple>

namespace trainyard::controller {

void Ledger::SetNode(const NodePtr& node) {
  std::lock_guard lock(mutex_);
  yard_.SetNode(node);
}

void Ledger::RemoveNode(const std::string& name) {
  std::lock_guard lock(mutex_);
  yard_.RemoveNode(name);
}

void Ledger::ChangePod(const UsePtr& old, const UsePtr& now) {
  if (old == now) return;
  std::lock_guard lock(mutex_);
  yard_.ChangePod(old, now);
}

void Ledger::SetClaims(const std::string& job_uid, const Bookings& claims) {
  std::lock_guard lock(mutex_);
  if (SettleLocked(job_uid, claims)) BookLocked(job_uid);
}

bool Ledger::Settle(const std::string& job_uid, const Bookings& claims) {
  std::lock_guard lock(mutex_);
  const bool reserved = reserved_.erase(job_uid) > 0;
  if (SettleLocked(job_uid, claims) || reserved) BookLocked(job_uid);
  return reserved;
}

bool Ledger::SettleLocked(const std::string& job_uid, const Bookings& claims) {
  if (claims.empty()) return settled_.erase(job_uid) > 0;
  Bookings& settled = settled_[job_uid];
  if (settled == claims) return false;
  settled = claims;
  return true;
}

void Ledger::BookLocked(const std::string& job_uid) {
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
  yard_.SetClaims(job_uid, std::move(all));
}

std::map<std::string, Ledger::Gpus> Ledger::ByProduct() {
  std::lock_guard lock(mutex_);
  std::map<std::string, Gpus> products;
  for (const placement::YardNode& node : yard_.Current().nodes()) {
    if (!node.Eligible()) continue;
    Gpus& gpus = products[node.product];
    gpus.used += node.used;
    gpus.free += node.free;
  }
  return products;
}

const api::NodeSnapshot* Ledger::View::FindNode(const std::string& name) const {
  const auto [node, first] = nodes_.try_emplace(name);
  if (first) node->second = find_node_(name);
  return node->second.get();
}

const placement::Yard& Ledger::View::Yard() const {
  if (!lock_) lock_ = std::unique_lock(ledger_.mutex_);
  return ledger_.yard_.Current();
}

const placement::Line& Ledger::View::Line(const placement::WaitingGang* asking) const {
  std::vector<const placement::WaitingGang*> waiting;
  if (asking != nullptr) waiting.push_back(asking);
  line_ = placement::FormLine(Yard(), std::move(waiting), {}, TimePoint());
  return line_;
}

void Ledger::View::Reserve(const std::string& job_uid, const Bookings& claims) {
  if (!lock_) lock_ = std::unique_lock(ledger_.mutex_);
  ledger_.reserved_[job_uid] = claims;
  ledger_.BookLocked(job_uid);
}

}  // namespace trainyard::controller
