// The objects that one scenario creates, as they go to the API server. UPDATE_GOLDEN=1 rewrites the files.
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <sstream>

#include "operator/cluster/snapshot.h"
#include "operator/lifecycle/pod_builder.h"
#include "operator/placement/topology.h"
#include "tests/operator/lifecycle/scenario.h"

namespace trainyard::lifecycle {
namespace {

void Compare(const std::string& name, const nlohmann::json& object) {
  std::string path = std::string(TRAINYARD_SOURCE_DIR) + "/tests/golden/lifecycle/" + name + ".json";
  std::string text = object.dump(1) + "\n";
  if (std::getenv("UPDATE_GOLDEN") != nullptr) std::ofstream(path) << text;
  std::ifstream file(path);
  ASSERT_TRUE(file) << path << " is missing; UPDATE_GOLDEN=1 writes it";
  std::stringstream golden;
  golden << file.rdbuf();
  EXPECT_EQ(text, golden.str()) << path << " differs; UPDATE_GOLDEN=1 rewrites it";
}

Decision FourGpus(Scenario& s) {
  s.in.job.spec.gpus.count = 4;
  return Decide(s.in, s.options);
}

TEST(LifecycleGolden, ServiceAndPodsOfABundledTrainer) {
  Scenario s;
  Decision d = FourGpus(s);
  ASSERT_EQ(d.actions.size(), 3u);
  Compare("service", d.actions[0].object);
  Compare("pod_rank_1", d.actions[2].object);
  Compare("resolved_job", nlohmann::json::parse(
                              d.actions[1].object["metadata"]["annotations"]["trainyard.dev/job"].get<std::string>()));
}

TEST(LifecycleGolden, PodOfAUsersOwnImage) {
  Scenario s;
  s.in.job.spec.model = {.parameters = "125M"};
  s.in.job.spec.image = "registry.example.com/me/finetune:1";
  s.in.job.spec.command = {"torchrun", "train.py"};
  s.in.job.spec.parallelism.strategy = api::Strategy::kFsdp;
  s.in.job.spec.env = {{"NCCL_DEBUG", "INFO"}, {"WORLD_SIZE", "77"}};
  Decision d = FourGpus(s);
  ASSERT_EQ(d.actions.size(), 3u) << d.status.reason;
  Compare("pod_own_image", d.actions[1].object);
}

// Two whole nodes with RDMA, a template, and a queue's priority: all that a pod can get.
TEST(LifecycleGolden, PodOnGpusWithATemplate) {
  Scenario s;
  for (api::NodeSnapshot& node : s.in.nodes) {
    node.labels = {{"nvidia.com/gpu.product", "NVIDIA-H100-80GB-HBM3"},
                   {"nvidia.com/gpu.memory", "81559"},
                   {"zone", "a"},
                   {"example.com/rack", "r1"}};
    node.allocatable.insert({{"cpu", 64'000}, {"memory", 2ll << 40}, {"rdma/hca", 2}});
  }
  s.options.yard.topology = placement::Topology::Parse("zone=zone,rack=example.com/rack").value();
  s.in.priority_classes = {{.name = "research", .value = 100}};
  s.in.job.spec.priority_class_name = "research";
  s.in.job.spec.pod_template = {
      .labels = {{"team", "language"}},
      .nodes = {.node_selector = {{"zone", "a"}},
                .affinity = {{.expressions = {{"zone", "In", {"a", "b"}}}}},
                .tolerations = {{"dedicated", "Equal", "training", "NoSchedule"}}},
      .rest = R"({"imagePullSecrets": [{"name": "registry"}], "initContainers": [{"name": "warm", "image": "warm:1"}],
                  "containers": [{"name": "trainer", "volumeMounts": [{"name": "keys", "mountPath": "/keys"}],
                                  "securityContext": {"capabilities": {"add": ["IPC_LOCK"]}}}],
                  "volumes": [{"name": "keys", "secret": {"secretName": "keys"}}]})"};
  Decision d = FourGpus(s);
  ASSERT_EQ(d.actions.size(), 3u) << d.status.reason;
  Compare("pod_on_gpus", d.actions[2].object);
}

TEST(LifecycleGolden, PodsReadBackAsTheyWereMeant) {
  Scenario s;
  Decision d = FourGpus(s);
  ASSERT_EQ(d.actions.size(), 3u);
  auto pod = cluster::PodFromJson(d.actions[2].object);
  ASSERT_TRUE(pod) << pod.error().message;
  EXPECT_EQ(pod->job_uid, s.in.job.meta.uid);
  EXPECT_EQ(pod->owner_uid, s.in.job.meta.uid);
  EXPECT_EQ(pod->attempt, 1);
  EXPECT_EQ(pod->node_rank, 1);
  EXPECT_TRUE(pod->gated);
  EXPECT_FALSE(pod->foreign_gate);
  EXPECT_EQ(pod->pinned_node, "node-1");
  EXPECT_EQ(pod->gpus, 2);
  for (const auto& [resource, amount] : PodResources(2, s.in.job, *d.status.plan, *d.status.trainer)) {
    EXPECT_EQ(pod->requests[resource], amount);
  }
}

TEST(PodResources, HostMemoryHoldsTheCopyThatASaveMakes) {
  constexpr int64_t kGiB = 1ll << 30;
  api::TrainingJob job;
  api::PlanStatus plan;
  plan.gpus = 8;
  plan.product = "H100-SXM";
  plan.checkpoint_bytes = 80 * kGiB;
  plan.bytes_per_gpu = 60 * kGiB;
  const api::TrainerStatus trainer{.image = "t", .cpu_milli_per_gpu = 500, .memory_bytes_per_gpu = 2 * kGiB};
  using Wanted = std::map<std::string, int64_t>;
  EXPECT_EQ(PodResources(4, job, plan, trainer), (Wanted{{"cpu", 2000}, {"memory", 4 * (2 + 10) * kGiB}}));
  job.spec.training.device = api::DeviceKind::kCpu;  // then the model is there too
  EXPECT_EQ(PodResources(4, job, plan, trainer).at("memory"), 4 * (2 + 10 + 60) * kGiB);
  // What is offloaded counts for the pod: on the node's own disk too, but not on a volume of the job's.
  plan.host_bytes_per_gpu = 3 * kGiB;
  plan.disk_bytes_per_gpu = 7 * kGiB;
  EXPECT_EQ(PodResources(4, job, plan, trainer), (Wanted{{"cpu", 2000}, {"memory", 4 * (2 + 10 + 60 + 3) * kGiB}}));
  job.spec.parallelism = {.offload = api::OffloadTo::kNvme, .offload_volume = "scratch"};
  job.spec.volumes = {{.name = "scratch", .host_path = "/mnt/nvme"}, {.name = "other", .empty_dir = true}};
  EXPECT_FALSE(PodResources(4, job, plan, trainer).contains("ephemeral-storage"));
  job.spec.volumes = {{.name = "scratch", .empty_dir = true}};
  EXPECT_EQ(PodResources(4, job, plan, trainer).at("ephemeral-storage"), 4 * 7 * kGiB);
  job.spec.image = "me/train:1";  // who knows what it saves
  EXPECT_EQ(PodResources(4, job, plan, trainer).at("memory"), 4 * 2 * kGiB);
}

}  // namespace
}  // namespace trainyard::lifecycle
