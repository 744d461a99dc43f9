// URLs of the Kubernetes API. Thread-safety: pure functions.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "operator/cluster/cluster.h"

namespace trainyard::kube {

using Query = std::vector<std::pair<std::string, std::string>>;

// Everything but letters, digits and "-._~" becomes %XX.
std::string PercentEncode(std::string_view text);

// "/api/v1/namespaces/NS/pods/NAME/status?labelSelector=a%3Db". An empty `ns` means all namespaces, or a kind that has
// none; an empty `name` the collection. Every part is encoded. Error: kInvalidArgument for a name that would lead
// elsewhere ("." and "..").
Result<std::string> ResourcePath(cluster::Kind kind, const std::string& ns, const std::string& name,
                                 const std::string& subresource, const Query& query);

// API group of a kind: "coordination.k8s.io", or "" for the core.
std::string GroupOf(cluster::Kind kind);

}  // namespace trainyard::kube
