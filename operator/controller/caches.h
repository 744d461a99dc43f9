// What the controller knows of the cluster: jobs, pods, nodes, services and priority classes, kept current by
// informers, and which jobs a change concerns. Thread-safety: all members from any thread; Start() and Stop() from one.
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <mutex>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include "operator/api/snapshot.h"
#include "operator/cluster/informer.h"
#include "operator/controller/job_index.h"
#include "operator/controller/job_overlay.h"
#include "operator/controller/job_record.h"
#include "operator/controller/ledger.h"
#include "operator/controller/path_index.h"
#include "operator/controller/pod_index.h"
#include "operator/runtime/log_gate.h"

namespace trainyard::controller {

class Caches {
 public:
  struct Concern {
    std::function<void(const std::string& key)> job;  // this job should be looked at again
    std::function<void()> waiting;                    // jobs that wait for GPUs should, soon; see Called()
  };
  // `any_class`: there are no priority classes, and whichever a job names counts as 0. `options` outlives it.
  Caches(cluster::Cluster& cluster, const std::string& ns, const lifecycle::Options& options, bool any_class,
         Concern concern);
  ~Caches();
  // Starts all caches and waits until they are filled. Error: kDeadlineExceeded, as Synced() says it; the call may be
  // repeated to wait on.
  Status Start(Milliseconds sync_timeout, const std::stop_token& stop = {});
  Status Synced() const;
  // Whether each watch has done anything, be it to fail, within `limit`; to be asked now and then. The error names the
  // one that has not.
  Status Alive(Milliseconds limit);
  // By resource: "trainingjobs", "pods", ...
  std::vector<std::pair<std::string, cluster::InformerStats>> Stats() const;
  void Stop();

  // The newest version known: of the cache, or one that we wrote since.
  JobPtr Job(const cluster::ObjectKey& key) const;
  const JobIndex& jobs() const { return job_index_; }
  PodIndex& pods() { return pod_index_; }
  PathIndex& paths() { return path_index_; }
  Ledger& ledger() { return ledger_; }
  Ledger::View View(TimePoint now);
  // As the line sees this version of the job.
  Ledger::Standing StandingOf(const JobRecord& record, const api::TrainingJob& job) const;
  // Jobs that GPUs which came free may concern: those in the line, in its order, as far as their turn may have come,
  // and all that wait outside of it.
  std::vector<cluster::ObjectKey> Called(TimePoint now);
  void ConcernWaiting();
  // One that the server has just made for us counts until the watch says something of it, or for a while.
  bool HasService(const cluster::ObjectKey& key, const std::string& owner_uid);
  void ServiceCreated(const nlohmann::json& service);
  void ConcernUid(const std::string& job_uid);
  void ConcernUids(const std::vector<std::string>& job_uids);

  // Before and after a status write that stands on `base`. `written` is what the server stored, null: it refused. The
  // reservation that the View made for it ends. Without a write, EndDecision() ends it.
  void BeginWrite(const JobRecord& base);
  void EndWrite(const JobRecord& base, const JobPtr& written);
  void EndDecision(const JobRecord& base);

 private:
  using NodeItem = cluster::Informer<api::NodeSnapshot>::Item;
  void OnJob(const cluster::ObjectKey& key, const JobPtr& old, const JobPtr& now);
  void OnPod(const PodPtr& old, const PodPtr& now);
  void OnNode(const NodeItem& old, const NodeItem& now);
  // Index and ledger follow the newest version of the job.
  void Follow(const cluster::ObjectKey& key);
  void OnPriorityClasses();
  Result<api::PriorityClass> Priority(const std::string& name) const;
  void Settle(const JobRecord& base);
  void Report(const char* what, const cluster::ObjectKey& key, const Error& error);

  const lifecycle::Options& options_;
  const bool any_class_;
  const Concern concern_;
  JobOverlay overlay_;
  JobIndex job_index_;
  PodIndex pod_index_;
  PathIndex path_index_;
  Ledger ledger_;
  std::mutex following_;      // one job at a time is followed, so that the last to follow has seen the newest
  mutable std::mutex mutex_;  // guards problems_
  std::map<std::string, std::string> problems_;  // last failure of each cache, for Synced()
  runtime::LogGate gate_;
  bool started_ = false;
  struct Pulse {
    uint64_t signs = 0;
    std::chrono::steady_clock::time_point last_event, since;
  };
  std::mutex pulse_mutex_;               // guards pulses_
  std::map<std::string, Pulse> pulses_;  // of each watch, as Alive() last saw it
  struct MadeService {
    std::string owner_uid;
    std::chrono::steady_clock::time_point at;
  };
  std::mutex made_mutex_;  // guards made_services_
  std::map<cluster::ObjectKey, MadeService> made_services_;
  mutable std::mutex classes_mutex_;  // guards known_classes_
  std::vector<api::PriorityClass> known_classes_;
  cluster::Informer<JobRecord> jobs_;
  cluster::Informer<PodRecord> pods_;
  cluster::Informer<api::NodeSnapshot> nodes_;
  cluster::Informer<std::string> services_;  // UID of the owner
  cluster::Informer<api::PriorityClass> classes_;
};

}  // namespace trainyard::controller
