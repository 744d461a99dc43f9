// Many jobs at once over many nodes and foreign pods, in memory: what the controller writes, and that no GPU is given
// out twice.
#include <map>

#include <gtest/gtest.h>

#include "operator/cluster/informer.h"
#include "operator/controller/controller.h"
#include "tests/operator/runtime/store_cluster.h"

namespace trainyard::controller {
namespace {

using cluster::Kind;
using nlohmann::json;

constexpr Milliseconds kPatience{100'000};
constexpr int kNodes = 64;
constexpr int kGpusPerNode = 8;
constexpr int kJobs = 40;
constexpr int kPodsPerJob = 8;
constexpr int kForeignPods = 2000;

class NoProgress : public cluster::ProgressSource {
 public:
  Result<json> Read(const api::PodSnapshot&) override { return Fail(ErrorCode::kNotFound, "no program runs here"); }
};

class ScaleTest : public testing::Test {
 protected:
  using Objects = std::map<cluster::ObjectKey, std::shared_ptr<const json>>;

  ScaleTest()
      : pods_(cluster_, Kind::kPod, {}, [](const json& pod) { return Result<json>(pod); }),
        jobs_(cluster_, Kind::kTrainingJob, {}, [](const json& job) { return Result<json>(job); }) {
    for (int i = 0; i < kNodes; ++i) {
      const std::string gpus = std::to_string(kGpusPerNode);
      const json node = {
          {"metadata",
           {{"name", "node-" + std::to_string(i)}, {"labels", {{"nvidia.com/gpu.product", "NVIDIA-H100-80GB-HBM3"}}}}},
          {"status",
           {{"conditions", json::array({{{"type", "Ready"}, {"status", "True"}}})},
            {"allocatable", {{"cpu", "64"}, {"memory", "512Gi"}, {"pods", "110"}, {"nvidia.com/gpu", gpus}}}}}};
      EXPECT_TRUE(cluster_.store().Create(Kind::kNode, node).has_value());
      SetStatus(Kind::kNode, {"", "node-" + std::to_string(i)}, node["status"]);
    }
    for (int i = 0; i < kForeignPods; ++i) {
      const json pod = {
          {"metadata", {{"namespace", "others"}, {"name", "p" + std::to_string(i)}}},
          {"spec",
           {{"nodeName", "node-" + std::to_string(i % kNodes)},
            {"containers",
             json::array({{{"name", "c"}, {"image", "i"}, {"resources", {{"requests", {{"cpu", "10m"}}}}}}})}}}};
      EXPECT_TRUE(cluster_.store().Create(Kind::kPod, pod).has_value());
    }
    // What scheduler and kubelet do: a pod without gates runs where it is pinned.
    pods_.AddHandler([this](const cluster::ObjectKey& key, const auto&, const auto& now) {
      if (now && key.ns == "default") OnPod(key, *now);
    });
    pods_.Start();
    jobs_.Start();
  }
  ~ScaleTest() override {
    controller_.reset();
    pods_.Stop();
    jobs_.Stop();
  }

  void SetStatus(Kind kind, const cluster::ObjectKey& key, const json& status) {
    EXPECT_TRUE(cluster_.store().Edit(kind, key, "", [&](json& object) { object["status"] = status; }).has_value());
  }
  void OnPod(const cluster::ObjectKey& key, const json& pod) {
    if (!pod["spec"].value("schedulingGates", json::array()).empty() || pod["spec"].contains("nodeName")) return;
    const json& terms = pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"];
    const json node = terms["nodeSelectorTerms"][0]["matchFields"][0]["values"][0];
    (void)cluster_.store().Edit(Kind::kPod, key, cluster::UidOf(pod), [&](json& object) {
      object["spec"]["nodeName"] = node;
      object["status"]["phase"] = "Running";
    });
  }
  void StartController() {
    controller_ = std::make_unique<Controller>(cluster_, progress_, clock_, ControllerOptions());
    const Status started = controller_->Start();
    ASSERT_TRUE(started.has_value()) << started.error().message;
  }
  void CreateJob(const std::string& name) {
    const json job = {{"metadata", {{"namespace", "default"}, {"name", name}}},
                      {"spec",
                       {{"model", {{"parameters", "1B"}}},
                        {"parallelism", {{"strategy", "FSDP"}}},
                        {"gpus", {{"count", kPodsPerJob}, {"perNode", 1}}},
                        {"image", "me/it:1"}}}};
    ASSERT_TRUE(cluster_.store().Create(Kind::kTrainingJob, job).has_value());
  }
  bool AwaitPhases(const std::string& phase, size_t count) {
    return jobs_.WaitFor(kPatience, [&](const Objects& jobs) {
      size_t there = 0;
      for (const auto& [key, job] : jobs) {
        there += job->contains("status") && (*job)["status"].value("phase", "") == phase ? 1 : 0;
      }
      return there == count;
    });
  }

  const RealClock clock_;
  runtime::StoreCluster cluster_{clock_};
  NoProgress progress_;
  cluster::Informer<json> pods_;
  cluster::Informer<json> jobs_;
  std::unique_ptr<Controller> controller_;
};

TEST_F(ScaleTest, FortyGangsOfEightRunWithFewWritesAndNoGpuGivenOutTwice) {
  StartController();
  for (int i = 0; i < kJobs; ++i) CreateJob("job-" + std::to_string(i));
  ASSERT_TRUE(AwaitPhases("Running", kJobs));
  constexpr int pods = kJobs * kPodsPerJob;
  std::map<std::string, int> used;
  ASSERT_TRUE(pods_.WaitFor(kPatience, [&](const Objects& all) {
    used.clear();
    int bound = 0;
    for (const auto& [key, pod] : all) {
      if (key.ns != "default" || !(*pod)["spec"].contains("nodeName")) continue;
      ++bound;
      ++used[(*pod)["spec"]["nodeName"]];
    }
    return bound == pods;
  }));
  for (const auto& [node, gpus] : used) EXPECT_LE(gpus, kGpusPerNode) << node;
  controller_->Stop();
  EXPECT_EQ(cluster_.writes(Kind::kPod), 2 * pods) << "one create and one un-gate of each";
  EXPECT_EQ(cluster_.writes(Kind::kService), kJobs);
  // Claimed, started, running; a gang that is half up for long may say what it waits for.
  EXPECT_LE(cluster_.writes(Kind::kTrainingJob), 5 * kJobs);
  EXPECT_EQ(cluster_.writes(Kind::kNode) + cluster_.writes(Kind::kLease), 0);
  EXPECT_EQ(controller_->counters().conflicts, 0u);
}

TEST_F(ScaleTest, JobsThatWaitAndJobsThatRunCauseNoWrites) {
  StartController();
  constexpr int kFit = kNodes * kGpusPerNode / kPodsPerJob;
  for (int i = 0; i < kFit + 10; ++i) CreateJob("job-" + std::to_string(i));
  ASSERT_TRUE(AwaitPhases("Running", kFit));
  ASSERT_TRUE(AwaitPhases("Queued", 10));
  controller_->Stop();
  // A new operator on the same cluster finds nothing to do.
  const int before = cluster_.writes();
  StartController();
  const auto looked = [&] { return controller_->counters().reconciles >= kFit + 10u; };
  const auto deadline = std::chrono::steady_clock::now() + kPatience;
  while (!looked() && std::chrono::steady_clock::now() < deadline) std::this_thread::yield();
  EXPECT_TRUE(looked());
  controller_->Stop();
  EXPECT_EQ(cluster_.writes(), before);
}

}  // namespace
}  // namespace trainyard::controller
