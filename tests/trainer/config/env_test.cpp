#include <map>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trainer/config/config.h"

namespace trainyard::config {
namespace {

using testing::AllOf;
using testing::HasSubstr;

Result<RankEnv> Read(const std::map<std::string, std::string>& values) {
  return ReadEnv([&](const char* name) -> const char* {
    const auto found = values.find(name);
    return found == values.end() ? nullptr : found->second.c_str();
  });
}

TEST(ReadEnv, DefaultsOfASingleRank) {
  const auto env = Read({{"RANK", "0"}, {"WORLD_SIZE", "1"}});
  ASSERT_TRUE(env.has_value()) << env.error().message;
  EXPECT_EQ(env->rank, 0);
  EXPECT_EQ(env->world, 1);
  EXPECT_EQ(env->master_port, 29500);
  EXPECT_EQ(env->job_file, "/etc/trainyard/job.json");
  EXPECT_EQ(env->volume_root, "/volumes");
  EXPECT_EQ(env->run_dir, "/run/trainyard");
  EXPECT_EQ(env->termination_log, "/dev/termination-log");
  EXPECT_EQ(env->pod_ip, "");
  EXPECT_EQ(env->collective_timeout_seconds, 300);
}

TEST(ReadEnv, ReadsEverything) {
  const auto env = Read({{"RANK", "5"},
                         {"WORLD_SIZE", "8"},
                         {"LOCAL_RANK", "1"},
                         {"NODE_RANK", "2"},
                         {"MASTER_ADDR", "tj-x"},
                         {"MASTER_PORT", "4000"},
                         {"TRAINYARD_JOB_UID", "abc"},
                         {"TRAINYARD_ATTEMPT", "3"},
                         {"TRAINYARD_ROUND", "1"},
                         {"TRAINYARD_JOB_FILE", "/j"},
                         {"TRAINYARD_VOLUME_ROOT", "/v"},
                         {"TRAINYARD_RUN_DIR", "/r"},
                         {"TRAINYARD_COLLECTIVE_TIMEOUT_SECONDS", "45"},
                         {"POD_IP", "10.0.0.1"}});
  ASSERT_TRUE(env.has_value()) << env.error().message;
  EXPECT_EQ(env->rank, 5);
  EXPECT_EQ(env->local_rank, 1);
  EXPECT_EQ(env->node_rank, 2);
  EXPECT_EQ(env->master_addr, "tj-x");
  EXPECT_EQ(env->master_port, 4000);
  EXPECT_EQ(env->RendezvousPrefix(), "abc/3/1");
  EXPECT_EQ(env->job_file, "/j");
  EXPECT_EQ(env->volume_root, "/v");
  EXPECT_EQ(env->run_dir, "/r");
  EXPECT_EQ(env->pod_ip, "10.0.0.1");
  EXPECT_EQ(env->collective_timeout_seconds, 45);
}

TEST(ReadEnv, ReportsAllProblemsInOneLine) {
  const auto env = Read({{"RANK", "x"}, {"MASTER_PORT", "70000"}, {"TRAINYARD_ATTEMPT", "-1"}});
  ASSERT_FALSE(env.has_value());
  EXPECT_EQ(env.error().code, ErrorCode::kInvalidArgument);
  EXPECT_THAT(env.error().message,
              AllOf(HasSubstr("RANK: \"x\" is not a whole number"), HasSubstr("WORLD_SIZE: is not set"),
                    HasSubstr("MASTER_PORT: 70000 is out of range"), HasSubstr("TRAINYARD_ATTEMPT: -1")));
}

TEST(ReadEnv, RankMustBeBelowTheWorldSize) {
  EXPECT_THAT(Read({{"RANK", "2"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "a"}}).error().message,
              HasSubstr("RANK: 2 is not below WORLD_SIZE 2"));
  EXPECT_THAT(Read({{"RANK", "1"}, {"WORLD_SIZE", "2"}}).error().message, HasSubstr("MASTER_ADDR: is not set"));
  EXPECT_FALSE(Read({{"RANK", "1 "}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "a"}}).has_value());
  EXPECT_FALSE(Read({{"RANK", "99999999999999999999"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "a"}}).has_value());
}

}  // namespace
}  // namespace trainyard::config
