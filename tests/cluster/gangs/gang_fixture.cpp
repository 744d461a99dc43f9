#include "tests/cluster/gangs/gang_fixture.h"

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "operator/cluster/cluster.h"
#include "trainer/contract/contract.h"

namespace trainyard::gangs {

using cluster::Kind;

namespace {

Seconds SystemSeconds() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

}  // namespace

void GangTest::SetUp() {
  FaultTest::SetUp();
  rules_.since = SystemSeconds();
}

void GangTest::TearDown() {
  if (IsSkipped()) return;
  FaultTest::TearDown();
  nodes_.reset();
  const GangHistory history = History();
  EXPECT_TRUE(history.breaches.empty()) << history.Summary();
  if (!history.breaches.empty()) {
    const auto kept = std::filesystem::temp_directory_path() / ("trainyard-audit-" + std::to_string(getpid()) + ".log");
    std::filesystem::copy_file(plane().dir() + "/logs/audit.log", kept,
                               std::filesystem::copy_options::overwrite_existing);
    std::printf("the whole history is kept in %s\n", kept.c_str());
  }
  std::printf("history: %s\n", history.Totals().c_str());
}

void GangTest::MakeNodes(int count, faults::KubeletHabits habits) {
  static int made = 0;
  const std::string prefix = "gang" + std::to_string(++made) + "-";
  auto nodes = faults::SimulatedNodes::Start(direct(), count, prefix, gpu());
  ASSERT_TRUE(nodes) << nodes.error().message;
  nodes_ = *std::move(nodes);
  habits.serves = [this](const std::string& node) { return nodes_->Serves(node); };
  kubelet_.reset();
  kubelet_ = std::make_unique<faults::SimulatedKubelet>(direct(), ns_, std::move(habits));
}

void GangTest::StartWatching() {
  StartOperator();
  AwaitWatching();
}

void GangTest::SubmitGang(const std::string& name, int pods, int per_node, const json& more) {
  json job = {{"apiVersion", "trainyard.dev/v1alpha1"},
              {"kind", "TrainingJob"},
              {"metadata", {{"namespace", ns_}, {"name", name}}},
              {"spec",
               {{"model", {{"parameters", "125M"}}},
                {"parallelism", {{"strategy", "FSDP"}}},
                {"gpus",
                 {{"count", pods * per_node},
                  {"perNode", per_node},
                  {"nvlink", "Any"},
                  {"products", json::array({gpu().product})}}},
                {"image", "example.com/me/it:1"},
                {"command", {"train"}}}}};
  job["spec"].merge_patch(more);
  const auto created = direct().Create(Kind::kTrainingJob, job);
  ASSERT_TRUE(created) << created.error().message;
}

void GangTest::PatchSpec(const std::string& name, const json& spec) {
  const auto patched =
      direct().Patch(Kind::kTrainingJob, {ns_, name}, cluster::PatchType::kMerge, {{"spec", spec}}, false);
  ASSERT_TRUE(patched) << patched.error().message;
}

void GangTest::Finish(const std::string& name, int exit_code) {
  const std::string uid = cluster::UidOf(JobNow(name));
  const Status finished =
      kubelet_->Finish(exit_code, [&](const json& pod) { return cluster::ControllerUidOf(pod) == uid; });
  ASSERT_TRUE(finished.has_value()) << finished.error().message;
}

std::vector<std::string> GangTest::NodesOf(const json& job) const {
  std::vector<std::string> names;
  for (const json& placed : job.value("/status/placement/nodes"_json_pointer, json::array())) {
    names.push_back(placed.at("node"));
  }
  return names;
}

json GangTest::AwaitUp(const std::string& name, int64_t attempt) {
  const json job = AwaitRunning(name, attempt);
  const std::vector<std::string> wanted = NodesOf(job);
  for (const json& pod : kubelet_->Snapshot()) {
    if (cluster::ControllerUidOf(pod) != cluster::UidOf(job)) continue;
    if (cluster::LabelOf(pod, contract::kLabelAttempt) != std::to_string(attempt)) continue;
    const auto rank = std::stoul(cluster::LabelOf(pod, contract::kLabelNodeRank));
    EXPECT_EQ(pod.at("spec").value("nodeName", ""), wanted.at(rank)) << cluster::KeyOf(pod).name;
  }
  return job;
}

json GangTest::AwaitReason(const std::string& name) {
  return AwaitJob(
      name, [](const json& job) { return job.is_object() && !job.value("/status/reason"_json_pointer, "").empty(); });
}

int64_t GangTest::Paid(const std::string& name) {
  const json restarts = JobNow(name)["status"].value("restarts", json::object());
  return restarts.value("user", int64_t{0}) + restarts.value("infrastructure", int64_t{0});
}

void GangTest::KillOperator() {
  rules_.kills.push_back(SystemSeconds());
  operator_->Kill();
  StartOperator();
}

void GangTest::TakeGpus(const std::string& name, const std::string& node, int gpus) {
  const json pod = {{"apiVersion", "v1"},
                    {"kind", "Pod"},
                    {"metadata", {{"namespace", ns_}, {"name", name}}},
                    {"spec",
                     {{"nodeName", node},
                      {"containers",
                       {{{"name", "c"},
                         {"image", "example.com/other:1"},
                         {"resources", {{"limits", {{"nvidia.com/gpu", std::to_string(gpus)}}}}}}}}}}};
  const auto created = direct().Create(Kind::kPod, pod);
  ASSERT_TRUE(created) << created.error().message;
}

void GangTest::SetQuota(int gpus) {
  const std::string hard = std::to_string(gpus);
  const json quota = {{"apiVersion", "v1"},
                      {"kind", "ResourceQuota"},
                      {"metadata", {{"name", "gpus"}}},
                      {"spec", {{"hard", {{"requests.nvidia.com/gpu", hard}}}}}};
  plane().MustKubectl({"-n", ns_, "apply", "-f", "-"}, quota.dump());
  plane().MustKubectl({"-n", ns_, "wait", "--for=jsonpath={.status.hard.requests\\.nvidia\\.com/gpu}=" + hard,
                       "--timeout=60s", "resourcequota/gpus"});
}

GangHistory GangTest::History() {
  // Lines come a moment after the answers. Once this write is there, all that was answered before it is.
  const json mark = {{"apiVersion", "v1"}, {"kind", "Node"}, {"metadata", {{"generateName", "end-of-history-"}}}};
  const auto made = direct().Create(Kind::kNode, mark);
  EXPECT_TRUE(made) << made.error().message;
  if (!made) return {};
  const std::string name = cluster::KeyOf(*made).name, uid = cluster::UidOf(*made);
  (void)direct().Delete(Kind::kNode, {"", name}, {});
  std::string text;
  EXPECT_TRUE(Eventually([&] {
    std::ostringstream whole;
    whole << std::ifstream(plane().dir() + "/logs/audit.log").rdbuf();
    text = whole.str();
    const size_t at = text.find(uid);
    return at != std::string::npos && text.find('\n', at) != std::string::npos;
  })) << "the audit log does not come up to now";
  std::istringstream log(text);
  const auto writes = ReadAuditLog(log);
  EXPECT_TRUE(writes) << writes.error().message;
  return writes ? Replay(*writes, rules_) : GangHistory();
}

}  // namespace trainyard::gangs
