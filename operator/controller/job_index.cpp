#include "operator/controller/job_index.h"

#include <utility>

#include "operator/lifecycle/lifecycle.h"

namespace trainyard::controller {
namespace {

bool Waits(api::Phase phase) {
  return phase == api::Phase::kPending || phase == api::Phase::kQueued || phase == api::Phase::kPlacing ||
         phase == api::Phase::kResizing || phase == api::Phase::kRecovering;
}

}  // namespace

void JobIndex::Remove(const cluster::ObjectKey& key, const Entry& entry) {
  if (const auto known = by_uid_.find(entry.uid); known != by_uid_.end() && known->second == key) by_uid_.erase(known);
  waiting_.erase(key);
  --phases_[entry.phase];
  for (const std::string& node : entry.nodes) {
    const auto jobs = by_node_.find(node);
    jobs->second.erase(key);
    if (jobs->second.empty()) by_node_.erase(jobs);
  }
}

void JobIndex::Set(const cluster::ObjectKey& key, const JobPtr& job) {
  std::lock_guard lock(mutex_);
  const auto old = entries_.find(key);
  if (old != entries_.end()) {
    Remove(key, old->second);
    entries_.erase(old);
  }
  if (!job) return;
  Entry entry{job->uid, job->job.status.phase, {}, job};
  for (const placement::Booking& booking : job->bookings) entry.nodes.insert(booking.node);
  by_uid_[entry.uid] = key;
  // A running job that wants another size waits as well.
  const bool wants_more =
      !job->bookings.empty() && job->job.status.plan && job->job.status.plan->generation != job->job.meta.generation;
  // One that is being placed has what it needs.
  const bool placed = entry.phase == api::Phase::kPlacing && !job->bookings.empty();
  if ((Waits(entry.phase) && !placed) || wants_more) waiting_.insert(key);
  ++phases_[entry.phase];
  for (const std::string& node : entry.nodes) by_node_[node].insert(key);
  entries_.emplace(key, std::move(entry));
}

std::optional<cluster::ObjectKey> JobIndex::Find(const std::string& uid) const {
  std::lock_guard lock(mutex_);
  const auto found = by_uid_.find(uid);
  return found == by_uid_.end() ? std::nullopt : std::optional(found->second);
}

std::vector<std::pair<std::string, cluster::ObjectKey>> JobIndex::Waiting() const {
  std::lock_guard lock(mutex_);
  std::vector<std::pair<std::string, cluster::ObjectKey>> waiting;
  for (const cluster::ObjectKey& key : waiting_) waiting.emplace_back(entries_.at(key).uid, key);
  return waiting;
}

bool JobIndex::AnyWaiting() const {
  std::lock_guard lock(mutex_);
  return !waiting_.empty();
}

std::vector<cluster::ObjectKey> JobIndex::OnNode(const std::string& node) const {
  std::lock_guard lock(mutex_);
  const auto found = by_node_.find(node);
  if (found == by_node_.end()) return {};
  return {found->second.begin(), found->second.end()};
}

api::Exposure JobIndex::ExposureBeside(const std::string& uid, TimePoint now) const {
  std::lock_guard lock(mutex_);
  api::Exposure total;
  for (const auto& [key, entry] : entries_) {
    if (entry.uid == uid) continue;
    const api::Exposure one = lifecycle::ExposureOf(entry.job->job.status, now);
    total.gpu_hours += one.gpu_hours;
    total.failures += one.failures;
  }
  return total;
}

std::map<api::Phase, int64_t> JobIndex::Phases() const {
  std::lock_guard lock(mutex_);
  return phases_;
}

}  // namespace trainyard::controller
