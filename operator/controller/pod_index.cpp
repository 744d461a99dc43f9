#include "operator/controller/pod_index.h"

#include <algorithm>
#include <utility>

#include "operator/cluster/snapshot.h"
#include "operator/lifecycle/path_user.h"

namespace trainyard::controller {
namespace {

// A watch that has not brought a created pod by then is not late: the pod is gone.
constexpr Milliseconds kMadeCounts{30'000};

constexpr std::chrono::seconds kEndedCounts{60};
constexpr int kLastOwnCode = 128;  // above: killed by a signal

// Of a started pod, until it has ended. What is not a string was not written by us.
std::string CheckpointsOf(const nlohmann::json& pod, const api::PodSnapshot& snapshot) {
  if (snapshot.job_uid.empty() || snapshot.gated || snapshot.Terminal()) return "";
  const auto annotations = pod.value("/metadata/annotations"_json_pointer, nlohmann::json::object());
  const auto found = annotations.find(lifecycle::kAnnotationCheckpoints);
  return found != annotations.end() && found->is_string() ? found->get<std::string>() : "";
}

std::string NameOf(const api::PodSnapshot& pod) { return pod.ns + "/" + pod.name; }

}  // namespace

Result<PodRecord> MakePodRecord(const nlohmann::json& pod) {
  Result<api::PodSnapshot> snapshot = cluster::PodFromJson(pod);
  if (!snapshot) return Fail(snapshot.error());
  PodRecord record;
  record.checkpoints = CheckpointsOf(pod, *snapshot);
  if (auto use = placement::UseOf(*snapshot)) {
    record.use = std::make_shared<const placement::PodUse>(*std::move(use));
  }
  if (!snapshot->job_uid.empty()) record.ours = std::make_shared<const api::PodSnapshot>(*std::move(snapshot));
  return record;
}

void PodIndex::DropIfEmpty(const std::string& job_uid) {
  const auto pods = pods_.find(job_uid);
  if (pods != pods_.end() && pods->second.seen.empty() && pods->second.made.empty()) pods_.erase(pods);
}

void PodIndex::Change(const PodPtr& old, const PodPtr& now) {
  std::lock_guard lock(mutex_);
  if (old && old->ours) {
    Pods& pods = pods_[old->ours->job_uid];
    pods.seen.erase(NameOf(*old->ours));
    pods.made.erase(NameOf(*old->ours));
  }
  if (now && now->ours) {
    Pods& pods = pods_[now->ours->job_uid];
    pods.made.erase(NameOf(*now->ours));
    pods.seen[NameOf(*now->ours)] = now;
  }
  if (old && old->ours) DropIfEmpty(old->ours->job_uid);
  ForgetEnded();
  if (now || !old || !old->ours) return;
  gone_.notify_all();
  const api::PodSnapshot& pod = *old->ours;
  // Of rank 0 also one that ended by itself, since it has said last how far the job is and what state it held.
  if (pod.deleting && pod.exit_code && (*pod.exit_code > kLastOwnCode || pod.node_rank == 0))
    ended_.push_back({old->ours, std::chrono::steady_clock::now()});
}

void PodIndex::ForgetEnded() {
  const auto now = std::chrono::steady_clock::now();
  while (!ended_.empty() && now >= ended_.front().at + kEndedCounts) ended_.pop_front();
}

std::vector<api::PodSnapshot> PodIndex::EndedOf(const std::string& ns, const std::string& job_uid) {
  std::lock_guard lock(mutex_);
  ForgetEnded();
  std::vector<api::PodSnapshot> result;
  for (const Ended& ended : ended_) {
    if (ended.pod->job_uid == job_uid && ended.pod->ns == ns) result.push_back(*ended.pod);
  }
  return result;
}

void PodIndex::Created(api::PodSnapshot pod, TimePoint now) {
  std::lock_guard lock(mutex_);
  Pods& pods = pods_[pod.job_uid];
  const std::string name = NameOf(pod);
  // The watch may have been faster.
  if (const auto seen = pods.seen.find(name); seen != pods.seen.end() && seen->second->ours->uid == pod.uid) return;
  pods.made[name] = {std::make_shared<const api::PodSnapshot>(std::move(pod)), now};
}

std::vector<placement::LiveYard::UsePtr> PodIndex::HeldBeside(const std::string& job_uid,
                                                              const std::set<std::string>& live) {
  std::lock_guard lock(mutex_);
  std::vector<placement::LiveYard::UsePtr> held;
  const auto pods = pods_.find(job_uid);
  if (pods == pods_.end()) return held;
  for (const auto& [name, pod] : pods->second.seen) {
    if (pod->use && !live.contains(pod->ours->uid)) held.push_back(pod->use);
  }
  return held;
}

bool PodIndex::AwaitGone(const std::string& job_uid, const std::set<std::string>& listed, Milliseconds timeout) {
  std::unique_lock lock(mutex_);
  return gone_.wait_for(lock, timeout, [&] {
    const auto pods = pods_.find(job_uid);
    if (pods == pods_.end()) return true;
    const auto& seen = pods->second.seen;
    return std::all_of(seen.begin(), seen.end(),
                       [&](const auto& pod) { return listed.contains(pod.second->ours->uid); });
  });
}

std::vector<api::PodSnapshot> PodIndex::Of(const std::string& ns, const std::string& job_uid, TimePoint now) {
  std::lock_guard lock(mutex_);
  std::vector<api::PodSnapshot> result;
  const auto pods = pods_.find(job_uid);
  if (pods == pods_.end()) return result;
  std::erase_if(pods->second.made, [&](const auto& made) { return now >= made.second.at + kMadeCounts; });
  result.reserve(pods->second.seen.size() + pods->second.made.size());
  for (const auto& [name, pod] : pods->second.seen) {
    if (pod->ours->ns == ns) result.push_back(*pod->ours);
  }
  for (const auto& [name, made] : pods->second.made) {
    if (made.pod->ns == ns && !pods->second.seen.contains(name)) result.push_back(*made.pod);
  }
  DropIfEmpty(job_uid);
  return result;
}

}  // namespace trainyard::controller
