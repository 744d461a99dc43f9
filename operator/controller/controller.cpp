#include "operator/controller/controller.h"

#include <algorithm>
#include <atomic>
#include <mutex>
#include <optional>
#include <utility>

#include <spdlog/spdlog.h>

#include "operator/api/json.h"
#include "operator/api/names.h"
#include "operator/cluster/snapshot.h"
#include "operator/controller/actions.h"
#include "operator/controller/caches.h"
#include "operator/controller/progress_json.h"
#include "operator/runtime/work_queue.h"
#include "operator/runtime/worker_pool.h"
#include "trainer/contract/contract.h"

namespace trainyard::controller {

using cluster::Kind;
using cluster::ObjectKey;
using nlohmann::json;

class Controller::Impl {
 public:
  Impl(cluster::Cluster& cluster, cluster::ProgressSource& progress, const Clock& clock, ControllerOptions options)
      : cluster_(cluster),
        progress_(progress),
        clock_(clock),
        options_(std::move(options)),
        runner_(cluster, options_.parallel_creates),
        caches_(cluster, options_.ns, [this](const std::string& key) { queue_.Add(key); }) {}

  Status Start(Milliseconds sync_timeout) {
    if (Status status = caches_.Start(sync_timeout); !status) return status;
    workers_.emplace(queue_, options_.workers, [this](const std::string& key) { return Reconcile(key); });
    return {};
  }

  void Stop() {
    if (workers_) workers_->Stop();
    caches_.Stop();
  }

  ControllerCounters counters() const {
    ControllerCounters counters{reconciles_, 0, status_writes_, actions_, conflicts_, events_};
    if (workers_) counters.failures = workers_->counters().failed;
    return counters;
  }

 private:
  using Requeue = std::optional<Milliseconds>;

  Result<Requeue> Reconcile(const std::string& key_text) {
    ++reconciles_;
    const ObjectKey key = cluster::ParseKey(key_text);
    const JobPtr seen = caches_.Job(key);
    if (!seen) return Requeue();  // gone; what it owned is collected by the cluster
    lifecycle::Input input = Observe(*seen);

    // One decision at a time where GPUs are given out: each must see the claims of those before it.
    std::unique_lock placing(placing_);
    const JobPtr record = caches_.Job(key);
    if (!record || record->version != seen->version) {
      placing.unlock();
      queue_.Add(key_text);  // written meanwhile: begin again with what it is now
      return Requeue();
    }
    Result<lifecycle::Decision> decision = Decide(*record, input);
    if (!decision) return Fail(decision.error());
    const bool gives_out = decision->status.attempt != record->job.status.attempt ||
                           decision->status.placement.has_value() != record->job.status.placement.has_value();
    if (!gives_out) placing.unlock();
    Result<JobPtr> written = WriteStatus(record, decision->status);
    if (placing) placing.unlock();
    if (!written) return Fail(written.error());

    const api::TrainingJob& job = (*written)->job;
    actions_ += decision->actions.size();
    const Status acted = runner_.Run(job, decision->actions);
    events_ += runner_.Send(job, decision->events, input.now);
    if (!acted) return Fail(acted.error());
    return decision->requeue_after;
  }

  // Everything but the claims of others, which are read under the lock.
  lifecycle::Input Observe(const JobRecord& record) {
    lifecycle::Input input;
    input.job = record.job;
    input.all_pods = caches_.Pods();
    SetPods(input, input.all_pods);
    input.nodes = caches_.Nodes();
    input.service_exists = caches_.HasService({record.key.ns, api::ServiceName(record.job)}, record.uid);
    ReadProgress(input);
    input.now = clock_.Now();
    return input;
  }

  static void SetPods(lifecycle::Input& input, const std::vector<api::PodSnapshot>& from) {
    input.pods.clear();
    std::copy_if(from.begin(), from.end(), std::back_inserter(input.pods), [&](const api::PodSnapshot& pod) {
      return pod.job_uid == input.job.meta.uid && pod.ns == input.job.meta.ns;
    });
  }

  // A job that cannot be asked is no worse for it.
  void ReadProgress(lifecycle::Input& input) {
    const api::JobStatus& status = input.job.status;
    if (api::IsTerminal(status.phase)) return;
    for (const api::PodSnapshot& pod : input.pods) {
      const bool asked = pod.node_rank == 0 && pod.attempt == status.attempt && pod.owner_uid == input.job.meta.uid &&
                         (pod.phase == api::PodPhase::kRunning || pod.Terminal());
      if (!asked) continue;
      const Result<json> reply = progress_.Read(pod);
      if (!reply) {
        spdlog::debug("progress of {}: {}", input.job.meta.name, reply.error().message);
        return;
      }
      Result<ProgressReport> report = ProgressFromJson(*reply, input.job.meta.uid);
      if (!report) {
        spdlog::warn("progress of {}: {}", input.job.meta.name, report.error().message);
        return;
      }
      input.progress = std::move(report->progress);
      input.checkpoint = std::move(report->checkpoint);
      input.progress_attempt = report->attempt;
      return;
    }
  }

  Result<lifecycle::Decision> Decide(const JobRecord& record, lifecycle::Input& input) {
    if (!record.problem.empty()) {
      lifecycle::Decision decision;
      decision.status = StatusOfProblem(record, input.now);
      return decision;
    }
    input.other_claims = caches_.OtherClaims(record.uid);
    lifecycle::Decision decision = options_.decide(input, options_.lifecycle);
    if (!decision.refresh_pods) return decision;
    const std::string selector = std::string(contract::kLabelJobUid) + "=" + record.uid;
    const Result<cluster::ObjectList> list = cluster_.List(Kind::kPod, {record.key.ns, selector});
    if (!list) return Fail(list.error());
    std::vector<api::PodSnapshot> fresh;
    for (const cluster::Object& object : list->items) {
      Result<api::PodSnapshot> pod = cluster::PodFromJson(*object);
      if (!pod) return Fail(pod.error());
      fresh.push_back(*std::move(pod));
    }
    SetPods(input, fresh);
    input.pods_fresh = true;
    return options_.decide(input, options_.lifecycle);
  }

  // Returns the job as it is after the write; the same record when there was nothing to write.
  Result<JobPtr> WriteStatus(const JobPtr& record, const api::JobStatus& status) {
    json next = api::StatusToJson(status);
    if (next == record->object.value("status", json())) return record;
    json object = record->object;
    object["status"] = std::move(next);
    ++status_writes_;
    caches_.overlay().Begin(record->key, record->version);
    const Result<json> stored = cluster_.ReplaceStatus(Kind::kTrainingJob, object);
    if (!stored) {
      caches_.overlay().Drop(record->key);
      if (stored.error().code == ErrorCode::kConflict) ++conflicts_;
      if (stored.error().code == ErrorCode::kNotFound) {
        return Fail(ErrorCode::kConflict, "the job was deleted meanwhile");  // nothing else may be done
      }
      return Fail(stored.error());
    }
    JobPtr written = std::make_shared<const JobRecord>(MakeJobRecord(*stored));
    caches_.overlay().Put(written);
    return written;
  }

  cluster::Cluster& cluster_;
  cluster::ProgressSource& progress_;
  const Clock& clock_;
  const ControllerOptions options_;
  ActionRunner runner_;
  runtime::WorkQueue queue_;
  std::mutex placing_;  // held from reading the claims to the write of a new one
  std::atomic<uint64_t> reconciles_{0}, status_writes_{0}, actions_{0}, conflicts_{0}, events_{0};
  Caches caches_;                               // its threads add to the queue
  std::optional<runtime::WorkerPool> workers_;  // last: its threads use all of the above
};

Controller::Controller(cluster::Cluster& cluster, cluster::ProgressSource& progress, const Clock& clock,
                       ControllerOptions options)
    : impl_(std::make_unique<Impl>(cluster, progress, clock, std::move(options))) {}

Controller::~Controller() { Stop(); }
Status Controller::Start(Milliseconds sync_timeout) { return impl_->Start(sync_timeout); }
void Controller::Stop() { impl_->Stop(); }
ControllerCounters Controller::counters() const { return impl_->counters(); }

}  // namespace trainyard::controller
