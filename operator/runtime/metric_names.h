// Every metric of the operator, by its name as Prometheus sees it. Names that the Go world knows are kept. No label
// ever carries the name or UID of a job: the number of series must not grow with what users do. Thread-safety:
// constants.
#pragma once

namespace trainyard::runtime::metric {

struct Name {
  const char* name;
  const char* help;
};

// ---- work queue
inline constexpr Name kQueueDepth{"workqueue_depth", "Keys ready to be worked on."};
inline constexpr Name kQueueAdds{"workqueue_adds_total", "Keys added to the queue."};
inline constexpr Name kQueueRetries{"workqueue_retries_total", "Keys that came back with back-off after a failure."};
inline constexpr Name kQueueWait{"workqueue_queue_duration_seconds", "From the adding of a key to its taking."};
inline constexpr Name kQueueWork{"workqueue_work_duration_seconds", "How long a worker held a key."};
// ---- reconciler
inline constexpr Name kReconciles{"reconcile_total", "Reconciles by result: success, requeue_after, conflict, error."};
inline constexpr Name kReconcileSeconds{"reconcile_duration_seconds", "How long a reconcile took."};
// ---- API server
inline constexpr Name kRequests{"rest_client_requests_total",
                                "Requests to the API server; verb as RBAC names it, code 0: no answer."};
inline constexpr Name kRequestSeconds{"rest_client_request_duration_seconds", "From sending a request to its answer."};
inline constexpr Name kThrottleSeconds{"rest_client_throttle_seconds", "What a request waited for our own throttle."};
// ---- watches
inline constexpr Name kWatchRestarts{"watch_restarts_total", "Lists and watches begun again, by reason."};
inline constexpr Name kLastEventAge{"trainyard_last_event_age_seconds",
                                    "Since a watch last brought anything, bookmarks included. A dead watch grows."};
inline constexpr Name kCachedObjects{"trainyard_cached_objects", "Objects in the cache of a resource."};
inline constexpr Name kWatchProblems{"trainyard_watch_problems_total",
                                     "Lists and watches that failed, and objects that could not be read."};
// ---- leader election
inline constexpr Name kLeads{"leader_election_master_status", "1 while this process leads, else 0."};
// ---- jobs
inline constexpr Name kJobs{"trainyard_jobs", "Training jobs by phase."};
inline constexpr Name kGpus{"trainyard_gpus", "GPUs of nodes fit for gangs, by product and state: used, free."};
inline constexpr Name kRestarts{"trainyard_job_restarts_total", "Attempts that failed, by class of the failure."};
inline constexpr Name kPodsCreated{"trainyard_pods_created_total", "Pods created."};
inline constexpr Name kStatusWrites{"trainyard_status_writes_total", "Writes of a job's status."};
inline constexpr Name kEvents{"trainyard_events_total", "Kubernetes events by result: written, failed, dropped."};
// ---- process
inline constexpr Name kResidentBytes{"process_resident_memory_bytes", "Resident memory."};
inline constexpr Name kVirtualBytes{"process_virtual_memory_bytes", "Virtual memory."};
inline constexpr Name kCpuSeconds{"process_cpu_seconds_total", "User and system CPU time."};
inline constexpr Name kStartTime{"process_start_time_seconds", "Start of the process since the epoch."};
inline constexpr Name kOpenFds{"process_open_fds", "Open file descriptors."};
inline constexpr Name kMaxFds{"process_max_fds", "Limit of open file descriptors."};
inline constexpr Name kThreads{"process_threads", "Threads of the process."};
inline constexpr Name kBuildInfo{"trainyard_build_info", "1; the version is a label."};

}  // namespace trainyard::runtime::metric
