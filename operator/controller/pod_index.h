// Pods as the controller keeps them: those of our jobs whole and by job, all others as what they hold of a node.
// Pods that we have just created are known before the watch brings them, so that none is created twice.
// Thread-safety: all members from any thread.
#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include <nlohmann/json.hpp>

#include "operator/api/snapshot.h"
#include "operator/base/clock.h"
#include "operator/base/error.h"
#include "operator/placement/live_yard.h"

namespace trainyard::controller {

struct PodRecord {
  std::shared_ptr<const api::PodSnapshot> ours;  // null: of no job of ours
  placement::LiveYard::UsePtr use;               // null: it holds nothing
  std::string checkpoints;                       // key of the directory it may write into; empty: none, or no longer
};
using PodPtr = std::shared_ptr<const PodRecord>;

Result<PodRecord> MakePodRecord(const nlohmann::json& pod);

class PodIndex {
 public:
  // A pod has changed; either may be null.
  void Change(const PodPtr& old, const PodPtr& now);
  // The server has just made this pod for us. It counts until the watch says something of it, or for a while.
  void Created(api::PodSnapshot pod, TimePoint now);
  // What those of the job's pods hold that the watch still shows but are not among `live`, by UID.
  std::vector<placement::LiveYard::UsePtr> HeldBeside(const std::string& job_uid, const std::set<std::string>& live);
  // Pods labelled with this UID in that namespace.
  std::vector<api::PodSnapshot> Of(const std::string& ns, const std::string& job_uid, TimePoint now);
  // Those of them that were killed by a signal while they were being deleted, or were node rank 0 and ended in any way
  // then, and are gone since, as they last were; for a minute. A kubelet removes a pod the moment after it has told how
  // it ended.
  std::vector<api::PodSnapshot> EndedOf(const std::string& ns, const std::string& job_uid);
  // Waits until the watch shows no pod of the job but `listed`, by UID: a list can be ahead of it, and only the watch
  // brings how a pod ended. False: it did not within `timeout`.
  bool AwaitGone(const std::string& job_uid, const std::set<std::string>& listed, Milliseconds timeout);

 private:
  struct Made {
    std::shared_ptr<const api::PodSnapshot> pod;
    TimePoint at;
  };
  struct Pods {
    std::map<std::string, PodPtr> seen;  // by namespace/name
    std::map<std::string, Made> made;
  };
  struct Ended {
    std::shared_ptr<const api::PodSnapshot> pod;
    std::chrono::steady_clock::time_point at;
  };
  void DropIfEmpty(const std::string& job_uid);
  void ForgetEnded();

  std::mutex mutex_;                            // guards everything below
  std::unordered_map<std::string, Pods> pods_;  // by job UID
  std::deque<Ended> ended_;                     // of all jobs, the oldest first
  std::condition_variable gone_;                // a pod was removed
};

}  // namespace trainyard::controller
