// The launcher as it is run: real processes, real signals.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/prctl.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "operator/http/server.h"
#include "tests/trainer/launch/subprocess.h"
#include "trainer/contract/contract.h"

namespace trainyard::launch {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;
using trainyard::testing::Await;
using trainyard::testing::HttpAsk;
using trainyard::testing::HttpBody;
using trainyard::testing::Slurp;
using trainyard::testing::Subprocess;
using trainyard::testing::TempDir;
using trainyard::testing::WriteText;

class LaunchTest : public ::testing::Test {
 protected:
  // Starts the launcher with `sh -c script` as the program of each rank; $D is the test's directory.
  std::unique_ptr<Subprocess> Launch(int ranks, const std::string& script, Subprocess::Environment more = {}) {
    return LaunchCommand(ranks, {"sh", "-c", script}, std::move(more));
  }
  std::unique_ptr<Subprocess> LaunchCommand(int ranks, std::vector<std::string> program,
                                            Subprocess::Environment more = {}) {
    Subprocess::Environment env = {{"NPROC_PER_NODE", std::to_string(ranks)},
                                   {"TRAINYARD_RUN_DIR", dir_ / "run"},
                                   {"TRAINYARD_STATUS_PORT", "0"},
                                   {"TRAINYARD_TERMINATION_LOG", dir_ / "end"},
                                   {"TRAINYARD_TOKEN", "secret"},
                                   {"D", dir_.path()}};
    for (auto& [name, value] : more) env[name] = value;
    program.insert(program.begin(), {TRAINYARD_BIN_DIR "/trainyard-launch", "--"});
    return std::make_unique<Subprocess>(program, env, dir_ / "log");
  }
  bool AwaitFile(const std::string& name) {
    return Await([&] { return !Slurp(dir_ / name).empty(); });
  }
  int StatusPort() {
    EXPECT_TRUE(AwaitFile("run/status.port"));
    return std::stoi(Slurp(dir_ / "run/status.port"));
  }
  nlohmann::json Termination() { return nlohmann::json::parse(Slurp(dir_ / "end")); }

  TempDir dir_;
};

TEST_F(LaunchTest, StartsEveryRankWithItsNumbers) {
  auto launcher = Launch(3, "echo $RANK/$WORLD_SIZE local $LOCAL_RANK round $TRAINYARD_ROUND >$D/rank$RANK");
  EXPECT_EQ(launcher->Wait(), 0) << launcher->Log();
  for (int rank = 0; rank < 3; ++rank) {
    const std::string r = std::to_string(rank);
    EXPECT_EQ(Slurp(dir_ / ("rank" + r)), r + "/3 local " + r + " round 0\n");
  }
  EXPECT_EQ(Termination()["class"], "None");
  EXPECT_EQ(Termination()["exitCode"], 0);
}

TEST_F(LaunchTest, FirstFailureEndsThePeersAndNamesTheClass) {
  auto launcher = Launch(3,
                         "if [ $RANK = 1 ]; then echo some noise >&2; echo 'trainyard-trainer: rank 1: no data' >&2; "
                         "exit 3; fi; exec sleep 1000");
  EXPECT_EQ(launcher->Wait(), 3);
  EXPECT_THAT(launcher->Log(), HasSubstr("[rank 1] some noise\n"));
  const auto end = Termination();
  EXPECT_EQ(end["class"], "Configuration");
  EXPECT_EQ(end["rank"], 1);
  EXPECT_EQ(end["message"], "trainyard-trainer: rank 1: no data");
}

TEST_F(LaunchTest, PeersThatIgnoreTheSignalAreKilled) {
  auto launcher =
      Launch(2,
             "if [ $RANK = 0 ]; then while [ ! -e $D/ready ]; do sleep 0.01; done; exit 7; fi; trap '' TERM; "
             "echo >$D/ready; while :; do sleep 0.05; done");
  EXPECT_EQ(launcher->Wait(), 7);
  EXPECT_THAT(launcher->Log(), HasSubstr("did not stop in time"));
  EXPECT_EQ(Termination()["class"], "OutOfMemory");
}

TEST_F(LaunchTest, ReportsARankThatWasKilled) {
  auto launcher = Launch(2, "echo $$ >$D/pid$RANK; echo alive >&2; exec sleep 1000");
  ASSERT_TRUE(AwaitFile("pid1"));
  ASSERT_TRUE(Await([&] { return launcher->Log().find("[rank 1] alive") != std::string::npos; }));
  kill(std::stoi(Slurp(dir_ / "pid1")), SIGKILL);
  EXPECT_EQ(launcher->Wait(), 128 + SIGKILL);
  const auto end = Termination();
  EXPECT_EQ(end["class"], "Killed");
  EXPECT_EQ(end["signal"], SIGKILL);
  EXPECT_THAT(end["message"], HasSubstr("alive"));
}

TEST_F(LaunchTest, PassesStopOnAndReportsStopped) {
  auto launcher = Launch(2, "trap 'exit 10' TERM; echo >$D/ready$RANK; while :; do sleep 0.02; done");
  ASSERT_TRUE(AwaitFile("ready0") && AwaitFile("ready1"));
  launcher->Signal(SIGTERM);
  EXPECT_EQ(launcher->Wait(), contract::kExitStopped);
  EXPECT_EQ(Termination()["class"], "None");
}

TEST_F(LaunchTest, ARankThatHasLostItsPeersEndsTheWaitOfAStop) {
  auto launcher = Launch(2,
                         "if [ $RANK = 0 ]; then trap 'exit 6' TERM; else trap '' TERM; fi; echo >$D/ready$RANK; "
                         "while :; do sleep 0.02; done",
                         {{"TRAINYARD_GRACE_SECONDS", "1000"}});
  ASSERT_TRUE(AwaitFile("ready0") && AwaitFile("ready1"));
  launcher->Signal(SIGTERM);
  EXPECT_EQ(launcher->Wait(), contract::kExitCommunication) << "seconds later, not at the end of the grace";
}

TEST_F(LaunchTest, KillsAfterTheGrace) {
  auto launcher =
      Launch(2, "trap '' TERM; echo >$D/ready$RANK; while :; do sleep 0.05; done", {{"TRAINYARD_GRACE_SECONDS", "1"}});
  ASSERT_TRUE(AwaitFile("ready0") && AwaitFile("ready1"));
  launcher->Signal(SIGINT);
  EXPECT_EQ(launcher->Wait(), 128 + SIGKILL);
}

TEST_F(LaunchTest, RanksDieWithTheLauncher) {
  prctl(PR_SET_CHILD_SUBREAPER, 1);  // the orphans come to us
  auto launcher = Launch(2, "trap '' TERM HUP; echo $$ >$D/pid$RANK; while :; do sleep 0.05; done");
  ASSERT_TRUE(AwaitFile("pid0") && AwaitFile("pid1"));
  launcher->Signal(SIGKILL);
  EXPECT_EQ(launcher->Wait(), 128 + SIGKILL);
  for (const char* name : {"pid0", "pid1"}) {
    const pid_t pid = std::stoi(Slurp(dir_ / name));
    int status = 0;
    ASSERT_TRUE(Await([&] { return waitpid(pid, &status, WNOHANG) == pid; }));
    EXPECT_EQ(WTERMSIG(status), SIGKILL);
  }
  prctl(PR_SET_CHILD_SUBREAPER, 0);
}

TEST_F(LaunchTest, LeavesNobodyBehind) {
  // The helper keeps the rank's standard error open and would hold up a launcher that waits for its end.
  auto launcher =
      Launch(1,
             "(trap '' TERM; echo >$D/helper; exec sleep 1000) & while [ ! -s $D/helper ]; do sleep 0.01; done; "
             "echo $! >$D/pid; exit 4");
  EXPECT_EQ(launcher->Wait(), 4);
  const std::string stat = "/proc/" + std::to_string(std::stoi(Slurp(dir_ / "pid"))) + "/stat";
  EXPECT_TRUE(Await([&] {
    const std::string text = Slurp(stat);
    return text.empty() || text.find(") Z ") != std::string::npos;
  }));
}

TEST_F(LaunchTest, ServesStatusAndGuardsPost) {
  auto launcher = Launch(2, "trap 'exit 10' TERM; echo >$D/ready$RANK-$TRAINYARD_ROUND; while :; do sleep 0.02; done",
                         {{"TRAINYARD_JOB_UID", "u-1"}, {"TRAINYARD_ATTEMPT", "4"}});
  ASSERT_TRUE(AwaitFile("ready0-0") && AwaitFile("ready1-0"));
  const int port = StatusPort();
  EXPECT_THAT(HttpAsk(port, "GET", "/healthz"), StartsWith("HTTP/1.1 200"));
  nlohmann::json status;
  // A rank can be quicker than the launcher, which notes it once it has started it.
  ASSERT_TRUE(Await([&] {
    status = nlohmann::json::parse(HttpBody(HttpAsk(port, "GET", "/status")));
    return status["launcher"]["ranks"].size() == 2;
  })) << status;
  EXPECT_EQ(status["phase"], "Starting");
  EXPECT_EQ(status["jobUid"], "u-1");
  EXPECT_EQ(status["attempt"], 4);
  WriteText(dir_ / "run/status.json", R"({"contract":1,"round":0,"phase":"Training","step":7,"loss":2.5})");
  status = nlohmann::json::parse(HttpBody(HttpAsk(port, "GET", "/status")));
  EXPECT_EQ(status["phase"], "Training");
  EXPECT_EQ(status["step"], 7);

  EXPECT_THAT(HttpAsk(port, "GET", "/nothing"), StartsWith("HTTP/1.1 404"));
  EXPECT_THAT(HttpAsk(port, "GET", "/stop"), StartsWith("HTTP/1.1 405"));
  EXPECT_THAT(HttpAsk(port, "POST", "/stop"), StartsWith("HTTP/1.1 401"));
  EXPECT_THAT(HttpAsk(port, "POST", "/stop", "secre"), StartsWith("HTTP/1.1 401"));
  EXPECT_THAT(HttpAsk(port, "POST", "/restart", "secret"), StartsWith("HTTP/1.1 202"));
  ASSERT_TRUE(AwaitFile("ready0-1") && AwaitFile("ready1-1")) << launcher->Log();
  status = nlohmann::json::parse(HttpBody(HttpAsk(port, "GET", "/status")));
  EXPECT_EQ(status["round"], 1);
  EXPECT_EQ(status["phase"], "Starting") << "the status of round 0 is old";
  EXPECT_THAT(HttpAsk(port, "POST", "/stop", "secret"), StartsWith("HTTP/1.1 202"));
  EXPECT_EQ(launcher->Wait(), contract::kExitStopped);
  EXPECT_EQ(Termination()["step"], 7);
}

TEST_F(LaunchTest, RefusesPostWithoutToken) {
  auto launcher = Launch(1, "exec sleep 1000", {{"TRAINYARD_TOKEN", ""}});
  EXPECT_THAT(HttpAsk(StatusPort(), "POST", "/stop", "x"), StartsWith("HTTP/1.1 403"));
}

TEST_F(LaunchTest, RestartIsForOneNode) {
  auto launcher = Launch(1, "exec sleep 1000", {{"NNODES", "2"}, {"MASTER_ADDR", "127.0.0.1"}});
  EXPECT_THAT(HttpAsk(StatusPort(), "POST", "/restart", "secret"), StartsWith("HTTP/1.1 409"));
}

TEST_F(LaunchTest, OtherNodesServeNothing) {
  auto launcher = Launch(1, "exit 0", {{"NNODES", "2"}, {"NODE_RANK", "1"}, {"MASTER_ADDR", "127.0.0.1"}});
  EXPECT_EQ(launcher->Wait(), 0);
  EXPECT_EQ(Slurp(dir_ / "run/status.port"), "");
}

TEST_F(LaunchTest, SaysThatTheStatusPortIsTaken) {
  auto other = http::Server::Start({}, [](const http::Request&) { return http::Response(); });
  ASSERT_TRUE(other);
  const std::string port = std::to_string((*other)->port());
  auto launcher = Launch(1, "echo >$D/started", {{"TRAINYARD_STATUS_PORT", port}});
  EXPECT_EQ(launcher->Wait(), contract::kExitPortInUse);
  EXPECT_THAT(launcher->Log(), HasSubstr("127.0.0.1:" + port));
  EXPECT_EQ(Slurp(dir_ / "started"), "") << "no rank may start";
}

TEST_F(LaunchTest, MissingProgramIsAConfigurationError) {
  auto launcher = LaunchCommand(2, {"/no/such/program"});
  EXPECT_EQ(launcher->Wait(), contract::kExitConfiguration);
  EXPECT_THAT(Termination()["message"], HasSubstr("/no/such/program"));
}

TEST_F(LaunchTest, BadEnvironmentIsAConfigurationError) {
  auto launcher = Launch(1, "echo >$D/started", {{"NPROC_PER_NODE", "0"}});
  EXPECT_EQ(launcher->Wait(), contract::kExitConfiguration);
  EXPECT_THAT(launcher->Log(), HasSubstr("NPROC_PER_NODE: 0"));
  EXPECT_THAT(Termination()["message"], HasSubstr("NPROC_PER_NODE: 0"));
  EXPECT_EQ(Slurp(dir_ / "started"), "");
}

TEST_F(LaunchTest, UnwritableTerminationLogIsNotFatal) {
  auto launcher = Launch(1, "exit 0", {{"TRAINYARD_TERMINATION_LOG", "/no/such/directory/end"}});
  EXPECT_EQ(launcher->Wait(), 0);
  EXPECT_THAT(launcher->Log(), HasSubstr("/no/such/directory/end"));
}

TEST_F(LaunchTest, RanksInheritNoDescriptors) {
  auto launcher = Launch(1, "ls -l /proc/$$/fd >$D/fds");
  EXPECT_EQ(launcher->Wait(), 0);
  EXPECT_THAT(Slurp(dir_ / "fds"), Not(HasSubstr("socket:")));
  EXPECT_THAT(Slurp(dir_ / "fds"), Not(HasSubstr("anon_inode")));
}

}  // namespace
}  // namespace trainyard::launch
