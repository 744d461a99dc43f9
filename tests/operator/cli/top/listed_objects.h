// A cluster::Cluster that lists what it was given, in pages, or refuses to, for tests of what reads a whole cluster.
// Thread-safety: one thread.
#pragma once

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/operator/cli/unused_cluster.h"

namespace trainyard::cli {

struct ListedObjects {
  std::map<cluster::Kind, std::vector<nlohmann::json>> objects;
  std::map<cluster::Kind, Error> refused;
  std::map<cluster::Kind, int> expire;  // so many continue tokens expire
  std::map<cluster::Kind, int> pages;   // that were asked for
  int writes = 0;                       // calls of anything but List

  void Add(cluster::Kind kind, nlohmann::json object) { objects[kind].push_back(std::move(object)); }
};

class ListingCluster : public UnusedCluster {
 public:
  // `seen` must outlive the cluster.
  explicit ListingCluster(ListedObjects& seen) : seen_(seen) {}

  Result<cluster::ObjectList> List(cluster::Kind kind, const cluster::ListOptions& options) override {
    ++seen_.pages[kind];
    if (const auto refused = seen_.refused.find(kind); refused != seen_.refused.end()) return Fail(refused->second);
    if (!options.from.empty() && seen_.expire[kind]-- > 0) return Fail(ErrorCode::kGone, "the token has expired");
    const auto& all = seen_.objects[kind];
    const size_t first = options.from.empty() ? 0 : std::stoul(options.from);
    const size_t limit = options.limit > 0 ? static_cast<size_t>(options.limit) : all.size();
    cluster::ObjectList list{.resource_version = "1"};
    for (size_t i = first; i < std::min(all.size(), first + limit); ++i) {
      list.items.push_back(std::make_shared<const nlohmann::json>(all[i]));
    }
    if (first + limit < all.size()) list.next = std::to_string(first + limit);
    return list;
  }

 private:
  tl::unexpected<Error> Unused() override {
    ++seen_.writes;
    return UnusedCluster::Unused();
  }

  ListedObjects& seen_;
};

}  // namespace trainyard::cli
