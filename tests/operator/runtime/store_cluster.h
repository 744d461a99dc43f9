// The in-memory objects as a Cluster without nodes, which can be away, and can let something happen before a write.
#pragma once

#include <array>
#include <atomic>
#include <functional>
#include <iterator>
#include <memory>
#include <string>
#include <utility>

#include "operator/local/store.h"

namespace trainyard::runtime {

class StoreCluster : public cluster::Cluster {
 public:
  explicit StoreCluster(const Clock& clock) : store_(std::make_shared<local::Store>(clock, 10'000, [] {})) {}
  ~StoreCluster() override { store_->Close(); }

  // All calls fail as if nobody answered.
  void SetAway(bool away) { away_ = away; }
  void BeforeNextWrite(std::function<void()> action) { before_write_ = std::move(action); }
  int writes() const { return writes_; }
  int writes(cluster::Kind kind) const { return writes_of_[static_cast<int>(kind)]; }
  // For what nodes do: not counted.
  local::Store& store() { return *store_; }

  Result<cluster::ObjectList> List(cluster::Kind kind, const cluster::ListOptions& options) override {
    if (away_) return Away();
    return store_->List(kind, options);
  }
  Result<nlohmann::json> Get(cluster::Kind kind, const cluster::ObjectKey& key) override {
    if (away_) return Away();
    return store_->Get(kind, key);
  }
  Result<nlohmann::json> Create(cluster::Kind kind, const nlohmann::json& object) override {
    if (!Write(kind)) return Away();
    return store_->Create(kind, object);
  }
  Result<nlohmann::json> Replace(cluster::Kind kind, const nlohmann::json& object) override {
    if (!Write(kind)) return Away();
    return store_->Replace(kind, object);
  }
  Result<nlohmann::json> ReplaceStatus(cluster::Kind kind, const nlohmann::json& object) override {
    if (!Write(kind)) return Away();
    return store_->ReplaceStatus(kind, object);
  }
  Result<nlohmann::json> Patch(cluster::Kind kind, const cluster::ObjectKey& key, cluster::PatchType type,
                               const nlohmann::json& patch, bool status) override {
    if (!Write(kind)) return Away();
    return store_->Patch(kind, key, type, patch, status);
  }
  trainyard::Status Delete(cluster::Kind kind, const cluster::ObjectKey& key,
                           const cluster::DeleteOptions& options) override {
    if (!Write(kind)) return Away();
    return store_->Delete(kind, key, options);
  }
  trainyard::Status DeleteCollection(cluster::Kind kind, const cluster::ListOptions& options,
                                     std::optional<int64_t> grace_seconds) override {
    if (!Write(kind)) return Away();
    return store_->DeleteCollection(kind, options, grace_seconds);
  }
  Result<std::unique_ptr<cluster::Watch>> Watch(cluster::Kind kind, const cluster::WatchOptions& options) override {
    if (away_) return Away();
    return store_->Watch(kind, options);
  }

 private:
  static tl::unexpected<Error> Away() { return Fail(ErrorCode::kUnavailable, "the API server is away"); }
  bool Write(cluster::Kind kind) {
    if (away_) return false;
    ++writes_;
    ++writes_of_[static_cast<int>(kind)];
    if (before_write_) std::exchange(before_write_, nullptr)();
    return true;
  }

  std::shared_ptr<local::Store> store_;
  std::atomic<bool> away_{false};
  std::atomic<int> writes_{0};
  std::array<std::atomic<int>, std::size(cluster::kAllKinds)> writes_of_{};
  std::function<void()> before_write_;
};

}  // namespace trainyard::runtime
