// A cluster::Cluster that stores TrainingJobs and nothing else, for tests of what reads and patches them.
// Thread-safety: one thread.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>

#include "tests/operator/cli/unused_cluster.h"

namespace trainyard::cli {

class StoredJobs : public UnusedCluster {
 public:
  // Called before each Replace; may change the stored jobs as another writer would.
  std::function<void()> before_replace;
  std::map<cluster::ObjectKey, nlohmann::json> jobs;

  Result<cluster::ObjectList> List(cluster::Kind /*kind*/, const cluster::ListOptions& options) override {
    cluster::ObjectList list{.resource_version = std::to_string(version_)};
    for (const auto& [key, job] : jobs) {
      if (options.ns.empty() || options.ns == key.ns) list.items.push_back(std::make_shared<const nlohmann::json>(job));
    }
    return list;
  }
  Result<nlohmann::json> Get(cluster::Kind /*kind*/, const cluster::ObjectKey& key) override {
    auto found = jobs.find(key);
    if (found == jobs.end()) return Fail(ErrorCode::kNotFound, "trainingjobs \"" + key.name + "\" not found");
    return found->second;
  }
  Result<nlohmann::json> Create(cluster::Kind /*kind*/, const nlohmann::json& object) override { return Store(object); }
  Result<nlohmann::json> Replace(cluster::Kind kind, const nlohmann::json& object) override {
    if (before_replace) before_replace();
    auto current = Get(kind, cluster::KeyOf(object));
    if (!current) return current;
    if (cluster::ResourceVersionOf(object) != cluster::ResourceVersionOf(*current)) {
      return Fail(ErrorCode::kConflict, "the object has been modified");
    }
    return Store(object);
  }

  nlohmann::json Store(nlohmann::json object) {
    object["metadata"]["resourceVersion"] = std::to_string(++version_);
    jobs[cluster::KeyOf(object)] = object;
    return object;
  }

 private:
  int version_ = 0;
};

}  // namespace trainyard::cli
