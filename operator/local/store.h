// Objects of all kinds with the semantics of an API server: resource versions, a bounded history for watches,
// optimistic concurrency, graceful deletion, finalizers, and collection of what deleted owners leave behind.
// Thread-safety: all members from any thread. Watches keep the store alive and end when it is closed.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "operator/cluster/cluster.h"
#include "operator/cluster/selector.h"

namespace trainyard::local {

class Store : public std::enable_shared_from_this<Store> {
 public:
  // `on_change` is called after each change, with no lock held; it must only wake others.
  Store(const Clock& clock, size_t watch_window, std::function<void()> on_change);

  Result<cluster::ObjectList> List(cluster::Kind kind, const cluster::ListOptions& options) const;
  Result<nlohmann::json> Get(cluster::Kind kind, const cluster::ObjectKey& key) const;
  Result<nlohmann::json> Create(cluster::Kind kind, nlohmann::json object);
  Result<nlohmann::json> Replace(cluster::Kind kind, nlohmann::json object);
  Result<nlohmann::json> ReplaceStatus(cluster::Kind kind, nlohmann::json object);
  Result<nlohmann::json> Patch(cluster::Kind kind, const cluster::ObjectKey& key, cluster::PatchType type,
                               const nlohmann::json& patch, bool status);
  Status Delete(cluster::Kind kind, const cluster::ObjectKey& key, const cluster::DeleteOptions& options);
  Status DeleteCollection(cluster::Kind kind, const cluster::ListOptions& options,
                          std::optional<int64_t> grace_seconds);
  Result<std::unique_ptr<cluster::Watch>> Watch(cluster::Kind kind, const cluster::WatchOptions& options);

  // For scheduler, kubelet and machines, which may write what clients may not: `edit` changes the object in place. An
  // empty uid means any. Errors: kNotFound; kConflict when it is another object by now.
  Status Edit(cluster::Kind kind, const cluster::ObjectKey& key, const std::string& uid,
              const std::function<void(nlohmann::json& object)>& edit);

  // Ends all watches.
  void Close();

 private:
  friend class StoreWatch;
  using Version = uint64_t;
  using Ref = std::pair<cluster::Kind, cluster::ObjectKey>;
  struct Change {
    Version version;
    cluster::WatchEvent::Type type;
    cluster::Object now;     // for a deletion the last state
    cluster::Object before;  // null for an addition
  };
  struct Shelf {
    std::map<cluster::ObjectKey, cluster::Object> objects;
    std::deque<Change> history;
    Version expired = 0;  // version of the newest change that has left the history
  };
  // Holds the lock; on its end wakes watches and calls on_change_ if something changed.
  class Transaction;

  Shelf& shelf(cluster::Kind kind) { return shelves_[static_cast<int>(kind)]; }
  const Shelf& shelf(cluster::Kind kind) const { return shelves_[static_cast<int>(kind)]; }
  Result<cluster::Object> FindLocked(cluster::Kind kind, const cluster::ObjectKey& key) const;
  // Stores `next` in place of `before` (either may be null) and records the change. Returns what is stored.
  cluster::Object CommitLocked(cluster::Kind kind, const cluster::ObjectKey& key, cluster::Object before,
                               std::optional<nlohmann::json> next);
  // Stores an update, or removes the object if that update was what its deletion waited for.
  cluster::Object UpdateLocked(cluster::Kind kind, const cluster::ObjectKey& key, cluster::Object before,
                               nlohmann::json next);
  Status DeleteLocked(cluster::Kind kind, const cluster::ObjectKey& key, const cluster::DeleteOptions& options);
  void RemoveLocked(cluster::Kind kind, const cluster::ObjectKey& key);
  // Deletes the object if it has owners and all of them are gone.
  void CollectLocked(const Ref& ref);

  const Clock& clock_;
  const size_t window_;
  const std::function<void()> on_change_;
  mutable std::mutex mutex_;  // guards everything below
  std::condition_variable changed_;
  Shelf shelves_[std::size(cluster::kAllKinds)];
  Version version_ = 0;
  bool closed_ = false;
  std::unordered_map<std::string, Ref> by_uid_;
  std::unordered_map<std::string, std::set<Ref>> dependents_;  // by the owner's UID
};

}  // namespace trainyard::local
