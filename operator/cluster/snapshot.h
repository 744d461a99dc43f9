// Kubernetes objects to the plain snapshots that the pure rooms see. Any JSON is safe: what cannot be read is an error
// that names the object and the field, never an exception. Thread-safety: pure functions.
#pragma once

#include <nlohmann/json.hpp>

#include "operator/api/snapshot.h"
#include "operator/base/error.h"

namespace trainyard::cluster {

// Requests are what the scheduler counts: max(containers + sidecars, each init container + sidecars before it) +
// overhead; a pod-level spec.resources wins for cpu and memory; limits stand in for absent requests; a resize that the
// node granted or still holds counts by its larger value. `cpu` is in thousandths, the rest in base units.
// Errors: kInvalidArgument.
Result<api::PodSnapshot> PodFromJson(const nlohmann::json& pod);
Result<api::NodeSnapshot> NodeFromJson(const nlohmann::json& node);
Result<api::PriorityClass> PriorityClassFromJson(const nlohmann::json& object);

}  // namespace trainyard::cluster
