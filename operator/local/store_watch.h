// A reader of the store's history. It keeps only its place, so that any number of slow readers costs nothing; one that
// falls behind the history learns that its version has expired, as from an API server.
// Thread-safety: as cluster::Watch.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "operator/cluster/selector.h"
#include "operator/local/store.h"

namespace trainyard::local {

class StoreWatch : public cluster::Watch {
 public:
  StoreWatch(std::shared_ptr<Store> store, cluster::Kind kind, std::string ns, cluster::Selector selector,
             uint64_t from_version)
      : store_(std::move(store)),
        kind_(kind),
        ns_(std::move(ns)),
        selector_(std::move(selector)),
        place_(from_version) {}

  Result<std::optional<cluster::WatchEvent>> Next(Milliseconds timeout) override;
  void Stop() override;

 private:
  // The change as seen through namespace and selector: an object that starts to match is Added, one that ceases to
  // match is Deleted.
  std::optional<cluster::WatchEvent> Filter(const Store::Change& change) const;

  const std::shared_ptr<Store> store_;
  const cluster::Kind kind_;
  const std::string ns_;
  const cluster::Selector selector_;
  uint64_t place_;        // version of the last change seen; guarded by the store's lock
  bool stopped_ = false;  // guarded by the store's lock
};

}  // namespace trainyard::local
