#include "operator/controller/job_overlay.h"

#include <algorithm>
#include <utility>

namespace trainyard::controller {

void JobOverlay::Begin(const cluster::ObjectKey& key, const std::string& base_version) {
  std::lock_guard lock(mutex_);
  Entry& entry = entries_[key];
  if (!entry.written || entry.written->version != base_version) entry = {};
  entry.chain.push_back(base_version);
}

void JobOverlay::Put(JobPtr written) {
  std::lock_guard lock(mutex_);
  const auto found = entries_.find(written->key);
  if (found == entries_.end()) return;
  if (found->second.overtaken) {
    entries_.erase(found);
  } else {
    found->second.written = std::move(written);
  }
}

void JobOverlay::Drop(const cluster::ObjectKey& key) {
  std::lock_guard lock(mutex_);
  const auto found = entries_.find(key);
  if (found == entries_.end()) return;
  Entry& entry = found->second;
  if (!entry.chain.empty()) entry.chain.pop_back();
  // An earlier write that was accepted stays known: its claim holds whatever became of the next write.
  if (!entry.written || entry.overtaken) entries_.erase(found);
}

void JobOverlay::Observe(const cluster::ObjectKey& key, const JobPtr& cached) {
  std::lock_guard lock(mutex_);
  const auto found = entries_.find(key);
  if (found == entries_.end()) return;
  Entry& entry = found->second;
  const bool older = cached && std::find(entry.chain.begin(), entry.chain.end(), cached->version) != entry.chain.end();
  if (older) return;
  // A write on top of the last one may be under way: only its answer may forget this entry.
  const bool under_way = !entry.written || entry.chain.back() == entry.written->version;
  if (under_way) {
    entry.overtaken = true;
  } else {
    entries_.erase(found);
  }
}

JobPtr JobOverlay::Latest(const cluster::ObjectKey& key, const JobPtr& cached) const {
  std::lock_guard lock(mutex_);
  const auto found = entries_.find(key);
  const bool newer = found != entries_.end() && found->second.written && !found->second.overtaken;
  return newer ? found->second.written : cached;
}

}  // namespace trainyard::controller
