// The controller with the real lifecycle over a local cluster whose pods are small shell programs.
#include "operator/controller/controller.h"

#include <signal.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <mutex>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "operator/cluster/snapshot.h"
#include "operator/kube/api_error.h"
#include "operator/local/local_cluster.h"
#include "operator/runtime/fenced_cluster.h"
#include "operator/runtime/metrics.h"
#include "trainer/contract/contract.h"

namespace trainyard::controller {
namespace {

using cluster::Kind;
using nlohmann::json;

constexpr Milliseconds kPatience{60'000};
// Runs until it is told to stop, and then stops as the contract says.
constexpr const char* kRunUntilStopped = "trap 'exit 10' TERM; sleep 1000 & wait";

// Answers creates of pods as an API server would: HTTP status and message per pod; 0 lets it pass.
class StrictCluster : public runtime::FencedCluster {
 public:
  using Answer = std::function<std::pair<int, std::string>(const json& pod)>;
  explicit StrictCluster(cluster::Cluster& cluster) : FencedCluster(cluster, [] { return true; }) {}
  void Set(Answer answer) {
    std::lock_guard lock(mutex_);
    answer_ = std::move(answer);
  }
  Result<json> Create(Kind kind, const json& object) override {
    if (kind == Kind::kPod) {
      const std::string name = object["metadata"]["name"];
      std::lock_guard lock(mutex_);
      const auto [status, message] = answer_ ? answer_(object) : std::pair<int, std::string>();
      const json body = {{"kind", "Status"}, {"reason", "Forbidden"}, {"message", message}};
      if (status != 0) return Fail(kube::ErrorOfAnswer(status, body.dump(), "create pods default/" + name, false));
    }
    return FencedCluster::Create(kind, object);
  }

 private:
  std::mutex mutex_;  // guards answer_
  Answer answer_;
};

class ControllerTest : public testing::Test {
 protected:
  ControllerTest() {
    std::string directory = (std::filesystem::temp_directory_path() / "trainyard-controller-XXXXXX").string();
    EXPECT_NE(mkdtemp(directory.data()), nullptr);
    directory_ = directory;
  }
  ~ControllerTest() override {
    controller_.reset();
    cluster_.reset();
    std::filesystem::remove_all(directory_);
  }

  void StartCluster(int nodes, int64_t gpus_per_node) {
    local::LocalOptions options;
    options.state_dir = directory_ / "state";
    options.nodes = nodes;
    options.gpus_per_node = gpus_per_node;
    options.gpu_memory_mib = 80 << 10;
    auto started = local::LocalCluster::Start(options);
    ASSERT_TRUE(started.has_value()) << started.error().message;
    cluster_ = *std::move(started);
    strict_ = std::make_unique<StrictCluster>(*cluster_);
    progress_ = std::make_unique<local::LocalProgressSource>(*cluster_);
    StartController();
  }
  void StartController() {
    ControllerOptions options;
    options.lifecycle.backoff = {Milliseconds(10), Milliseconds(50)};
    options.lifecycle.pod_termination_timeout = Milliseconds(100);
    options.lifecycle.progress_interval = Milliseconds(50);
    options.lifecycle.placement_retry = Milliseconds(2'000);
    if (!launch_command_.empty()) options.lifecycle.launch_command = launch_command_;
    options.metrics = &metrics_;
    controller_ = std::make_unique<Controller>(*strict_, *progress_, clock_, options);
    const Status started = controller_->Start();
    ASSERT_TRUE(started.has_value()) << started.error().message;
  }

  static json Job(const std::string& name, int gpus, const std::string& script) {
    return {{"metadata", {{"namespace", "default"}, {"name", name}}},
            {"spec",
             {{"model", {{"parameters", "125M"}}},
              {"parallelism", {{"strategy", "FSDP"}}},
              {"gpus", {{"count", gpus}}},
              {"image", "me/it:1"},
              {"command", {"/bin/sh", "-c", script}}}}};
  }
  json Create(const json& job) {
    Result<json> created = cluster_->Create(Kind::kTrainingJob, job);
    EXPECT_TRUE(created.has_value()) << created.error().message;
    return created ? *created : json::object();
  }
  void Patch(const std::string& name, const json& spec) {
    const Result<json> patched =
        cluster_->Patch(Kind::kTrainingJob, {"default", name}, cluster::PatchType::kMerge, {{"spec", spec}}, false);
    ASSERT_TRUE(patched.has_value()) << patched.error().message;
  }
  // Waits until `condition` holds of the newest state of `name` (null: gone), looking again after each change.
  json Await(Kind kind, const std::string& name, const std::function<bool(const json&)>& condition) {
    const std::string start = cluster_->List(kind, {})->resource_version;
    const Result<json> first = cluster_->Get(kind, {"default", name});
    json now = first ? *first : json();
    auto watch = cluster_->Watch(kind, {"", "", start});
    const auto deadline = std::chrono::steady_clock::now() + kPatience;
    while (!condition(now)) {
      const auto left = std::chrono::ceil<Milliseconds>(deadline - std::chrono::steady_clock::now());
      const auto event = (*watch)->Next(std::max(left, Milliseconds(0)));
      if (!event || left.count() <= 0) {
        ADD_FAILURE() << name << " did not get there: " << now.dump(1) << Pods();
        return now;
      }
      if (!event->has_value() || cluster::KeyOf(*(*event)->object).name != name) continue;
      now = (*event)->type == cluster::WatchEvent::Type::kDeleted ? json() : *(*event)->object;
    }
    return now;
  }
  static std::string PhaseOf(const json& job) {
    return job.is_object() && job.contains("status") ? job["status"].value("phase", "") : "";
  }
  static int64_t AttemptOf(const json& job) {
    return job.is_object() && job.contains("status") ? job["status"].value("attempt", 0) : 0;
  }
  json AwaitPhase(const std::string& name, const std::string& phase, int64_t attempt = 0) {
    return Await(Kind::kTrainingJob, name,
                 [&](const json& job) { return PhaseOf(job) == phase && (attempt == 0 || AttemptOf(job) == attempt); });
  }
  std::vector<cluster::Object> Items(Kind kind) { return cluster_->List(kind, {})->items; }
  std::vector<api::PodSnapshot> PodsOf(const std::string& job_uid) {
    std::vector<api::PodSnapshot> pods;
    const auto list = cluster_->List(Kind::kPod, {"default", "trainyard.dev/job-uid=" + job_uid});
    for (const auto& object : list->items) pods.push_back(*cluster::PodFromJson(*object));
    return pods;
  }
  std::string Pods() {
    std::string text;
    for (const auto& object : Items(Kind::kPod)) text += "\n" + object->dump();
    return text;
  }
  std::vector<std::string> EventReasons() {
    std::vector<std::string> reasons;
    for (const auto& event : Items(Kind::kEvent)) reasons.push_back((*event)["reason"]);
    return reasons;
  }
  // No pod of the namespace is left.
  void AwaitNoPods() {
    const auto list = cluster_->List(Kind::kPod, {});
    auto watch = cluster_->Watch(Kind::kPod, {"", "", list->resource_version});
    std::set<std::string> left;
    for (const auto& pod : list->items) left.insert(cluster::UidOf(*pod));
    while (!left.empty()) {
      const auto event = (*watch)->Next(kPatience);
      ASSERT_TRUE(event.has_value() && event->has_value()) << Pods();
      if ((*event)->type == cluster::WatchEvent::Type::kDeleted) left.erase(cluster::UidOf(*(*event)->object));
    }
  }

  std::filesystem::path directory_;
  const RealClock clock_;
  std::unique_ptr<local::LocalCluster> cluster_;
  std::unique_ptr<StrictCluster> strict_;
  std::unique_ptr<local::LocalProgressSource> progress_;
  runtime::Metrics metrics_;
  std::vector<std::string> launch_command_;  // of the bundled trainer; empty: the launcher
  std::unique_ptr<Controller> controller_;
};

TEST_F(ControllerTest, RunsAJobToSuccess) {
  StartCluster(2, 2);
  const json job = Create(Job("a", 4, "echo $WORLD_SIZE $NODE_RANK $NPROC_PER_NODE"));
  const json done = AwaitPhase("a", "Succeeded");
  EXPECT_EQ(done["status"]["attempt"], 1);
  EXPECT_EQ(done["status"]["placement"]["nodes"].size(), 2u) << done.dump(1);
  const std::vector<api::PodSnapshot> pods = PodsOf(cluster::UidOf(job));
  ASSERT_EQ(pods.size(), 2u);
  for (const api::PodSnapshot& pod : pods) {
    EXPECT_EQ(pod.owner_uid, cluster::UidOf(job));
    EXPECT_EQ(pod.node, pod.pinned_node);
    std::ifstream log(cluster_->PodLog(pod.name));
    std::string line;
    std::getline(log, line);
    EXPECT_EQ(line, "4 " + std::to_string(pod.node_rank) + " 2");
  }
  EXPECT_EQ(done["spec"], job["spec"]) << "the operator never writes spec";
  controller_->Stop();  // events are written by and by, and at the latest now
  EXPECT_THAT(EventReasons(), testing::IsSupersetOf({"Planned", "Placed"}));
}

TEST_F(ControllerTest, FinishedJobsCauseNoMoreWrites) {
  StartCluster(1, 1);
  Create(Job("a", 1, "true"));
  AwaitPhase("a", "Succeeded");
  Create(Job("b", 1, "true"));
  const json done = AwaitPhase("b", "Succeeded");
  controller_.reset();
  const std::string before = cluster_->List(Kind::kTrainingJob, {})->resource_version;
  StartController();
  Create(Job("c", 1, "true"));
  AwaitPhase("c", "Succeeded");
  auto watch = cluster_->Watch(Kind::kTrainingJob, {"", "", before});
  while (true) {
    const auto event = (*watch)->Next(kPatience);
    ASSERT_TRUE(event.has_value() && event->has_value());
    EXPECT_EQ(cluster::KeyOf(*(*event)->object).name, "c");
    if (PhaseOf(*(*event)->object) == "Succeeded") break;
  }
}

TEST_F(ControllerTest, AFailedAttemptIsFollowedByAnother) {
  StartCluster(1, 2);
  Create(Job("a", 2, "[ $TRAINYARD_ATTEMPT -ge 3 ] || exit 1"));
  const json done = AwaitPhase("a", "Succeeded");
  EXPECT_EQ(done["status"]["attempt"], 3);
  EXPECT_EQ(done["status"]["restarts"]["user"], 2);
}

TEST_F(ControllerTest, AConfigurationErrorIsNotRetried) {
  StartCluster(1, 1);
  Create(Job("a", 1,
             "printf '{\"contract\":1,\"class\":\"Configuration\",\"rank\":0,\"exitCode\":2,\"message\":"
             "\"no such field\"}' > $TRAINYARD_TERMINATION_LOG; exit 2"));
  const json done = AwaitPhase("a", "Failed");
  EXPECT_EQ(done["status"]["attempt"], 1);
  EXPECT_NE(done["status"]["reason"].get<std::string>().find("no such field"), std::string::npos)
      << done["status"]["reason"];
}

TEST_F(ControllerTest, ResizesARunningJob) {
  StartCluster(2, 2);
  const json job = Create(Job("a", 2, kRunUntilStopped));
  AwaitPhase("a", "Running");
  Patch("a", {{"gpus", {{"count", 4}}}});
  const json resized = AwaitPhase("a", "Running", 2);
  EXPECT_EQ(resized["status"]["gpus"], 4);
  int64_t gpus = 0;
  for (const api::PodSnapshot& pod : PodsOf(cluster::UidOf(job))) {
    if (pod.attempt == 2) gpus += pod.gpus;
  }
  EXPECT_EQ(gpus, 4);
  EXPECT_EQ(resized["status"].value("/restarts/user"_json_pointer, 0), 0) << "a resize costs no budget";
}

TEST_F(ControllerTest, SuspendsAndResumes) {
  StartCluster(1, 1);
  Create(Job("a", 1, kRunUntilStopped));
  AwaitPhase("a", "Running");
  Patch("a", {{"suspend", true}});
  AwaitPhase("a", "Suspended");
  AwaitNoPods();
  Patch("a", {{"suspend", false}});
  AwaitPhase("a", "Running", 2);
}

TEST_F(ControllerTest, AServiceThatIsDeletedComesBackAtOnce) {
  StartCluster(1, 1);
  const json job = Create(Job("a", 1, kRunUntilStopped));
  AwaitPhase("a", "Running");
  const std::vector<cluster::Object> first = Items(Kind::kService);
  ASSERT_EQ(first.size(), 1u);
  const std::string name = cluster::KeyOf(*first[0]).name;
  ASSERT_TRUE(cluster_->Delete(Kind::kService, {"default", name}, {}).has_value());
  const json again = Await(Kind::kService, name, [&](const json& now) {
    return now.is_object() && cluster::UidOf(now) != cluster::UidOf(*first[0]);
  });
  EXPECT_EQ(cluster::ControllerUidOf(again), cluster::UidOf(job));
  EXPECT_EQ(AttemptOf(AwaitPhase("a", "Running")), 1);
}

TEST_F(ControllerTest, AStopThatWasTooShortIsTold) {
  StartCluster(1, 1);
  const std::string path = (directory_ / "deaf").string();
  ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
  std::fstream pipe(path, std::ios::in | std::ios::out);
  json job = Job("a", 1, "trap '' TERM; echo deaf > " + path + "; while :; do sleep 0.05; done");
  job["spec"]["recovery"]["maxGraceSeconds"] = 1;
  Create(job);
  AwaitPhase("a", "Running");
  std::string word;
  ASSERT_TRUE(pipe >> word);
  Patch("a", {{"suspend", true}});
  const json suspended = AwaitPhase("a", "Suspended");
  EXPECT_THAT(suspended["status"]["reason"].get<std::string>(),
              testing::HasSubstr("attempt 1 was killed at the end of its grace, before it ended by itself"));
  controller_->Stop();
  EXPECT_THAT(EventReasons(), testing::Contains("WorkLost"));
}

TEST_F(ControllerTest, AMoreImportantJobTakesThePlaceOfOneThatIsLess) {
  StartCluster(1, 3);
  const Result<json> made = cluster_->Create(Kind::kPriorityClass, {{"apiVersion", "scheduling.k8s.io/v1"},
                                                                    {"kind", "PriorityClass"},
                                                                    {"metadata", {{"name", "urgent"}}},
                                                                    {"value", 1000}});
  ASSERT_TRUE(made.has_value()) << made.error().message;
  const std::vector<std::string> low = {"low-1", "low-2", "low-3"};
  for (const std::string& name : low) Create(Job(name, 1, kRunUntilStopped));
  for (const std::string& name : low) AwaitPhase(name, "Running");
  json urgent = Job("urgent", 1, "true");
  urgent["spec"]["priorityClassName"] = "urgent";
  Create(urgent);
  AwaitPhase("urgent", "Succeeded");
  int64_t attempts = 0;
  for (const std::string& name : low) {
    const json job = AwaitPhase(name, "Running");  // whoever made room comes back
    attempts += AttemptOf(job);
    EXPECT_EQ(job["status"].value("restarts", json::object()).value("infrastructure", 0), 0);
    EXPECT_EQ(job["status"].value("consecutiveFailures", 0), 0) << "nobody pays for making room";
  }
  EXPECT_EQ(attempts, 4) << "one of them, once";
  controller_->Stop();
  EXPECT_THAT(EventReasons(), testing::IsSupersetOf({"MakingRoom", "StoppingPreempted"}));
}

TEST_F(ControllerTest, MovesAwayFromADeadNode) {
  StartCluster(2, 1);
  Create(Job("a", 1, kRunUntilStopped));
  const json running = AwaitPhase("a", "Running");
  const std::string node = running["status"]["placement"]["nodes"][0]["node"];
  ASSERT_TRUE(cluster_->KillNode(node).has_value());
  const json moved = AwaitPhase("a", "Running", 2);
  EXPECT_NE(moved["status"]["placement"]["nodes"][0]["node"], node);
  EXPECT_EQ(moved["status"].value("/restarts/user"_json_pointer, 0), 0);
}

TEST_F(ControllerTest, ADeletedJobLeavesNothing) {
  StartCluster(2, 1);
  Create(Job("a", 2, kRunUntilStopped));
  AwaitPhase("a", "Running");
  ASSERT_TRUE(cluster_->Delete(Kind::kTrainingJob, {"default", "a"}, {}).has_value());
  AwaitNoPods();
  EXPECT_THAT(Items(Kind::kService), testing::IsEmpty());
}

TEST_F(ControllerTest, CheckpointsGoWithTheJobThatAsksForIt) {
  const std::string mark = directory_ / "removed";
  // Stands for the launcher, which is told the trainer's arguments when it removes.
  launch_command_ = {
      "/bin/sh", "-c",
      "if [ \"$2\" = trainyard-trainer ]; then echo \"$@\" >" + mark + "; else " + kRunUntilStopped + "; fi",
      "launcher"};
  StartCluster(1, 1);
  std::filesystem::create_directories(directory_ / "data");
  const auto job = [&](const std::string& name) {
    return json{{"metadata", {{"namespace", "default"}, {"name", name}}},
                {"spec",
                 {{"model", {{"architecture", {{"layers", 1}, {"hiddenSize", 8}, {"attentionHeads", 1}}}}},
                  {"data", {{"train", {{{"volume", "data"}, {"path", "train.txt"}}}}}},
                  {"training", {{"sequenceLength", 8}, {"globalBatchSize", 1}, {"steps", 1}}},
                  {"gpus", {{"count", 1}}},
                  {"checkpoint", {{"volume", "data"}, {"path", "runs/a"}, {"onDelete", "Delete"}}},
                  {"volumes", {{{"name", "data"}, {"hostPath", {{"path", (directory_ / "data").string()}}}}}}}}};
  };
  Create(job("a"));
  const json running = AwaitPhase("a", "Running");
  EXPECT_EQ(running["metadata"]["finalizers"], json::array({"trainyard.dev/checkpoints"}));
  ASSERT_TRUE(cluster_->Delete(Kind::kTrainingJob, {"default", "a"}, {}).has_value());
  Await(Kind::kTrainingJob, "a", [](const json& now) { return now.is_null(); });
  std::ifstream said(mark);
  std::string line;
  std::getline(said, line);
  EXPECT_EQ(line, "-- trainyard-trainer --remove-checkpoints data runs/a");
  AwaitNoPods();

  // One whose status nobody can read goes as well, and its checkpoints stay.
  std::filesystem::remove(mark);
  Create(job("b"));
  AwaitPhase("b", "Running");
  controller_.reset();
  json unread = *cluster_->Get(Kind::kTrainingJob, {"default", "b"});
  unread["status"]["phase"] = "Hibernating";
  ASSERT_TRUE(cluster_->ReplaceStatus(Kind::kTrainingJob, unread).has_value());
  ASSERT_TRUE(cluster_->Delete(Kind::kTrainingJob, {"default", "b"}, {}).has_value());
  EXPECT_TRUE(cluster_->Get(Kind::kTrainingJob, {"default", "b"})) << "the finalizer holds it";
  StartController();
  Await(Kind::kTrainingJob, "b", [](const json& now) { return now.is_null(); });
  EXPECT_FALSE(std::filesystem::exists(mark));
  controller_->Stop();
  EXPECT_THAT(EventReasons(), testing::IsSupersetOf({"CheckpointsRemoved", "CheckpointsLeft"}));
}

TEST_F(ControllerTest, TwoJobsOnOneCheckpointPathRunOneAfterTheOther) {
  StartCluster(2, 1);
  const auto job = [&](const std::string& name, const std::string& path) {
    json made = Job(name, 1, kRunUntilStopped);
    made["spec"]["checkpoint"] = {{"volume", name}, {"path", path}};
    made["spec"]["volumes"] = {{{"name", name}, {"hostPath", {{"path", directory_.string()}}}}};
    return made;
  };
  const auto planned = [](const json& now) {
    for (const json& condition : now["status"].value("conditions", json::array())) {
      if (condition["type"] == "Planned") return condition;
    }
    return json({{"reason", ""}, {"message", ""}});
  };
  const auto refused = [&](const std::string& by) {
    return [&planned, by](const json& now) {
      return now.is_object() && now.contains("status") && planned(now)["reason"] == "CheckpointPathInUse" &&
             planned(now)["message"].get<std::string>().find("TrainingJob " + by + ",") != std::string::npos;
    };
  };
  Create(job("a", "runs/x"));
  AwaitPhase("a", "Running");
  const json b = Create(job("b", "runs/x"));
  const json told = Await(Kind::kTrainingJob, "b", refused("a"));
  EXPECT_EQ(PhaseOf(told), "Pending");
  EXPECT_EQ(planned(told)["status"], "False");
  EXPECT_EQ(planned(told)["message"], "path " + directory_.string() +
                                          "/runs/x of the node is in use by TrainingJob a, which runs; this job starts "
                                          "when that one has ended or is deleted; to run beside it, create it with "
                                          "another spec.checkpoint.path");
  // A third one inside it waits as well, also for another operator; a fourth beside it runs.
  controller_.reset();
  const json c = Create(job("c", "runs/x/best"));
  StartController();
  Await(Kind::kTrainingJob, "c", refused("a"));
  Create(job("d", "runs/xy"));
  AwaitPhase("d", "Running");
  ASSERT_TRUE(cluster_->Delete(Kind::kTrainingJob, {"default", "d"}, {}).has_value());
  EXPECT_THAT(PodsOf(cluster::UidOf(b)), testing::IsEmpty()) << "it starts no pods";

  // The older of those that wait is next when the first is gone with its pods, and the other when that one is.
  const auto age = [](const json& of) {
    return std::pair(of["metadata"]["creationTimestamp"].get<std::string>(), cluster::UidOf(of));
  };
  const std::string next = age(b) < age(c) ? "b" : "c", last = next == "b" ? "c" : "b";
  ASSERT_TRUE(cluster_->Delete(Kind::kTrainingJob, {"default", "a"}, {}).has_value());
  AwaitPhase(next, "Running");
  Await(Kind::kTrainingJob, last, refused(next));
  Patch(next, {{"suspend", true}});
  AwaitPhase(next, "Suspended");
  const json kept = Await(Kind::kTrainingJob, last, [&](const json& now) {
    return planned(now)["message"].get<std::string>().find("which is suspended and keeps its directory") !=
           std::string::npos;
  });
  EXPECT_EQ(PhaseOf(kept), "Pending");
  ASSERT_TRUE(cluster_->Delete(Kind::kTrainingJob, {"default", next}, {}).has_value());
  AwaitPhase(last, "Running");
  controller_->Stop();
  EXPECT_THAT(EventReasons(), testing::Contains("CheckpointPathInUse"));
}

TEST_F(ControllerTest, ThirtyOfThirtyTwoKilledPodsMakeOneNewAttempt) {
  StartCluster(32, 1);
  // Each pod tells its process number through one pipe.
  const std::string path = (directory_ / "pids").string();
  ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
  std::fstream pipe(path, std::ios::in | std::ios::out);
  const json job = Create(Job("a", 32, "echo $$$$ > " + path + "; trap 'exit 10' TERM; sleep 1000 & wait"));
  AwaitPhase("a", "Running");
  std::vector<pid_t> pids(32);
  for (pid_t& pid : pids) ASSERT_TRUE(pipe >> pid);
  for (size_t i = 0; i < 30; ++i) EXPECT_EQ(kill(pids[i], SIGKILL), 0);
  const json again =
      Await(Kind::kTrainingJob, "a", [](const json& now) { return PhaseOf(now) == "Running" && AttemptOf(now) >= 2; });
  EXPECT_EQ(AttemptOf(again), 2) << "one failure, one new attempt";
  std::set<int64_t> ranks;
  for (const api::PodSnapshot& pod : PodsOf(cluster::UidOf(job))) {
    EXPECT_TRUE(pod.attempt == 2 || pod.Terminal()) << pod.name << " is left of an earlier attempt";
    if (pod.attempt == 2) ranks.insert(pod.node_rank);
  }
  EXPECT_EQ(ranks.size(), 32u);
}

TEST_F(ControllerTest, ANewControllerGoesOnWhereTheOldOneStopped) {
  StartCluster(4, 1);
  const std::string go = (directory_ / "go").string();
  const json job = Create(Job("a", 4, "while [ ! -e " + go + " ]; do sleep 0.05; done"));
  // Kill the controller at another point of the start each time; attempts must not multiply.
  for (const char* phase : {"Placing", "Starting", "Running"}) {
    Await(Kind::kTrainingJob, "a", [&](const json& now) { return PhaseOf(now) == phase || PhaseOf(now) == "Running"; });
    controller_.reset();
    StartController();
  }
  AwaitPhase("a", "Running");
  controller_.reset();
  std::ofstream(go) << "go";
  for (const api::PodSnapshot& pod : PodsOf(cluster::UidOf(job))) {
    Await(Kind::kPod, pod.name, [](const json& now) { return cluster::PodFromJson(now)->Terminal(); });
  }
  StartController();
  EXPECT_EQ(AttemptOf(AwaitPhase("a", "Succeeded")), 1);
  EXPECT_EQ(PodsOf(cluster::UidOf(job)).size(), 4u);
}

TEST_F(ControllerTest, AMalformedJobStopsNobody) {
  StartCluster(1, 1);
  json bad = Job("bad", 1, "true");
  bad["spec"]["colour"] = "blue";
  Create(bad);
  json worse = Job("worse", 1, "true");
  worse["spec"] = {{"model", 5}};
  Create(worse);
  Create(Job("good", 1, "true"));
  AwaitPhase("good", "Succeeded");
  const json told = Await(Kind::kTrainingJob, "bad", [](const json& now) {
    return now.contains("status") && now["status"].contains("conditions");
  });
  EXPECT_EQ(told["status"]["conditions"][0]["type"], "Planned");
  EXPECT_EQ(told["status"]["conditions"][0]["status"], "False");
  EXPECT_NE(told["status"]["reason"].get<std::string>().find("colour"), std::string::npos);
  // It can be mended.
  Patch("bad", {{"colour", nullptr}});
  AwaitPhase("bad", "Succeeded");
}

TEST_F(ControllerTest, ARefusalByQuotaIsToldAndHoldsNobodyUp) {
  StartCluster(2, 1);
  // What an API server says to the second pod where a ResourceQuota has `pods: 1`.
  strict_->Set([](const json& pod) -> std::pair<int, std::string> {
    const std::string name = pod["metadata"]["name"];
    if (!name.starts_with("big-") || !name.ends_with("-1")) return {};
    return {403, "pods \"" + name +
                     "\" is forbidden: exceeded quota: one, requested: pods=1, used: pods=1, limited: pods=1"};
  });
  Create(Job("big", 2, "true"));
  const json told = Await(Kind::kTrainingJob, "big", [](const json& now) {
    return now.contains("status") && now["status"].value("reason", "").find("exceeded quota: one") != std::string::npos;
  });
  EXPECT_THAT(told["status"]["reason"].get<std::string>(),
              testing::HasSubstr("the API server refuses it: create pods"));
  EXPECT_EQ(PhaseOf(told), "Placing");
  EXPECT_FALSE(told["status"].contains("excludedNodes"));
  // Both GPUs are this one's, while the other keeps coming again.
  Create(Job("small", 2, "true"));
  AwaitPhase("small", "Succeeded");
  strict_->Set({});
  AwaitPhase("big", "Succeeded");
  controller_->Stop();
  EXPECT_THAT(EventReasons(), testing::Contains("Undone"));
}

TEST_F(ControllerTest, ANameThatIsTakenIsToldWithItsOwner) {
  StartCluster(1, 1);
  json service = {{"metadata", {{"namespace", "default"}, {"name", "tj-a"}}}, {"spec", json::object()}};
  ASSERT_TRUE(cluster_->Create(Kind::kService, service).has_value());
  Create(Job("a", 1, "true"));
  const auto says = [](const std::string& words) {
    return [words](const json& now) {
      return now.contains("status") && now["status"].value("reason", "").find(words) != std::string::npos;
    };
  };
  Await(
      Kind::kTrainingJob, "a",
      says("the job needs the name of Service default/tj-a, which is another's (it has no owner reference); rename the "
           "job or remove that Service"));
  service["metadata"]["name"] = "tj-b";
  service["metadata"]["ownerReferences"] = json::array(
      {{{"apiVersion", "apps/v1"}, {"kind", "Deployment"}, {"name", "web"}, {"uid", "1"}, {"controller", true}}});
  ASSERT_TRUE(cluster_->Create(Kind::kService, service).has_value());
  Create(Job("b", 1, "true"));
  Await(Kind::kTrainingJob, "b",
        says("Service default/tj-b, which belongs to Deployment web; rename the job or remove that Service"));
  ASSERT_TRUE(cluster_->Delete(Kind::kService, {"default", "tj-a"}, {}).has_value());
  AwaitPhase("a", "Succeeded");
}

TEST_F(ControllerTest, AStatusThatCannotBeReadIsNeverOverwritten) {
  StartCluster(1, 2);
  const json job = Create(Job("a", 1, kRunUntilStopped));
  json running = AwaitPhase("a", "Running");
  controller_.reset();
  // A newer operator wrote it, and was rolled back.
  running = *cluster_->Get(Kind::kTrainingJob, {"default", "a"});
  running["status"]["phase"] = "Hibernating";
  running["status"]["attempt"] = 7;
  const Result<json> stored = cluster_->ReplaceStatus(Kind::kTrainingJob, running);
  ASSERT_TRUE(stored.has_value()) << stored.error().message;
  StartController();
  Patch("a", {{"gpus", {{"count", 2}}}});  // many looks, one word
  Create(Job("two", 2, "true"));
  Create(Job("one", 1, "true"));
  AwaitPhase("one", "Succeeded");
  AwaitPhase("two", "Queued");  // the GPU of the pod that runs is booked
  const std::vector<api::PodSnapshot> pods = PodsOf(cluster::UidOf(job));
  ASSERT_EQ(pods.size(), 1u);
  EXPECT_FALSE(pods[0].deleting || pods[0].Terminal());
  EXPECT_EQ((*cluster_->Get(Kind::kTrainingJob, {"default", "a"}))["status"], (*stored)["status"]);
  controller_->Stop();
  int64_t told = 0;
  for (const auto& event : Items(Kind::kEvent)) {
    if ((*event)["reason"] != "UnreadableStatus") continue;
    told += event->value("count", 1);
    EXPECT_THAT((*event)["message"].get<std::string>(),
                testing::AllOf(testing::HasSubstr("status.phase"), testing::HasSubstr("Hibernating")));
  }
  EXPECT_EQ(told, 1);
  // It can be mended.
  running = *cluster_->Get(Kind::kTrainingJob, {"default", "a"});
  running["status"]["phase"] = "Running";
  running["status"]["attempt"] = 1;
  ASSERT_TRUE(cluster_->ReplaceStatus(Kind::kTrainingJob, running).has_value());
  ASSERT_TRUE(cluster_->Delete(Kind::kTrainingJob, {"default", "two"}, {}).has_value());
  StartController();
  AwaitPhase("a", "Running", 2);  // at the size that was asked for meanwhile
}

TEST_F(ControllerTest, AStatusThatIsBehindItsPodsCatchesUp) {
  StartCluster(1, 1);
  const json job =
      Create(Job("a", 1, "[ $TRAINYARD_ATTEMPT -le 2 ] || exit 0; trap 'exit 10' TERM; sleep 1000 & wait"));
  AwaitPhase("a", "Running");
  Patch("a", {{"suspend", true}});
  AwaitPhase("a", "Suspended");
  Patch("a", {{"suspend", false}});
  AwaitPhase("a", "Running", 2);
  controller_.reset();
  json lost = *cluster_->Get(Kind::kTrainingJob, {"default", "a"});
  lost["status"] = json::object();
  ASSERT_TRUE(cluster_->ReplaceStatus(Kind::kTrainingJob, lost).has_value());
  StartController();
  EXPECT_EQ(AttemptOf(AwaitPhase("a", "Succeeded")), 3);
  controller_->Stop();
  EXPECT_THAT(EventReasons(), testing::Contains("StatusWasBehind"));
}

TEST_F(ControllerTest, JobsTakeTurnsWhenGpusAreFew) {
  StartCluster(2, 1);
  constexpr int kJobs = 6;
  for (int i = 0; i < kJobs; ++i) Create(Job("j" + std::to_string(i), 2, "sleep 0.1"));
  for (int i = 0; i < kJobs; ++i) EXPECT_EQ(AttemptOf(AwaitPhase("j" + std::to_string(i), "Succeeded")), 1);
  // Two gangs of two never held the two nodes at once: every pod was bound without waiting for room.
  for (const auto& event : Items(Kind::kEvent)) EXPECT_NE((*event)["reason"], "Unschedulable");
}

TEST_F(ControllerTest, AJobThatDoesNotFitSaysSoAndHoldsNothing) {
  StartCluster(1, 2);
  const json job = Create(Job("a", 64, "true"));
  const json told = Await(Kind::kTrainingJob, "a", [](const json& now) {
    return now.contains("status") && !now["status"].value("reason", "").empty();
  });
  EXPECT_THAT(PodsOf(cluster::UidOf(job)), testing::IsEmpty());
  EXPECT_NE(told["status"]["reason"].get<std::string>().find("2 GPUs free"), std::string::npos)
      << told["status"]["reason"];
}

TEST_F(ControllerTest, ReportsTheProgressOfRankZero) {
  StartCluster(1, 1);
  Create(Job("a", 1,
             "printf '{\"contract\":1,\"jobUid\":\"%s\",\"attempt\":%s,\"phase\":\"Training\",\"step\":7,"
             "\"steps\":9,\"loss\":2.5}' $TRAINYARD_JOB_UID $TRAINYARD_ATTEMPT > $TRAINYARD_RUN_DIR/status.json; "
             "sleep 1000 & wait"));
  const json job = Await(Kind::kTrainingJob, "a",
                         [](const json& now) { return now.contains("status") && now["status"].contains("progress"); });
  EXPECT_EQ(job["status"]["progress"]["step"], 7);
  EXPECT_EQ(job["status"]["progress"]["loss"], 2.5);
}

TEST_F(ControllerTest, MetricsTellOfTheYardAndTheQueue) {
  StartCluster(1, 4);
  Create(Job("one", 2, kRunUntilStopped));
  AwaitPhase("one", "Running");
  Create(Job("two", 4, kRunUntilStopped));
  AwaitPhase("two", "Queued");
  const std::string text = metrics_.Text();
  for (const char* line : {
           "trainyard_gpus{product=\"Simulated\",state=\"used\"} 2\n",
           "trainyard_gpus{product=\"Simulated\",state=\"free\"} 2\n",
           "trainyard_gpus_stranded{product=\"Simulated\"} 2\n",
           "trainyard_largest_gang_gpus{product=\"Simulated\",scope=\"node\"} 2\n",
           "trainyard_queue_length{product=\"Simulated\",priority=\"0\"} 1\n",
           "trainyard_queue_gpus{product=\"Simulated\",priority=\"0\"} 4\n",
           "trainyard_queue_position{namespace=\"default\",name=\"two\"} 1\n",
           "trainyard_queue_wait_seconds_count{gpus=\"2-8\"} 1\n",
           "trainyard_preemptions_total 0\n",
           "trainyard_gangs_undone_total 0\n",
       }) {
    EXPECT_THAT(text, testing::HasSubstr(line));
  }
}

}  // namespace
}  // namespace trainyard::controller
