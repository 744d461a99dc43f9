// What is told while a gang starts, and how seldom: each change of a reason is a write.
#include <set>

#include <gmock/gmock.h>

#include "operator/api/json.h"
#include "operator/lifecycle/pod_builder.h"
#include "tests/operator/lifecycle/scenario.h"

namespace trainyard::lifecycle {
namespace {

using testing::HasSubstr;
using testing::Not;

TEST(WaitingReason, IsToldOnlyOfPodsThatDoNotStartSoon) {
  Scenario s;
  s.in.job.spec.gpus.count = 4;
  s.Steps();
  ASSERT_TRUE(s.status().started);
  const std::string started = s.status().reason;
  EXPECT_THAT(started, HasSubstr("all 2 pods exist"));
  const Decision soon = s.Step();
  EXPECT_EQ(soon.status.reason, started);
  ASSERT_TRUE(soon.requeue_after);
  EXPECT_LE(*soon.requeue_after, s.options.waiting_settle);
  s.in.now += s.options.waiting_settle;
  s.Step();
  EXPECT_THAT(s.status().reason, HasSubstr("pods to be scheduled"));
}

TEST(WaitingReason, ChangesWithWhatIsWaitedForAndNotWithHowManyDo) {
  Scenario s(8, 2);
  s.in.job.spec.gpus.count = 16;
  s.Steps();
  s.in.now += s.options.waiting_settle;
  std::set<std::string> reasons;
  for (api::PodSnapshot& pod : s.in.pods) {
    pod.node = pod.pinned_node;
    s.Step();
    reasons.insert(s.status().reason);
  }
  EXPECT_EQ(reasons.size(), 2u) << testing::PrintToString(reasons);
  s.in.pods[3].reason = "ImagePullBackOff";
  s.Step();
  EXPECT_THAT(s.status().reason, HasSubstr("ImagePullBackOff"));
}

TEST(WaitingReason, AReasonThatIsInTheMessageIsNotToldTwice) {
  Scenario s;
  s.in.job.spec.model.architecture->layers = 200;
  s.in.job.spec.model.architecture->hidden_size = 16384;
  s.in.job.spec.model.architecture->attention_heads = 128;
  s.in.job.spec.model.architecture->kv_heads = 128;
  s.Step();
  EXPECT_THAT(s.status().reason, testing::StartsWith("DoesNotFit: "));
  EXPECT_THAT(s.status().reason.substr(5), Not(HasSubstr("DoesNotFit")));
}

nlohmann::json Threads(const Scenario& s) {
  const nlohmann::json pod = BuildPod(s.in.job, 0, s.options);
  for (const nlohmann::json& variable : pod["spec"]["containers"][0]["env"]) {
    if (variable["name"] == "OMP_NUM_THREADS") return variable["value"];
  }
  return nullptr;
}

TEST(Threads, FollowTheCpuRequestWhereOptionsSaySoUnlessTheUserDoes) {
  Scenario s;
  s.options.cpu_milli_per_gpu = 6500;
  s.Step();
  EXPECT_EQ(Threads(s), nullptr);
  s.options.threads_from_request = true;
  EXPECT_EQ(Threads(s), "6");
  s.in.job.status.trainer->cpu_milli_per_gpu = 300;
  EXPECT_EQ(Threads(s), "1");
  s.in.job.spec.env = {{"OMP_NUM_THREADS", "11"}};
  EXPECT_EQ(Threads(s), "11");
}

}  // namespace
}  // namespace trainyard::lifecycle
