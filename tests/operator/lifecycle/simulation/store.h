// One kind of object as an API server keeps it: the current state, and the log of changes from which caches follow at
// their own pace. Thread-safety: one thread.
#pragma once

#include <algorithm>
#include <cstddef>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace trainyard::lifecycle::simulation {

template <typename T>
class Store {
 public:
  using Ptr = std::shared_ptr<const T>;

  void Put(const std::string& key, T object) {
    Ptr ptr = std::make_shared<const T>(std::move(object));
    objects_[key] = ptr;
    log_.emplace_back(key, std::move(ptr));
  }
  void Erase(const std::string& key) {
    if (objects_.erase(key) > 0) log_.emplace_back(key, nullptr);
  }
  Ptr Get(const std::string& key) const {
    auto it = objects_.find(key);
    return it == objects_.end() ? nullptr : it->second;
  }
  const std::map<std::string, Ptr>& objects() const { return objects_; }
  const std::vector<std::pair<std::string, Ptr>>& log() const { return log_; }

 private:
  std::map<std::string, Ptr> objects_;
  std::vector<std::pair<std::string, Ptr>> log_;  // null: deleted
};

// A watch cache: as of some moment of the log, never ahead of it and never going back.
template <typename T>
class Cache {
 public:
  void Advance(const Store<T>& store, size_t changes) {
    for (; changes > 0 && position_ < store.log().size(); --changes, ++position_) {
      const auto& [key, object] = store.log()[position_];
      if (object == nullptr) {
        objects_.erase(key);
      } else {
        objects_[key] = object;
      }
    }
  }
  void Sync(const Store<T>& store) {
    objects_ = store.objects();
    position_ = store.log().size();
  }
  const std::map<std::string, typename Store<T>::Ptr>& objects() const { return objects_; }

 private:
  std::map<std::string, typename Store<T>::Ptr> objects_;
  size_t position_ = 0;
};

}  // namespace trainyard::lifecycle::simulation
