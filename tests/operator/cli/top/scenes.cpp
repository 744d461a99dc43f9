#include "tests/operator/cli/top/scenes.h"

#include "operator/api/json.h"
#include "operator/api/names.h"

namespace trainyard::cli {
namespace {

using cluster::Kind;
using nlohmann::json;

constexpr const char* kH100 = "NVIDIA-H100-80GB-HBM3";

TimePoint Ago(double hours) {
  return SceneTime() - std::chrono::duration_cast<Milliseconds>(std::chrono::duration<double, std::ratio<3600>>(hours));
}

Labels At(const std::string& hall, const std::string& rack) {
  return {{"topology.kubernetes.io/zone", hall},
          {"fabric.topograph.run/tier-1", hall},
          {"fabric.topograph.run/tier-0", rack}};
}

std::string Uid(const std::string& ns, const std::string& name) { return "uid-" + ns + "-" + name; }

api::TrainingJob Job(const std::string& ns, const std::string& name, double hours, int64_t gpus, int64_t per_node,
                     const std::string& product) {
  api::TrainingJob job;
  job.meta.ns = ns;
  job.meta.name = name;
  job.meta.uid = Uid(ns, name);
  job.meta.generation = 1;
  job.meta.creation_time = Ago(hours);
  job.spec.model.parameters = "7B";
  job.spec.image = "registry.example.com/" + ns + "/" + name + ":1";
  job.spec.gpus.count = gpus;
  job.spec.gpus.per_node = per_node;
  job.spec.gpus.products = {product};
  job.status.observed_generation = 1;
  api::PlanStatus plan;
  plan.strategy = "FSDP";
  plan.gpus = gpus;
  plan.per_node = per_node;
  plan.product = product;
  plan.micro_batch_size = plan.accumulation = 1;
  plan.generation = 1;
  job.status.plan = plan;
  return job;
}

json Object(const api::TrainingJob& job) {
  json object = api::JobToJson(job);
  object["metadata"]["uid"] = job.meta.uid;
  object["metadata"]["namespace"] = job.meta.ns;
  object["metadata"]["generation"] = job.meta.generation;
  object["metadata"]["creationTimestamp"] = FormatTime(*job.meta.creation_time);
  object["status"] = api::StatusToJson(job.status);
  return object;
}

}  // namespace

TimePoint SceneTime() { return ParseTime("2026-03-02T12:00:00Z").value(); }

json NodeObject(const std::string& name, const std::string& product, int64_t gpus, Labels labels) {
  if (!product.empty()) labels["nvidia.com/gpu.product"] = product;
  const json amounts = {{"cpu", "128"}, {"memory", "2Ti"}, {"pods", "110"}, {"nvidia.com/gpu", std::to_string(gpus)}};
  return {
      {"apiVersion", "v1"},
      {"kind", "Node"},
      {"metadata", {{"name", name}, {"labels", labels}}},
      {"spec", json::object()},
      {"status", {{"allocatable", amounts}, {"conditions", json::array({{{"type", "Ready"}, {"status", "True"}}})}}}};
}

json PodObject(const std::string& ns, const std::string& name, const std::string& node, int64_t gpus) {
  const json limits = {{"nvidia.com/gpu", std::to_string(gpus)}};
  return {
      {"apiVersion", "v1"},
      {"kind", "Pod"},
      {"metadata", {{"name", name}, {"namespace", ns}, {"uid", Uid(ns, name)}}},
      {"spec",
       {{"nodeName", node}, {"containers", json::array({{{"name", "main"}, {"resources", {{"limits", limits}}}}})}}},
      {"status", {{"phase", "Running"}}}};
}

json RunningJob(const std::string& ns, const std::string& name, const std::vector<std::string>& nodes, int64_t per_node,
                const std::string& product, double hours, double hours_left) {
  const int64_t gpus = per_node * static_cast<int64_t>(nodes.size());
  api::TrainingJob job = Job(ns, name, hours + 0.1, gpus, per_node, product);
  api::JobStatus& s = job.status;
  s.phase = api::Phase::kRunning;
  s.reason = "running on " + std::to_string(gpus) + " GPUs";
  s.gpus = gpus;
  s.attempt = 1;
  s.started = true;
  s.placing_since = s.ungated_at = s.start_time = Ago(hours);
  s.placement.emplace();
  for (const std::string& node : nodes) s.placement->nodes.push_back({node, per_node});
  // One step per second: how long it takes is what it has left of them.
  s.progress.emplace();
  s.progress->step = static_cast<int64_t>(hours * 3600);
  s.progress->steps = static_cast<int64_t>((hours + hours_left) * 3600);
  s.progress->step_seconds = 1;
  s.progress->step_gpus = gpus;
  s.progress->trainer_phase = "Training";
  s.progress_time = Ago(0);
  s.checkpoint.emplace();
  s.checkpoint->step = s.progress->step - 1800;
  s.checkpoint->time = FormatTime(Ago(0.5));
  return Object(job);
}

json WaitingJob(const std::string& ns, const std::string& name, int64_t gpus, int64_t per_node,
                const std::string& product, double hours, const std::string& priority_class) {
  api::TrainingJob job = Job(ns, name, hours, gpus, per_node, product);
  job.spec.priority_class_name = priority_class;
  job.status.phase = api::Phase::kQueued;
  return Object(job);
}

json PriorityClassObject(const std::string& name, int64_t value) {
  return {{"apiVersion", "scheduling.k8s.io/v1"},
          {"kind", "PriorityClass"},
          {"metadata", {{"name", name}}},
          {"value", value}};
}

ListedObjects SceneOfTheDocs() {
  ListedObjects scene;
  const auto node = [&](const json& object) { scene.Add(Kind::kNode, object); };
  for (int rack = 1; rack <= 3; ++rack) {
    const std::string name = "rack-" + std::to_string(rack);
    for (int i = 1; i <= 4; ++i) {
      const std::string host = "h100-" + std::to_string(rack) + "-" + std::to_string(i);
      json object = NodeObject(host, kH100, 8, At(rack < 3 ? "hall-a" : "hall-b", name));
      if (host == "h100-2-4") {
        object["spec"]["unschedulable"] = true;
        object["status"]["allocatable"]["nvidia.com/gpu"] = "7";  // one is unhealthy
      }
      if (host == "h100-3-4") {
        object["spec"]["taints"] = json::array({{{"key", "team"}, {"value", "vision"}, {"effect", "NoSchedule"}}});
      }
      node(object);
    }
  }
  for (int i = 1; i <= 4; ++i) {
    Labels labels = At("hall-b", "rack-9");
    labels["nvidia.com/gpu.clique"] = "7b968a6d-c8aa-45e1-9e07-e1e51be99c31.1";
    node(NodeObject("gb200-" + std::to_string(i), "NVIDIA-GB200", 4, labels));
  }
  node(NodeObject("l4-1", "NVIDIA-L4", 1));
  node(NodeObject("l4-2", "NVIDIA-L4-SHARED", 8, {{"nvidia.com/gpu.sharing-strategy", "time-slicing"}}));

  scene.Add(Kind::kTrainingJob,
            RunningJob("default", "pretrain", {"h100-1-1", "h100-1-2", "h100-1-3"}, 8, "H100-SXM", 20, 3));
  scene.Add(Kind::kTrainingJob, RunningJob("vision", "finetune", {"h100-2-1"}, 4, "H100-SXM", 2, 0.7));
  scene.Add(Kind::kPod, PodObject("research", "notebook-0", "h100-2-2", 1));
  scene.Add(Kind::kPriorityClass, PriorityClassObject("production", 1000));
  scene.Add(Kind::kTrainingJob, WaitingJob("default", "large", 48, 8, "H100-SXM", 2.5));
  scene.Add(Kind::kTrainingJob, WaitingJob("vision", "detector", 8, 8, "H100-PCIe", 0.2, "production"));
  return scene;
}

ListedObjects LargeScene(int racks, int per_rack) {
  ListedObjects scene;
  for (int rack = 0; rack < racks; ++rack) {
    for (int i = 0; i < per_rack; ++i) {
      const std::string name = "node-" + std::to_string(rack) + "-" + std::to_string(i);
      json object = NodeObject(name, kH100, 8, At("hall-" + std::to_string(rack / 20), "rack-" + std::to_string(rack)));
      if ((rack * per_rack + i) % 100 == 99) object["spec"]["unschedulable"] = true;
      scene.Add(Kind::kNode, object);
      if (rack % 3 == 0 && i % 4 == 0) scene.Add(Kind::kPod, PodObject("others", name, name, 1 + i % 8));
    }
  }
  return scene;
}

}  // namespace trainyard::cli
