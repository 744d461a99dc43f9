#include "operator/controller/caches.h"

#include <algorithm>
#include <exception>
#include <tuple>
#include <utility>

#include <spdlog/spdlog.h>

#include "operator/cluster/snapshot.h"
#include "operator/lifecycle/lifecycle.h"
#include "operator/placement/gpu_links.h"
#include "trainer/contract/contract.h"

namespace trainyard::controller {

using cluster::Kind;
using cluster::ObjectKey;
using nlohmann::json;

namespace {

// A watch that works brings what we have made within moments.
constexpr Milliseconds kMadeCounts{10'000};

bool SameNode(const api::NodeSnapshot& a, const api::NodeSnapshot& b) {
  const auto fields = [](const api::NodeSnapshot& n) {
    return std::tie(n.labels, n.ready, n.unschedulable, n.deleting, n.conditions, n.allocatable);
  };
  const auto same_taint = [](const api::Taint& x, const api::Taint& y) {
    return x.key == y.key && x.value == y.value && x.effect == y.effect;
  };
  return fields(a) == fields(b) && placement::LinksNote(a) == placement::LinksNote(b) &&
         std::equal(a.taints.begin(), a.taints.end(), b.taints.begin(), b.taints.end(), same_taint);
}

bool HoldsGpus(const PodPtr& pod) { return pod && pod->use && pod->use->gpus > 0; }

// A projection must not throw into the informer's thread, whatever the object is.
template <typename T>
std::function<Result<T>(const json&)> Guarded(std::function<Result<T>(const json&)> projection) {
  return [projection = std::move(projection)](const json& object) -> Result<T> {
    try {
      return projection(object);
    } catch (const std::exception& exception) {
      return Fail(ErrorCode::kInvalidArgument,
                  cluster::ToString(cluster::KeyOf(object)) + " cannot be read: " + exception.what());
    }
  };
}

}  // namespace

Caches::Caches(cluster::Cluster& cluster, const std::string& ns, const lifecycle::Options& options, bool any_class,
               Concern concern)
    : options_(options),
      any_class_(any_class),
      concern_(std::move(concern)),
      ledger_(options.yard),
      jobs_(cluster, Kind::kTrainingJob, {ns, ""},
            Guarded<JobRecord>([](const json& job) { return Result<JobRecord>(MakeJobRecord(job)); })),
      pods_(cluster, Kind::kPod, {}, Guarded<PodRecord>(MakePodRecord)),
      nodes_(cluster, Kind::kNode, {}, Guarded<api::NodeSnapshot>(cluster::NodeFromJson)),
      services_(cluster, Kind::kService, {ns, std::string(contract::kLabelJobUid)},
                [](const json& service) -> Result<std::string> { return cluster::ControllerUidOf(service); }),
      classes_(cluster, Kind::kPriorityClass, {}, Guarded<api::PriorityClass>(cluster::PriorityClassFromJson)) {
  jobs_.AddHandler([this](const ObjectKey& key, const JobPtr& old, const JobPtr& now) { OnJob(key, old, now); });
  pods_.AddHandler([this](const ObjectKey&, const PodPtr& old, const PodPtr& now) { OnPod(old, now); });
  nodes_.AddHandler([this](const ObjectKey&, const NodeItem& old, const NodeItem& now) { OnNode(old, now); });
  services_.AddHandler([this](const ObjectKey& key, const auto& old, const auto& now) {
    {
      std::lock_guard lock(made_mutex_);
      made_services_.erase(key);
    }
    ConcernUid(now ? *now : *old);
  });
  classes_.AddHandler([this](const ObjectKey&, const auto&, const auto&) { OnPriorityClasses(); });
  jobs_.SetProblemHandler([this](const ObjectKey& key, const Error& error) { Report("jobs", key, error); });
  pods_.SetProblemHandler([this](const ObjectKey& key, const Error& error) { Report("pods", key, error); });
  nodes_.SetProblemHandler([this](const ObjectKey& key, const Error& error) { Report("nodes", key, error); });
  services_.SetProblemHandler([this](const ObjectKey& key, const Error& error) { Report("services", key, error); });
  classes_.SetProblemHandler(
      [this](const ObjectKey& key, const Error& error) { Report("priorityclasses", key, error); });
}

Caches::~Caches() { Stop(); }

void Caches::Report(const char* what, const ObjectKey& key, const Error& error) {
  // The trouble of one object is told when it comes, that of a whole cache once per state.
  if (!key.name.empty() || gate_.Passes(what, error.message)) spdlog::warn("cache of {}: {}", what, error.message);
  if (!key.name.empty()) return;  // one object, not the cache
  std::lock_guard lock(mutex_);
  problems_[what] = error.message;
}

Status Caches::Synced() const {
  const auto filled = [&](const char* what, const auto& informer) -> Status {
    if (informer.WaitSynced(Milliseconds(0))) return {};
    std::lock_guard lock(mutex_);
    const auto problem = problems_.find(what);
    return Fail(ErrorCode::kDeadlineExceeded,
                std::string("the cache of ") + what +
                    " is not filled: " + (problem == problems_.end() ? "the list takes its time" : problem->second));
  };
  if (Status status = filled("jobs", jobs_); !status) return status;
  if (Status status = filled("pods", pods_); !status) return status;
  if (Status status = filled("nodes", nodes_); !status) return status;
  if (Status status = filled("services", services_); !status) return status;
  return any_class_ ? Status() : filled("priorityclasses", classes_);
}

Status Caches::Start(Milliseconds sync_timeout, const std::stop_token& stop) {
  if (!std::exchange(started_, true)) {
    if (!any_class_) classes_.Start();
    jobs_.Start();
    pods_.Start();
    nodes_.Start();
    services_.Start();
  }
  // The informers cannot be woken by a stop, so that it is looked for now and then.
  constexpr Milliseconds kLook{200};
  const auto deadline = std::chrono::steady_clock::now() + sync_timeout;
  const auto wait = [&](const auto& informer) {
    while (!stop.stop_requested()) {
      const auto left = std::chrono::ceil<Milliseconds>(deadline - std::chrono::steady_clock::now());
      if (informer.WaitSynced(std::clamp(left, Milliseconds(0), kLook))) return true;
      if (left <= Milliseconds(0)) return false;
    }
    return false;
  };
  const bool classes = any_class_ || wait(classes_);
  if (classes && wait(jobs_) && wait(pods_) && wait(nodes_) && wait(services_)) return {};
  return Synced();
}

std::vector<std::pair<std::string, cluster::InformerStats>> Caches::Stats() const {
  std::vector<std::pair<std::string, cluster::InformerStats>> stats = {{"trainingjobs", jobs_.stats()},
                                                                       {"pods", pods_.stats()},
                                                                       {"nodes", nodes_.stats()},
                                                                       {"services", services_.stats()}};
  if (!any_class_) stats.emplace_back("priorityclasses", classes_.stats());
  return stats;
}

Status Caches::Alive(Milliseconds limit) {
  const auto now = std::chrono::steady_clock::now();
  std::lock_guard lock(pulse_mutex_);
  for (const auto& [resource, stats] : Stats()) {
    uint64_t signs = stats.lists + stats.watches + stats.problems;
    for (const auto& [reason, count] : stats.watch_restarts) signs += count;
    Pulse& pulse = pulses_.try_emplace(resource, Pulse{signs, stats.last_event, now}).first->second;
    if (pulse.signs != signs || pulse.last_event != stats.last_event) pulse = {signs, stats.last_event, now};
    const auto silent = std::chrono::duration_cast<Milliseconds>(now - pulse.since);
    if (silent > limit) {
      return Fail(ErrorCode::kDeadlineExceeded,
                  "the watch of " + resource + " has done nothing for " + FormatDuration(silent));
    }
  }
  return {};
}

void Caches::Stop() {
  jobs_.Stop();
  pods_.Stop();
  nodes_.Stop();
  services_.Stop();
  classes_.Stop();
}

JobPtr Caches::Job(const ObjectKey& key) const {
  const JobPtr cached = jobs_.Get(key);
  return cached ? overlay_.Latest(key, cached) : nullptr;
}

Ledger::View Caches::View(TimePoint now) {
  return {ledger_,
          now,
          [this](const std::string& name) { return nodes_.Get({"", name}); },
          [this](const std::string& name) { return Priority(name); },
          [this, now](const std::string& uid) { return job_index_.ExposureBeside(uid, now); },
          [this](const lifecycle::PathUser& asking) { return path_index_.Beside(asking); }};
}

Result<api::PriorityClass> Caches::Priority(const std::string& name) const {
  if (any_class_) return api::PriorityClass();
  std::lock_guard lock(classes_mutex_);
  return lifecycle::FindPriority(known_classes_, name);
}

void Caches::OnPriorityClasses() {
  std::vector<api::PriorityClass> known;
  for (const auto& item : classes_.List()) known.push_back(*item);
  {
    std::lock_guard lock(classes_mutex_);
    known_classes_ = std::move(known);
  }
  for (const JobPtr& job : jobs_.List()) Follow(job->key);
  ConcernWaiting();
}

Ledger::Standing Caches::StandingOf(const JobRecord& record, const api::TrainingJob& job) const {
  if (!record.problem.empty() || !record.status_problem.empty()) return {};
  const Result<api::PriorityClass> priority = Priority(job.spec.priority_class_name);
  return {lifecycle::WaitingOf(job, options_, priority.value_or(api::PriorityClass())),
          lifecycle::RunningOf(job, priority)};
}

std::vector<ObjectKey> Caches::Called(TimePoint now) {
  std::vector<ObjectKey> called;
  for (const std::string& uid : ledger_.Called(now)) {
    if (const auto key = job_index_.Find(uid)) called.push_back(*key);
  }
  const std::set<std::string> in_line = ledger_.InLine();
  for (auto& [uid, key] : job_index_.Waiting()) {
    if (!in_line.contains(uid)) called.push_back(std::move(key));
  }
  return called;
}

bool Caches::HasService(const ObjectKey& key, const std::string& owner_uid) {
  if (const auto owner = services_.Get(key)) return *owner == owner_uid;
  std::lock_guard lock(made_mutex_);
  std::erase_if(made_services_, [now = std::chrono::steady_clock::now()](const auto& made) {
    return now >= made.second.at + kMadeCounts;
  });
  const auto made = made_services_.find(key);
  return made != made_services_.end() && made->second.owner_uid == owner_uid;
}

void Caches::ServiceCreated(const json& service) {
  const ObjectKey key = cluster::KeyOf(service);
  {
    std::lock_guard lock(made_mutex_);
    made_services_[key] = {cluster::ControllerUidOf(service), std::chrono::steady_clock::now()};
  }
  if (!services_.Get(key)) return;
  std::lock_guard lock(made_mutex_);  // the watch was faster
  made_services_.erase(key);
}

void Caches::BeginWrite(const JobRecord& base) { overlay_.Begin(base.key, base.version); }

void Caches::EndWrite(const JobRecord& base, const JobPtr& written) {
  if (written) {
    overlay_.Put(written);
  } else {
    overlay_.Drop(base.key);
  }
  Settle(base);
}

void Caches::EndDecision(const JobRecord& base) { Settle(base); }

void Caches::Settle(const JobRecord& base) {
  bool room = false;
  std::vector<std::string> near;
  {
    std::lock_guard lock(following_);
    const JobPtr now = Job(base.key);
    const bool same = now && now->uid == base.uid;
    job_index_.Set(base.key, now);
    room = ledger_.Settle(base.uid, same ? now->bookings : Ledger::Bookings(),
                          same ? StandingOf(*now, now->job) : Ledger::Standing());
    near = path_index_.Settle(base.uid, same ? lifecycle::PathUserOf(now->job) : std::nullopt);
  }
  ConcernUids(near);
  // What was reserved for a write that was refused is free again, and so is what the job has given back.
  if (room) ConcernWaiting();
}

void Caches::Follow(const ObjectKey& key) {
  bool room = false;
  std::vector<std::string> near;
  {
    std::lock_guard lock(following_);
    const JobPtr now = Job(key);
    job_index_.Set(key, now);
    if (now) room = ledger_.SetJob(now->uid, now->bookings, StandingOf(*now, now->job));
    if (now) near = path_index_.SetJob(now->uid, lifecycle::PathUserOf(now->job));
  }
  ConcernUids(near);
  if (room) ConcernWaiting();
}

void Caches::OnJob(const ObjectKey& key, const JobPtr& old, const JobPtr& now) {
  overlay_.Observe(key, now);
  Follow(key);
  const bool gone = old && (!now || now->uid != old->uid);
  if (gone) ConcernUids(path_index_.SetJob(old->uid, std::nullopt));
  if (gone && ledger_.SetJob(old->uid, {}, {})) ConcernWaiting();
  concern_.job(cluster::ToString(key));
}

void Caches::OnPod(const PodPtr& old, const PodPtr& now) {
  pod_index_.Change(old, now);
  ConcernUids(path_index_.ChangePod(old, now));
  ledger_.ChangePod(old ? old->use : nullptr, now ? now->use : nullptr);
  const auto& ours = now ? now->ours : old->ours;
  if (ours) ConcernUid(ours->job_uid);
  if (HoldsGpus(old) && !HoldsGpus(now)) ConcernWaiting();
}

void Caches::OnNode(const NodeItem& old, const NodeItem& now) {
  if (old && now && SameNode(*old, *now)) return;
  const std::string& name = now ? now->name : old->name;
  if (now) {
    ledger_.SetNode(now);
  } else {
    ledger_.RemoveNode(name);
  }
  for (const ObjectKey& key : job_index_.OnNode(name)) concern_.job(cluster::ToString(key));
  ConcernWaiting();
}

void Caches::ConcernUid(const std::string& job_uid) {
  if (const auto key = job_index_.Find(job_uid)) concern_.job(cluster::ToString(*key));
}

void Caches::ConcernUids(const std::vector<std::string>& job_uids) {
  for (const std::string& uid : job_uids) ConcernUid(uid);
}

void Caches::ConcernWaiting() {
  if (job_index_.AnyWaiting()) concern_.waiting();
}

}  // namespace trainyard::controller
