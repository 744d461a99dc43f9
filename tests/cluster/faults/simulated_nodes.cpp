#include "tests/cluster/faults/simulated_nodes.h"

#include <algorithm>

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
  std::unique_ptr<SimulatedNodes> nodes(new SimulatedNodes(direct, gpu));
  for (int i = 0; i < count; ++i) nodes->names_.push_back(prefix + std::to_string(i));
  for (const std::string& name : nodes->names_) {
    if (Status status = nodes->Return(name); !status) return Fail(status.error().Wrap("node " + name));
  }
  nodes->heart_ = std::thread([raw = nodes.get()] {
    std::unique_lock lock(raw->mutex_);
    while (!raw->wake_.wait_for(lock, kHeartbeat, [raw] { return raw->stop_; })) {
      lock.unlock();
      for (const std::string& name : raw->names_) {
        if (!raw->Serves(name)) continue;
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

Status SimulatedNodes::Return(const std::string& name) {
  {
    std::lock_guard lock(mutex_);
    states_[name] = {.gpus = kGpusPerNode, .ready_since = Now()};
  }
  const json node = {{"apiVersion", "v1"},
                     {"kind", "Node"},
                     {"metadata",
                      {{"name", name},
                       {"labels",
                        {{"kubernetes.io/hostname", name},
                         {"kubernetes.io/os", "linux"},
                         {"kubernetes.io/arch", "amd64"},
                         {"nvidia.com/gpu.present", "true"},
                         {"nvidia.com/gpu.product", gpu_.label},
                         {"nvidia.com/gpu.count", std::to_string(kGpusPerNode)}}}}}};
  if (auto created = direct_.Create(Kind::kNode, node); !created) return Fail(created.error());
  if (Status status = Beat(name); !status) return status;
  // Admission taints every new node; the controller manager would take that off in its own time.
  const json no_taints = {{"spec", {{"taints", nullptr}}}};
  const auto untainted = direct_.Patch(Kind::kNode, {"", name}, PatchType::kMerge, no_taints, false);
  return untainted ? Status() : Fail(untainted.error());
}

Status SimulatedNodes::Remove(const std::string& name) {
  {
    std::lock_guard lock(mutex_);
    states_[name].there = false;
  }
  return direct_.Delete(Kind::kNode, {"", name}, {});
}

Status SimulatedNodes::SetGpus(const std::string& name, int64_t allocatable) {
  return Change(name, [&](State& state) { state.gpus = allocatable; });
}

Status SimulatedNodes::SetReady(const std::string& name, const std::string& ready, Milliseconds since) {
  return Change(name, [&](State& state) {
    state.ready = ready;
    state.ready_since = FormatTime(RealClock().Now() - since);
  });
}

Status SimulatedNodes::SetCondition(const std::string& name, const std::string& type, const std::string& status) {
  return Change(name, [&](State& state) { state.conditions[type] = status; });
}

Status SimulatedNodes::Cordon(const std::string& name, bool cordoned) {
  const json patch = {{"spec", {{"unschedulable", cordoned}}}};
  const auto patched = direct_.Patch(Kind::kNode, {"", name}, PatchType::kMerge, patch, false);
  return patched ? Status() : Fail(patched.error());
}

Status SimulatedNodes::Taint(const std::string& name, const std::string& key, const std::string& effect) {
  const json patch = {{"spec", {{"taints", {{{"key", key}, {"effect", effect}}}}}}};
  const auto patched = direct_.Patch(Kind::kNode, {"", name}, PatchType::kMerge, patch, false);
  return patched ? Status() : Fail(patched.error());
}

bool SimulatedNodes::Serves(const std::string& name) const {
  std::lock_guard lock(mutex_);
  const auto found = states_.find(name);
  return found != states_.end() && found->second.there && found->second.ready != "Unknown";
}

Status SimulatedNodes::Change(const std::string& name, const std::function<void(State&)>& change) {
  {
    std::lock_guard lock(mutex_);
    change(states_[name]);
  }
  return Beat(name);
}

Status SimulatedNodes::Beat(const std::string& name) {
  State state;
  {
    std::lock_guard lock(mutex_);
    state = states_[name];
  }
  json room = {{"cpu", "64"}, {"memory", "256Gi"}, {"pods", "110"}, {"nvidia.com/gpu", std::to_string(kGpusPerNode)}};
  json status = {{"capacity", room}, {"conditions", json::array()}};
  room["nvidia.com/gpu"] = std::to_string(state.gpus);
  status["allocatable"] = room;
  state.conditions["Ready"] = state.ready;
  for (const auto& [type, value] : state.conditions) {
    status["conditions"].push_back({{"type", type},
                                    {"status", value},
                                    {"reason", "Simulated"},
                                    {"message", "simulated"},
                                    {"lastHeartbeatTime", Now()},
                                    {"lastTransitionTime", state.ready_since}});
  }
  const auto patched = direct_.Patch(Kind::kNode, {"", name}, PatchType::kMerge, {{"status", status}}, true);
  return patched ? Status() : Fail(patched.error());
}

SimulatedKubelet::SimulatedKubelet(cluster::Cluster& direct, const std::string& ns, KubeletHabits habits)
    : direct_(direct), ns_(ns), habits_(std::move(habits)) {
  pods_ = std::make_unique<cluster::Informer<json>>(direct, Kind::kPod, cluster::ListWatchOptions{ns, ""},
                                                    [](const json& pod) -> Result<json> { return pod; });
  pods_->AddHandler([this](const ObjectKey& key, const auto&, const auto& now) {
    if (now) OnPod(key, *now);
  });
  pods_->Start();
  if (habits_.run_time) timer_ = std::thread([this] { EndWhatHasRun(); });
}

SimulatedKubelet::~SimulatedKubelet() {
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wake_.notify_all();
  pods_->Stop();
  if (timer_.joinable()) timer_.join();
}

bool SimulatedKubelet::Serves(const json& pod) const {
  const std::string node = pod.at("spec").value("nodeName", "");
  return node.empty() || !habits_.serves || habits_.serves(node);
}

void SimulatedKubelet::OnPod(const ObjectKey& key, const json& pod) {
  {
    std::lock_guard lock(mutex_);
    seen_[cluster::UidOf(pod)] = key.name;
  }
  if (!Serves(pod)) return;
  if (pod.at("metadata").contains("deletionTimestamp")) {
    const bool running = pod.at("status").value("phase", "") == "Running";
    if (running && habits_.saves && habits_.saves(pod)) return;
    if (running && habits_.exit_on_term) (void)Exit(pod, *habits_.exit_on_term);
    (void)direct_.Delete(Kind::kPod, key, {cluster::UidOf(pod), "", 0});
    return;
  }
  const bool bound = !pod.at("spec").value("nodeName", "").empty();
  if (!bound || pod.at("status").value("phase", "") != "Pending") return;
  if (const std::string why = habits_.refuses ? habits_.refuses(pod) : ""; !why.empty()) {
    const json refused = {{"status", {{"phase", "Failed"}, {"reason", why}, {"message", "Pod was rejected: " + why}}}};
    (void)direct_.Patch(Kind::kPod, key, PatchType::kMerge, refused, true);
    return;
  }
  const json status = {{"phase", "Running"},
                       {"conditions", Ready(true)},
                       {"startTime", Now()},
                       {"containerStatuses", Containers(pod, {{"running", {{"startedAt", Now()}}}}, true)}};
  const auto patched = direct_.Patch(Kind::kPod, key, PatchType::kMerge, {{"status", status}}, true);
  if (!patched) return spdlog::warn("kubelet of {}: {}", key.name, patched.error().message);
  const std::optional<Milliseconds> runs = habits_.run_time ? habits_.run_time(pod) : std::nullopt;
  if (!runs) return;
  {
    std::lock_guard lock(mutex_);
    ends_.try_emplace(cluster::UidOf(pod), std::chrono::steady_clock::now() + *runs, key);
  }
  wake_.notify_all();
}

void SimulatedKubelet::LookAgain() {
  for (const json& pod : Snapshot()) OnPod(cluster::KeyOf(pod), pod);
}

void SimulatedKubelet::EndWhatHasRun() {
  constexpr Milliseconds kLookAgain{200};
  std::unique_lock lock(mutex_);
  while (!stop_) {
    const Instant now = std::chrono::steady_clock::now();
    Instant next = now + kLookAgain;
    std::vector<std::pair<std::string, ObjectKey>> over;
    for (const auto& [uid, end] : ends_) {
      if (end.first <= now) {
        over.emplace_back(uid, end.second);
      } else {
        next = std::min(next, end.first);
      }
    }
    lock.unlock();
    for (const auto& [uid, key] : over) {
      if (!End(uid, key)) continue;
      std::lock_guard again(mutex_);
      ends_.erase(uid);
    }
    lock.lock();
    wake_.wait_until(lock, next, [this] { return stop_; });
  }
}

bool SimulatedKubelet::End(const std::string& uid, const ObjectKey& key) {
  const auto pod = pods_->Get(key);
  if (!pod || cluster::UidOf(*pod) != uid || pod->at("metadata").contains("deletionTimestamp")) return true;
  const std::string phase = pod->at("status").value("phase", "");
  if (phase == "Succeeded" || phase == "Failed") return true;
  // What the API server was told already may not have come back yet: the pod that runs is still pending here then.
  return phase == "Running" && Serves(*pod) && Exit(*pod, 0);
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

Status SimulatedKubelet::Finish(int exit_code, const std::function<bool(const json&)>& which) {
  for (const json& pod : Snapshot()) {
    if (pod.at("status").value("phase", "") != "Running" || (which && !which(pod))) continue;
    if (Status ended = Exit(pod, exit_code); !ended) return ended;
  }
  return {};
}

Status SimulatedKubelet::Exit(const json& pod, int exit_code) {
  const json state = {{"terminated",
                       {{"exitCode", exit_code},
                        {"reason", exit_code == 0 ? "Completed" : "Error"},
                        {"startedAt", Now()},
                        {"finishedAt", Now()}}}};
  const json status = {{"phase", exit_code == 0 ? "Succeeded" : "Failed"},
                       {"conditions", Ready(false)},
                       {"containerStatuses", Containers(pod, state, false)}};
  const auto patched = direct_.Patch(Kind::kPod, cluster::KeyOf(pod), PatchType::kMerge, {{"status", status}}, true);
  return patched ? Status() : Fail(patched.error());
}

Status SimulatedKubelet::Kill(const std::string& name) { return direct_.Delete(Kind::kPod, {ns_, name}, {"", "", 0}); }

}  // namespace trainyard::faults
