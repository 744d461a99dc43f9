#include "tests/cluster/faults/simulated_nodes.h"

#include <spdlog/spdlog.h>

namespace trainyard::faults {

using cluster::Kind;
using cluster::ObjectKey;
using cluster::PatchType;
using nlohmann::json;

namespace {

constexpr Milliseconds kHeartbeat{8'000};  // the controller manager loses patience after 40 s
constexpr int kGpusPerNode = 8;

std::string Now() { return FormatTime(RealClock().Now()); }

json Containers(const json& pod, const json& state, bool ready) {
  json statuses = json::array();
  for (const json& container : pod.at("spec").at("containers")) {
    statuses.push_back({{"name", container.at("name")},
                        {"image", container.at("image")},
                        {"imageID", ""},
                        {"ready", ready},
                        {"restartCount", 0},
                        {"state", state}});
  }
  return statuses;
}

json Ready(bool ready) {
  return json::array({{{"type", "Ready"}, {"status", ready ? "True" : "False"}, {"lastTransitionTime", Now()}}});
}

}  // namespace

Result<std::unique_ptr<SimulatedNodes>> SimulatedNodes::Start(cluster::Cluster& direct, int count,
                                                              const std::string& prefix, const GpuModel& gpu) {
  std::unique_ptr<SimulatedNodes> nodes(new SimulatedNodes(direct));
  for (int i = 0; i < count; ++i) {
    const std::string name = prefix + std::to_string(i);
    const json node = {{"apiVersion", "v1"},
                       {"kind", "Node"},
                       {"metadata",
                        {{"name", name},
                         {"labels",
                          {{"kubernetes.io/hostname", name},
                           {"kubernetes.io/os", "linux"},
                           {"kubernetes.io/arch", "amd64"},
                           {"nvidia.com/gpu.present", "true"},
                           {"nvidia.com/gpu.product", gpu.label},
                           {"nvidia.com/gpu.count", std::to_string(kGpusPerNode)}}}}}};
    if (auto created = direct.Create(Kind::kNode, node); !created) return Fail(created.error().Wrap("node " + name));
    nodes->names_.push_back(name);
    if (Status status = nodes->Beat(name); !status) return Fail(status.error().Wrap("node " + name));
    // Admission taints every new node; the controller manager would take that off in its own time.
    auto untainted = direct.Patch(Kind::kNode, {"", name}, PatchType::kMerge, {{"spec", {{"taints", nullptr}}}}, false);
    if (!untainted) return Fail(untainted.error().Wrap("node " + name));
  }
  nodes->heart_ = std::thread([raw = nodes.get()] {
    std::unique_lock lock(raw->mutex_);
    while (!raw->wake_.wait_for(lock, kHeartbeat, [raw] { return raw->stop_; })) {
      lock.unlock();
      for (const std::string& name : raw->names_) {
        if (Status status = raw->Beat(name); !status) spdlog::warn("heartbeat of {}: {}", name, status.error().message);
      }
      lock.lock();
    }
  });
  return nodes;
}

SimulatedNodes::~SimulatedNodes() {
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wake_.notify_all();
  if (heart_.joinable()) heart_.join();
  for (const std::string& name : names_) (void)direct_.Delete(Kind::kNode, {"", name}, {});
}

Status SimulatedNodes::Beat(const std::string& name) {
  const json room = {
      {"cpu", "64"}, {"memory", "256Gi"}, {"pods", "110"}, {"nvidia.com/gpu", std::to_string(kGpusPerNode)}};
  const json status = {{"capacity", room},
                       {"allocatable", room},
                       {"conditions",
                        {{{"type", "Ready"},
                          {"status", "True"},
                          {"reason", "KubeletReady"},
                          {"message", "simulated"},
                          {"lastHeartbeatTime", Now()},
                          {"lastTransitionTime", "2026-01-01T00:00:00Z"}}}}};
  const auto patched = direct_.Patch(Kind::kNode, {"", name}, PatchType::kMerge, {{"status", status}}, true);
  return patched ? Status() : Fail(patched.error());
}

SimulatedKubelet::SimulatedKubelet(cluster::Cluster& direct, const std::string& ns) : direct_(direct), ns_(ns) {
  pods_ = std::make_unique<cluster::Informer<json>>(direct, Kind::kPod, cluster::ListWatchOptions{ns, ""},
                                                    [](const json& pod) -> Result<json> { return pod; });
  pods_->AddHandler([this](const ObjectKey& key, const auto&, const auto& now) {
    if (now) OnPod(key, *now);
  });
  pods_->Start();
}

SimulatedKubelet::~SimulatedKubelet() { pods_->Stop(); }

void SimulatedKubelet::OnPod(const ObjectKey& key, const json& pod) {
  {
    std::lock_guard lock(mutex_);
    seen_[cluster::UidOf(pod)] = key.name;
  }
  if (pod.at("metadata").contains("deletionTimestamp")) {
    (void)direct_.Delete(Kind::kPod, key, {cluster::UidOf(pod), "", 0});
    return;
  }
  const bool bound = !pod.at("spec").value("nodeName", "").empty();
  if (!bound || pod.at("status").value("phase", "") != "Pending") return;
  const json status = {{"phase", "Running"},
                       {"conditions", Ready(true)},
                       {"startTime", Now()},
                       {"containerStatuses", Containers(pod, {{"running", {{"startedAt", Now()}}}}, true)}};
  const auto patched = direct_.Patch(Kind::kPod, key, PatchType::kMerge, {{"status", status}}, true);
  if (!patched) spdlog::warn("kubelet of {}: {}", key.name, patched.error().message);
}

bool SimulatedKubelet::AwaitPods(Milliseconds timeout, const std::function<bool(const Pods&)>& condition) const {
  return pods_->WaitFor(timeout, condition);
}

std::vector<json> SimulatedKubelet::Snapshot() const {
  std::vector<json> pods;
  for (const auto& pod : pods_->List()) pods.push_back(*pod);
  return pods;
}

std::map<std::string, std::string> SimulatedKubelet::Seen() const {
  std::lock_guard lock(mutex_);
  return seen_;
}

Status SimulatedKubelet::Finish(int exit_code) {
  for (const json& pod : Snapshot()) {
    if (pod.at("status").value("phase", "") != "Running") continue;
    const json state = {{"terminated",
                         {{"exitCode", exit_code},
                          {"reason", exit_code == 0 ? "Completed" : "Error"},
                          {"startedAt", Now()},
                          {"finishedAt", Now()}}}};
    const json status = {{"phase", exit_code == 0 ? "Succeeded" : "Failed"},
                         {"conditions", Ready(false)},
                         {"containerStatuses", Containers(pod, state, false)}};
    const auto patched = direct_.Patch(Kind::kPod, cluster::KeyOf(pod), PatchType::kMerge, {{"status", status}}, true);
    if (!patched) return Fail(patched.error());
  }
  return {};
}

Status SimulatedKubelet::Kill(const std::string& name) { return direct_.Delete(Kind::kPod, {ns_, name}, {"", "", 0}); }

}  // namespace trainyard::faults
