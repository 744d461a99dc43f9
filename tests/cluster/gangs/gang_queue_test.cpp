// Who may start, when others decide it too: a quota of the namespace, and a queue outside that suspends jobs.
#include <gmock/gmock.h>

#include "tests/cluster/gangs/gang_fixture.h"

namespace trainyard::gangs {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;

class GangQueue : public GangTest {};

TEST_F(GangQueue, AQuotaOfGpusIsToldAndObeyedAndCostsNothing) {
  MakeNodes(2);
  SetQuota(8);
  StartWatching();
  SubmitGang("a", 2, 8);
  const json refused = AwaitJob("a", [](const json& job) {
    return job.is_object() &&
           job.value("/status/reason"_json_pointer, "").find("exceeded quota: gpus") != std::string::npos;
  });
  EXPECT_THAT(refused["status"].value("reason", ""), HasSubstr("nvidia.com/gpu"));
  SetQuota(16);
  AwaitPhase("a", "Running");
  EXPECT_EQ(Paid("a"), 0);
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
  PatchSpec("a", {{"podTemplate", {{"spec", {{"nodeSelector", {{"kubernetes.io/hostname", chosen}}}}}}}});
  EXPECT_EQ(PhaseOf(JobNow("a")), "Suspended");
  PatchSpec("a", {{"suspend", false}});
  EXPECT_THAT(NodesOf(AwaitUp("a", 1)), Each(chosen));
  Finish("a");
  AwaitPhase("a", "Succeeded");
  EXPECT_EQ(Paid("a"), 0);
}

}  // namespace
}  // namespace trainyard::gangs
