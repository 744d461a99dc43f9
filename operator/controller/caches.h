// What the controller knows of the cluster: jobs, pods, nodes and services, kept current by informers, and which jobs a
// change concerns. Thread-safety: all members from any thread.
#pragma once

#include <functional>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "operator/api/snapshot.h"
#include "operator/cluster/informer.h"
#include "operator/controller/job_overlay.h"
#include "operator/controller/job_record.h"

namespace trainyard::controller {

class Caches {
 public:
  // `concern` is called with the key of each job that should be looked at again.
  Caches(cluster::Cluster& cluster, const std::string& ns, std::function<void(const std::string& key)> concern);
  ~Caches();
  Status Start(Milliseconds sync_timeout);
  void Stop();

  // The newest version known: of the cache, or one that we wrote since.
  JobPtr Job(const cluster::ObjectKey& key) const;
  JobOverlay& overlay() { return overlay_; }
  // Bookings of all live attempts but that of `except_uid`.
  std::vector<placement::Booking> OtherClaims(const std::string& except_uid) const;
  std::vector<api::PodSnapshot> Pods() const;
  std::vector<api::NodeSnapshot> Nodes() const;
  bool HasService(const cluster::ObjectKey& key, const std::string& owner_uid) const;

 private:
  using PodItem = cluster::Informer<api::PodSnapshot>::Item;
  using NodeItem = cluster::Informer<api::NodeSnapshot>::Item;
  void OnJob(const cluster::ObjectKey& key, const JobPtr& old, const JobPtr& now);
  void OnPod(const PodItem& old, const PodItem& now);
  void OnNode(const NodeItem& old, const NodeItem& now);
  void ConcernUid(const std::string& job_uid);
  // Jobs that wait for GPUs, and those that hold some on `node` (if given).
  void ConcernWaiting(const std::string& node = {});
  void Report(const char* what, const cluster::ObjectKey& key, const Error& error);

  const std::function<void(const std::string&)> concern_;
  JobOverlay overlay_;
  mutable std::mutex mutex_;                            // guards the next two
  std::map<std::string, cluster::ObjectKey> job_keys_;  // by UID
  std::map<std::string, std::string> problems_;         // last failure of each cache, for Start()
  cluster::Informer<JobRecord> jobs_;
  cluster::Informer<api::PodSnapshot> pods_;
  cluster::Informer<api::NodeSnapshot> nodes_;
  cluster::Informer<std::string> services_;  // UID of the owner
};

}  // namespace trainyard::controller
