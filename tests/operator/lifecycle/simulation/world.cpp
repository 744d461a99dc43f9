#include "tests/operator/lifecycle/simulation/world.h"

#include <algorithm>

#include "operator/api/names.h"
#include "trainer/contract/contract.h"

namespace trainyard::lifecycle::simulation {
namespace {

constexpr int64_t kNodes = 4;
constexpr int64_t kGpusPerNode = 2;

bool SamePlacement(const api::PlacementStatus& a, const api::PlacementStatus& b) {
  return std::equal(a.nodes.begin(), a.nodes.end(), b.nodes.begin(), b.nodes.end(),
                    [](const auto& x, const auto& y) { return x.node == y.node && x.gpus == y.gpus; });
}

bool Intended(const api::JobStatus& status) {
  return status.stop && status.stop->attempt == status.attempt && status.stop->reason != "Failed";
}

api::NodeSnapshot FreshNode(const std::string& name, TimePoint now) {
  api::NodeSnapshot node;
  node.name = name;
  node.ready = true;
  node.conditions["Ready"] = "True";
  node.ready_transition_time = now;
  node.labels = {{"nvidia.com/gpu.product", "trainyard-simulated"}, {"nvidia.com/gpu.memory", "65536"}};
  node.allocatable = {{api::kGpuResource, kGpusPerNode}};
  return node;
}

}  // namespace

World::World(uint64_t seed) : now(std::chrono::milliseconds(1'800'000'000'000)), random_(seed) {
  for (int64_t i = 0; i < kNodes; ++i) {
    std::string name = "node-" + std::to_string(i);
    nodes.Put(name, FreshNode(name, now));
  }
}

void World::Trace(const std::string& line) {
  if (tracing) trace.push_back(FormatTime(now, true).substr(11) + " " + line);
}

void World::Violate(const std::string& what) {
  if (violation.empty()) violation = what;
}

// ---- the API ---------------------------------------------------------------------------------------------------

void World::CheckWrite(const api::TrainingJob& old_job, const api::JobStatus& status) {
  const api::JobStatus& old = old_job.status;
  const std::string& name = old_job.meta.name;
  if (api::IsTerminal(old.phase)) {
    if (status.phase != old.phase) Violate(name + ": a terminal phase changed");
    if (status.attempt != old.attempt) Violate(name + ": a finished job got another attempt");
  }
  if (status.attempt < old.attempt || status.attempt > old.attempt + 1) Violate(name + ": the attempt jumped");
  if (status.attempt == old.attempt + 1) {
    if (!status.placement) Violate(name + ": an attempt without a placement");
    if (old.placement && !api::IsTerminal(old.phase) && !old.stop) Violate(name + ": an attempt over a live one");
    if (status.placement) facts[old_job.meta.uid][status.attempt].nodes = status.placement->nodes;
  } else if (old.placement && status.placement && !SamePlacement(*old.placement, *status.placement)) {
    Violate(name + ": the placement of an attempt changed");
  }
  const api::Recovery& limits = old_job.spec.recovery;
  if (status.restarts.user > limits.max_user_restarts) Violate(name + ": the user budget is overdrawn");
  if (status.restarts.infrastructure > limits.max_infrastructure_restarts) {
    Violate(name + ": the infrastructure budget is overdrawn");
  }
  int64_t counted =
      status.restarts.user + status.restarts.infrastructure - old.restarts.user - old.restarts.infrastructure;
  if (counted < 0 || counted > 1) Violate(name + ": restarts jumped by " + std::to_string(counted));
  bool failed = status.phase == api::Phase::kFailed && old.phase != api::Phase::kFailed;
  if (counted == 1 || failed) {
    const AttemptFacts& attempt = facts[old_job.meta.uid][old.attempt];
    bool node_touched = std::any_of(attempt.nodes.begin(), attempt.nodes.end(),
                                    [this](const auto& n) { return touched_nodes.contains(n.node); });
    if (Intended(old)) Violate(name + ": an exit after an intended stop was counted");
    if (!attempt.faulted && !node_touched) Violate(name + ": a failure was counted that never happened");
  }
}

bool World::WriteStatus(const std::string& key, const std::string& resource_version, const api::JobStatus& status) {
  auto stored = jobs.Get(key);
  if (stored == nullptr || stored->meta.resource_version != resource_version) return false;
  CheckWrite(*stored, status);
  preempted += status.stop && !stored->status.stop && status.stop->reason == "Preempted" ? 1 : 0;
  api::TrainingJob job = *stored;
  job.status = status;
  job.meta.resource_version = NextVersion();
  Trace("status " + key + ": " + std::string(api::ToString(status.phase)) + " attempt " +
        std::to_string(status.attempt) + (status.started ? " started" : "") +
        (status.stop ? " stop=" + status.stop->reason : "") + ": " + status.reason);
  jobs.Put(key, std::move(job));
  return true;
}

void World::PutPod(api::PodSnapshot pod) {
  pod.resource_version = NextVersion();
  std::string name = pod.name;
  pods.Put(name, std::move(pod));
}

void World::DeletePod(const std::string& name) {
  auto pod = pods.Get(name);
  if (pod == nullptr || pod->deleting) return;
  Trace("deleted " + name);
  if (pod->node.empty() || pod->Terminal()) return pods.Erase(name);  // no kubelet has to agree
  api::PodSnapshot changed = *pod;
  changed.deleting = true;
  PutPod(std::move(changed));
}

bool World::Execute(const Action& action, const api::TrainingJob& job) {
  switch (action.kind) {
    case Action::Kind::kCreateService:
      services.insert(job.meta.uid);
      return true;
    case Action::Kind::kDeleteService:
      services.erase(job.meta.uid);
      return true;
    case Action::Kind::kCreatePod: {
      const nlohmann::json& meta = action.object["metadata"];
      const nlohmann::json& spec = action.object["spec"];
      const nlohmann::json& labels = meta["labels"];
      api::PodSnapshot pod;
      pod.name = meta["name"].get<std::string>();
      pod.job_uid = labels[std::string(contract::kLabelJobUid)].get<std::string>();
      pod.owner_uid = meta["ownerReferences"][0]["uid"].get<std::string>();
      pod.attempt = std::stoll(labels[std::string(contract::kLabelAttempt)].get<std::string>());
      pod.node_rank = std::stoll(labels[std::string(contract::kLabelNodeRank)].get<std::string>());
      pod.gated = spec["schedulingGates"].size() == 1;
      pod.pinned_node = spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
                            ["nodeSelectorTerms"][0]["matchFields"][0]["values"][0]
                                .get<std::string>();
      pod.gpus = std::stoll(spec["containers"][0]["resources"]["limits"][api::kGpuResource].get<std::string>());
      pod.requests[api::kGpuResource] = pod.gpus;
      if (auto existing = pods.Get(pod.name)) {
        return existing->owner_uid == pod.owner_uid && existing->attempt == pod.attempt;
      }
      pod.uid = "pod-" + std::to_string(++next_uid_);
      const auto& claimed = facts[pod.job_uid][pod.attempt].nodes;
      auto rank = static_cast<size_t>(pod.node_rank);
      if (rank >= claimed.size()) {
        Violate(pod.name + ": a pod that no claim covers");
      } else if (claimed[rank].node != pod.pinned_node || claimed[rank].gpus != pod.gpus) {
        Violate(pod.name + ": a pod off its planned node");
      }
      if (!pod.gated) Violate(pod.name + ": created without the gate");
      Trace("created " + pod.name + " for " + pod.pinned_node);
      PutPod(std::move(pod));
      return true;
    }
    case Action::Kind::kUngatePod: {
      auto pod = pods.Get(action.name);
      if (pod == nullptr || pod->uid != action.uid || !pod->gated) return true;
      api::PodSnapshot changed = *pod;
      changed.gated = false;
      Trace("un-gated " + changed.name);
      PutPod(std::move(changed));
      return true;
    }
    case Action::Kind::kAddFinalizer:
    case Action::Kind::kRemoveFinalizer:
      Violate(job.meta.name + ": a finalizer that no job of the simulation asks for");
      return true;
    case Action::Kind::kDeletePod: {
      auto pod = pods.Get(action.name);
      if (pod != nullptr && pod->uid == action.uid) DeletePod(action.name);
      return true;
    }
    case Action::Kind::kDeleteAllPods: {
      std::vector<std::string> names;
      for (const auto& [name, pod] : pods.objects()) {
        if (pod->job_uid == job.meta.uid && pod->attempt == action.attempt) names.push_back(name);
      }
      for (const std::string& name : names) DeletePod(name);
      return true;
    }
  }
  return true;
}

// ---- users -------------------------------------------------------------------------------------------------------

const std::vector<api::PriorityClass>& SimulationClasses() {
  static const std::vector<api::PriorityClass> classes = {{.name = "low", .value = -10},
                                                          {.name = "high", .value = 100},
                                                          {.name = "patient", .value = 50, .preempts = false}};
  return classes;
}

void World::CreateJob(const std::string& name, int64_t gpus) {
  api::TrainingJob job;
  job.meta.name = name;
  job.meta.uid = "uid-" + name;
  job.meta.generation = 1;
  job.meta.resource_version = NextVersion();
  job.spec.model.parameters = "1M";
  job.spec.image = "user/program:1";
  job.spec.command = {"torchrun"};
  job.spec.parallelism.strategy = api::Strategy::kDdp;
  job.spec.training.global_batch_size = 16;
  job.spec.training.micro_batch_size = 1;
  job.spec.training.sequence_length = 128;
  job.spec.gpus.count = gpus;
  if (Chance(30)) {
    job.spec.gpus.min_count = 1;
    job.spec.gpus.max_count = 8;
  }
  if (Chance(75)) {
    const auto& classes = SimulationClasses();
    job.spec.priority_class_name = classes[static_cast<size_t>(Below(static_cast<int64_t>(classes.size())))].name;
  }
  job.spec.recovery.max_user_restarts = Below(3);
  job.spec.recovery.max_infrastructure_restarts = Below(5);
  jobs.Put(name, std::move(job));
}

void World::Edit(const std::string& key, const std::function<void(api::Spec&)>& edit) {
  auto stored = jobs.Get(key);
  if (stored == nullptr) return;
  api::TrainingJob job = *stored;
  edit(job.spec);
  ++job.meta.generation;
  job.meta.resource_version = NextVersion();
  Trace("edited " + key + ": " + std::to_string(job.spec.gpus.count) + " GPUs" +
        (job.spec.suspend ? ", suspended" : ""));
  jobs.Put(key, std::move(job));
}

void World::DeleteJob(const std::string& key, bool foreground) {
  auto stored = jobs.Get(key);
  if (stored == nullptr) return;
  Trace("deleted job " + key);
  if (!foreground) return jobs.Erase(key);
  api::TrainingJob job = *stored;
  job.meta.deletion_time = now;
  job.meta.resource_version = NextVersion();
  jobs.Put(key, std::move(job));
}

// ---- scheduler, kubelet, garbage collector -------------------------------------------------------------------------

bool World::NodeUp(const std::string& name) const {
  auto node = nodes.Get(name);
  return node != nullptr && node->ready;
}

bool World::Bind(api::PodSnapshot pod) {
  auto node = nodes.Get(pod.pinned_node);
  if (node == nullptr || !node->ready || node->unschedulable) return false;
  int64_t used = pod.gpus;
  for (const auto& [name, other] : pods.objects()) {
    if (other->node == pod.pinned_node && !other->Terminal()) used += other->gpus;
  }
  if (used > node->allocatable.at(api::kGpuResource)) return false;
  pod.node = pod.pinned_node;
  Trace("bound " + pod.name);
  PutPod(std::move(pod));
  return true;
}

void World::Exit(const std::string& name, int code, bool fault) {
  api::PodSnapshot pod = *pods.Get(name);
  pod.phase = code == 0 ? api::PodPhase::kSucceeded : api::PodPhase::kFailed;
  pod.exit_code = code;
  if (fault && !pod.job_uid.empty()) facts[pod.job_uid][pod.attempt].faulted = true;
  Trace(name + " exited with " + std::to_string(code));
  PutPod(std::move(pod));
}

bool World::StepPod(const std::string& name) {
  auto pod = pods.Get(name);
  if (pod == nullptr || pod->gated) return false;
  if (pod->node.empty()) return !pod->deleting && Bind(*pod);
  if (!NodeUp(pod->node)) return false;
  if (pod->deleting) {
    if (pod->phase == api::PodPhase::kRunning && Chance(70)) {
      // What a program makes of SIGTERM: mostly what we ask of it.
      static constexpr int kCodes[] = {10, 10, 10, 10, 137, 143, 0};
      Exit(name, kCodes[Below(std::size(kCodes))], false);
    } else {
      Trace("gone " + name);
      pods.Erase(name);
    }
    return true;
  }
  if (pod->phase != api::PodPhase::kPending) return false;
  api::PodSnapshot changed = *pod;
  changed.phase = api::PodPhase::kRunning;
  changed.ready = true;
  changed.start_time = now;
  Trace("runs " + name);
  PutPod(std::move(changed));
  return true;
}

bool World::CollectGarbage() {
  bool changed = false;
  std::vector<std::string> orphans, erased;
  for (const auto& [name, pod] : pods.objects()) {
    bool owned = false;
    for (const auto& [key, job] : jobs.objects()) {
      owned = owned || (job->meta.uid == pod->owner_uid && !job->meta.deletion_time);
    }
    if (!pod->job_uid.empty() && !owned && !pod->deleting) orphans.push_back(name);
    // The pods of a machine that no longer exists go with it.
    if (!pod->node.empty() && nodes.Get(pod->node) == nullptr) erased.push_back(name);
  }
  for (const std::string& name : orphans) DeletePod(name);
  for (const std::string& name : erased) pods.Erase(name);
  std::vector<std::string> finished;
  for (const auto& [key, job] : jobs.objects()) {
    if (!job->meta.deletion_time) continue;
    bool has_pods = std::any_of(pods.objects().begin(), pods.objects().end(),
                                [&job](const auto& p) { return p.second->owner_uid == job->meta.uid; });
    if (!has_pods) finished.push_back(key);
  }
  for (const std::string& key : finished) jobs.Erase(key);
  changed = !orphans.empty() || !erased.empty() || !finished.empty();
  return changed;
}

// ---- misfortunes ---------------------------------------------------------------------------------------------------

std::string World::PickPod(const std::function<bool(const api::PodSnapshot&)>& wanted) {
  std::vector<std::string> names;
  for (const auto& [name, pod] : pods.objects()) {
    if (wanted(*pod)) names.push_back(name);
  }
  return names.empty() ? "" : names[static_cast<size_t>(Below(static_cast<int64_t>(names.size())))];
}

std::string World::PickNode() { return "node-" + std::to_string(Below(kNodes)); }

void World::LoseNode(const std::string& name) {
  auto node = nodes.Get(name);
  if (node == nullptr || !node->ready) return;
  api::NodeSnapshot changed = *node;
  changed.ready = false;
  changed.conditions["Ready"] = "Unknown";
  changed.ready_transition_time = now;
  touched_nodes.insert(name);
  Trace("lost " + name);
  nodes.Put(name, std::move(changed));
}

void World::RemoveNode(const std::string& name) {
  touched_nodes.insert(name);
  Trace("removed " + name);
  for (const auto& [key, pod] : pods.objects()) {
    if (pod->node == name) lost_pods.insert(pod->uid);
  }
  nodes.Erase(name);
}

void World::ReturnNode(const std::string& name) {
  auto node = nodes.Get(name);
  if (node != nullptr && node->ready) return;
  if (node != nullptr) {
    bool beyond = now - *node->ready_transition_time > Milliseconds(60'000);
    for (const auto& [key, pod] : pods.objects()) {
      if (beyond && pod->node == name && pod->deleting) lost_pods.insert(pod->uid);
    }
  }
  Trace("back " + name);
  nodes.Put(name, FreshNode(name, now));
}

void World::Fault() {
  auto running = [this](const api::PodSnapshot& pod) {
    return pod.phase == api::PodPhase::kRunning && !pod.job_uid.empty() && NodeUp(pod.node);
  };
  if (!services.empty() && Chance(10)) {  // somebody deletes a Service
    services.erase(std::next(services.begin(), Below(static_cast<int64_t>(services.size()))));
  }
  switch (Below(10)) {
    case 0:
    case 1:
    case 2: {  // a rank ends, and its peers may notice
      static constexpr int kCodes[] = {1, 1, 2, 5, 6, 7, 8, 9, 10, 11, 134, 137, 137, 139};
      std::string name = PickPod(running);
      if (name.empty()) return;
      api::PodSnapshot pod = *pods.Get(name);
      Exit(name, kCodes[Below(std::size(kCodes))], true);
      std::vector<std::string> peers;
      for (const auto& [key, other] : pods.objects()) {
        if (other->job_uid == pod.job_uid && other->attempt == pod.attempt && running(*other)) peers.push_back(key);
      }
      for (const std::string& peer : peers) {
        if (Chance(50)) Exit(peer, 6, true);
      }
      return;
    }
    case 3: {  // one rank, or all of them, are done
      std::string name = PickPod(running);
      if (name.empty()) return;
      std::string uid = pods.Get(name)->job_uid;
      if (Chance(50)) return Exit(name, 0, false);
      for (const auto& [key, job] : jobs.objects()) {
        if (job->meta.uid == uid) return FinishRunning(key);
      }
      return;
    }
    case 4:
      return LoseNode(PickNode());
    case 5:
      return ReturnNode(PickNode());
    case 6: {
      std::string name = PickNode();
      return nodes.Get(name) == nullptr ? ReturnNode(name) : RemoveNode(name);
    }
    case 7: {
      std::string name = PickNode();
      auto node = nodes.Get(name);
      if (node == nullptr) return;
      api::NodeSnapshot changed = *node;
      changed.unschedulable = !changed.unschedulable;
      return nodes.Put(name, std::move(changed));
    }
    case 8: {  // somebody deletes a pod
      std::string name = PickPod([](const api::PodSnapshot& pod) { return !pod.job_uid.empty(); });
      if (name.empty()) return;
      facts[pods.Get(name)->job_uid][pods.Get(name)->attempt].faulted = true;
      return DeletePod(name);
    }
    default: {  // the kubelet refuses a pod, or foreign work comes and goes
      std::string name = PickPod([this](const api::PodSnapshot& pod) {
        return !pod.node.empty() && pod.phase == api::PodPhase::kPending && NodeUp(pod.node);
      });
      if (!name.empty()) {
        api::PodSnapshot pod = *pods.Get(name);
        pod.phase = api::PodPhase::kFailed;
        pod.reason = "OutOfnvidia.com/gpu";
        facts[pod.job_uid][pod.attempt].faulted = true;
        return PutPod(std::move(pod));
      }
      if (pods.Get("foreign") != nullptr) return pods.Erase("foreign");
      api::PodSnapshot foreign;
      foreign.name = foreign.uid = "foreign";
      foreign.pinned_node = PickNode();
      foreign.gpus = 1;
      return PutPod(std::move(foreign));
    }
  }
}

void World::FinishRunning(const std::string& key) {
  auto job = jobs.Get(key);
  std::vector<std::string> names;
  for (const auto& [name, pod] : pods.objects()) {
    bool its = pod->job_uid == job->meta.uid && pod->attempt == job->status.attempt;
    if (its && pod->phase == api::PodPhase::kRunning && NodeUp(pod->node)) names.push_back(name);
  }
  for (const std::string& name : names) Exit(name, 0, false);
}

void World::HealEverything() {
  calm = true;
  pods.Erase("foreign");
  for (int64_t i = 0; i < kNodes; ++i) {
    std::string name = "node-" + std::to_string(i);
    ReturnNode(name);
    api::NodeSnapshot node = *nodes.Get(name);
    if (!node.unschedulable) continue;
    node.unschedulable = false;
    nodes.Put(name, std::move(node));
  }
}

}  // namespace trainyard::lifecycle::simulation
