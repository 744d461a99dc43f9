#include "tests/cluster/faults/fault_fixture.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <map>
#include <thread>

#include "operator/kube/config.h"
#include "trainer/contract/contract.h"

namespace trainyard::faults {

using cluster::Kind;
using cluster::ObjectKey;

namespace {

// Lives from the first test to the end of the program.
struct World {
  std::unique_ptr<cluster_test::ControlPlane> own_plane;
  cluster_test::ControlPlane* plane = nullptr;
  kube::Config config;
  std::unique_ptr<kube::KubeCluster> direct;
  GpuModel gpu;
  std::unique_ptr<SimulatedNodes> nodes;
};
World world;

// A product for each program, since several may run at once: a job must not land on nodes that go with another program.
struct Setting {
  GpuModel gpu;
  int nodes = 4;
  bool audit = false;  // a control plane of its own, which writes down all that happens to pods, nodes and jobs
};
Setting SettingOfThisProgram() {
  const std::map<std::string, Setting> settings = {
      {"fault_calls_test", {{"RTX-3090", "NVIDIA-GeForce-RTX-3090"}}},
      {"fault_watches_test", {{"RTX-4090", "NVIDIA-GeForce-RTX-4090"}}},
      {"fault_lists_test", {{"RTX-5090", "NVIDIA-GeForce-RTX-5090"}}},
      {"fault_outages_test", {{"A30", "NVIDIA-A30"}}},
      {"gang_cluster_test", {.gpu = {"A100-80GB-SXM", "NVIDIA-A100-SXM4-80GB"}, .nodes = 0, .audit = true}}};
  return settings.at(program_invocation_short_name);
}

class Ending : public testing::Environment {
  void TearDown() override {
    world.nodes.reset();
    world.direct.reset();
    world.own_plane.reset();
  }
};
const testing::Environment* const kEnding = testing::AddGlobalTestEnvironment(new Ending);

Status Build() {
  const Setting setting = SettingOfThisProgram();
  if (setting.audit) {
    auto own = cluster_test::ControlPlane::Start({"--audit-objects"});
    if (!own) return Fail(own.error());
    world.own_plane = *std::move(own);
    world.plane = world.own_plane.get();
  } else {
    auto shared = cluster_test::ControlPlane::Shared();
    if (!shared) return Fail(shared.error());
    world.plane = *shared;
  }
  auto config = kube::LoadConfig(world.plane->kubeconfig());
  if (!config) return Fail(config.error());
  world.config = *std::move(config);
  kube::KubeOptions options;
  options.qps = 0;
  options.user_agent = "fault-tests";
  auto direct = kube::KubeCluster::Connect(world.config, options);
  if (!direct) return Fail(direct.error());
  world.direct = *std::move(direct);
  world.gpu = setting.gpu;
  auto nodes =
      SimulatedNodes::Start(*world.direct, setting.nodes, "faults-" + std::to_string(getpid()) + "-", world.gpu);
  if (!nodes) return Fail(nodes.error());
  world.nodes = *std::move(nodes);
  return {};
}

std::string Tail(const std::string& text, size_t bytes) {
  return text.size() > bytes ? "..." + text.substr(text.size() - bytes) : text;
}

}  // namespace

std::string PhaseOf(const json& job) {
  return job.is_object() && job.contains("status") ? job["status"].value("phase", "") : "";
}
int64_t AttemptOf(const json& job) {
  return job.is_object() && job.contains("status") ? job["status"].value("attempt", int64_t{0}) : 0;
}

void FaultTest::SetUp() {
  if (!world.direct) {
    const Status built = Build();
    const bool cannot = !built && built.error().code == ErrorCode::kFailedPrecondition;
    if (cannot && !cluster_test::ClusterRequired()) GTEST_SKIP() << built.error().message;
    ASSERT_TRUE(built.has_value()) << built.error().message;
  }
  ns_ = world.plane->FreshNamespace("faults");
  std::string made = (std::filesystem::temp_directory_path() / "trainyard-faults-XXXXXX").string();
  ASSERT_NE(mkdtemp(made.data()), nullptr);
  directory_ = made;
  proxy_ = NewProxy();
  ASSERT_TRUE(proxy_);
  kubelet_ = std::make_unique<SimulatedKubelet>(direct(), ns_);
  jobs_ = std::make_unique<cluster::Informer<json>>(direct(), Kind::kTrainingJob, cluster::ListWatchOptions{ns_, ""},
                                                    [](const json& job) -> Result<json> { return job; });
  jobs_->Start();
}

void FaultTest::TearDown() {
  if (operator_) {
    EXPECT_TRUE(operator_->Running()) << "the operator has died";
    EXPECT_EQ(operator_->Terminate(Milliseconds(30'000)), 0) << "exit code after SIGTERM";
  }
  if (HasFailure() && proxy_ && operator_) {
    std::fprintf(stderr, "---- calls\n%s---- log of the operator\n%s\n", proxy_->Transcript().c_str(),
                 Tail(operator_->Log(), 8'000).c_str());
  }
  operator_.reset();
  if (jobs_) {
    for (const auto& job : jobs_->List()) (void)direct().Delete(Kind::kTrainingJob, cluster::KeyOf(*job), {});
    jobs_->Stop();
    // Pods of the namespace hold GPUs until they are gone; with nobody to manage them they go with their owner.
    (void)direct().DeleteCollection(Kind::kPod, {ns_, ""}, 0);
    EXPECT_TRUE(kubelet_->AwaitPods(kPatience, [](const auto& pods) { return pods.empty(); }));
  }
  kubelet_.reset();
  proxy_.reset();
  if (!directory_.empty()) std::filesystem::remove_all(directory_);
}

cluster::Cluster& FaultTest::direct() { return *world.direct; }
const GpuModel& FaultTest::gpu() const { return world.gpu; }
cluster_test::ControlPlane& FaultTest::plane() const { return *world.plane; }

std::unique_ptr<FaultProxy> FaultTest::NewProxy() {
  auto proxy = FaultProxy::Start(world.config);
  EXPECT_TRUE(proxy.has_value()) << proxy.error().message;
  return proxy ? *std::move(proxy) : nullptr;
}

std::unique_ptr<OperatorProcess> FaultTest::NewOperator(const std::string& name) const {
  return std::make_unique<OperatorProcess>(directory_, name);
}

std::vector<std::string> FaultTest::Flags(std::vector<std::string> more) const {
  std::vector<std::string> flags = {"--namespace=" + ns_,
                                    "--kube-api-timeout=" + std::to_string(kApiTimeout.count()) + "ms",
                                    "--watch-timeout=" + std::to_string(kWatchTime.count()) + "ms",
                                    "--watch-idle-timeout=" + std::to_string(kWatchIdle.count()) + "ms",
                                    "--trainer-image=trainer:1",
                                    "--log-level=debug"};
  flags.insert(flags.end(), more.begin(), more.end());
  return flags;
}

void FaultTest::StartOperator(const std::vector<std::string>& flags) {
  operator_ = NewOperator("operator");
  const Status started = operator_->Start(proxy_->url(), token_file_, Flags(flags));
  ASSERT_TRUE(started.has_value()) << started.error().message;
}

void FaultTest::AwaitWatching() {
  const size_t before = proxy_->calls().size();
  for (const char* resource : {"trainingjobs", "pods", "nodes", "services"}) {
    ASSERT_TRUE(proxy_->AwaitCount(kPatience, 1,
                                   [&](const Call& call) { return call.Is("watch", resource) && call.status == 200; }))
        << resource << " are not watched, after " << before << " calls";
  }
}

void FaultTest::RestartOperator() {
  ASSERT_EQ(operator_->Terminate(Milliseconds(30'000)), 0);
  StartOperator();
}

std::string FaultTest::Submit(const std::string& name, int pods) {
  const json job = {{"apiVersion", "trainyard.dev/v1alpha1"},
                    {"kind", "TrainingJob"},
                    {"metadata", {{"namespace", ns_}, {"name", name}}},
                    {"spec",
                     {{"model", {{"parameters", "125M"}}},
                      {"parallelism", {{"strategy", "FSDP"}}},
                      {"gpus", {{"count", 2 * pods}, {"perNode", 2}, {"products", json::array({world.gpu.product})}}},
                      {"image", "example.com/me/it:1"},
                      {"command", {"train"}}}}};
  const Result<json> created = direct().Create(Kind::kTrainingJob, job);
  EXPECT_TRUE(created.has_value()) << created.error().message;
  return created ? cluster::UidOf(*created) : "";
}

json FaultTest::JobNow(const std::string& name) {
  const Result<json> job = direct().Get(Kind::kTrainingJob, {ns_, name});
  return job ? *job : json();
}

std::string FaultTest::PodOf(const std::string& name, int rank) {
  const json job = JobNow(name);
  for (const json& pod : kubelet_->Snapshot()) {
    const bool same = cluster::ControllerUidOf(pod) == cluster::UidOf(job) &&
                      cluster::LabelOf(pod, contract::kLabelAttempt) == std::to_string(AttemptOf(job)) &&
                      cluster::LabelOf(pod, contract::kLabelNodeRank) == std::to_string(rank);
    if (same) return cluster::KeyOf(pod).name;
  }
  ADD_FAILURE() << name << " has no pod of rank " << rank;
  return "";
}

json FaultTest::AwaitJob(const std::string& name, const std::function<bool(const json&)>& condition,
                         Milliseconds timeout) {
  json last;
  const bool met = jobs_->WaitFor(timeout, [&](const auto& jobs) {
    const auto found = jobs.find(ObjectKey{ns_, name});
    last = found == jobs.end() ? json() : *found->second;
    return condition(last);
  });
  EXPECT_TRUE(met) << name << " did not get there: " << (last.is_object() ? last.value("status", json()).dump(1) : "");
  return last;
}

json FaultTest::AwaitPhase(const std::string& name, const std::string& phase, Milliseconds timeout) {
  return AwaitJob(name, [&](const json& job) { return PhaseOf(job) == phase; }, timeout);
}

json FaultTest::AwaitRunning(const std::string& name, int64_t attempt, Milliseconds timeout) {
  return AwaitJob(
      name, [&](const json& job) { return PhaseOf(job) == "Running" && AttemptOf(job) == attempt; }, timeout);
}

void FaultTest::ExpectPodsOnce(const std::string& name, int pods, int64_t attempts) {
  const std::string uid = cluster::UidOf(JobNow(name));
  std::vector<std::string> live, wanted, ever, possible;
  for (const json& pod : kubelet_->Snapshot()) {
    if (cluster::ControllerUidOf(pod) != uid) continue;
    live.push_back(cluster::LabelOf(pod, contract::kLabelAttempt) + "/" +
                   cluster::LabelOf(pod, contract::kLabelNodeRank));
  }
  for (int rank = 0; rank < pods; ++rank) wanted.push_back(std::to_string(attempts) + "/" + std::to_string(rank));
  // Pods of a failed attempt stay for a while for their logs.
  std::erase_if(live, [&](const std::string& pod) { return !pod.starts_with(std::to_string(attempts) + "/"); });
  std::sort(live.begin(), live.end());
  EXPECT_EQ(live, wanted) << "pods of " << name;
  for (const auto& [pod_uid, pod] : kubelet_->Seen()) {
    if (pod.starts_with(name + "-")) ever.push_back(pod);
  }
  std::sort(ever.begin(), ever.end());
  EXPECT_EQ(ever.size(), static_cast<size_t>(pods) * static_cast<size_t>(attempts))
      << "pods that ever were: " << testing::PrintToString(ever);
  EXPECT_EQ(std::adjacent_find(ever.begin(), ever.end()), ever.end()) << "a pod was made twice";
  EXPECT_EQ(AttemptOf(JobNow(name)), attempts);
}

void FaultTest::ExpectRunsToTheEnd(const std::string& name) {
  if (!JobNow(name).is_object()) Submit(name);
  AwaitRunning(name, 1);
  ExpectPodsOnce(name);
  const Status finished = kubelet_->Finish(0);
  ASSERT_TRUE(finished.has_value()) << finished.error().message;
  const json job = AwaitPhase(name, "Succeeded");
  const json restarts = job["status"].value("restarts", json::object());
  EXPECT_EQ(restarts.value("user", 0) + restarts.value("infrastructure", 0), 0);
}

bool FaultTest::Eventually(const std::function<bool()>& condition, Milliseconds timeout) const {
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  while (!condition()) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    std::this_thread::sleep_for(Milliseconds(50));
  }
  return true;
}

size_t FaultTest::CallsWithin(Milliseconds window, const When& which) const {
  const Moment start = std::chrono::steady_clock::now();
  // The passing of time is the condition here: what must not happen can only be waited out.
  (void)proxy_->Await(window, [](const auto&) { return false; });
  return proxy_->Count([&](const Call& call) { return call.when >= start && which(call); });
}

}  // namespace trainyard::faults
