// Pods as processes: how they start, what they see, how they end.
#include <poll.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/operator/local/local_fixture.h"

namespace trainyard::local {
namespace {

using cluster::Kind;
using nlohmann::json;

// A process that this test did not start and that shall die.
class Stranger {
 public:
  explicit Stranger(pid_t pid) : fd_(static_cast<int>(syscall(SYS_pidfd_open, pid, 0))) { EXPECT_GE(fd_, 0); }
  ~Stranger() { close(fd_); }
  bool DiesWithin(Milliseconds patience) const {
    pollfd wait{fd_, POLLIN, 0};
    return poll(&wait, 1, static_cast<int>(patience.count())) == 1;
  }

 private:
  const int fd_;
};

class KubeletTest : public LocalFixture {
 protected:
  // A pipe that a pod's script opens to tell that it got somewhere; reading it waits for that.
  std::filesystem::path MakeFifo(const std::string& name) {
    const std::filesystem::path path = directory_ / name;
    EXPECT_EQ(mkfifo(path.c_str(), 0600), 0);
    return path;
  }
};

TEST_F(KubeletTest, ReportsSuccessAndKeepsTheLog) {
  Start();
  Create(Pod("a", "echo out; echo err >&2"));
  const json terminated = AwaitEnd("a");
  EXPECT_EQ(terminated["exitCode"], 0);
  EXPECT_EQ(terminated["reason"], "Completed");
  EXPECT_EQ(Log("a"), "out\nerr\n");
  EXPECT_EQ(GetPod("a")["spec"]["nodeName"], "local-0");
}

TEST_F(KubeletTest, ReportsExitCodeAndTerminationMessage) {
  Start();
  Create(Pod("a", "printf 'why it failed' > $TRAINYARD_TERMINATION_LOG; exit 7"));
  const json terminated = AwaitEnd("a");
  EXPECT_EQ(terminated["exitCode"], 7);
  EXPECT_EQ(terminated["reason"], "Error");
  EXPECT_EQ(terminated["message"], "why it failed");
  const auto snapshot = cluster::PodFromJson(GetPod("a"));
  ASSERT_TRUE(snapshot.has_value()) << snapshot.error().message;
  EXPECT_EQ(snapshot->phase, api::PodPhase::kFailed);
  EXPECT_EQ(snapshot->exit_code, 7);
}

TEST_F(KubeletTest, ReportsASignalAs128PlusItsNumber) {
  Start();
  Create(Pod("a", "kill -s SEGV $$$$"));  // "$$" is Kubernetes for "$"
  const json terminated = AwaitEnd("a");
  EXPECT_EQ(terminated["exitCode"], 128 + SIGSEGV);
  EXPECT_EQ(terminated["signal"], SIGSEGV);
}

TEST_F(KubeletTest, AMessageThatIsNotTextIsMadeText) {
  Start();
  json pod = Pod("a", "printf '\\377\\376bytes'; exit 1");
  pod["spec"]["containers"][0]["terminationMessagePolicy"] = "FallbackToLogsOnError";
  Create(pod);
  EXPECT_NE(AwaitEnd("a")["message"].get<std::string>().find("bytes"), std::string::npos);
}

TEST_F(KubeletTest, AMissingProgramIsAStartError) {
  Start();
  json pod = Pod("a", "");
  pod["spec"]["containers"][0]["command"] = {"no-such-program"};
  Create(pod);
  json terminated = AwaitEnd("a");
  EXPECT_EQ(terminated["reason"], "StartError");
  EXPECT_EQ(terminated["exitCode"], 128);
  EXPECT_EQ(terminated["message"], "exec: \"no-such-program\": executable file not found in $PATH");
  pod["metadata"]["name"] = "b";
  pod["spec"]["containers"][0]["command"] = {"/no/such/program"};
  Create(pod);
  terminated = AwaitEnd("b");
  EXPECT_EQ(terminated["reason"], "StartError");
  EXPECT_EQ(terminated["message"], "cannot run /no/such/program: No such file or directory");
}

TEST_F(KubeletTest, WhatCannotBeRunHereSaysSo) {
  Start();
  json pod = Pod("a", "true");
  pod["spec"]["containers"][0]["env"] =
      json::array({{{"name", "SECRET"}, {"valueFrom", {{"secretKeyRef", {{"name", "s"}, {"key", "k"}}}}}}});
  Create(pod);
  const json waiting = Await("a", [](const json& now) { return now["status"].contains("containerStatuses"); });
  const auto snapshot = cluster::PodFromJson(waiting);
  EXPECT_EQ(snapshot->phase, api::PodPhase::kPending);
  EXPECT_EQ(snapshot->reason, "CreateContainerConfigError");
  EXPECT_NE(snapshot->message.find("SECRET"), std::string::npos) << snapshot->message;
}

TEST_F(KubeletTest, DeletionGivesGraceAndReportsTheExitBeforeThePodGoes) {
  Start();
  const auto started = MakeFifo("started");
  Create(Pod("a", "trap 'echo stopping; exit 10' TERM; echo yes > " + started.string() + "; sleep 1000 & wait"));
  EXPECT_EQ(ReadAll(started), "yes\n");
  AwaitPhase("a", "Running");
  const auto list = cluster_->List(Kind::kPod, {});
  auto watch = cluster_->Watch(Kind::kPod, {"", "", list->resource_version});
  ASSERT_TRUE(cluster_->Delete(Kind::kPod, {"default", "a"}, {}).has_value());
  json last;
  while (true) {
    const auto event = (*watch)->Next(kPatience);
    ASSERT_TRUE(event.has_value() && event->has_value());
    last = *(*event)->object;
    if ((*event)->type == cluster::WatchEvent::Type::kDeleted) break;
  }
  EXPECT_EQ(last["status"]["phase"], "Failed");
  EXPECT_EQ(last["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"], 10);
  EXPECT_EQ(Log("a"), "stopping\n");
}

TEST_F(KubeletTest, AStubbornPodIsKilledWithAllItsProcessesAfterItsGrace) {
  Start();
  const auto started = MakeFifo("started");
  Create(Pod("a", "trap '' TERM; sleep 1000 & echo $! > " + started.string() + "; wait; wait; sleep 1000"));
  const Stranger child(std::stoi(ReadAll(started)));
  EXPECT_FALSE(child.DiesWithin(Milliseconds(0)));
  ASSERT_TRUE(cluster_->Delete(Kind::kPod, {"default", "a"}, {"", "", 1}).has_value());
  Await("a", [](const json& pod) { return pod.is_null(); });
  EXPECT_TRUE(child.DiesWithin(kPatience));
}

TEST_F(KubeletTest, AForcedDeletionKillsAtOnce) {
  Start();
  const auto started = MakeFifo("started");
  Create(Pod("a", "trap '' TERM; echo $$$$ > " + started.string() + "; sleep 1000"));
  const Stranger process(std::stoi(ReadAll(started)));
  EXPECT_FALSE(process.DiesWithin(Milliseconds(0)));
  ASSERT_TRUE(cluster_->Delete(Kind::kPod, {"default", "a"}, {"", "", 0}).has_value());
  EXPECT_TRUE(GetPod("a").is_null());
  EXPECT_TRUE(process.DiesWithin(kPatience));
}

TEST_F(KubeletTest, ThePodSeesItsEnvironment) {
  claims_["corpus"] = directory_ / "my corpus";
  Start();
  json pod = Pod("a",
                 "env; cat $TRAINYARD_JOB_FILE; echo; ls -l $TRAINYARD_VOLUME_ROOT; echo x > "
                 "$TRAINYARD_VOLUME_ROOT/data/file; echo y > $TRAINYARD_VOLUME_ROOT/made/file; "
                 "echo z > $TRAINYARD_VOLUME_ROOT/scratch/file; pwd");
  pod["metadata"]["annotations"]["trainyard.dev/job"] = "{\"contract\":1}";
  pod["metadata"]["labels"] = {{"trainyard.dev/job-uid", "j"}, {"trainyard.dev/attempt", "2"}};
  pod["spec"]["volumes"] = {
      {{"name", "v0"}, {"persistentVolumeClaim", {{"claimName", "corpus"}}}},
      {{"name", "made"}, {"persistentVolumeClaim", {{"claimName", "other"}}}},
      {{"name", "scratch"}, {"emptyDir", json::object()}},
      {{"name", "host"}, {"hostPath", {{"path", "/usr"}}}},
      {{"name", "job"},
       {"downwardAPI",
        {{"items",
          {{{"path", "job.json"}, {"fieldRef", {{"fieldPath", "metadata.annotations['trainyard.dev/job']"}}}}}}}}}};
  json& container = pod["spec"]["containers"][0];
  container["volumeMounts"] = {{{"name", "v0"}, {"mountPath", "/volumes/data"}}};
  container["workingDir"] = "/";
  container["env"] = {{{"name", "MASTER_ADDR"}, {"value", "tj-job"}},
                      {{"name", "MASTER_PORT"}, {"value", "29500"}},
                      {{"name", "WORLD_SIZE"}, {"value", "1000"}},
                      {{"name", "MINE"}, {"value", "$(MASTER_ADDR):$(NONE)$$"}},
                      {{"name", "NAME"}, {"valueFrom", {{"fieldRef", {{"fieldPath", "metadata.name"}}}}}},
                      {{"name", "IP"}, {"valueFrom", {{"fieldRef", {{"fieldPath", "status.podIP"}}}}}}};
  Create(pod);
  ASSERT_EQ(AwaitEnd("a")["exitCode"], 0) << Log("a");
  const std::string log = Log("a");
  const std::filesystem::path root = cluster_->PodDirectory("a");
  for (const std::string& line : {std::string("MASTER_ADDR=127.0.0.1"), std::string("MINE=tj-job:$(NONE)$"),
                                  std::string("NAME=a"), std::string("IP=127.0.0.1"), std::string("POD_IP=127.0.0.1"),
                                  std::string("TRAINYARD_STATUS_PORT=0"), std::string("OMP_NUM_THREADS=1"),
                                  "TRAINYARD_RUN_DIR=" + (root / "run").string(), std::string("{\"contract\":1}")}) {
    EXPECT_NE(log.find(line + "\n"), std::string::npos) << line << " is missing in\n" << log;
  }
  EXPECT_EQ(log.find("MASTER_PORT=29500"), std::string::npos) << "all pods share this host";
  EXPECT_TRUE(log.ends_with("\n/\n")) << "workingDir";
  EXPECT_EQ(ReadAll(directory_ / "my corpus" / "file"), "x\n");
  EXPECT_EQ(ReadAll(directory_ / "state" / "volumes" / "other" / "file"), "y\n");
  EXPECT_EQ(ReadAll(root / "volumes" / "scratch" / "file"), "z\n");
  EXPECT_TRUE(std::filesystem::exists(root / "volumes" / "host" / "bin"));
}

TEST_F(KubeletTest, PodsOfAnAttemptShareAPortAndAttemptsDoNot) {
  Start();
  const auto port = [&](const std::string& name, const std::string& attempt) {
    json pod = Pod(name, "echo $MASTER_PORT");
    pod["metadata"]["labels"] = {{"trainyard.dev/job-uid", "j"}, {"trainyard.dev/attempt", attempt}};
    pod["spec"]["containers"][0]["env"] = {{{"name", "MASTER_PORT"}, {"value", "29500"}}};
    Create(pod);
    AwaitEnd(name);
    return std::stoi(Log(name));
  };
  const int first = port("a", "1");
  EXPECT_EQ(port("b", "1"), first);
  EXPECT_NE(port("c", "2"), first);
  EXPECT_GE(first, 20'000);
}

TEST_F(KubeletTest, ShutdownGivesGraceAndReports) {
  Start();
  const auto started = MakeFifo("started");
  Create(Pod("a", "trap 'exit 10' TERM; echo yes > " + started.string() + "; sleep 1000 & wait"));
  EXPECT_EQ(ReadAll(started), "yes\n");
  AwaitPhase("a", "Running");
  cluster_->Shutdown(kPatience);
  EXPECT_EQ(AwaitEnd("a")["exitCode"], 10);
  Create(Pod("b", "true"));
  Await("b", [](const json& pod) { return pod["spec"].contains("nodeName"); });
  EXPECT_EQ(PhaseOf(GetPod("b")), "Pending") << "nothing starts any more";
}

// The operator is killed with kill -9: neither its pods nor what they started may live on.
TEST_F(KubeletTest, NothingSurvivesAKilledOperator) {
  const auto started = MakeFifo("started");
  const pid_t operator_pid = fork();
  if (operator_pid == 0) {
    LocalOptions options;
    options.state_dir = directory_ / "state";
    auto cluster = LocalCluster::Start(options);
    if (!cluster) _exit(1);
    (*cluster)->Create(Kind::kPod,
                       Pod("a", "(trap '' TERM HUP; sleep 1000) & echo $! > " + started.string() + "; wait"));
    pause();
    _exit(0);
  }
  const Stranger grandchild(std::stoi(ReadAll(started)));
  EXPECT_FALSE(grandchild.DiesWithin(Milliseconds(0)));
  kill(operator_pid, SIGKILL);
  waitpid(operator_pid, nullptr, 0);
  EXPECT_TRUE(grandchild.DiesWithin(kPatience));
}

TEST_F(KubeletTest, ManyShortPodsAllEndAndLeaveNoZombies) {
  Start(4, 8);
  constexpr int kPods = 64;
  for (int i = 0; i < kPods; ++i) Create(Pod("p" + std::to_string(i), "exit " + std::to_string(i % 3), 0));
  for (int i = 0; i < kPods; ++i) EXPECT_EQ(AwaitEnd("p" + std::to_string(i))["exitCode"], i % 3);
  cluster_.reset();
  EXPECT_EQ(waitpid(-1, nullptr, WNOHANG), -1) << "a child is left";
}

}  // namespace
}  // namespace trainyard::local
