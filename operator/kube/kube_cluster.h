// cluster::Cluster over the Kubernetes API. Calls are throttled on our side, a busy server's Retry-After is honoured,
// and only reads are tried again after a broken connection. Three sets of connections: calls, watches, and leases, so
// that nothing can keep the lease from being renewed.
// Thread-safety: as cluster::Cluster. Watches must be gone before the cluster is.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "operator/cluster/cluster.h"
#include "operator/kube/config.h"

namespace trainyard::kube {

// One request that was answered, or failed, for metrics and for tests of the RBAC rules.
struct RequestInfo {
  std::string verb;              // as RBAC names it: get, list, watch, create, update, patch, delete, deletecollection
  std::string resource;          // plural: "pods"
  std::string subresource;       // "status", or ""
  std::string group;             // API group, "" for the core
  std::string ns;                // "" for all, and for nodes
  int code = 0;                  // HTTP status; 0: no answer
  double seconds = 0;            // from sending to the answer (watch: to its headers)
  double throttled_seconds = 0;  // waited for our own throttle
};

struct KubeOptions {
  double qps = 50;  // sustained requests per second of all calls but leases; 0: no throttle
  int burst = 100;
  Milliseconds request_timeout{30'000};  // of one call, every retry and wait included
  Milliseconds lease_timeout{5'000};     // the same, for leases
  // The server ends a watch after a random time between these two; we give it up when nothing came for watch_idle.
  std::chrono::seconds watch_min{120};
  std::chrono::seconds watch_max{180};
  Milliseconds watch_idle{185'000};
  int page_size = 500;               // objects per request of a list
  size_t max_event_bytes = 8 << 20;  // a longer line of a watch ends it
  std::string user_agent = "trainyard-operator";
  uint64_t seed = 0;                                   // of the watches' times; 0: a random one
  std::function<void(const RequestInfo&)> on_request;  // called from any thread, must not block; may be empty
};

class KubeCluster : public cluster::Cluster {
 public:
  // Makes no call yet. Errors: kInvalidArgument, kNotFound for the files of `config`.
  static Result<std::unique_ptr<KubeCluster>> Connect(const Config& config, KubeOptions options = {});
  // Cancels calls that wait.
  ~KubeCluster() override;

  // The server's version, "v1.34.4": a first call that shows whether it can be reached.
  Result<std::string> ServerVersion();

  Result<cluster::ObjectList> List(cluster::Kind kind, const cluster::ListOptions& options) override;
  Result<nlohmann::json> Get(cluster::Kind kind, const cluster::ObjectKey& key) override;
  Result<nlohmann::json> Create(cluster::Kind kind, const nlohmann::json& object) override;
  Result<nlohmann::json> Replace(cluster::Kind kind, const nlohmann::json& object) override;
  Result<nlohmann::json> ReplaceStatus(cluster::Kind kind, const nlohmann::json& object) override;
  Result<nlohmann::json> Patch(cluster::Kind kind, const cluster::ObjectKey& key, cluster::PatchType type,
                               const nlohmann::json& patch, bool status) override;
  Status Delete(cluster::Kind kind, const cluster::ObjectKey& key, const cluster::DeleteOptions& options) override;
  Status DeleteCollection(cluster::Kind kind, const cluster::ListOptions& options,
                          std::optional<int64_t> grace_seconds) override;
  Result<std::unique_ptr<cluster::Watch>> Watch(cluster::Kind kind, const cluster::WatchOptions& options) override;

  // From now on all calls and watches end with kUnavailable; those that wait are woken.
  void Stop();

 private:
  class Impl;
  explicit KubeCluster(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace trainyard::kube
