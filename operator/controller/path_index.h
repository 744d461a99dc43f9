// Which jobs take which directories of volumes, and which pods are left in them, so that a decision finds those that
// are near the ones it asks for without a look at all others. A thousand jobs with a directory each in one volume are
// found by their paths. Thread-safety: all members from any thread.
#pragma once

#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "operator/controller/pod_index.h"
#include "operator/lifecycle/path_user.h"

namespace trainyard::controller {

class PathIndex {
 public:
  // UIDs of jobs.
  using Uids = std::vector<std::string>;

  // What the newest known version of a job takes; nullopt: nothing. Like the others below: returns whom else it
  // concerns, which are those that were or are near its directories, if anything has changed.
  Uids SetJob(const std::string& uid, const std::optional<lifecycle::PathUser>& job);
  // What was decided that it takes counts instead until Settle(), which must follow; what it gives back does not yet.
  void Decide(const std::string& uid, const std::optional<lifecycle::PathUser>& job);
  // The write of what was decided has ended, and this is what the job takes.
  Uids Settle(const std::string& uid, const std::optional<lifecycle::PathUser>& job);
  // A pod has changed; either may be null.
  Uids ChangePod(const PodPtr& old, const PodPtr& now);

  std::vector<lifecycle::PathNeighbour> Beside(const lifecycle::PathUser& asking) const;

 private:
  struct Entry {
    std::optional<lifecycle::PathUser> known;
    std::optional<lifecycle::PathUser> decided;
    std::map<std::string, PodPtr> pods;  // by namespace/name

    const std::optional<lifecycle::PathUser>& User() const { return decided ? decided : known; }
    std::set<std::string> Keys() const;
  };
  template <typename Change>
  Uids Update(const std::string& uid, const Change& change);
  // UIDs of jobs that have a directory which is this one, inside it or around it.
  void AddNear(const std::string& key, std::set<std::string>& uids) const;

  mutable std::mutex mutex_;                           // guards everything below
  std::map<std::string, Entry> entries_;               // by job UID
  std::map<std::string, std::set<std::string>> keys_;  // UIDs by namespace/key
};

}  // namespace trainyard::controller
