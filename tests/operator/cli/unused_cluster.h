// A cluster::Cluster of which a test uses List and what it overrides: every other call fails.
// Thread-safety: one thread.
#pragma once

#include <memory>
#include <optional>

#include "operator/cluster/cluster.h"

namespace trainyard::cli {

class UnusedCluster : public cluster::Cluster {
 public:
  Result<nlohmann::json> Get(cluster::Kind, const cluster::ObjectKey&) override { return Unused(); }
  Result<nlohmann::json> Create(cluster::Kind, const nlohmann::json&) override { return Unused(); }
  Result<nlohmann::json> Replace(cluster::Kind, const nlohmann::json&) override { return Unused(); }
  Result<nlohmann::json> ReplaceStatus(cluster::Kind, const nlohmann::json&) override { return Unused(); }
  Result<nlohmann::json> Patch(cluster::Kind, const cluster::ObjectKey&, cluster::PatchType, const nlohmann::json&,
                               bool) override {
    return Unused();
  }
  Status Delete(cluster::Kind, const cluster::ObjectKey&, const cluster::DeleteOptions&) override { return Unused(); }
  Status DeleteCollection(cluster::Kind, const cluster::ListOptions&, std::optional<int64_t>) override {
    return Unused();
  }
  Result<std::unique_ptr<cluster::Watch>> Watch(cluster::Kind, const cluster::WatchOptions&) override {
    return Unused();
  }

 protected:
  virtual tl::unexpected<Error> Unused() { return Fail(ErrorCode::kInternal, "not part of this test"); }
};

}  // namespace trainyard::cli
