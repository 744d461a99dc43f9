#include "tests/bench/operator/scene.h"

#include <atomic>
#include <mutex>
#include <sstream>
#include <thread>

#include "operator/kube/config.h"
#include "tests/bench/operator/pod_watch.h"

namespace trainyard::bench {

using cluster::Kind;
using cluster_test::RunProgram;
using nlohmann::json;

namespace {

// The operator's arguments as the chart renders them, without those that name addresses and the pod's own namespace.
Result<std::vector<std::string>> ChartFlags(const std::string& helm) {
  const auto rendered = RunProgram({helm, "template", "bench", TRAINYARD_SOURCE_DIR "/charts/trainyard"});
  if (rendered.code != 0) return Fail(ErrorCode::kInternal, "the chart cannot be rendered: " + rendered.err);
  std::vector<std::string> flags;
  std::istringstream in(rendered.out);
  for (std::string line; std::getline(in, line);) {
    const size_t at = line.find("- --");
    if (at == std::string::npos || line.find_first_not_of(' ') != at) continue;
    std::string flag = line.substr(at + 2);
    while (!flag.empty() && (flag.back() == ' ' || flag.back() == '"' || flag.back() == '\r')) flag.pop_back();
    const bool ours = flag.rfind("--metrics-bind-address", 0) == 0 ||
                      flag.rfind("--health-probe-bind-address", 0) == 0 ||
                      flag.rfind("--leader-election-namespace", 0) == 0;
    if (!ours) flags.push_back(flag);
  }
  if (flags.empty()) return Fail(ErrorCode::kInternal, "the chart gives the operator no flags");
  return flags;
}

}  // namespace

Result<std::unique_ptr<Scene>> Scene::Make(int nodes, std::string program, std::vector<std::string> more_flags) {
  std::unique_ptr<Scene> scene(new Scene());
  scene->program_ = std::move(program);
  scene->nodes_ = nodes;
  auto plane = cluster_test::ControlPlane::Start();
  if (!plane) return Fail(plane.error());
  scene->plane_ = std::move(*plane);
  const std::string scripts = TRAINYARD_SOURCE_DIR "/tests/cluster/";
  const auto kwok =
      RunProgram({"bash", scripts + "kwok.sh", "up", "--dir", scene->plane_->dir(), "--nodes", std::to_string(nodes)});
  if (kwok.code != 0) return Fail(ErrorCode::kInternal, "no simulated nodes: " + kwok.err);
  auto flags = ChartFlags(scene->plane_->helm());
  if (!flags) return Fail(flags.error());
  scene->flags_ = std::move(*flags);
  scene->flags_.push_back("--leader-election-namespace=default");
  for (const std::string& flag : more_flags) {
    const std::string name = flag.substr(0, flag.find('=') + 1);
    std::erase_if(scene->flags_, [&](const std::string& given) { return given.rfind(name, 0) == 0; });
    scene->flags_.push_back(flag);
  }
  for (const std::string& flag : scene->flags_) {
    if (flag.rfind("--parallel-creates=", 0) == 0) scene->connections_ = std::atoi(flag.c_str() + 19);
  }
  auto config = kube::LoadConfig(scene->plane_->kubeconfig());
  if (!config) return Fail(config.error());
  kube::KubeOptions options;
  options.qps = 0;
  options.user_agent = "operator_bench";
  auto cluster = kube::KubeCluster::Connect(*config, options);
  if (!cluster) return Fail(cluster.error());
  scene->cluster_ = std::move(*cluster);
  const auto ns = scene->plane_->Kubectl({"create", "namespace", scene->ns_});
  const auto account =
      scene->plane_->Kubectl({"-n", scene->ns_, "wait", "--for=create", "--timeout=60s", "serviceaccount/default"});
  if (ns.code != 0 || account.code != 0) return Fail(ErrorCode::kInternal, "no namespace: " + ns.err + account.err);
  return scene;
}

Result<std::unique_ptr<OperatorProcess>> Scene::StartOperator() {
  return OperatorProcess::Start(program_, plane_->kubeconfig(), flags_, plane_->dir() + "/logs/operator.log");
}

Status Scene::Create(Kind kind, const std::vector<json>& objects) {
  std::atomic<size_t> next{0};
  std::mutex mutex;  // guards failed
  Status failed;
  std::vector<std::thread> threads;
  for (int i = 0; i < connections_; ++i) {
    threads.emplace_back([&] {
      for (size_t at; (at = next++) < objects.size();) {
        const auto created = cluster_->Create(kind, objects[at]);
        if (created) continue;
        std::lock_guard lock(mutex);
        if (failed) failed = Fail(created.error());
        next = objects.size();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return failed;
}

Status Scene::Clear() {
  // A busy server may fail any of these; what counts is that everything is gone in the end.
  std::string last = "they are still there";
  for (int i = 0; i < 600; ++i) {
    const Status jobs = cluster_->DeleteCollection(Kind::kTrainingJob, {.ns = ns_}, std::nullopt);
    const Status pods = cluster_->DeleteCollection(Kind::kPod, {.ns = ns_}, 0);
    const auto no_pods = cluster_->List(Kind::kPod, {.ns = ns_, .limit = 1});
    const auto no_jobs = cluster_->List(Kind::kTrainingJob, {.ns = ns_, .limit = 1});
    if (no_pods && no_jobs && no_pods->items.empty() && no_jobs->items.empty()) return {};
    if (!jobs) last = jobs.error().message;
    if (!pods) last = pods.error().message;
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
  }
  return Fail(ErrorCode::kDeadlineExceeded, "jobs and pods of namespace " + ns_ + " do not go: " + last);
}

json Scene::Job(const std::string& name, int pods) const {
  return {{"apiVersion", "trainyard.dev/v1alpha1"},
          {"kind", "TrainingJob"},
          {"metadata", {{"name", name}, {"namespace", ns_}}},
          {"spec",
           {{"model", {{"parameters", "1B"}}},
            {"parallelism", {{"strategy", "FSDP"}}},
            {"training", {{"globalBatchSize", 1024}}},
            {"gpus", {{"count", pods}, {"perNode", 1}, {"nvlink", "Any"}}},
            {"image", "registry.example.com/bench:1"},
            {"command", {"train"}}}}};
}

json Scene::PinTo(int i) const {
  char node[32];
  std::snprintf(node, sizeof(node), "sim-%04d", i % nodes_);
  return {
      {"nodeAffinity",
       {{"requiredDuringSchedulingIgnoredDuringExecution",
         {{"nodeSelectorTerms",
           {{{"matchFields", {{{"key", "metadata.name"}, {"operator", "In"}, {"values", json::array({node})}}}}}}}}}}}};
}

Result<std::vector<json>> Scene::BareCopies() {
  const auto pods = cluster_->List(Kind::kPod, {.ns = ns_});
  if (!pods) return Fail(pods.error());
  std::vector<json> copies;
  for (const auto& item : pods->items) {
    json pod = {{"apiVersion", "v1"}, {"kind", "Pod"}, {"spec", item->at("spec")}};
    pod["metadata"] = {{"name", "bare-" + std::to_string(copies.size())}, {"namespace", ns_}};
    for (const char* kept : {"labels", "annotations"}) {
      if (item->at("metadata").contains(kept)) pod["metadata"][kept] = item->at("metadata").at(kept);
    }
    pod["spec"].erase("nodeName");
    pod["spec"].erase("schedulingGates");
    copies.push_back(std::move(pod));
  }
  return copies;
}

}  // namespace trainyard::bench
