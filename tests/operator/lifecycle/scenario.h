// One job on a few nodes, moved by hand: decide, apply, let pods go on. For tests of single rules; the simulation tests
// their interplay.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "operator/api/names.h"
#include "operator/lifecycle/conditions.h"
#include "operator/lifecycle/lifecycle.h"

namespace trainyard::lifecycle {

class Scenario {
 public:
  explicit Scenario(int64_t nodes = 2, int64_t gpus_per_node = 2) {
    in.now = TimePoint(std::chrono::milliseconds(1'800'000'000'000));
    for (int64_t i = 0; i < nodes; ++i) {
      api::NodeSnapshot node;
      node.name = "node-" + std::to_string(i);
      node.ready = true;
      node.conditions["Ready"] = "True";
      node.ready_transition_time = in.now;
      node.labels = {{"nvidia.com/gpu.product", "trainyard-simulated"}, {"nvidia.com/gpu.memory", "65536"}};
      node.allocatable = {{api::kGpuResource, gpus_per_node}};
      in.nodes.push_back(node);
    }
    api::TrainingJob& job = in.job;
    job.meta.name = "tiny";
    job.meta.uid = "0b6e7d52-8f0c-4f7e-9d5a-3c0a5d1e2f34";
    job.meta.generation = 1;
    job.spec.model.architecture =
        api::Architecture{.layers = 4, .hidden_size = 128, .attention_heads = 4, .kv_heads = 2};
    job.spec.data = api::Data{.train = {{"corpus", "train.txt"}}, .validation = {{"corpus", "valid.txt"}}};
    job.spec.training.sequence_length = 128;
    job.spec.training.global_batch_size = 16;
    job.spec.training.micro_batch_size = 2;
    job.spec.training.steps = 400;
    job.spec.training.precision = api::Precision::kFp32;
    job.spec.gpus.count = 2;
    job.spec.checkpoint = api::Checkpoint{.volume = "checkpoints", .every_steps = 100};
    job.spec.volumes = {{.name = "corpus", .claim_name = "corpus"}, {.name = "checkpoints", .host_path = "/data/ck"}};
  }

  // Decides as a controller would, with fresh pods when asked for, and carries the decision out.
  Decision Step() {
    in.all_pods = in.pods;
    in.pods_fresh = false;
    Decision d = Decide(in, options);
    if (d.refresh_pods) {
      in.pods_fresh = true;
      d = Decide(in, options);
    }
    in.job.status = d.status;
    for (const Action& action : d.actions) Apply(action);
    return d;
  }
  // Until nothing is left to do at this moment.
  void Steps() {
    for (int i = 0; i < 10; ++i) Step();
  }
  // To a running gang.
  void Start() {
    Steps();
    for (api::PodSnapshot& pod : in.pods) {
      if (pod.gated || pod.Terminal()) continue;
      pod.node = pod.pinned_node;
      pod.phase = api::PodPhase::kRunning;
    }
    Steps();
  }
  // Kubelets finish what is being deleted.
  void Reap() {
    std::erase_if(in.pods, [](const auto& pod) { return pod.deleting; });
  }
  void Edit() { ++in.job.meta.generation; }
  void Exit(size_t pod, int code) {
    in.pods[pod].exit_code = code;
    in.pods[pod].phase = code == 0 ? api::PodPhase::kSucceeded : api::PodPhase::kFailed;
  }
  const api::JobStatus& status() const { return in.job.status; }
  std::string Phase() const { return std::string(api::ToString(status().phase)); }
  std::string ConditionReason(const char* type) const {
    const api::Condition* condition = FindCondition(status(), type);
    return condition == nullptr ? "" : condition->status + "/" + condition->reason;
  }
  static int64_t Count(const Decision& d, Action::Kind kind) {
    return std::count_if(d.actions.begin(), d.actions.end(), [kind](const auto& a) { return a.kind == kind; });
  }

  Input in;
  Options options;

 private:
  void Apply(const Action& action) {
    auto named = std::find_if(in.pods.begin(), in.pods.end(), [&](const auto& p) { return p.name == action.name; });
    switch (action.kind) {
      case Action::Kind::kCreateService:
        in.service_exists = true;
        break;
      case Action::Kind::kDeleteService:
        in.service_exists = false;
        break;
      case Action::Kind::kCreatePod: {
        api::PodSnapshot pod;
        pod.name = action.name;
        pod.uid = "pod-" + std::to_string(++next_uid_);
        pod.job_uid = pod.owner_uid = in.job.meta.uid;
        pod.attempt = action.attempt;
        if (action.object["metadata"]["labels"]["trainyard.dev/role"] != "trainer") {
          in.pods.push_back(pod);
          break;
        }
        pod.node_rank = std::stoll(action.name.substr(action.name.rfind('-') + 1));
        pod.gated = true;
        pod.pinned_node = in.job.status.placement->nodes[static_cast<size_t>(pod.node_rank)].node;
        pod.gpus = in.job.status.placement->nodes[static_cast<size_t>(pod.node_rank)].gpus;
        in.pods.push_back(pod);
        break;
      }
      case Action::Kind::kUngatePod:
        if (named != in.pods.end()) named->gated = false;
        break;
      case Action::Kind::kAddFinalizer:
        in.job.meta.finalizers.push_back(kCheckpointFinalizer);
        break;
      case Action::Kind::kRemoveFinalizer:
        std::erase(in.job.meta.finalizers, kCheckpointFinalizer);
        break;
      case Action::Kind::kDeletePod:
        if (named != in.pods.end()) named->deleting = true;
        break;
      case Action::Kind::kDeleteAllPods:
        for (api::PodSnapshot& pod : in.pods) pod.deleting = pod.deleting || pod.attempt == action.attempt;
        break;
    }
  }

  int64_t next_uid_ = 0;
};

}  // namespace trainyard::lifecycle
