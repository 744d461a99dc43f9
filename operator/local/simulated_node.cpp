#include "operator/local/simulated_node.h"

#include <unistd.h>

#include <string>

#include "operator/api/snapshot.h"
#include "operator/local/object_rules.h"

namespace trainyard::local {

using nlohmann::json;

json MakeNode(const NodeOptions& options, TimePoint now) {
  const std::string gpus = std::to_string(options.gpus);
  json labels = {{"kubernetes.io/hostname", options.name},
                 {"kubernetes.io/os", "linux"},
                 {"nvidia.com/gpu.present", "true"},
                 {"nvidia.com/gpu.product", "trainyard-simulated"},
                 {"nvidia.com/gpu.memory", std::to_string(options.gpu_memory_mib)},
                 {"nvidia.com/gpu.count", gpus}};
  for (const auto& [name, value] : options.labels) labels[name] = value;
  const json resources = {
      {api::kGpuResource, gpus}, {"cpu", "1024"}, {"memory", "16Ti"}, {"ephemeral-storage", "16Ti"}, {"pods", "1024"}};
  json node = {{"apiVersion", "v1"},
               {"kind", "Node"},
               {"metadata", {{"name", options.name}, {"labels", labels}}},
               {"spec", json::object()},
               {"status", {{"capacity", resources}, {"allocatable", resources}}}};
  SetNodeReady(node, true, now);
  return node;
}

void SetNodeReady(json& node, bool ready, TimePoint now) {
  if (ready) {
    SetCondition(node, "Ready", "True", "KubeletReady", "simulated", now);
    node["spec"].erase("taints");
    return;
  }
  SetCondition(node, "Ready", "Unknown", "NodeStatusUnknown", "Kubelet stopped posting node status.", now);
  node["spec"]["taints"] = json::array();
  for (const char* effect : {"NoSchedule", "NoExecute"}) {
    node["spec"]["taints"].push_back(
        {{"key", "node.kubernetes.io/unreachable"}, {"effect", effect}, {"timeAdded", FormatTime(now)}});
  }
}

int64_t MachineMemoryMib() {
  return static_cast<int64_t>(sysconf(_SC_PHYS_PAGES)) / 1024 * (sysconf(_SC_PAGESIZE) / 1024);
}

}  // namespace trainyard::local
