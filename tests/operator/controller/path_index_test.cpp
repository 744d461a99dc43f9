// Directories by their paths: who is near whom, and who is woken.
#include "operator/controller/path_index.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "operator/controller/job_record.h"

namespace trainyard::controller {
namespace {

using lifecycle::PathHold;
using lifecycle::PathUser;
using nlohmann::json;
using testing::ElementsAre;
using testing::IsEmpty;

PathUser User(const std::string& uid, const std::string& path, const std::string& ns = "default") {
  PathUser user;
  user.uid = user.name = uid;
  user.ns = ns;
  user.checkpoints = "persistentVolumeClaim/disk/" + path;
  return user;
}

std::vector<std::string> Near(const PathIndex& index, const PathUser& asking) {
  std::vector<std::string> near;
  for (const lifecycle::PathNeighbour& one : index.Beside(asking)) near.push_back(one.job.uid);
  return near;
}

PodPtr Pod(const std::string& phase, bool gated = false, bool deleting = false) {
  json pod = {{"metadata",
               {{"namespace", "default"},
                {"name", "p"},
                {"uid", "pod-1"},
                {"labels", {{"trainyard.dev/job-uid", "gone"}}},
                {"annotations", {{"trainyard.dev/checkpoint-directory", "persistentVolumeClaim/disk/a"}}}}},
              {"spec", {{"nodeName", "n1"}, {"containers", json::array()}}},
              {"status", {{"phase", phase}}}};
  if (gated) pod["spec"]["schedulingGates"] = {{{"name", "trainyard.dev/gang"}}};
  if (deleting) pod["metadata"]["deletionTimestamp"] = "2026-01-31T12:00:00Z";
  return std::make_shared<const PodRecord>(*MakePodRecord(pod));
}

TEST(PathIndex, FindsWhatIsTheSameInsideAndAround) {
  PathIndex index;
  for (const char* path : {"a", "a/b", "a/b/c", "ab", "b", "a-"}) index.SetJob(path, User(path, path));
  index.SetJob("elsewhere", User("elsewhere", "a/b", "another"));
  EXPECT_THAT(Near(index, User("asks", "a/b")), ElementsAre("a", "a/b", "a/b/c"));
  EXPECT_THAT(Near(index, User("a/b", "a/b")), ElementsAre("a", "a/b/c")) << "nobody is beside itself";
  PathUser exports = User("asks", "c");
  exports.exports = "persistentVolumeClaim/disk/ab/model";
  EXPECT_THAT(Near(index, exports), ElementsAre("ab"));
  index.SetJob("a", std::nullopt);
  EXPECT_THAT(Near(index, User("asks", "a/b")), ElementsAre("a/b", "a/b/c"));
}

TEST(PathIndex, WakesThoseNearWhenSomethingChanges) {
  PathIndex index;
  EXPECT_THAT(index.SetJob("one", User("one", "a")), IsEmpty());
  EXPECT_THAT(index.SetJob("two", User("two", "a/b")), ElementsAre("one"));
  EXPECT_THAT(index.SetJob("two", User("two", "a/b")), IsEmpty()) << "nothing has changed";
  PathUser suspended = User("one", "a");
  suspended.suspended = true;
  EXPECT_THAT(index.SetJob("one", suspended), ElementsAre("two"));
  EXPECT_THAT(index.SetJob("one", User("one", "c")), ElementsAre("two")) << "it was near";
  EXPECT_THAT(index.SetJob("one", std::nullopt), IsEmpty());
}

TEST(PathIndex, WhatIsDecidedCountsUntilItIsWritten) {
  PathIndex index;
  index.SetJob("one", User("one", "a"));
  index.SetJob("two", User("two", "a"));
  PathUser claimed = User("one", "a");
  claimed.hold = PathHold::kClaimed;
  index.Decide("one", claimed);
  EXPECT_EQ(index.Beside(User("two", "a"))[0].job.hold, PathHold::kClaimed);
  EXPECT_THAT(index.SetJob("one", User("one", "a")), IsEmpty()) << "a late watch brings what was before";
  EXPECT_EQ(index.Beside(User("two", "a"))[0].job.hold, PathHold::kClaimed);
  EXPECT_THAT(index.Settle("one", User("one", "a")), ElementsAre("two")) << "the write was refused";
  EXPECT_EQ(index.Beside(User("two", "a"))[0].job.hold, PathHold::kNone);
  // The end of a job is decided, and not written yet.
  index.Decide("one", std::nullopt);
  EXPECT_THAT(Near(index, User("two", "a")), ElementsAre("one"));
  EXPECT_THAT(index.Settle("one", std::nullopt), ElementsAre("two"));
  EXPECT_THAT(Near(index, User("two", "a")), IsEmpty());
}

TEST(PathIndex, StartedPodsOfAJobThatIsGoneCountUntilTheyEnd) {
  PathIndex index;
  index.SetJob("two", User("two", "a"));
  EXPECT_THAT(index.ChangePod(nullptr, Pod("Pending", true)), IsEmpty()) << "nothing of it runs";
  EXPECT_THAT(index.ChangePod(Pod("Pending", true), Pod("Running")), ElementsAre("two"));
  ASSERT_EQ(index.Beside(User("two", "a")).size(), 1u);
  EXPECT_EQ(index.Beside(User("two", "a"))[0].pods[0].name, "p");
  EXPECT_EQ(index.Beside(User("two", "a"))[0].job.name, "");
  EXPECT_THAT(index.ChangePod(Pod("Running"), Pod("Running")), IsEmpty());
  EXPECT_THAT(index.ChangePod(Pod("Running"), Pod("Running", false, true)), ElementsAre("two"));
  EXPECT_THAT(index.ChangePod(Pod("Running", false, true), nullptr), ElementsAre("two"));
  EXPECT_THAT(Near(index, User("two", "a")), IsEmpty());
}

// Each asks for its own directory among those of all others in one volume, as all do when an operator starts.
TEST(PathIndex, ThousandsOfJobsInOneVolumeAreFoundByTheirPaths) {
  constexpr int kJobs = 20'000;
  PathIndex index;
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < kJobs; ++i) {
    const PathUser user = User("job-" + std::to_string(i), "runs/" + std::to_string(i));
    index.SetJob(user.uid, user);
    EXPECT_THAT(index.Beside(user), IsEmpty());
  }
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  // 20 times a thousand: a scan would be 400 times the work of one thousand, minutes here.
  EXPECT_LT(took.count(), 20) << "seconds for " << kJobs;
}

}  // namespace
}  // namespace trainyard::controller
