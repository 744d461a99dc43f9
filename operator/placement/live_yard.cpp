#include "operator/placement/live_yard.h"

#include <algorithm>
#include <utility>

namespace trainyard::placement {

void LiveYard::Touch(const std::string& name) {
  if (!rearrange_) stale_.insert(name);
}

void LiveYard::DropIfEmpty(const std::string& name) {
  if (const auto seat = seats_.find(name); seat != seats_.end() && seat->second.Empty()) seats_.erase(seat);
}

void LiveYard::SetNode(const NodePtr& node) {
  Seat& seat = seats_[node->name];
  const bool known = seat.node != nullptr;
  if (!known || seat.node->labels != node->labels) {
    if (known) census_.Remove(seat.node->labels);
    census_.Add(node->labels);
  }
  seat.node = node;
  if (!known) {
    rearrange_ = true;
    return;
  }
  Touch(node->name);
}

void LiveYard::RemoveNode(const std::string& name) {
  const auto seat = seats_.find(name);
  if (seat == seats_.end() || seat->second.node == nullptr) return;
  census_.Remove(seat->second.node->labels);
  seat->second.node = nullptr;
  rearrange_ = true;
  DropIfEmpty(name);
}

void LiveYard::ChangePod(const UsePtr& old, const UsePtr& now) {
  if (old && now && *old == *now) {
    // The books stay; only the pointer by which the pod is known changes.
    std::vector<UsePtr>& pods = seats_[old->node].pods;
    if (const auto it = std::find(pods.begin(), pods.end(), old); it != pods.end()) {
      *it = now;
      return;
    }
  }
  if (old) {
    std::vector<UsePtr>& pods = seats_[old->node].pods;
    if (const auto it = std::find(pods.begin(), pods.end(), old); it != pods.end()) {
      *it = std::move(pods.back());
      pods.pop_back();
      Touch(old->node);
    }
    DropIfEmpty(old->node);
  }
  if (now) {
    seats_[now->node].pods.push_back(now);
    Touch(now->node);
  }
}

void LiveYard::SetClaims(const std::string& job_uid, std::vector<Booking> claims) {
  std::map<std::string, std::vector<Booking>> by_node;
  for (Booking& claim : claims) by_node[claim.node].push_back(std::move(claim));
  if (const auto before = claim_of_.find(job_uid); before != claim_of_.end()) {
    for (const std::string& name : before->second) {
      if (by_node.contains(name)) continue;
      seats_[name].claims.erase(job_uid);
      Touch(name);
      DropIfEmpty(name);
    }
    claim_of_.erase(before);
  }
  if (by_node.empty()) return;
  std::set<std::string>& nodes = claim_of_[job_uid];
  for (auto& [name, bookings] : by_node) {
    nodes.insert(name);
    seats_[name].claims[job_uid] = std::move(bookings);
    Touch(name);
  }
}

void LiveYard::Recount(YardNode& node, const Seat& seat) const {
  std::vector<const PodUse*> pods;
  pods.reserve(seat.pods.size());
  for (const UsePtr& pod : seat.pods) pods.push_back(pod.get());
  std::vector<const Booking*> claims;
  for (const auto& [job, bookings] : seat.claims) {
    for (const Booking& booking : bookings) claims.push_back(&booking);
  }
  Account(node, seat.node->allocatable, pods, claims);
}

const Yard& LiveYard::Current() {
  if (std::vector<TopologyLevel> levels = census_.Levels(); levels != yard_.levels_) {
    yard_.levels_ = std::move(levels);
    rearrange_ = true;
  }
  for (const std::string& name : stale_) {
    if (rearrange_) break;
    const auto place = yard_.index_.find(name);
    if (place == yard_.index_.end()) continue;  // nobody's node
    const Seat& seat = seats_.at(name);
    YardNode& node = yard_.nodes_[place->second];
    const bool changed = seat.node != node.snapshot;  // mostly only the books have
    YardNode described;
    if (changed) described = Describe(seat.node, options_, yard_.levels_, products_);
    if (changed && (described.path != node.path || described.clique != node.clique)) {
      rearrange_ = true;
      break;
    }
    yard_.packed_.Forget(place->second, node, changed);
    if (changed) node = std::move(described);
    Recount(node, seat);
    yard_.packed_.Learn(place->second, node, changed);
  }
  stale_.clear();
  if (!rearrange_) return yard_;
  rearrange_ = false;
  yard_.nodes_.clear();
  for (const auto& [name, seat] : seats_) {
    if (seat.node == nullptr) continue;
    Recount(yard_.nodes_.emplace_back(Describe(seat.node, options_, yard_.levels_, products_)), seat);
  }
  yard_.Arrange();
  yard_.packed_.Rebuild(yard_.nodes_, yard_.path_levels_);
  return yard_;
}

}  // namespace trainyard::placement
