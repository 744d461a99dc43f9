// spec.podTemplate merged under the operator's own pod: it adds, and replaces nothing that the operator sets, but for
// fields of security contexts, which only the user can know. Private to the room. Pure. Thread-safety: pure functions.
#pragma once

#include <string>

#include <nlohmann/json.hpp>

#include "operator/api/pod_amounts.h"
#include "operator/api/training_job.h"

namespace trainyard::lifecycle {

// Adds what the template says to `pod`, which has its metadata, spec and first container `trainer` already, but no
// affinity: that becomes the pin to `node`, in every term that the user gave.
void MergeTemplate(const api::PodTemplate& pods, const std::string& node, nlohmann::json& pod);

// Of the template only where the job's pods may run, as whom, and how their image is pulled: for a helper pod beside
// them, on any node that they could be on.
void PlaceLike(const api::PodTemplate& pods, nlohmann::json& pod);

// Requests and limits of a container as the template has them for container `trainer`, over ours: of cpu and memory the
// larger request counts, the rest is added. Other resources than those two get a limit equal to the request, as
// Kubernetes demands.
nlohmann::json MergeResources(const api::PodTemplate& pods, const api::Amounts& ours);

// What the whole pod asks for, as kube-scheduler counts it (api::PodSum), when container `trainer` asks for `trainer`
// and for what the template adds to it.
api::Amounts RequestsWithTemplate(const api::PodTemplate& pods, const api::Amounts& trainer);

// Whether the template says itself how much of `resource` container `trainer` asks for.
bool AsksFor(const api::PodTemplate& pods, const std::string& resource);
bool UsesHostNetwork(const api::PodTemplate& pods);

}  // namespace trainyard::lifecycle
