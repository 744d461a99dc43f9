#include "operator/cluster/snapshot.h"

#include <random>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "operator/cluster/selector.h"

namespace trainyard::cluster {
namespace {

using nlohmann::json;

json Requests(const char* cpu, const char* memory, int gpus) {
  return {{"requests", {{"cpu", cpu}, {"memory", memory}}}, {"limits", {{"nvidia.com/gpu", gpus}}}};
}

json FullPod() {
  return {
      {"metadata",
       {{"namespace", "ns"},
        {"name", "job-ab12-3-1"},
        {"uid", "u1"},
        {"resourceVersion", "9"},
        {"creationTimestamp", "2026-01-31T12:00:00Z"},
        {"labels", {{"trainyard.dev/job-uid", "j1"}, {"trainyard.dev/attempt", "3"}, {"trainyard.dev/node-rank", "1"}}},
        {"ownerReferences", json::array({{{"uid", "other"}}, {{"uid", "j1"}, {"controller", true}}})}}},
      {"spec",
       {{"schedulingGates", json::array({{{"name", "trainyard.dev/gang"}}})},
        {"affinity",
         {{"nodeAffinity",
           {{"requiredDuringSchedulingIgnoredDuringExecution",
             {{"nodeSelectorTerms",
               json::array({{{"matchFields", json::array({{{"key", "metadata.name"},
                                                           {"operator", "In"},
                                                           {"values", json::array({"node-7"})}}})}}})}}}}}}},
        {"containers", json::array({{{"name", "trainer"}, {"resources", Requests("1500m", "2Gi", 4)}}})}}},
      {"status",
       {{"phase", "Failed"},
        {"podIP", "10.0.0.7"},
        {"conditions", json::array({{{"type", "Ready"}, {"status", "False"}}})},
        {"containerStatuses",
         json::array({{{"name", "sidecar"}, {"state", {{"terminated", {{"exitCode", 0}}}}}},
                      {{"name", "trainer"},
                       {"state", {{"terminated", {{"exitCode", 7}, {"reason", "Error"}, {"message", "m"}}}}}}})}}}};
}

TEST(PodSnapshot, ReadsWhatThePureRoomsNeed) {
  const Result<api::PodSnapshot> pod = PodFromJson(FullPod());
  ASSERT_TRUE(pod.has_value()) << pod.error().message;
  EXPECT_EQ(pod->name, "job-ab12-3-1");
  EXPECT_EQ(pod->owner_uid, "j1");
  EXPECT_EQ(pod->job_uid, "j1");
  EXPECT_EQ(pod->attempt, 3);
  EXPECT_EQ(pod->node_rank, 1);
  EXPECT_TRUE(pod->gated);
  EXPECT_FALSE(pod->foreign_gate);
  EXPECT_EQ(pod->pinned_node, "node-7");
  EXPECT_EQ(pod->phase, api::PodPhase::kFailed);
  EXPECT_EQ(pod->exit_code, 7);
  EXPECT_EQ(pod->termination_message, "m");
  EXPECT_EQ(pod->reason, "Error");
  EXPECT_EQ(pod->ip, "10.0.0.7");
  EXPECT_EQ(pod->gpus, 4);
  EXPECT_EQ(pod->requests.at("cpu"), 1500);
  EXPECT_EQ(pod->requests.at("memory"), 2ll << 30);
}

// max(containers + sidecars, init + sidecars before it) + overhead
TEST(PodSnapshot, CountsRequestsAsTheSchedulerDoes) {
  json pod = {
      {"metadata", {{"name", "p"}}},
      {"spec",
       {{"containers", json::array({{{"name", "a"}, {"resources", Requests("1", "1Gi", 2)}},
                                    {{"name", "b"}, {"resources", Requests("1", "1Gi", 2)}}})},
        {"initContainers",
         json::array({{{"name", "side"}, {"restartPolicy", "Always"}, {"resources", Requests("1", "1Gi", 1)}},
                      {{"name", "init"}, {"resources", Requests("6", "1Gi", 3)}},
                      {{"name", "late"}, {"restartPolicy", "Always"}, {"resources", Requests("1", "1Gi", 0)}}})},
        {"overhead", {{"cpu", "250m"}}}}}};
  Result<api::PodSnapshot> snapshot = PodFromJson(pod);
  ASSERT_TRUE(snapshot.has_value()) << snapshot.error().message;
  EXPECT_EQ(snapshot->requests.at("cpu"), 7250);          // init 6 + sidecar 1 + overhead
  EXPECT_EQ(snapshot->requests.at("memory"), 4ll << 30);  // 2 containers + 2 sidecars
  EXPECT_EQ(snapshot->gpus, 5);                           // 4 + 1 sidecar beats 3 + 1

  pod["spec"]["resources"] = {{"requests", {{"cpu", "3"}, {"memory", "9Gi"}}}};
  snapshot = PodFromJson(pod);
  EXPECT_EQ(snapshot->requests.at("cpu"), 3250) << "a pod-level request wins";
  EXPECT_EQ(snapshot->requests.at("memory"), 9ll << 30);
  EXPECT_EQ(snapshot->gpus, 5);

  pod["spec"].erase("resources");
  pod["status"]["containerStatuses"] = json::array({{{"name", "a"}, {"allocatedResources", {{"memory", "5Gi"}}}}});
  EXPECT_EQ(PodFromJson(pod)->requests.at("memory"), 8ll << 30) << "what the node still holds counts";
}

TEST(PodSnapshot, TellsWhyAPodWaits) {
  json pod = {{"metadata", {{"name", "p"}}},
              {"spec", json::object()},
              {"status",
               {{"conditions", json::array({{{"type", "PodScheduled"},
                                             {"status", "False"},
                                             {"reason", "Unschedulable"},
                                             {"message", "0/3 nodes are available"}}})}}}};
  EXPECT_EQ(PodFromJson(pod)->reason, "Unschedulable");
  EXPECT_EQ(PodFromJson(pod)->message, "0/3 nodes are available");
  pod["status"] = {{"containerStatuses",
                    json::array({{{"name", "trainer"},
                                  {"state", {{"waiting", {{"reason", "ImagePullBackOff"}, {"message", "m"}}}}}}})}};
  EXPECT_EQ(PodFromJson(pod)->reason, "ImagePullBackOff");
}

TEST(PodSnapshot, NamesTheObjectAndTheFieldThatIsWrong) {
  json pod = FullPod();
  pod["metadata"]["labels"]["trainyard.dev/attempt"] = "many";
  Result<api::PodSnapshot> snapshot = PodFromJson(pod);
  ASSERT_FALSE(snapshot.has_value());
  EXPECT_EQ(snapshot.error().message, "pod ns/job-ab12-3-1: trainyard.dev/attempt: \"many\" is not a count");
  pod = FullPod();
  pod["spec"]["containers"][0]["resources"]["requests"]["memory"] = "much";
  snapshot = PodFromJson(pod);
  ASSERT_FALSE(snapshot.has_value());
  EXPECT_NE(snapshot.error().message.find("pod ns/job-ab12-3-1: requests.memory: "), std::string::npos)
      << snapshot.error().message;
}

TEST(NodeSnapshot, ReadsLabelsTaintsConditionsAndAllocatable) {
  const json node = {
      {"metadata", {{"name", "n1"}, {"labels", {{"nvidia.com/gpu.product", "NVIDIA-H100-80GB-HBM3"}}}}},
      {"spec",
       {{"unschedulable", true}, {"taints", json::array({{{"key", "k"}, {"value", "v"}, {"effect", "NoSchedule"}}})}}},
      {"status",
       {{"allocatable", {{"nvidia.com/gpu", "8"}, {"cpu", "96"}, {"memory", "1000Ki"}}},
        {"conditions",
         json::array({{{"type", "Ready"}, {"status", "True"}, {"lastTransitionTime", "2026-01-31T12:00:00Z"}}})}}}};
  const Result<api::NodeSnapshot> snapshot = NodeFromJson(node);
  ASSERT_TRUE(snapshot.has_value()) << snapshot.error().message;
  EXPECT_TRUE(snapshot->ready);
  EXPECT_TRUE(snapshot->unschedulable);
  EXPECT_EQ(snapshot->allocatable.at("nvidia.com/gpu"), 8);
  EXPECT_EQ(snapshot->allocatable.at("cpu"), 96'000);
  EXPECT_EQ(snapshot->allocatable.at("memory"), 1'024'000);
  ASSERT_EQ(snapshot->taints.size(), 1u);
  EXPECT_EQ(snapshot->taints[0].effect, "NoSchedule");
  EXPECT_TRUE(snapshot->ready_transition_time.has_value());
}

// Replaces random parts of real objects by values of other types: an answer or an error, never a crash.
TEST(Snapshots, SurviveAnyJson) {
  const unsigned seed = std::random_device{}();
  RecordProperty("seed", static_cast<int>(seed));
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  const std::vector<json> junk = {nullptr,
                                  true,
                                  -1,
                                  1.5e308,
                                  18446744073709551615ull,
                                  "",
                                  "x",
                                  json::array(),
                                  json::object(),
                                  json::array({nullptr, 1, "x", json::object()}),
                                  {{"name", 1}}};
  int refused = 0;
  for (int i = 0; i < 4'000; ++i) {
    json pod = FullPod();
    const json flat = pod.flatten();
    auto place = flat.begin();
    std::advance(place, static_cast<long>(random() % flat.size()));
    json::json_pointer pointer(place.key());
    for (unsigned up = random() % 4; up > 0 && !pointer.empty(); --up) pointer = pointer.parent_pointer();
    pod[pointer] = junk[random() % junk.size()];
    if (const auto snapshot = PodFromJson(pod); !snapshot) {
      ++refused;
      EXPECT_FALSE(snapshot.error().message.empty());
    }
    if (const auto node = NodeFromJson(pod); !node) {
      EXPECT_FALSE(node.error().message.empty());
    }
  }
  EXPECT_GT(refused, 200);
  EXPECT_LT(refused, 4'000);
}

TEST(Selector, MatchesAsKubernetesDoes) {
  const json object = {{"metadata", {{"labels", {{"a", "1"}, {"b/c", "x"}}}}}};
  const auto matches = [&](const char* text) { return Selector::Parse(text)->Matches(object); };
  EXPECT_TRUE(matches(""));
  EXPECT_TRUE(matches("a=1"));
  EXPECT_TRUE(matches(" a == 1 , b/c in (y, x)"));
  EXPECT_TRUE(matches("missing!=1"));
  EXPECT_TRUE(matches("missing notin (1,2),!missing"));
  EXPECT_FALSE(matches("a!=1"));
  EXPECT_FALSE(matches("a=1,b/c notin (x)"));
  EXPECT_FALSE(matches("missing"));
  for (const char* bad : {"=1", "a in", "a in 1", "a within (1)", "a=(1", "a!==1", ",", "a=b c"}) {
    EXPECT_FALSE(Selector::Parse(bad).has_value()) << bad;
  }
}

TEST(PriorityClass, IsReadWithItsDefaults) {
  const auto plain = PriorityClassFromJson({{"metadata", {{"name", "batch"}}}, {"value", -5}});
  ASSERT_TRUE(plain.has_value()) << plain.error().message;
  EXPECT_EQ(plain->name, "batch");
  EXPECT_EQ(plain->value, -5);
  EXPECT_TRUE(plain->preempts);
  EXPECT_FALSE(plain->global_default);
  const auto polite = PriorityClassFromJson(
      {{"metadata", {{"name", "polite"}}}, {"value", 10}, {"preemptionPolicy", "Never"}, {"globalDefault", true}});
  ASSERT_TRUE(polite.has_value()) << polite.error().message;
  EXPECT_FALSE(polite->preempts);
  EXPECT_TRUE(polite->global_default);
}

TEST(PriorityClass, WhatCannotBeReadIsNamed) {
  EXPECT_FALSE(PriorityClassFromJson(nlohmann::json::array()).has_value());
  const auto bad = PriorityClassFromJson({{"metadata", {{"name", "odd"}}}, {"value", "high"}});
  ASSERT_FALSE(bad.has_value());
  EXPECT_THAT(bad.error().message, testing::HasSubstr("priority class odd: value"));
  EXPECT_FALSE(PriorityClassFromJson({{"value", 1}}).has_value());
}

}  // namespace
}  // namespace trainyard::cluster
