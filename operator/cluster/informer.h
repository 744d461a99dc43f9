// A cache of one kind that stays current by itself: a ListWatch whose objects are projected to T once, when they
// arrive. Objects that the projection refuses are left out and reported; they never stop the others. Thread-safety: all
// members from any thread; AddHandler() before Start(). Handlers run on the informer's thread, with no lock held and
// after the cache holds the change.
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "operator/cluster/list_watch.h"

namespace trainyard::cluster {

template <typename T>
class Informer {
 public:
  using Item = std::shared_ptr<const T>;
  using Projection = std::function<Result<T>(const nlohmann::json&)>;
  // `old` is null for a new object, `now` is null for one that is gone.
  using Handler = std::function<void(const ObjectKey& key, const Item& old, const Item& now)>;
  using ProblemHandler = std::function<void(const ObjectKey& key, const Error& error)>;  // empty key: list or watch

  Informer(Cluster& cluster, Kind kind, ListWatchOptions options, Projection projection)
      : projection_(std::move(projection)),
        list_watch_(cluster, kind, std::move(options),
                    {[this] { listed_.clear(); }, [this](const std::vector<Object>& page) { OnPage(page); },
                     [this] { OnListDone(); }, [this](const Object& object) { OnUpsert(object); },
                     [this](const Object& object) { Store(KeyOf(*object), nullptr); },
                     [this](const Error& error) {
                       if (problem_) problem_({}, error);
                     }}) {}
  ~Informer() { Stop(); }

  void AddHandler(Handler handler) { handlers_.push_back(std::move(handler)); }
  void SetProblemHandler(ProblemHandler handler) { problem_ = std::move(handler); }
  void Start() { list_watch_.Start(); }
  void Stop() { list_watch_.Stop(); }

  // True once the first list is in the cache and its handlers have run.
  bool WaitSynced(Milliseconds timeout) const {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, timeout, [this] { return synced_; });
  }

  Item Get(const ObjectKey& key) const {
    std::lock_guard lock(mutex_);
    auto found = items_.find(key);
    return found == items_.end() ? nullptr : found->second;
  }
  std::vector<Item> List() const {
    std::lock_guard lock(mutex_);
    std::vector<Item> items;
    items.reserve(items_.size());
    for (const auto& [key, item] : items_) items.push_back(item);
    return items;
  }
  InformerStats stats() const {
    InformerStats stats = list_watch_.stats();
    stats.problems += unreadable_;
    std::lock_guard lock(mutex_);
    stats.objects = items_.size();
    return stats;
  }
  // Waits until `condition(items)` holds; it is called with the lock held. False: timeout.
  bool WaitFor(Milliseconds timeout, const std::function<bool(const std::map<ObjectKey, Item>&)>& condition) const {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, timeout, [&] { return condition(items_); });
  }

 private:
  // Pages are projected when they come and held back until the last: readers never see half a list, and nobody holds
  // all of it as JSON.
  void OnPage(const std::vector<Object>& page) {
    for (const Object& object : page) listed_[KeyOf(*object)] = Project(*object);
  }

  void OnListDone() {
    std::vector<ObjectKey> vanished;
    {
      std::lock_guard lock(mutex_);
      for (const auto& [key, item] : items_) {
        if (!listed_.contains(key)) vanished.push_back(key);
      }
    }
    for (const ObjectKey& key : vanished) Store(key, nullptr);
    for (auto& [key, item] : listed_) Store(key, std::move(item));
    listed_.clear();
    std::lock_guard lock(mutex_);
    synced_ = true;
    changed_.notify_all();
  }

  void OnUpsert(const Object& object) { Store(KeyOf(*object), Project(*object)); }

  // Null, and reported, when the projection refuses the object.
  Item Project(const nlohmann::json& object) {
    Result<T> projected = projection_(object);
    if (projected) return std::make_shared<const T>(*std::move(projected));
    ++unreadable_;
    if (problem_) problem_(KeyOf(object), projected.error());
    return nullptr;
  }

  void Store(const ObjectKey& key, Item now) {
    Item old;
    {
      std::lock_guard lock(mutex_);
      auto found = items_.find(key);
      if (found != items_.end()) old = found->second;
      if (now) {
        items_[key] = now;
      } else if (found != items_.end()) {
        items_.erase(found);
      }
      changed_.notify_all();
    }
    if (!old && !now) return;
    for (const Handler& handler : handlers_) handler(key, old, now);
  }

  const Projection projection_;
  std::vector<Handler> handlers_;
  ProblemHandler problem_;
  mutable std::mutex mutex_;  // guards items_, synced_
  mutable std::condition_variable changed_;
  std::map<ObjectKey, Item> items_;
  bool synced_ = false;
  std::map<ObjectKey, Item> listed_;      // of the thread: the pages so far
  std::atomic<uint64_t> unreadable_ = 0;  // objects that the projection refused
  ListWatch list_watch_;                  // last: its thread must end before the rest goes
};

}  // namespace trainyard::cluster
