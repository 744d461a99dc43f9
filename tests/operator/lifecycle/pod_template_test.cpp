// spec.podTemplate in the pods: it adds and never replaces, placement keeps to its constraints, and what placement
// counts is what kube-scheduler will count.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <random>

#include "operator/api/json.h"
#include "operator/cluster/snapshot.h"
#include "operator/lifecycle/pod_builder.h"
#include "operator/lifecycle/pod_template.h"
#include "tests/operator/lifecycle/scenario.h"

namespace trainyard::lifecycle {
namespace {

using nlohmann::json;
using testing::Contains;
using testing::HasSubstr;

// Reads the template as the operator does.
void SetTemplate(Scenario& s, const json& pods) {
  json object = {{"apiVersion", api::kApiVersion}, {"kind", api::kKind}, {"metadata", {{"name", "x"}}}};
  object["spec"] = api::SpecToJson(s.in.job.spec);
  object["spec"]["podTemplate"] = pods;
  auto job = api::JobFromJson(object);
  ASSERT_TRUE(job) << job.error().message;
  s.in.job.spec = job->spec;
}

// The pods that the first attempt creates, by rank; empty when there is no place.
std::vector<json> PodsOf(Scenario& s) {
  std::vector<json> pods;
  for (const Action& action : s.Step().actions) {
    if (action.kind == Action::Kind::kCreatePod) pods.push_back(action.object);
  }
  return pods;
}

json EnvOf(const json& pod) {
  json env;
  for (const json& entry : pod["spec"]["containers"][0]["env"]) {
    EXPECT_FALSE(env.contains(entry["name"])) << entry["name"] << " is set twice";
    env[entry["name"].get<std::string>()] = entry.value("value", "from elsewhere");
  }
  return env;
}

TEST(PodTemplate, PinsEveryTermOfTheUserAndIsReadBackWithIt) {
  Scenario s;
  s.in.nodes[0].labels["zone"] = "a";
  s.in.nodes[1].labels["zone"] = "b";
  SetTemplate(s, json::parse(R"({"spec": {
    "nodeSelector": {"zone": "b"},
    "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
      {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["node-0"]}]},
      {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["b", "c"]}]}]}}},
    "tolerations": [{"key": "dedicated", "operator": "Exists"}]}})"));
  const auto pods = PodsOf(s);
  ASSERT_EQ(pods.size(), 1u) << s.status().reason;
  const json& spec = pods[0]["spec"];
  EXPECT_EQ(spec["nodeSelector"], json({{"zone", "b"}}));
  const json pin = {{"key", "metadata.name"}, {"operator", "In"}, {"values", {"node-1"}}};
  const json& terms =
      spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"];
  ASSERT_EQ(terms.size(), 2u);
  for (const json& term : terms) EXPECT_EQ(term["matchFields"][0], pin);
  EXPECT_EQ(terms[0]["matchFields"].size(), 2u);
  EXPECT_EQ(terms[1]["matchExpressions"][0]["values"], json({"b", "c"}));
  EXPECT_EQ(spec["tolerations"].size(), 2u) << "ours and theirs";
  const auto pod = cluster::PodFromJson(pods[0]);
  ASSERT_TRUE(pod) << pod.error().message;
  EXPECT_EQ(pod->pinned_node, "node-1");
}

TEST(PodTemplate, ThatNoNodeFulfilsIsNamedAndHoldsNothing) {
  const std::vector<std::pair<const char*, const char*>> templates = {
      {R"({"spec": {"nodeSelector": {"zone": "z"}}})", "node selector zone=z"},
      {R"({"spec": {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In",
                                                    "values": ["elsewhere"]}]}]}}}}})",
       "node affinity metadata.name In [elsewhere]"},
      {R"({"spec": {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [{}]}}}}})",
       "node affinity"},
  };
  for (const auto& [text, said] : templates) {
    Scenario s;
    SetTemplate(s, json::parse(text));
    s.Steps();
    EXPECT_TRUE(s.in.pods.empty()) << text;
    EXPECT_FALSE(s.status().placement) << text;
    EXPECT_THAT(s.status().reason, HasSubstr(said));
  }
}

TEST(PodTemplate, AddsAndNeverReplacesWhatIsOurs) {
  Scenario s;
  SetTemplate(s, json::parse(R"({
    "metadata": {"labels": {"team": "a"}, "annotations": {"example.com/note": "b"}},
    "spec": {
      "serviceAccountName": "trainer", "automountServiceAccountToken": true, "hostNetwork": true,
      "imagePullSecrets": [{"name": "registry"}], "securityContext": {"runAsUser": 1000},
      "initContainers": [{"name": "warm", "image": "warm:1"}],
      "containers": [
        {"name": "logs", "image": "logs:1"},
        {"name": "trainer",
         "env": [{"name": "TOKEN", "valueFrom": {"secretKeyRef": {"name": "hub", "key": "token"}}},
                 {"name": "MASTER_ADDR", "value": "elsewhere"}],
         "envFrom": [{"configMapRef": {"name": "more"}}],
         "volumeMounts": [{"name": "keys", "mountPath": "/keys"}],
         "resources": {"requests": {"cpu": "16"}, "limits": {"memory": "900Gi", "rdma/hca": 1}},
         "securityContext": {"capabilities": {"add": ["IPC_LOCK"]}}}],
      "volumes": [{"name": "keys", "secret": {"secretName": "keys"}}]}})"));
  s.in.priority_classes = {{.name = "research", .value = 100}};
  s.in.job.spec.priority_class_name = "research";
  for (api::NodeSnapshot& node : s.in.nodes) {
    node.allocatable.insert({{"cpu", 64'000}, {"memory", 2ll << 40}, {"rdma/hca", 1}});
  }
  s.Step();
  ASSERT_TRUE(s.status().placement) << s.status().reason;
  s.in.job.spec.pod_template.labels["trainyard.dev/attempt"] = "99";  // as if nobody had checked
  const json pod = BuildPod(s.in.job, 0, s.options);
  EXPECT_EQ(pod["metadata"]["labels"]["team"], "a");
  EXPECT_EQ(pod["metadata"]["labels"]["trainyard.dev/attempt"], "1");
  EXPECT_EQ(pod["metadata"]["annotations"]["example.com/note"], "b");
  const json& spec = pod["spec"];
  EXPECT_EQ(spec["priorityClassName"], "research");
  EXPECT_EQ(spec["serviceAccountName"], "trainer");
  EXPECT_EQ(spec["automountServiceAccountToken"], true);
  EXPECT_EQ(spec["dnsPolicy"], "ClusterFirstWithHostNet");
  EXPECT_EQ(spec["restartPolicy"], "Never");
  EXPECT_EQ(spec["securityContext"]["runAsUser"], 1000);
  EXPECT_EQ(spec["securityContext"]["runAsNonRoot"], true);
  EXPECT_EQ(spec["initContainers"].size(), 1u);
  ASSERT_EQ(spec["containers"].size(), 2u);
  const json& trainer = spec["containers"][0];
  EXPECT_EQ(trainer["name"], "trainer");
  EXPECT_EQ(trainer["command"], json({"trainyard-launch"}));
  EXPECT_EQ(EnvOf(pod)["MASTER_ADDR"], "tj-tiny.default.svc");
  EXPECT_EQ(EnvOf(pod)["TOKEN"], "from elsewhere");
  EXPECT_EQ(trainer["envFrom"].size(), 1u);
  EXPECT_EQ(trainer["securityContext"]["capabilities"], json({{"drop", {"ALL"}}, {"add", {"IPC_LOCK"}}}));
  const json& resources = trainer["resources"];
  EXPECT_EQ(resources["requests"]["cpu"], "16000m");
  EXPECT_EQ(resources["requests"]["memory"], std::to_string(900ll << 30));
  EXPECT_EQ(resources["limits"], json({{"memory", "900Gi"}, {"nvidia.com/gpu", "2"}, {"rdma/hca", "1"}}));
  EXPECT_EQ(resources["requests"]["rdma/hca"], "1");
  EXPECT_THAT(trainer["volumeMounts"], Contains(json({{"name", "keys"}, {"mountPath", "/keys"}})));
  EXPECT_EQ(spec["volumes"].back()["name"], "keys");
}

TEST(PodTemplate, APrivilegedContainerMayEscalate) {
  Scenario s;
  SetTemplate(s, json::parse(R"({"spec": {"containers": [{"name": "trainer",
    "securityContext": {"privileged": true}}]}})"));
  const auto pods = PodsOf(s);
  ASSERT_EQ(pods.size(), 1u);
  const json& security = pods[0]["spec"]["containers"][0]["securityContext"];
  EXPECT_EQ(security["privileged"], true);
  EXPECT_FALSE(security.contains("allowPrivilegeEscalation")) << "Kubernetes refuses both together";
}

TEST(PodTemplate, WhatItAsksForIsWhatNodesMustHave) {
  Scenario s;
  SetTemplate(s, json::parse(R"({"spec": {"containers": [{"name": "trainer",
    "resources": {"limits": {"rdma/hca": 1}}}]}})"));
  for (api::NodeSnapshot& node : s.in.nodes) node.allocatable["rdma/hca"] = 0;
  s.Steps();
  EXPECT_TRUE(s.in.pods.empty());
  EXPECT_THAT(s.status().reason, HasSubstr("rdma/hca"));
  s.in.nodes[1].allocatable["rdma/hca"] = 1;
  s.Steps();
  ASSERT_EQ(s.in.pods.size(), 1u) << s.status().reason;
  EXPECT_EQ(s.in.pods[0].pinned_node, "node-1");
}

unsigned Seed() {
  const char* given = std::getenv("TRAINYARD_TEST_SEED");
  const unsigned seed = given != nullptr ? static_cast<unsigned>(std::atoi(given)) : 20260131;
  std::printf("seed %u (set TRAINYARD_TEST_SEED to change it)\n", seed);
  return seed;
}

json RandomResources(std::mt19937& rng) {
  json resources = json::object();
  for (const char* list : {"requests", "limits"}) {
    for (const auto& [name, amounts] : std::map<std::string, std::vector<const char*>>{
             {"cpu", {"500m", "3", "0.25"}}, {"memory", {"1Gi", "2e9", "3G"}}, {"rdma/hca", {"1", "4"}}}) {
      if (rng() % 2 == 0) resources[list][name] = amounts[rng() % amounts.size()];
    }
  }
  return resources;
}

TEST(PodTemplate, PlacementCountsWhatTheSchedulerWillCount) {
  std::mt19937 rng(Seed());
  for (int i = 0; i < 500; ++i) {
    json spec = {{"containers", json::array({{{"name", "trainer"}, {"resources", RandomResources(rng)}}})}};
    for (size_t k = rng() % 3; k > 0; --k) {
      spec["containers"].push_back(
          {{"name", "side" + std::to_string(k)}, {"image", "a"}, {"resources", RandomResources(rng)}});
    }
    for (size_t k = rng() % 4; k > 0; --k) {
      json container = {{"name", "init" + std::to_string(k)}, {"image", "a"}, {"resources", RandomResources(rng)}};
      if (rng() % 2 == 0) container["restartPolicy"] = "Always";
      spec["initContainers"].push_back(container);
    }
    Scenario s;
    for (api::NodeSnapshot& node : s.in.nodes) {
      node.allocatable.insert({{"cpu", 64'000}, {"memory", 2ll << 40}, {"rdma/hca", 100}});
    }
    SetTemplate(s, {{"spec", spec}});
    const auto pods = PodsOf(s);
    ASSERT_EQ(pods.size(), 1u) << s.status().reason;
    const auto pod = cluster::PodFromJson(pods[0]);
    ASSERT_TRUE(pod) << pod.error().message;
    auto counted = PodResources(2, s.in.job, *s.status().plan, *s.status().trainer);
    counted[api::kGpuResource] = 2;
    ASSERT_EQ(pod->requests, counted) << spec.dump(1);
  }
}

// A scenario whose product is a real one: its processes compute on GPUs and talk by NCCL.
Scenario OnGpus() {
  Scenario s;
  for (api::NodeSnapshot& node : s.in.nodes) {
    node.labels["nvidia.com/gpu.product"] = "NVIDIA-H100-80GB-HBM3";
    node.labels["nvidia.com/gpu.memory"] = "81559";
    node.allocatable.insert({{"cpu", 64'000}, {"memory", 2ll << 40}});
  }
  s.in.job.spec.gpus.count = 4;
  return s;
}

TEST(NcclEnvironment, FindsHangsAndSaysWhatIsWrong) {
  Scenario s = OnGpus();
  const auto pods = PodsOf(s);
  ASSERT_EQ(pods.size(), 2u) << s.status().reason;
  const json env = EnvOf(pods[0]);
  EXPECT_EQ(env["NCCL_DEBUG"], "WARN");
  EXPECT_EQ(env["TORCH_NCCL_DUMP_ON_TIMEOUT"], "1");
  EXPECT_TRUE(env.contains("TORCH_NCCL_TRACE_BUFFER_SIZE"));
  EXPECT_TRUE(env.contains("TORCH_FR_BUFFER_SIZE"));
  EXPECT_EQ(env["TORCH_NCCL_DEBUG_INFO_TEMP_FILE"], "/run/trainyard/nccl_trace_rank_");
  ASSERT_TRUE(s.status().placement);
  EXPECT_FALSE(s.status().placement->fabric.empty()) << "people see which profile it was";
  for (const auto& [name, value] : s.status().placement->environment) EXPECT_EQ(env[name], value) << name;
  Scenario cpu;
  EXPECT_FALSE(EnvOf(PodsOf(cpu)[0]).contains("NCCL_DEBUG")) << "nobody talks by NCCL there";
}

TEST(NcclEnvironment, OfTheUserWinsWhereverItIsSaid) {
  Scenario s = OnGpus();
  s.in.job.spec.env = {{"NCCL_DEBUG", "INFO"}};
  SetTemplate(s, json::parse(R"({"spec": {"containers": [{"name": "trainer",
    "env": [{"name": "TORCH_FR_BUFFER_SIZE", "value": "7"}, {"name": "NCCL_IB_HCA", "value": "mlx5_0"}]}]}})"));
  s.Step();
  ASSERT_TRUE(s.status().placement);
  s.in.job.status.placement->environment = {{"NCCL_IB_HCA", "mlx5"}, {"NCCL_CROSS_NIC", "2"}};
  const json env = EnvOf(BuildPod(s.in.job, 0, s.options));
  EXPECT_EQ(env["NCCL_DEBUG"], "INFO");
  EXPECT_EQ(env["TORCH_FR_BUFFER_SIZE"], "7");
  EXPECT_EQ(env["NCCL_IB_HCA"], "mlx5_0");
  EXPECT_EQ(env["NCCL_CROSS_NIC"], "2") << "what the claim froze";
}

TEST(NcclEnvironment, DevicesOfTheFabricAreAskedForByWholeNodesUnlessTheUserDoes) {
  const auto with_efa = [] {
    Scenario s = OnGpus();
    for (api::NodeSnapshot& node : s.in.nodes) node.allocatable["vpc.amazonaws.com/efa"] = 4;
    return s;
  };
  const auto asked = [](const json& pod) { return pod["spec"]["containers"][0]["resources"]; };
  Scenario s = with_efa();
  auto pods = PodsOf(s);
  ASSERT_EQ(pods.size(), 2u) << s.status().reason;
  EXPECT_EQ(s.status().placement->fabric, "EFA");
  EXPECT_EQ(asked(pods[0])["requests"]["vpc.amazonaws.com/efa"], "4");
  EXPECT_EQ(asked(pods[0])["limits"]["vpc.amazonaws.com/efa"], "4");
  EXPECT_THAT(s.status().reason, HasSubstr("; fabric EFA, each pod asks for 4 vpc.amazonaws.com/efa"));
  EXPECT_EQ(EnvOf(pods[0])["FI_PROVIDER"], "efa");
  EXPECT_EQ(EnvOf(pods[0])["NCCL_SOCKET_IFNAME"], "eth0");

  Scenario half = with_efa();
  half.in.job.spec.gpus.count = 2;
  half.in.job.spec.gpus.per_node = 1;
  pods = PodsOf(half);
  ASSERT_EQ(pods.size(), 2u) << half.status().reason;
  EXPECT_FALSE(asked(pods[0])["requests"].contains("vpc.amazonaws.com/efa")) << "its neighbour needs some as well";

  Scenario user = with_efa();
  SetTemplate(user, json::parse(R"({"spec": {"hostNetwork": true, "containers": [{"name": "trainer",
    "resources": {"limits": {"vpc.amazonaws.com/efa": 3}}}]}})"));
  pods = PodsOf(user);
  ASSERT_EQ(pods.size(), 2u) << user.status().reason;
  EXPECT_EQ(asked(pods[0])["requests"]["vpc.amazonaws.com/efa"], "3");
  EXPECT_FALSE(EnvOf(pods[0]).contains("NCCL_SOCKET_IFNAME")) << "the node's interfaces have other names";
}

}  // namespace
}  // namespace trainyard::lifecycle
