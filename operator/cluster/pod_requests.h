// What a pod asks of its node, as kube-scheduler counts it. Thread-safety: pure function.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "operator/cluster/json_reader.h"

namespace trainyard::cluster {

// max( sum of containers + sidecars, each init container + the sidecars before it ) + overhead. A sidecar is an init
// container with restartPolicy Always. A pod-level spec.resources wins for cpu and memory (KEP-2837). While a container
// is resized in place the larger of spec and status.allocatedResources counts (KEP-1287). Sums saturate.
// Result in base units, cpu in thousandths; problems go to `reader`.
std::map<std::string, int64_t> PodRequests(const nlohmann::json& pod, JsonReader& reader);

}  // namespace trainyard::cluster
