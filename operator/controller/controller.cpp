#include "operator/controller/controller.h"

#include <algorithm>
#include <atomic>
#include <optional>
#include <set>
#include <utility>

#include <spdlog/spdlog.h>

#include "operator/cluster/snapshot.h"
#include "operator/controller/actions.h"
#include "operator/controller/caches.h"
#include "operator/controller/observation.h"
#include "operator/controller/plan_memo.h"
#include "operator/controller/refusals.h"
#include "operator/controller/scrape.h"
#include "operator/controller/status_writer.h"
#include "operator/controller/unreadable.h"
#include "operator/controller/yard_metrics.h"
#include "operator/lifecycle/unread.h"
#include "operator/runtime/event_recorder.h"
#include "operator/runtime/task_pool.h"
#include "operator/runtime/work_queue.h"
#include "operator/runtime/worker_pool.h"
#include "trainer/contract/contract.h"

namespace trainyard::controller {

using cluster::Kind;
using cluster::ObjectKey;
using nlohmann::json;

namespace {

namespace metric = runtime::metric;

constexpr const char* kName = kControllerName;
// Stands in the queue for all jobs that wait for GPUs: a burst of freed GPUs is one look at each of them.
constexpr const char* kWaitingJobs = "*";
constexpr Milliseconds kWaitingDelay{50};
// How long a list of a job's pods waits for the watch to be as far.
constexpr Milliseconds kWatchPatience{250};
// How long the events that are left at an end may take.
constexpr Milliseconds kFlushTimeout{5'000};

}  // namespace

class Controller::Impl {
 public:
  Impl(cluster::Cluster& cluster, cluster::ProgressSource& progress, const Clock& clock, ControllerOptions options)
      : cluster_(cluster),
        progress_(progress),
        clock_(clock),
        options_(std::move(options)),
        queue_(QueueOptions()),
        recorder_(cluster, clock, RecorderOptions()),
        pool_(options_.parallel_creates),
        caches_(cluster, options_.ns, options_.lifecycle, options_.any_priority_class,
                {[this](const std::string& key) { queue_.Add(key); },
                 [this] { queue_.AddAfter(kWaitingJobs, kWaitingDelay); }}),
        writer_(cluster, caches_, options_.metrics),
        runner_(cluster, pool_, [this](Kind kind, const json& object) { OnCreated(kind, object); }) {
    if (options_.metrics != nullptr) {
      BeginCounters(*options_.metrics);
      collector_ = options_.metrics->AddCollector(
          [this](runtime::Scrape& scrape) { Collect(caches_, queue_.Size(), made_at_, clock_.Now(), scrape); });
    }
  }

  Status Start(Milliseconds sync_timeout, const std::stop_token& stop) {
    if (Status status = caches_.Start(sync_timeout, stop); !status) return status;
    workers_.emplace(queue_, options_.workers, [this](const std::string& key) { return Timed(key); });
    return {};
  }

  bool Drain(Milliseconds timeout) {
    const auto deadline = std::chrono::steady_clock::now() + timeout;
    const bool in_time = queue_.Drain(timeout);
    const auto left = std::chrono::ceil<Milliseconds>(deadline - std::chrono::steady_clock::now());
    recorder_.Stop(std::clamp(left, Milliseconds(0), kFlushTimeout));
    return in_time;
  }

  void OnProgress(const std::string& job_uid) { caches_.ConcernUid(job_uid); }
  Status Synced() const { return caches_.Synced(); }
  Status Alive() { return caches_.Alive(2 * options_.watch_idle); }

  void Stop() {
    if (workers_) workers_->Stop();
    recorder_.Stop(kFlushTimeout);
    caches_.Stop();
  }

  ControllerCounters counters() const {
    ControllerCounters counters{reconciles_, 0, writer_.writes(), actions_, writer_.conflicts(), events_};
    if (workers_) counters.failures = workers_->counters().failed;
    return counters;
  }

 private:
  using Requeue = std::optional<Milliseconds>;

  void Count(const metric::Name& name, const runtime::MetricLabels& labels = {}, double by = 1) {
    if (options_.metrics != nullptr) options_.metrics->Count(name, labels, by);
  }

  runtime::WorkQueueOptions QueueOptions() {
    runtime::WorkQueueOptions options;
    // After a long outage nobody should wait a quarter of an hour to be looked at again.
    options.rate_limit.per_key.max = Milliseconds(60'000);
    if (options_.metrics == nullptr) return options;
    options.on_add = [this] { Count(metric::kQueueAdds, {{"name", kName}}); };
    options.on_retry = [this] { Count(metric::kQueueRetries, {{"name", kName}}); };
    options.on_wait = [this](double seconds) {
      options_.metrics->Observe(metric::kQueueWait, {{"name", kName}}, seconds);
    };
    return options;
  }

  runtime::EventRecorderOptions RecorderOptions() {
    runtime::EventRecorderOptions options;
    options.on_result = [this](const char* result) {
      if (std::string_view(result) == "written") ++events_;
      Count(metric::kEvents, {{"result", result}});
    };
    return options;
  }

  Result<Requeue> Timed(const std::string& key) {
    if (key == kWaitingJobs) {
      for (const ObjectKey& job : caches_.Called(clock_.Now())) {
        // One that fails comes again by its own back-off: its refused write is what frees GPUs, so it would wake
        // itself.
        const std::string waiting = cluster::ToString(job);
        if (queue_.Failures(waiting) == 0) queue_.Add(waiting);
      }
      return Requeue();
    }
    const auto begin = std::chrono::steady_clock::now();
    Result<Requeue> result = Reconcile(key);
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
    const char* word = result ? (*result ? "requeue_after" : "success")
                              : (result.error().code == ErrorCode::kConflict ? "conflict" : "error");
    Count(metric::kReconciles, {{"controller", kName}, {"result", word}});
    if (options_.metrics != nullptr) {
      options_.metrics->Observe(metric::kReconcileSeconds, {{"controller", kName}}, took.count());
      options_.metrics->Observe(metric::kQueueWork, {{"name", kName}}, took.count());
    }
    return result;
  }

  Result<Requeue> Reconcile(const std::string& key_text) {
    ++reconciles_;
    const JobPtr record = caches_.Job(cluster::ParseKey(key_text));
    if (!record) {  // gone; what it owned is collected by the cluster
      refusals_.Forget(key_text);
      TellUnreadable(key_text, nullptr);
      plans_.Forget(key_text);
      return Requeue();
    }
    TellUnreadable(key_text, record.get());
    if (!record->status_problem.empty()) return LetGo(*record);
    lifecycle::Input input = Observe(*record, caches_, progress_, clock_.Now());
    input.planner = &plans_;
    input.refused = refusals_.Of(key_text, record->job.status.attempt);
    Ledger::View view = caches_.View(input.now);
    input.surroundings = &view;
    Result<lifecycle::Decision> decision = Decide(*record, input, view);
    if (!decision) return Fail(decision.error());
    const bool backfills = Backfilled(view, *record, decision->status);
    TakeInto(view, *record, input.job, decision->status);
    Result<JobPtr> written = writer_.Write(record, decision->status);
    if (!written) return Fail(written.error());
    if (backfills) Count(metric::kBackfilled);

    for (const std::string& uid : decision->concerns) caches_.ConcernUid(uid);
    actions_ += decision->actions.size();
    const Status acted = runner_.Run((*written)->job, decision->actions);
    Tell(*record, decision->events);
    if (!decision->actions.empty()) refusals_.Note(key_text, decision->status.attempt, acted);
    if (!acted) return Fail(acted.error());
    // Pods that were just made are known without the watch: the next step need not wait for it.
    const bool made = std::any_of(decision->actions.begin(), decision->actions.end(), [](const auto& action) {
      return action.kind == lifecycle::Action::Kind::kCreatePod;
    });
    if (made) queue_.Add(key_text);
    return decision->requeue_after;
  }

  // A job whose status cannot be read is left as it is; but its finalizer must not keep it.
  Result<Requeue> LetGo(const JobRecord& record) {
    const lifecycle::Decision decision = lifecycle::LetGoUnread(record.job, record.status_problem);
    if (decision.actions.empty()) return Requeue();
    if (const Status acted = runner_.Run(record.job, decision.actions); !acted) return Fail(acted.error());
    Tell(record, decision.events);
    return Requeue();
  }

  // Whether this decision starts the job before one ahead of it in the line.
  static bool Backfilled(const Ledger::View& view, const JobRecord& record, const api::JobStatus& decided) {
    return decided.placement && decided.attempt > record.job.status.attempt && Backfills(view.LastLine(), record.uid);
  }

  // What this decision takes, stops or waits for counts before others look, and while it is written; nobody waits for
  // the write.
  void TakeInto(Ledger::View& view, const JobRecord& record, api::TrainingJob& job, const api::JobStatus& decided) {
    job.status = decided;
    const Ledger::Bookings claims = lifecycle::ClaimsOf(job);
    const Ledger::Standing before = caches_.StandingOf(record, record.job);
    // What it gives back is free once that is written; until then it counts as the one that leaves.
    const bool leaves = claims.empty() && !record.bookings.empty();
    const Ledger::Standing standing = leaves ? before : caches_.StandingOf(record, job);
    const bool news = claims != record.bookings || standing != before;
    const bool room = news && view.Reserve(record.uid, claims, standing);
    caches_.paths().Decide(record.uid, lifecycle::PathUserOf(job));
    view.Release();
    if (room) caches_.ConcernWaiting();
  }

  // Says once of each job what of its status cannot be read; it is left alone until that can be.
  void TellUnreadable(const std::string& key, const JobRecord* record) {
    const std::string problem = record ? record->status_problem : "";
    if (!unreadable_.News(key, record ? record->uid : "", problem)) return;
    const std::string what = "The status cannot be read, and the job is left as it is, with its pods: " + problem +
                             ". A newer operator may have written it: upgrade the operator again, or correct the field";
    spdlog::warn("job {}: {}", key, what);
    Tell(*record, {lifecycle::Event{"Warning", "UnreadableStatus", what}});
  }

  void OnCreated(Kind kind, const json& object) {
    if (kind == Kind::kService) caches_.ServiceCreated(object);
    if (kind != Kind::kPod) return;
    Count(metric::kPodsCreated);
    if (Result<api::PodSnapshot> pod = cluster::PodFromJson(object)) caches_.pods().Created(*pod, clock_.Now());
  }

  void Tell(const JobRecord& record, const std::vector<lifecycle::Event>& events) {
    const runtime::EventRecorder::About about{std::string(api::kApiVersion), std::string(api::kKind), record.key,
                                              record.uid};
    for (const lifecycle::Event& event : events) recorder_.Record(about, event.type, event.reason, event.message);
  }

  Result<lifecycle::Decision> Decide(const JobRecord& record, lifecycle::Input& input, Ledger::View& view) {
    if (!record.problem.empty()) {
      lifecycle::Decision decision = lifecycle::LetGoUnread(record.job, record.problem);
      decision.status = StatusOfProblem(record, input.now);
      return decision;
    }
    lifecycle::Decision decision = options_.decide(input, options_.lifecycle);
    if (!decision.refresh_pods) return decision;
    view.Release();  // nobody should wait for the server's answer
    const std::string selector = std::string(contract::kLabelJobUid) + "=" + record.uid;
    const Result<cluster::ObjectList> list = cluster_.List(Kind::kPod, {record.key.ns, selector});
    if (!list) return Fail(list.error());
    std::vector<api::PodSnapshot> fresh;
    for (const cluster::Object& object : list->items) {
      Result<api::PodSnapshot> pod = cluster::PodFromJson(*object);
      if (!pod) return Fail(pod.error());
      fresh.push_back(*std::move(pod));
    }
    // The books still have pods that are gone by now, and their GPUs are what the next attempt wants.
    std::set<std::string> listed, live;
    for (const api::PodSnapshot& pod : fresh) {
      listed.insert(pod.uid);
      if (!pod.Terminal()) live.insert(pod.uid);
    }
    for (const auto& use : caches_.pods().HeldBeside(record.uid, live)) caches_.ledger().ChangePod(use, nullptr);
    // A late watch costs the words of how they ended, nothing more.
    caches_.pods().AwaitGone(record.uid, listed, kWatchPatience);
    input.ended = caches_.pods().EndedOf(record.key.ns, record.uid);
    input.pods = std::move(fresh);
    input.pods_fresh = true;
    ReadProgress(input, progress_);
    return options_.decide(input, options_.lifecycle);
  }

  cluster::Cluster& cluster_;
  cluster::ProgressSource& progress_;
  const Clock& clock_;
  const ControllerOptions options_;
  const std::chrono::steady_clock::time_point made_at_ = std::chrono::steady_clock::now();
  std::atomic<uint64_t> reconciles_{0}, actions_{0}, events_{0};
  runtime::WorkQueue queue_;
  runtime::EventRecorder recorder_;
  runtime::TaskPool pool_;
  Caches caches_;  // its threads add to the queue
  StatusWriter writer_;
  ActionRunner runner_;
  Refusals refusals_;
  Unreadable unreadable_;
  PlanMemo plans_;
  std::optional<runtime::WorkerPool> workers_;  // its threads use all of the above
  runtime::Metrics::Registration collector_;    // last: a scrape looks at all of the above
};

Controller::Controller(cluster::Cluster& cluster, cluster::ProgressSource& progress, const Clock& clock,
                       ControllerOptions options)
    : impl_(std::make_unique<Impl>(cluster, progress, clock, std::move(options))) {}

Controller::~Controller() { Stop(); }
Status Controller::Start(Milliseconds sync_timeout, const std::stop_token& stop) {
  return impl_->Start(sync_timeout, stop);
}
bool Controller::Drain(Milliseconds timeout) { return impl_->Drain(timeout); }
void Controller::OnProgress(const std::string& job_uid) { impl_->OnProgress(job_uid); }
Status Controller::Synced() const { return impl_->Synced(); }
Status Controller::Alive() { return impl_->Alive(); }
void Controller::Stop() { impl_->Stop(); }
ControllerCounters Controller::counters() const { return impl_->counters(); }

}  // namespace trainyard::controller
