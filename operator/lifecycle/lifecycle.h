// The life of a TrainingJob as one pure function: (job, its pods, nodes, progress, now) -> status, actions, events.
// No I/O, no clock, no memory but the job's own status. Rules: docs/lifecycle.md. Thread-safety: pure functions.
//
// Protocol with the controller, on which the safety of everything rests:
// 1. Read the job, then build the Input. If the Decision says `refresh_pods`, list this job's pods from the API server
//    itself (not from a cache) AFTER the job was read, set `pods` and `pods_fresh`, and decide again with the same job.
// 2. Write `status` if it differs, with the resourceVersion of the job that was decided on. On conflict do nothing
//    else: read again.
// 3. Then run `actions` in order (creates may run in parallel), then send `events`.
// Whatever an action relies on is in the status of the same decision: a claim before its pods are created, a new
// `ungated_at` before gates go, a stop before the first delete. So a deposed leader's late actions are harmless: its
// status write fails first, or its preconditions (UID, attempt label) do.
// A create answered "already exists" is a success if that object has the same owner UID and attempt label, else the
// action failed; a delete or un-gate that does not find the UID is a success. Other failures: stop, decide again later.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "operator/api/snapshot.h"
#include "operator/api/training_job.h"
#include "operator/base/backoff.h"
#include "operator/base/clock.h"
#include "operator/lifecycle/path_user.h"
#include "operator/placement/line.h"
#include "operator/placement/yard.h"
#include "operator/sizing/plan.h"

namespace trainyard::lifecycle {

// The rest of the cluster, for a decision that asks. One decision gets the same answer to the same question, and what
// it got stays valid as long as the decision is under way. An interface, so that a big cluster is not copied for each
// decision, and not even looked at by the many that only read the job's own pods.
class Surroundings {
 public:
  virtual ~Surroundings() = default;
  // Null: there is no such node.
  virtual const api::NodeSnapshot* FindNode(const std::string& name) const = 0;
  // Everybody's claims and pods, those of the job itself included. Asked when GPUs are to be given out: nobody else may
  // give any out until the decision is carried out or dropped.
  virtual const placement::Yard& Yard() const = 0;
  // Who waits for GPUs, in order, and what is kept for them; with `asking`, which takes the place of what was known of
  // that job, or without. What it gave before is valid no longer. Asked under the same terms as Yard().
  virtual const placement::Line& Line(const placement::WaitingGang* asking) const = 0;
  // Whether a running job may have to make room for another: cheap, and never false when Line() says so.
  virtual bool MayBePreempted(const std::string& job_uid) const = 0;
  // The class that a job names; empty: the cluster's default one, or {"", 0}. Error: kNotFound, with the known ones.
  virtual Result<api::PriorityClass> Priority(const std::string& name) const = 0;
  // What all jobs but this one have run through so far, those that run now included.
  virtual api::Exposure ExposureBeside(const std::string& job_uid) const = 0;
  // Other jobs whose directories, or whose pods' directories, meet one of those of `asking`. Asked under the same terms
  // as Yard(): nobody else may take a directory until the decision is carried out or dropped.
  virtual std::vector<PathNeighbour> PathNeighbours(const PathUser& asking) const = 0;
};

// Who plans jobs. An interface, so that plans can be remembered: the same question must have the same answer.
class Planner {
 public:
  virtual ~Planner() = default;
  virtual Result<api::PlanStatus> Plan(const api::TrainingJob& job, const std::vector<sizing::ProductSupply>& supply,
                                       std::shared_ptr<const sizing::Catalogue> catalogue) = 0;
};

struct Input {
  api::TrainingJob job;
  std::vector<api::PodSnapshot> pods;  // all pods labelled with this job's UID, any attempt
  bool pods_fresh = false;             // `pods` was listed from the API server after `job` was read
  // Its pods that are gone, as they last were: those killed while being deleted, and node rank 0 however it ended then.
  // For what people are told, never for what is done.
  std::vector<api::PodSnapshot> ended;
  // What else there is. Null: as the lists below say, which is enough for a few nodes.
  const Surroundings* surroundings = nullptr;
  std::vector<api::NodeSnapshot> nodes;
  std::vector<api::PodSnapshot> all_pods;        // of the whole cluster, for the ledger; may include `pods`
  std::vector<placement::Booking> other_claims;  // ClaimsOf every other job
  std::vector<placement::WaitingGang> waiting;   // WaitingOf other jobs
  std::vector<placement::RunningGang> running;   // RunningOf other jobs
  std::vector<api::PriorityClass> priority_classes;
  api::Exposure others_exposure;
  std::vector<PathNeighbour> path_neighbours;  // PathUserOf other jobs; their pods as Surroundings has them
  Planner* planner = nullptr;                  // null: sizing::PlanJob
  bool service_exists = false;
  std::string refused;  // why what this attempt needs cannot be made, where trying at once again would not help
  // What rank 0 of attempt `progress_attempt` last said of itself; ignored unless that is the live attempt.
  std::optional<api::Progress> progress;
  std::optional<api::CheckpointStatus> checkpoint;
  int64_t progress_attempt = 0;
  TimePoint now;
};

struct Options {
  placement::YardOptions yard;
  std::string trainer_image = "trainyard-trainer:latest";  // for jobs without their own image; frozen by a claim
  std::vector<std::string> launch_command = {"trainyard-launch"};  // of the bundled trainer's container
  int64_t cpu_milli_per_gpu = 1000;                                // requested by each pod, so that none is BestEffort;
                                                                   // frozen by a claim, as is the next
  int64_t memory_bytes_per_gpu = 2ll << 30;
  // OMP_NUM_THREADS of each process is its CPU request. A local cluster shares its cores out by itself.
  bool threads_from_request = false;
  Milliseconds gang_deadline{60'000};      // from claim to all pods existing, and from un-gating to all bound
  Milliseconds startup_deadline{600'000};  // for containers that wait for an image or a configuration
  Milliseconds waiting_settle{10'000};     // what un-gated pods wait for is told only after this: most just start
  Milliseconds naming_settle{30'000};      // one that waits and says nothing is named after this
  Milliseconds books_settle{5'000};        // from a claim until what is booked twice counts: a watch may be behind
  Milliseconds ungate_retry{5'000};        // gates still seen after this are taken off again
  Milliseconds pod_termination_timeout{60'000};  // an unreachable node's pods are gone after this
  Milliseconds echo_settle{8'000};               // a lost peer waits this long for the failure that it echoes:
                                                 // longer than the launcher gives ranks to end by themselves (5 s)
  Milliseconds healthy_period{600'000};          // running this long resets back-off
  Milliseconds penalty_period{600'000};          // what a node is blamed for is halved in this time
  Milliseconds grow_after{300'000};              // an elastic job runs this long before it grows back
  Milliseconds progress_interval{30'000};        // progress is copied to status no more often than this
  Milliseconds placement_retry{30'000};          // fallback look at a job that waits for room; the first of the line
  Milliseconds reason_interval{30'000};          // the reason of one that waits changes no more often than this
  Backoff backoff;                               // between attempts
};

// On jobs whose checkpoints go with them (spec.checkpoint.onDelete: Delete).
inline constexpr const char* kCheckpointFinalizer = "trainyard.dev/checkpoints";

struct Action {
  enum class Kind {
    kCreateService,
    kCreatePod,
    kUngatePod,
    kDeletePod,
    kDeleteAllPods,
    kDeleteService,
    kAddFinalizer,    // kCheckpointFinalizer, on the job itself; as it is now, else the action fails
    kRemoveFinalizer  // the same
  };
  Kind kind = Kind::kCreatePod;
  nlohmann::json object;       // for creates: the whole Kubernetes object
  std::string name;            // of the object; empty for kDeleteAllPods
  std::string uid;             // precondition of kUngatePod and kDeletePod
  int64_t attempt = 0;         // of the pod; kDeleteAllPods selects by job UID and this attempt label
  int64_t grace_seconds = -1;  // -1: the pod's own
};

struct Event {
  std::string type;  // Normal, Warning
  std::string reason;
  std::string message;
};

struct Decision {
  api::JobStatus status;
  bool refresh_pods = false;  // see the protocol above; when set there are no actions that depend on it
  std::vector<Action> actions;
  std::vector<Event> events;
  std::vector<std::string> concerns;          // UIDs of other jobs that should be looked at: they must make room
  std::optional<Milliseconds> requeue_after;  // decide again after this even if nothing happens
};

// Total: never fails. Every problem becomes status.
Decision Decide(const Input& input, const Options& options);

// The bookings of a job's live attempt, for the ledger of the other jobs; empty when terminal or nothing is claimed.
std::vector<placement::Booking> ClaimsOf(const api::TrainingJob& job);

// The job's place in the line; nullopt where it has none: it is not planned yet, it holds a placement, it is suspended,
// only to be planned, being deleted, finished, or another controller's. `priority` is of the class that it names.
std::optional<placement::WaitingGang> WaitingOf(const api::TrainingJob& job, const Options& options,
                                                const api::PriorityClass& priority);
// What others that wait must know of its live attempt; nullopt: it has none. One whose class is not known (any more) is
// stopped for nobody: how important it is only its owner knows.
std::optional<placement::RunningGang> RunningOf(const api::TrainingJob& job,
                                                const Result<api::PriorityClass>& priority);

// What a job has run through so far, an attempt that runs now included.
api::Exposure ExposureOf(const api::JobStatus& status, TimePoint now);

// The class called `name` among `known`, as Surroundings::Priority has it.
Result<api::PriorityClass> FindPriority(const std::vector<api::PriorityClass>& known, const std::string& name);

}  // namespace trainyard::lifecycle
