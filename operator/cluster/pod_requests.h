// What a pod asks of its node, as kube-scheduler counts it. Thread-safety: pure function.
#pragma once

#include "operator/api/pod_amounts.h"
#include "operator/cluster/json_reader.h"

namespace trainyard::cluster {

// As api::PodSum has it. While a container is resized in place the larger of spec and status.allocatedResources counts
// (KEP-1287). Problems go to `reader`.
api::Amounts PodRequests(const nlohmann::json& pod, JsonReader& reader);

}  // namespace trainyard::cluster
