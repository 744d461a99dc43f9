// Jobs and pods by what the controller asks for.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "operator/controller/job_index.h"
#include "operator/controller/pod_index.h"

namespace trainyard::controller {
namespace {

using cluster::ObjectKey;
using nlohmann::json;
using testing::ElementsAre;
using testing::IsEmpty;
using testing::UnorderedElementsAre;

JobPtr Job(const std::string& name, api::Phase phase, std::vector<placement::Booking> bookings = {}) {
  auto job = std::make_shared<JobRecord>();
  job->key = {"default", name};
  job->uid = "uid-of-" + name;
  job->job.status.phase = phase;
  job->bookings = std::move(bookings);
  return job;
}

TEST(JobIndex, FindsJobsByUidByPhaseAndByNode) {
  JobIndex index;
  const ObjectKey a{"default", "a"}, b{"default", "b"};
  index.Set(a, Job("a", api::Phase::kPlacing));
  index.Set(b, Job("b", api::Phase::kRunning, {{"uid-of-b", 1, "n1", 8}, {"uid-of-b", 1, "n2", 8}}));
  EXPECT_EQ(index.Find("uid-of-a"), a);
  EXPECT_THAT(index.Waiting(), ElementsAre(std::pair(std::string("uid-of-a"), a)));
  EXPECT_THAT(index.OnNode("n2"), ElementsAre(b));
  EXPECT_EQ(index.Phases().at(api::Phase::kRunning), 1);
  // It is placed, and the other one ends.
  index.Set(a, Job("a", api::Phase::kPlacing, {{"uid-of-a", 1, "n3", 8}}));
  index.Set(b, Job("b", api::Phase::kSucceeded));
  EXPECT_FALSE(index.AnyWaiting());
  EXPECT_THAT(index.OnNode("n2"), IsEmpty());
  EXPECT_THAT(index.OnNode("n3"), ElementsAre(a));
  index.Set(a, nullptr);
  EXPECT_EQ(index.Find("uid-of-a"), std::nullopt);
  EXPECT_EQ(index.Phases().at(api::Phase::kPlacing), 0);
}

TEST(JobIndex, ANewJobOfTheSameNameIsAnotherOne) {
  JobIndex index;
  const ObjectKey a{"default", "a"};
  index.Set(a, Job("a", api::Phase::kRunning));
  auto again = std::make_shared<JobRecord>(*Job("a", api::Phase::kPending));
  again->uid = "another";
  index.Set(a, again);
  EXPECT_EQ(index.Find("uid-of-a"), std::nullopt);
  EXPECT_EQ(index.Find("another"), a);
}

TEST(JobIndex, ARunningJobThatWantsAnotherSizeWaits) {
  JobIndex index;
  auto job = std::make_shared<JobRecord>(*Job("a", api::Phase::kRunning, {{"uid-of-a", 1, "n1", 8}}));
  job->job.meta.generation = 2;
  job->job.status.plan.emplace().generation = 1;
  index.Set(job->key, job);
  EXPECT_THAT(index.Waiting(), ElementsAre(std::pair(job->uid, job->key)));
}

json PodJson(const std::string& name, const std::string& uid, const std::string& job_uid) {
  json pod = {{"metadata", {{"namespace", "default"}, {"name", name}, {"uid", uid}}},
              {"spec", {{"nodeName", "n1"}, {"containers", json::array()}}}};
  if (!job_uid.empty()) pod["metadata"]["labels"]["trainyard.dev/job-uid"] = job_uid;
  return pod;
}

PodPtr Pod(const std::string& name, const std::string& uid, const std::string& job_uid) {
  return std::make_shared<const PodRecord>(*MakePodRecord(PodJson(name, uid, job_uid)));
}

std::vector<std::string> Names(PodIndex& index, TimePoint now = {}) {
  std::vector<std::string> names;
  for (const api::PodSnapshot& pod : index.Of("default", "job", now)) names.push_back(pod.name + "/" + pod.uid);
  return names;
}

TEST(PodIndex, KeepsOurPodsWholeAndOthersAsWhatTheyHold) {
  const PodPtr ours = Pod("a", "1", "job");
  const PodPtr foreign = Pod("b", "2", "");
  ASSERT_NE(ours->ours, nullptr);
  EXPECT_EQ(foreign->ours, nullptr);
  ASSERT_NE(foreign->use, nullptr);
  EXPECT_EQ(foreign->use->node, "n1");
  PodIndex index;
  index.Change(nullptr, ours);
  index.Change(nullptr, foreign);
  EXPECT_THAT(Names(index), ElementsAre("a/1"));
  EXPECT_THAT(index.Of("other", "job", {}), IsEmpty()) << "the label alone does not make it ours";
  index.Change(ours, nullptr);
  EXPECT_THAT(Names(index), IsEmpty());
}

TEST(PodIndex, TellsWhatPodsHoldThatAreGoneByNow) {
  PodIndex index;
  const PodPtr a = Pod("a", "1", "job"), b = Pod("b", "2", "job");
  index.Change(nullptr, a);
  index.Change(nullptr, b);
  index.Change(nullptr, Pod("c", "3", "other-job"));
  EXPECT_THAT(index.HeldBeside("job", {"2"}), ElementsAre(a->use));
  EXPECT_THAT(index.HeldBeside("job", {"1", "2"}), IsEmpty());
  EXPECT_THAT(index.HeldBeside("nobody", {}), IsEmpty());
}

// It has said last how far the job is, and what state it held.
TEST(PodIndex, RemembersHowRankZeroEndedByItself) {
  PodIndex index;
  for (const char* rank : {"1", "0"}) {
    json object = PodJson("a", rank, "job");
    object["metadata"]["labels"]["trainyard.dev/node-rank"] = rank;
    object["metadata"]["deletionTimestamp"] = "2026-01-31T12:00:00Z";
    object["status"] = {
        {"phase", "Failed"},
        {"containerStatuses", json::array({{{"name", "trainer"}, {"state", {{"terminated", {{"exitCode", 10}}}}}}})}};
    const PodPtr last = std::make_shared<const PodRecord>(*MakePodRecord(object));
    index.Change(nullptr, last);
    index.Change(last, nullptr);
  }
  const auto ended = index.EndedOf("default", "job");
  ASSERT_EQ(ended.size(), 1u);
  EXPECT_EQ(ended[0].node_rank, 0);
}

TEST(PodIndex, RemembersHowAPodEndedThatWasRemovedAtOnce) {
  PodIndex index;
  const auto pod = [](bool deleting, int exit_code) {
    json object = PodJson("a", "1", "job");
    if (deleting) object["metadata"]["deletionTimestamp"] = "2026-01-31T12:00:00Z";
    object["status"] = {{"phase", exit_code == 0 ? "Succeeded" : "Failed"},
                        {"containerStatuses",
                         json::array({{{"name", "trainer"}, {"state", {{"terminated", {{"exitCode", exit_code}}}}}}})}};
    return std::make_shared<const PodRecord>(*MakePodRecord(object));
  };
  for (const PodPtr& last : {pod(false, 137), pod(true, 0), pod(true, 137)}) {
    EXPECT_THAT(index.EndedOf("default", "job"), IsEmpty());
    index.Change(nullptr, last);
    index.Change(last, nullptr);
  }
  ASSERT_EQ(index.EndedOf("default", "job").size(), 1u);
  EXPECT_EQ(index.EndedOf("default", "job")[0].exit_code, 137);
  EXPECT_THAT(index.EndedOf("other", "job"), IsEmpty());
  EXPECT_THAT(index.EndedOf("default", "another"), IsEmpty());
  EXPECT_THAT(Names(index), IsEmpty()) << "it is gone";
}

TEST(PodIndex, APodThatWasJustCreatedCountsUntilTheWatchSpeaksOfIt) {
  PodIndex index;
  const TimePoint start{};
  index.Created(*Pod("a", "1", "job")->ours, start);
  index.Created(*Pod("b", "2", "job")->ours, start);
  EXPECT_THAT(Names(index), UnorderedElementsAre("a/1", "b/2"));
  const PodPtr seen = Pod("a", "1", "job");
  index.Change(nullptr, seen);
  EXPECT_THAT(Names(index), UnorderedElementsAre("a/1", "b/2"));
  index.Change(seen, nullptr);
  EXPECT_THAT(Names(index), ElementsAre("b/2"));
  EXPECT_THAT(Names(index, start + Milliseconds(29'999)), ElementsAre("b/2"));
  EXPECT_THAT(Names(index, start + Milliseconds(30'000)), IsEmpty()) << "the watch would have brought it";
}

TEST(PodIndex, AWatchThatWasFasterThanTheAnswerWins) {
  PodIndex index;
  const PodPtr seen = Pod("a", "1", "job");
  index.Change(nullptr, seen);
  index.Created(*Pod("a", "1", "job")->ours, {});
  index.Change(seen, nullptr);
  EXPECT_THAT(Names(index), IsEmpty());
}

}  // namespace
}  // namespace trainyard::controller
