#include "operator/placement/eligibility.h"

#include <algorithm>

#include "operator/api/names.h"
#include "operator/placement/gpu_labels.h"

namespace trainyard::placement {
namespace {

constexpr const char* kLabelSharing = "nvidia.com/gpu.sharing-strategy";
constexpr const char* kLabelReplicas = "nvidia.com/gpu.replicas";
constexpr const char* kLabelMigState = "nvidia.com/mig.config.state";
// No node has so many: what advertises more hands out shares of them.
constexpr int64_t kMostGpus = 256;

// Why the GPUs of the node cannot be handed out whole; empty when they can.
std::string NotWhole(const api::NodeSnapshot& node, const std::string& label) {
  const std::string& sharing = LabelOf(node, kLabelSharing);
  if (!sharing.empty() && sharing != "none") return "GPUs are shared (" + api::Printable(sharing) + ")";
  if (label.ends_with("-SHARED")) return "GPUs are shared";
  // Before there was a label for sharing.
  const std::string& replicas = LabelOf(node, kLabelReplicas);
  if (!replicas.empty() && replicas != "0" && replicas != "1") {
    return "GPUs are shared (" + api::Printable(replicas) + " replicas)";
  }
  if (label.find("-MIG-") != std::string::npos) return "GPUs are cut into MIG slices";
  const auto gpus = node.allocatable.find(api::kGpuResource);
  if (gpus != node.allocatable.end() && gpus->second > kMostGpus) {
    return "advertises " + std::to_string(gpus->second) + " GPUs, which no node has";
  }
  return "";
}

// Of a node that is going away or told to take nobody: no toleration of a job changes that.
std::string BarringTaint(const api::NodeSnapshot& node) {
  for (const api::Taint& taint : node.taints) {
    if (taint.effect != "NoSchedule" && taint.effect != "NoExecute") continue;
    if (taint.key == "node.kubernetes.io/unschedulable") return "cordoned";
    if (taint.key == "ToBeDeletedByClusterAutoscaler" || taint.key == "karpenter.sh/disrupted" ||
        taint.key == "karpenter.sh/disruption") {
      return "being removed (taint " + taint.key + ")";
    }
  }
  return "";
}

std::vector<api::Taint> TaintsToTolerate(const api::NodeSnapshot& node, const YardOptions& options) {
  std::vector<api::Taint> taints;
  for (const api::Taint& taint : node.taints) {
    if (taint.effect != "NoSchedule" && taint.effect != "NoExecute") continue;
    const auto& tolerated = options.tolerated_taints;
    // Our own toleration is for NoSchedule; NoExecute of the same key would evict the pods.
    if (taint.effect == "NoSchedule" && std::find(tolerated.begin(), tolerated.end(), taint.key) != tolerated.end()) {
      continue;
    }
    taints.push_back(taint);
  }
  return taints;
}

std::string BadCondition(const api::NodeSnapshot& node, const YardOptions& options) {
  for (const auto& [type, status] : node.conditions) {
    auto it = options.bad_conditions.find(type);
    if (it != options.bad_conditions.end() && it->second == status) return "condition " + type + "=" + status;
  }
  return "";
}

std::string WhyIneligible(const api::NodeSnapshot& node, const YardNode& seen, const std::string& not_whole,
                          const YardOptions& options) {
  if (node.deleting) return "being deleted";
  if (!node.ready) return "not ready";
  if (node.unschedulable) return "cordoned";
  if (!not_whole.empty()) return not_whole;
  const std::string& mig = LabelOf(node, kLabelMigState);
  if (!mig.empty() && mig != "success") return "MIG is being reconfigured (" + api::Printable(mig) + ")";
  if (std::string taint = BarringTaint(node); !taint.empty()) return taint;
  if (std::string condition = BadCondition(node, options); !condition.empty()) return condition;
  if (seen.usable == 0) return std::string("advertises no ") + api::kGpuResource;
  return "";
}

}  // namespace

std::map<std::string, std::string> YardOptions::DefaultBadConditions() {
  std::map<std::string, std::string> bad;
  for (const char* type : {"GpuMemWatch",          "GpuThermalWatch",
                           "GpuPcieWatch",         "GpuPowerWatch",
                           "GpuInforomWatch",      "GpuSmWatch",
                           "GpuNvlinkWatch",       "GpuMcuWatch",
                           "GpuPmuWatch",          "GpuDriverWatch",
                           "SysLogsXIDError",      "SysLogsSXIDError",
                           "SysLogsGPUFallenOff",  "NVSwitchFatalError",
                           "NVSwitchDown",         "DCGMError",
                           "CSPMaintenance",       "GPUMissing",
                           "NVLinkStatusInactive", "XIDErrors",
                           "IBLinkFlapping",       "UnhealthyNvidiaDevicePlugin"}) {
    bad[type] = "True";
  }
  for (const char* type :
       {"AcceleratedHardwareReady", "NetworkingReady", "KernelReady", "StorageReady", "ContainerRuntimeReady"}) {
    bad[type] = "False";
  }
  return bad;
}

const sizing::GpuProduct* ProductNames::Find(const std::string& label) {
  auto [it, added] = found_.try_emplace(label, nullptr);
  if (added && !label.empty()) it->second = sizing::OrDefault(catalogue_).Find(label);
  return it->second;
}

YardNode Describe(const std::shared_ptr<const api::NodeSnapshot>& snapshot, const YardOptions& options,
                  const std::vector<TopologyLevel>& levels, ProductNames& products) {
  const api::NodeSnapshot& node = *snapshot;
  YardNode out;
  out.snapshot = snapshot;
  out.name = node.name;
  const std::string& label = ProductLabel(node);
  const sizing::GpuProduct* product = products.Find(label);
  out.known = product != nullptr;
  out.product = product != nullptr ? product->name : label;
  out.path = PathOf(node.labels, levels);
  out.taints = TaintsToTolerate(node, options);
  std::string not_whole = NotWhole(node, label);
  auto gpus = node.allocatable.find(api::kGpuResource);
  if (not_whole.empty() && gpus != node.allocatable.end()) out.usable = std::max<int64_t>(0, gpus->second);
  ReadGpuLabels(node, product, out);
  out.ineligible = WhyIneligible(node, out, not_whole, options);
  return out;
}

}  // namespace trainyard::placement
