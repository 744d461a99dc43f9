// Nodes and pods for placement tests, in a few words.
#pragma once

#include <string>
#include <vector>

#include "operator/placement/place.h"
#include "operator/placement/yard.h"

namespace trainyard::placement {

inline const YardOptions kRackOptions{.topology = Topology::Of({{"zone", "zone"}, {"rack", "rack"}})};

inline api::NodeSnapshot MakeNode(const std::string& name, int64_t gpus, const std::string& rack = "",
                                  const std::string& zone = "z", const std::string& product = "NVIDIA-H100-80GB-HBM3") {
  api::NodeSnapshot node;
  node.name = name;
  node.ready = true;
  node.conditions["Ready"] = "True";
  node.labels = {{"nvidia.com/gpu.product", product}, {"zone", zone}};
  if (!rack.empty()) node.labels["rack"] = rack;
  node.allocatable = {{api::kGpuResource, gpus}};
  return node;
}

// A pod of someone else, bound.
inline api::PodSnapshot ForeignPod(const std::string& node, int64_t gpus) {
  api::PodSnapshot pod;
  pod.name = "foreign";
  pod.node = node;
  pod.phase = api::PodPhase::kRunning;
  pod.gpus = gpus;
  pod.requests[api::kGpuResource] = gpus;
  return pod;
}

// A pod of ours, gated and pinned.
inline api::PodSnapshot OurPod(const std::string& job, int64_t attempt, const std::string& node, int64_t gpus) {
  api::PodSnapshot pod = ForeignPod("", gpus);
  pod.phase = api::PodPhase::kPending;
  pod.job_uid = job;
  pod.attempt = attempt;
  pod.gated = true;
  pod.pinned_node = node;
  return pod;
}

inline GangRequest Want(int64_t gpus, int64_t per_node) {
  GangRequest request;
  request.job_uid = "me";
  request.gpus = gpus;
  request.per_node = per_node;
  return request;
}

}  // namespace trainyard::placement
