#include "operator/local/pod_process.h"

#include <cstdlib>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace trainyard::local {
namespace {

using nlohmann::json;
using testing::Contains;
using testing::ElementsAre;

json Pod() {
  return {{"metadata", {{"name", "a"}, {"uid", "u"}}},
          {"spec", {{"containers", json::array({{{"name", "trainer"}, {"command", {"/bin/echo"}}}})}}}};
}

ProcessContext Context() {
  ProcessContext context;
  context.inherited = {{"PATH", "/usr/bin:/bin"}, {"HOME", "/home/me"}};
  context.cores = 8;
  context.master_port = 23'456;
  return context;
}

TEST(MakeProcess, ExpandsVariablesInCommandAndArguments) {
  json pod = Pod();
  json& container = pod["spec"]["containers"][0];
  container["env"] = {{{"name", "A"}, {"value", "1"}}, {{"name", "B"}, {"value", "$(A)2"}}};
  container["command"] = {"sh", "-c", "$(B)"};
  container["args"] = {"$$(B)", "$(MISSING)", "$", "$(B"};
  const auto process = MakeProcess(pod, PodDirectory("/state", "a"), Context());
  ASSERT_TRUE(process.has_value()) << process.error().message;
  EXPECT_EQ(process->program, "/usr/bin/sh");
  EXPECT_THAT(process->arguments, ElementsAre("sh", "-c", "12", "$(B)", "$(MISSING)", "$", "$(B"));
}

TEST(MakeProcess, SharesTheCoresAmongTheProcessesOfTheAttempt) {
  json pod = Pod();
  json& env = pod["spec"]["containers"][0]["env"];
  env = {{{"name", "WORLD_SIZE"}, {"value", "4"}}};
  EXPECT_THAT(MakeProcess(pod, PodDirectory("/state", "a"), Context())->environment, Contains("OMP_NUM_THREADS=2"));
  env.push_back({{"name", "OMP_NUM_THREADS"}, {"value", "7"}});
  EXPECT_THAT(MakeProcess(pod, PodDirectory("/state", "a"), Context())->environment, Contains("OMP_NUM_THREADS=7"));
}

TEST(MakeProcess, MovesTheRendezvousOfTorchrunToo) {
  json pod = Pod();
  pod["spec"]["containers"][0]["env"] = {{{"name", "PET_RDZV_ENDPOINT"}, {"value", "tj-a:29500"}},
                                         {{"name", "PET_MASTER_PORT"}, {"value", "29500"}}};
  const auto process = MakeProcess(pod, PodDirectory("/state", "a"), Context());
  EXPECT_THAT(process->environment, Contains("PET_RDZV_ENDPOINT=127.0.0.1:23456"));
  EXPECT_THAT(process->environment, Contains("PET_MASTER_PORT=23456"));
  EXPECT_THAT(process->environment, Contains("HOME=/home/me"));
}

TEST(MakeProcess, APodWithoutACommandRunsTheLauncherBesideUs) {
  json pod = Pod();
  pod["spec"]["containers"][0].erase("command");
  ProcessContext context = Context();
  context.program_dir = "/no/such/directory";
  const auto process = MakeProcess(pod, PodDirectory("/state", "a"), context);
  ASSERT_FALSE(process.has_value());
  EXPECT_EQ(process.error().code, ErrorCode::kNotFound);
  EXPECT_NE(process.error().message.find("trainyard-launch"), std::string::npos);
}

TEST(MakeProcess, RefusesWhatALocalClusterCannotRun) {
  json pod = Pod();
  pod["spec"]["initContainers"] = {{{"name", "first"}}};
  EXPECT_EQ(MakeProcess(pod, PodDirectory("/state", "a"), Context()).error().code, ErrorCode::kInvalidArgument);
  pod = Pod();
  pod["spec"]["containers"][0]["command"] = {1, 2};
  EXPECT_EQ(MakeProcess(pod, PodDirectory("/state", "a"), Context()).error().code, ErrorCode::kInvalidArgument);
}

TEST(InheritedEnvironment, LeavesOutWhatMeansSomethingToATrainer) {
  setenv("TRAINYARD_JOB_FILE", "/mine", 1);
  setenv("RANK", "3", 1);
  setenv("ORDINARY", "yes", 1);
  const auto inherited = InheritedEnvironment();
  EXPECT_FALSE(inherited.contains("TRAINYARD_JOB_FILE"));
  EXPECT_FALSE(inherited.contains("RANK"));
  EXPECT_EQ(inherited.at("ORDINARY"), "yes");
}

}  // namespace
}  // namespace trainyard::local
