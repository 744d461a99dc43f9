#include "operator/controller/job_overlay.h"

#include <algorithm>
#include <utility>

namespace trainyard::controller {

void JobOverlay::Put(const std::string& base_version, JobPtr written) {
  std::lock_guard lock(mutex_);
  Entry& entry = entries_[written->key];
  if (entry.chain.empty() || entry.chain.back() != base_version) entry.chain = {base_version};
  entry.chain.push_back(written->version);
  entry.written = std::move(written);
}

void JobOverlay::Observe(const cluster::ObjectKey& key, const JobPtr& cached) {
  std::lock_guard lock(mutex_);
  const auto found = entries_.find(key);
  if (found == entries_.end()) return;
  const std::vector<std::string>& chain = found->second.chain;
  const bool older = cached && cached->uid == found->second.written->uid &&
                     std::find(chain.begin(), chain.end() - 1, cached->version) != chain.end() - 1;
  if (!older) entries_.erase(found);
}

void JobOverlay::Drop(const cluster::ObjectKey& key) {
  std::lock_guard lock(mutex_);
  entries_.erase(key);
}

JobPtr JobOverlay::Latest(const cluster::ObjectKey& key, const JobPtr& cached) const {
  std::lock_guard lock(mutex_);
  const auto found = entries_.find(key);
  return found == entries_.end() ? cached : found->second.written;
}

}  // namespace trainyard::controller
