#include "operator/controller/path_index.h"

#include <algorithm>
#include <utility>

namespace trainyard::controller {
namespace {

std::string In(const std::string& ns, const std::string& key) { return ns + "/" + key; }

std::string NameOf(const api::PodSnapshot& pod) { return In(pod.ns, pod.name); }

bool Writes(const PodPtr& pod) { return pod && pod->ours && !pod->checkpoints.empty(); }

}  // namespace

std::set<std::string> PathIndex::Entry::Keys() const {
  std::set<std::string> keys;
  if (const auto& user = User()) {
    if (!user->checkpoints.empty()) keys.insert(In(user->ns, user->checkpoints));
    if (!user->exports.empty()) keys.insert(In(user->ns, user->exports));
  }
  for (const auto& [name, pod] : pods) keys.insert(In(pod->ours->ns, pod->checkpoints));
  return keys;
}

void PathIndex::AddNear(const std::string& key, std::set<std::string>& uids) const {
  const auto add = [&](const auto& found) { uids.insert(found->second.begin(), found->second.end()); };
  for (size_t end = key.find('/'); end != std::string::npos; end = key.find('/', end + 1)) {
    if (const auto around = keys_.find(key.substr(0, end)); around != keys_.end()) add(around);
  }
  if (const auto same = keys_.find(key); same != keys_.end()) add(same);
  const std::string inside = key + "/";
  for (auto it = keys_.lower_bound(inside); it != keys_.end() && it->first.starts_with(inside); ++it) add(it);
}

// Makes the change, keeps the keys, and finds whom it concerns: `change` says whether there was one.
template <typename Change>
PathIndex::Uids PathIndex::Update(const std::string& uid, const Change& change) {
  std::lock_guard lock(mutex_);
  Entry& entry = entries_[uid];
  const std::set<std::string> before = entry.Keys();
  const bool changed = change(entry);
  const std::set<std::string> after = entry.Keys();
  if (!entry.known && !entry.decided && entry.pods.empty()) entries_.erase(uid);
  if (!changed) return {};
  std::set<std::string> near;
  for (const std::string& key : before) {
    const auto uids = keys_.find(key);
    uids->second.erase(uid);
    if (uids->second.empty()) keys_.erase(uids);
    AddNear(key, near);
  }
  for (const std::string& key : after) {
    AddNear(key, near);
    keys_[key].insert(uid);
  }
  near.erase(uid);
  return {near.begin(), near.end()};
}

PathIndex::Uids PathIndex::SetJob(const std::string& uid, const std::optional<lifecycle::PathUser>& job) {
  return Update(uid, [&](Entry& entry) {
    const bool counts = !entry.decided && entry.known != job;
    entry.known = job;
    return counts;
  });
}

void PathIndex::Decide(const std::string& uid, const std::optional<lifecycle::PathUser>& job) {
  if (!job) return;
  Update(uid, [&](Entry& entry) {
    const bool counts = entry.User() != job;
    entry.decided = job;
    return counts;
  });
}

PathIndex::Uids PathIndex::Settle(const std::string& uid, const std::optional<lifecycle::PathUser>& job) {
  return Update(uid, [&](Entry& entry) {
    const bool counts = entry.User() != job;
    entry.decided.reset();
    entry.known = job;
    return counts;
  });
}

PathIndex::Uids PathIndex::ChangePod(const PodPtr& old, const PodPtr& now) {
  const bool wrote = Writes(old), writes = Writes(now);
  // A pod is of another job only if it is another pod.
  const bool same = wrote && writes && old->ours->uid == now->ours->uid;
  const bool news = !same || old->checkpoints != now->checkpoints || old->ours->deleting != now->ours->deleting;
  Uids near;
  if (wrote && !same) {
    near = Update(old->ours->job_uid, [&](Entry& entry) { return entry.pods.erase(NameOf(*old->ours)) > 0; });
  }
  if (!writes) return near;
  const Uids more = Update(now->ours->job_uid, [&](Entry& entry) {
    entry.pods[NameOf(*now->ours)] = now;
    return news;
  });
  near.insert(near.end(), more.begin(), more.end());
  return near;
}

std::vector<lifecycle::PathNeighbour> PathIndex::Beside(const lifecycle::PathUser& asking) const {
  std::lock_guard lock(mutex_);
  std::set<std::string> uids;
  for (const std::string* key : {&asking.checkpoints, &asking.exports}) {
    if (!key->empty()) AddNear(In(asking.ns, *key), uids);
  }
  uids.erase(asking.uid);
  std::vector<lifecycle::PathNeighbour> neighbours;
  for (const std::string& uid : uids) {
    const Entry& entry = entries_.at(uid);
    lifecycle::PathNeighbour& neighbour = neighbours.emplace_back();
    if (entry.User()) neighbour.job = *entry.User();
    neighbour.job.uid = uid;
    for (const auto& [name, pod] : entry.pods) {
      const bool meets = lifecycle::PathsMeet(pod->checkpoints, asking.checkpoints) ||
                         lifecycle::PathsMeet(pod->checkpoints, asking.exports);
      if (meets && pod->ours->ns == asking.ns) neighbour.pods.push_back(*pod->ours);
    }
  }
  return neighbours;
}

}  // namespace trainyard::controller
