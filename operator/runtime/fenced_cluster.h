// A cluster that takes no writes while the fence is down: what a controller gets that may only act while its process
// leads. Reads and watches pass. A call that is under way when the fence goes down is not called back; the protocol of
// lifecycle.h keeps such late writes harmless.
// Thread-safety: as the cluster behind it.
#pragma once

#include <functional>
#include <utility>

#include "operator/cluster/cluster.h"

namespace trainyard::runtime {

class FencedCluster : public cluster::Cluster {
 public:
  // `open` is asked before each write, from any thread. A write that it refuses is kFailedPrecondition.
  FencedCluster(cluster::Cluster& cluster, std::function<bool()> open) : cluster_(cluster), open_(std::move(open)) {}

  Result<cluster::ObjectList> List(cluster::Kind kind, const cluster::ListOptions& options) override {
    return cluster_.List(kind, options);
  }
  Result<nlohmann::json> Get(cluster::Kind kind, const cluster::ObjectKey& key) override {
    return cluster_.Get(kind, key);
  }
  Result<std::unique_ptr<cluster::Watch>> Watch(cluster::Kind kind, const cluster::WatchOptions& options) override {
    return cluster_.Watch(kind, options);
  }

  Result<nlohmann::json> Create(cluster::Kind kind, const nlohmann::json& object) override;
  Result<nlohmann::json> Replace(cluster::Kind kind, const nlohmann::json& object) override;
  Result<nlohmann::json> ReplaceStatus(cluster::Kind kind, const nlohmann::json& object) override;
  Result<nlohmann::json> Patch(cluster::Kind kind, const cluster::ObjectKey& key, cluster::PatchType type,
                               const nlohmann::json& patch, bool status) override;
  trainyard::Status Delete(cluster::Kind kind, const cluster::ObjectKey& key,
                           const cluster::DeleteOptions& options) override;
  trainyard::Status DeleteCollection(cluster::Kind kind, const cluster::ListOptions& options,
                                     std::optional<int64_t> grace_seconds) override;

 private:
  cluster::Cluster& cluster_;
  const std::function<bool()> open_;
};

}  // namespace trainyard::runtime
