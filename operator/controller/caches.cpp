#include "operator/controller/caches.h"

#include <algorithm>
#include <tuple>

#include <spdlog/spdlog.h>

#include "operator/cluster/snapshot.h"
#include "operator/lifecycle/lifecycle.h"
#include "trainer/contract/contract.h"

namespace trainyard::controller {

using cluster::Kind;
using cluster::ObjectKey;
using nlohmann::json;

namespace {

bool SameNode(const api::NodeSnapshot& a, const api::NodeSnapshot& b) {
  const auto fields = [](const api::NodeSnapshot& n) {
    return std::tie(n.labels, n.ready, n.unschedulable, n.deleting, n.conditions, n.allocatable);
  };
  const auto same_taint = [](const api::Taint& x, const api::Taint& y) {
    return x.key == y.key && x.value == y.value && x.effect == y.effect;
  };
  return fields(a) == fields(b) &&
         std::equal(a.taints.begin(), a.taints.end(), b.taints.begin(), b.taints.end(), same_taint);
}

bool HoldsGpus(const api::PodSnapshot& pod) { return !pod.node.empty() && !pod.Terminal() && pod.gpus > 0; }

bool Waits(api::Phase phase) {
  return phase == api::Phase::kPending || phase == api::Phase::kQueued || phase == api::Phase::kPlacing ||
         phase == api::Phase::kResizing || phase == api::Phase::kRecovering;
}

}  // namespace

Caches::Caches(cluster::Cluster& cluster, const std::string& ns, std::function<void(const std::string&)> concern)
    : concern_(std::move(concern)),
      jobs_(cluster, Kind::kTrainingJob, {ns, ""},
            [](const json& job) -> Result<JobRecord> { return MakeJobRecord(job); }),
      pods_(cluster, Kind::kPod, {}, cluster::PodFromJson),
      nodes_(cluster, Kind::kNode, {}, cluster::NodeFromJson),
      services_(cluster, Kind::kService, {ns, std::string(contract::kLabelJobUid)},
                [](const json& service) -> Result<std::string> { return cluster::ControllerUidOf(service); }) {
  jobs_.AddHandler([this](const ObjectKey& key, const JobPtr& old, const JobPtr& now) { OnJob(key, old, now); });
  pods_.AddHandler([this](const ObjectKey&, const PodItem& old, const PodItem& now) { OnPod(old, now); });
  nodes_.AddHandler([this](const ObjectKey&, const NodeItem& old, const NodeItem& now) { OnNode(old, now); });
  services_.AddHandler([this](const ObjectKey&, const auto& old, const auto& now) { ConcernUid(now ? *now : *old); });
  jobs_.SetProblemHandler([this](const ObjectKey& key, const Error& error) { Report("jobs", key, error); });
  pods_.SetProblemHandler([this](const ObjectKey& key, const Error& error) { Report("pods", key, error); });
  nodes_.SetProblemHandler([this](const ObjectKey& key, const Error& error) { Report("nodes", key, error); });
  services_.SetProblemHandler([this](const ObjectKey& key, const Error& error) { Report("services", key, error); });
}

Caches::~Caches() { Stop(); }

void Caches::Report(const char* what, const ObjectKey& key, const Error& error) {
  spdlog::warn("cache of {}: {}", what, error.message);
  if (!key.name.empty()) return;  // one object, not the cache
  std::lock_guard lock(mutex_);
  problems_[what] = error.message;
}

Status Caches::Start(Milliseconds sync_timeout) {
  jobs_.Start();
  pods_.Start();
  nodes_.Start();
  services_.Start();
  const auto deadline = std::chrono::steady_clock::now() + sync_timeout;
  const auto wait = [&](const char* what, const auto& informer) -> Status {
    const auto left = std::chrono::ceil<Milliseconds>(deadline - std::chrono::steady_clock::now());
    if (informer.WaitSynced(std::max(left, Milliseconds(0)))) return {};
    std::lock_guard lock(mutex_);
    const std::string& problem = problems_[what];
    return Fail(ErrorCode::kDeadlineExceeded, std::string("the cache of ") + what + " did not fill in time: " +
                                                  (problem.empty() ? "the list takes too long" : problem));
  };
  if (Status status = wait("jobs", jobs_); !status) return status;
  if (Status status = wait("pods", pods_); !status) return status;
  if (Status status = wait("nodes", nodes_); !status) return status;
  return wait("services", services_);
}

void Caches::Stop() {
  jobs_.Stop();
  pods_.Stop();
  nodes_.Stop();
  services_.Stop();
}

JobPtr Caches::Job(const ObjectKey& key) const {
  const JobPtr cached = jobs_.Get(key);
  return cached ? overlay_.Latest(key, cached) : nullptr;
}

std::vector<placement::Booking> Caches::OtherClaims(const std::string& except_uid) const {
  std::vector<placement::Booking> claims;
  for (const JobPtr& cached : jobs_.List()) {
    const JobPtr job = overlay_.Latest(cached->key, cached);
    if (job->uid != except_uid) claims.insert(claims.end(), job->bookings.begin(), job->bookings.end());
  }
  return claims;
}

std::vector<api::PodSnapshot> Caches::Pods() const {
  std::vector<api::PodSnapshot> pods;
  for (const PodItem& pod : pods_.List()) pods.push_back(*pod);
  return pods;
}

std::vector<api::NodeSnapshot> Caches::Nodes() const {
  std::vector<api::NodeSnapshot> nodes;
  for (const NodeItem& node : nodes_.List()) nodes.push_back(*node);
  return nodes;
}

bool Caches::HasService(const ObjectKey& key, const std::string& owner_uid) const {
  const auto owner = services_.Get(key);
  return owner && *owner == owner_uid;
}

void Caches::OnJob(const ObjectKey& key, const JobPtr& old, const JobPtr& now) {
  overlay_.Observe(key, now);
  {
    std::lock_guard lock(mutex_);
    if (old && (!now || now->uid != old->uid)) job_keys_.erase(old->uid);
    if (now) job_keys_[now->uid] = key;
  }
  concern_(cluster::ToString(key));
  const bool released = old && !old->bookings.empty() && (!now || now->bookings.size() < old->bookings.size());
  if (released) ConcernWaiting();
}

void Caches::OnPod(const PodItem& old, const PodItem& now) {
  const api::PodSnapshot& pod = now ? *now : *old;
  if (!pod.job_uid.empty()) ConcernUid(pod.job_uid);
  const bool freed = old && HoldsGpus(*old) && (!now || !HoldsGpus(*now));
  if (freed) ConcernWaiting();
}

void Caches::OnNode(const NodeItem& old, const NodeItem& now) {
  if (old && now && SameNode(*old, *now)) return;
  ConcernWaiting(now ? now->name : old->name);
}

void Caches::ConcernUid(const std::string& job_uid) {
  ObjectKey key;
  {
    std::lock_guard lock(mutex_);
    const auto found = job_keys_.find(job_uid);
    if (found == job_keys_.end()) return;
    key = found->second;
  }
  concern_(cluster::ToString(key));
}

void Caches::ConcernWaiting(const std::string& node) {
  for (const JobPtr& cached : jobs_.List()) {
    const JobPtr job = overlay_.Latest(cached->key, cached);
    const bool touched = std::any_of(job->bookings.begin(), job->bookings.end(),
                                     [&](const placement::Booking& booking) { return booking.node == node; });
    if (touched || Waits(job->job.status.phase)) concern_(cluster::ToString(job->key));
  }
}

}  // namespace trainyard::controller
