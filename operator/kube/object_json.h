// Objects as the API server writes them, and as we hold them. Thread-safety: pure functions.
#pragma once

#include <string>

#include <nlohmann/json.hpp>

#include "operator/base/error.h"
#include "operator/cluster/cluster.h"

namespace trainyard::kube {

// metadata.managedFields says who set which field: often half of an object, and nothing that we read. Any JSON is safe.
void StripManagedFields(nlohmann::json& object);

// The object of an answer. Error: kInternal, opened by `what`.
Result<nlohmann::json> ParseObject(const std::string& body, const std::string& what);

// One page of a list. Its items lack kind and apiVersion, which we add where an item is an object; others are handed on
// as they are. Error: kInternal.
Result<cluster::ObjectList> ParseList(const std::string& body, cluster::Kind kind, const std::string& what);

}  // namespace trainyard::kube
