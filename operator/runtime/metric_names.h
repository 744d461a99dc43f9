// Every metric of the operator, by its name as Prometheus sees it. Names that the Go world knows are kept. No label
// carries the name or UID of a job, for the number of series must not grow with what users do; the one exception is
// kQueuePosition, which has the first kQueuePositions of the queue and no more. Thread-safety: constants.
#pragma once

#include <cstddef>

namespace trainyard::runtime::metric {

// What a histogram measures: calls of milliseconds to a minute, or waits of seconds to a week.
enum class Span { kCalls, kWaits };

struct Name {
  const char* name;
  const char* help;
  Span span = Span::kCalls;
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
inline constexpr Name kRestarts{"trainyard_job_restarts_total", "Attempts that failed, by class of the failure."};
inline constexpr Name kSaveFailures{"trainyard_checkpoint_failures_total",
                                    "Checkpoints that could not be saved, as running jobs reported them."};
inline constexpr Name kPodsCreated{"trainyard_pods_created_total", "Pods created."};
inline constexpr Name kStatusWrites{"trainyard_status_writes_total", "Writes of a job's status."};
inline constexpr Name kEvents{"trainyard_events_total", "Kubernetes events by result: written, failed, dropped."};
// ---- yard
inline constexpr Name kGpus{"trainyard_gpus",
                            "GPUs that nodes advertise, by product and state: used, free, or unfit for new gangs."};
inline constexpr Name kGpusStranded{"trainyard_gpus_stranded",
                                    "Free GPUs on nodes that cannot be given as a whole, since some are in use."};
inline constexpr Name kNodes{"trainyard_nodes", "Nodes with GPUs, by product and state: fit, unfit for new gangs."};
inline constexpr Name kLargestGang{
    "trainyard_largest_gang_gpus",
    "GPUs of the largest gang of whole nodes that could start now, by product and scope: "
    "node, nvlink, a level of the topology, any."};
// ---- queue
inline constexpr size_t kQueuePositions = 100;
inline constexpr Name kQueueLength{"trainyard_queue_length", "Jobs that wait for GPUs, by product and priority."};
inline constexpr Name kQueueGpus{"trainyard_queue_gpus", "GPUs that waiting jobs ask for, by product and priority."};
inline constexpr Name kQueuePosition{"trainyard_queue_position",
                                     "Place in the queue, from 1, of each of the first 100 jobs that wait."};
inline constexpr Name kQueueOldest{"trainyard_queue_oldest_seconds", "How long the oldest waiting job has waited."};
inline constexpr Name kReservedGpus{"trainyard_queue_reserved_gpus",
                                    "Free GPUs that are kept for waiting jobs, by product."};
inline constexpr Name kReservations{"trainyard_queue_reservations", "Waiting jobs for which free GPUs are kept."};
inline constexpr Name kQueueWaitSeconds{"trainyard_queue_wait_seconds",
                                        "From a job's creation to the claim of its first attempt, by size in GPUs.",
                                        Span::kWaits};
inline constexpr Name kPreemptions{"trainyard_preemptions_total", "Gangs stopped for one of higher priority."};
inline constexpr Name kUndone{"trainyard_gangs_undone_total",
                              "Gangs taken back because not every pod was there and bound in time."};
inline constexpr Name kBackfilled{"trainyard_backfilled_starts_total",
                                  "Gangs that started before one ahead of them in the queue, without delaying it."};
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
