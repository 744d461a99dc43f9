// Who may start, when others decide it too: a quota of the namespace, and a queue outside that suspends jobs.
#include <gmock/gmock.h>

#include "tests/cluster/gangs/gang_fixture.h"

namespace trainyard::gangs {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;

class GangQueue : public GangTest {
 protected:
  int64_t Paid(const json& job) {
    const json restarts = job["status"].value("restarts", json::object());
    return restarts.value("user", int64_t{0}) + restarts.value("infrastructure", int64_t{0});
  }
  void Patch(const std::string& name, const json& spec) {
    const auto patched =
        direct().Patch(cluster::Kind::kTrainingJob, {ns_, name}, cluster::PatchType::kMerge, {{"spec", spec}}, false);
    ASSERT_TRUE(patched) << patched.error().message;
  }
};

TEST_F(GangQueue, AQuotaOfGpusIsToldAndObeyedAndCostsNothing) {
  MakeNodes(2);
  const auto quota = [](const char* gpus) {
    return json{{"apiVersion", "v1"},
                {"kind", "ResourceQuota"},
                {"metadata", {{"name", "gpus"}}},
                {"spec", {{"hard", {{"requests.nvidia.com/gpu", gpus}}}}}}
        .dump();
  };
  plane().MustKubectl({"-n", ns_, "create", "-f", "-"}, quota("8"));
  plane().MustKubectl({"-n", ns_, "wait", "--for=jsonpath={.status.hard}", "--timeout=60s", "resourcequota/gpus"});
  StartWatching();
  SubmitGang("a", 2, 8);
  const json refused = AwaitJob("a", [](const json& job) {
    return job.is_object() &&
           job.value("/status/reason"_json_pointer, "").find("exceeded quota: gpus") != std::string::npos;
  });
  EXPECT_THAT(refused["status"].value("reason", ""), HasSubstr("nvidia.com/gpu"));
  plane().MustKubectl({"-n", ns_, "apply", "-f", "-"}, quota("16"));
  const json job = AwaitJob("a", [](const json& now) { return PhaseOf(now) == "Running"; });
  EXPECT_EQ(Paid(job), 0);
  Finish("a");
  AwaitPhase("a", "Succeeded");
}

// A queue outside creates or finds the job suspended, says where it may run, and lets it go.
TEST_F(GangQueue, AnOutsideQueueMayHoldAJobAndSayWhereItRuns) {
  MakeNodes(3);
  const std::string chosen = nodes_->names()[2];
  StartWatching();
  SubmitGang("a", 1, 8, {{"suspend", true}});
  AwaitPhase("a", "Suspended");
  Patch("a", {{"podTemplate", {{"spec", {{"nodeSelector", {{"kubernetes.io/hostname", chosen}}}}}}}});
  EXPECT_EQ(PhaseOf(JobNow("a")), "Suspended");
  Patch("a", {{"suspend", false}});
  EXPECT_THAT(NodesOf(AwaitUp("a", 1)), Each(chosen));
  Finish("a");
  EXPECT_EQ(Paid(AwaitPhase("a", "Succeeded")), 0);
}

}  // namespace
}  // namespace trainyard::gangs
