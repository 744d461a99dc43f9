// Which jobs there are, by what the controller asks for: by UID, those that wait for GPUs, those that hold some of a
// node, and how many are in each phase. Thread-safety: all members from any thread.
#pragma once

#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "operator/controller/job_record.h"

namespace trainyard::controller {

class JobIndex {
 public:
  // The newest version that is known of a job; null: it is gone.
  void Set(const cluster::ObjectKey& key, const JobPtr& job);

  std::optional<cluster::ObjectKey> Find(const std::string& uid) const;
  // With their UIDs: in the line or not.
  std::vector<std::pair<std::string, cluster::ObjectKey>> Waiting() const;
  bool AnyWaiting() const;
  std::vector<cluster::ObjectKey> OnNode(const std::string& node) const;
  std::map<api::Phase, int64_t> Phases() const;
  // What all jobs but this one have run through until `now`.
  api::Exposure ExposureBeside(const std::string& uid, TimePoint now) const;

 private:
  struct Entry {
    std::string uid;
    api::Phase phase = api::Phase::kPending;
    std::set<std::string> nodes;
    JobPtr job;
  };
  void Remove(const cluster::ObjectKey& key, const Entry& entry);

  mutable std::mutex mutex_;  // guards everything below
  std::map<cluster::ObjectKey, Entry> entries_;
  std::map<std::string, cluster::ObjectKey> by_uid_;
  std::set<cluster::ObjectKey> waiting_;
  std::map<std::string, std::set<cluster::ObjectKey>> by_node_;
  std::map<api::Phase, int64_t> phases_;
};

}  // namespace trainyard::controller
