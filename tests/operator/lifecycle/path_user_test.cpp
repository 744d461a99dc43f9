// Two jobs on one checkpoint directory: which directories meet, who waits, and what is said.
#include "operator/lifecycle/path_user.h"

#include <random>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/operator/lifecycle/scenario.h"
#include "tests/operator/placement/seed.h"

namespace trainyard::lifecycle {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

TEST(PathKey, IsOfTheVolumeAndNotOfItsName) {
  api::Spec spec;
  spec.volumes = {{.name = "one", .claim_name = "disk"},
                  {.name = "two", .claim_name = "disk"},
                  {.name = "host", .host_path = "/data//x/"},
                  {.name = "root", .host_path = "/"},
                  {.name = "scratch", .empty_dir = true}};
  EXPECT_EQ(PathKey(spec, "one", "a"), "persistentVolumeClaim/disk/a");
  EXPECT_EQ(PathKey(spec, "two", "./a//b/"), "persistentVolumeClaim/disk/a/b");
  EXPECT_EQ(PathKey(spec, "host", "a"), "hostPath/data/x/a");
  EXPECT_EQ(PathKey(spec, "root", "data/x/a"), "hostPath/data/x/a");
  EXPECT_EQ(PathKey(spec, "scratch", "a"), "");
  EXPECT_EQ(PathKey(spec, "none", "a"), "");
  EXPECT_EQ(DescribePath("persistentVolumeClaim/disk/a/b"), "path a/b of claim disk");
  EXPECT_EQ(DescribePath("hostPath/data/x/a"), "path /data/x/a of the node");
}

TEST(PathKey, MeetsWhatIsInsideAndAroundIt) {
  struct Row {
    const char *a, *b;
    bool meet;
  };
  for (const Row& row : {Row{"c/disk/a", "c/disk/a", true}, Row{"c/disk/a", "c/disk/a/b", true},
                         Row{"c/disk/a", "c/disk/ab", false}, Row{"c/disk/a", "c/disk/b", false},
                         Row{"c/disk/a", "c/disk2/a", false}, Row{"", "c/disk/a", false}, Row{"", "", false}}) {
    EXPECT_EQ(PathsMeet(row.a, row.b), row.meet) << row.a << " " << row.b;
    EXPECT_EQ(PathsMeet(row.b, row.a), row.meet) << row.a << " " << row.b;
  }
}

TEST(PathUser, IsAJobThatMayWrite) {
  Scenario s;
  api::TrainingJob& job = s.in.job;
  const auto holds = [&job] { return PathUserOf(job).has_value(); };
  EXPECT_EQ(PathUserOf(job)->checkpoints, "hostPath/data/ck/tiny") << "the path of a job without one is its name";
  job.spec.suspend = true;
  EXPECT_TRUE(holds());
  job.meta.deletion_time = s.in.now;
  EXPECT_TRUE(holds());
  job.spec.plan_only = true;
  EXPECT_FALSE(holds());
  job.status.placement.emplace();
  EXPECT_TRUE(holds()) << "its pods are there still";
  job.status.phase = api::Phase::kFailed;
  EXPECT_FALSE(holds());
  job.status = {};
  job.spec.plan_only = false;
  job.spec.managed_by = "kueue.x-k8s.io/multikueue";
  EXPECT_FALSE(holds()) << "another controller decides where it runs";
  job.spec.managed_by = "";
  job.spec.volumes[1] = {.name = "checkpoints", .empty_dir = true};
  EXPECT_FALSE(holds());
}

TEST(PathUser, IsNoJobThatCannotBePlannedAndHasNeverRun) {
  Scenario s;
  api::JobStatus& status = s.in.job.status;
  SetCondition(status, kPlanned, false, "DoesNotFit", "", 1, s.in.now);
  EXPECT_FALSE(PathUserOf(s.in.job));
  s.in.job.meta.generation = 2;
  EXPECT_TRUE(PathUserOf(s.in.job)) << "that spec has not been judged yet";
  SetCondition(status, kPlanned, false, "CheckpointPathInUse", "", 2, s.in.now);
  EXPECT_TRUE(PathUserOf(s.in.job));
  SetCondition(status, kPlanned, false, "DoesNotFit", "", 2, s.in.now);
  status.attempt = 1;
  EXPECT_TRUE(PathUserOf(s.in.job)) << "its checkpoints are there";
}

class PathInUse : public testing::Test {
 protected:
  PathInUse() {
    s.in.job.meta.creation_time = s.in.now;
    PathNeighbour& other = s.in.path_neighbours.emplace_back();
    other.job = *PathUserOf(s.in.job);
    other.job.name = "other";
    other.job.uid = "f";  // after that of the job
  }
  PathUser& Other() { return s.in.path_neighbours[0].job; }
  std::string Planned() {
    const api::Condition* condition = FindCondition(s.status(), kPlanned);
    return condition == nullptr ? "" : condition->reason;
  }

  Scenario s;
};

TEST_F(PathInUse, TheLaterOneWaitsWithoutPods) {
  Other().since = s.in.now - Milliseconds(1000);
  const Decision d = s.Step();
  EXPECT_EQ(s.Phase(), "Pending");
  EXPECT_EQ(s.ConditionReason(kPlanned), "False/CheckpointPathInUse");
  EXPECT_EQ(FindCondition(s.status(), kPlanned)->message,
            "path /data/ck/tiny of the node is in use by TrainingJob other, which was created first; this job starts "
            "when that one has ended or is deleted; to run beside it, create it with another spec.checkpoint.path");
  EXPECT_EQ(d.requeue_after, std::nullopt) << "the other one wakes it";
  EXPECT_THAT(d.actions, IsEmpty());
  ASSERT_EQ(d.events.size(), 1u);
  EXPECT_EQ(d.events[0].type + "/" + d.events[0].reason, "Warning/CheckpointPathInUse");
  EXPECT_THAT(s.Step().events, IsEmpty()) << "told once";
  EXPECT_FALSE(WaitingOf(s.in.job, s.options, {})) << "it keeps no GPUs from others";
  s.in.path_neighbours.clear();
  s.Start();
  EXPECT_EQ(s.Phase(), "Running");
}

TEST_F(PathInUse, WhoHoldsMoreGoesFirstThenTheOlderThenByUid) {
  struct Row {
    PathHold other;
    int64_t older_by_ms;
    const char* uid;
    bool waits;
  };
  for (const Row& row :
       {Row{PathHold::kNone, 0, "f", false}, Row{PathHold::kNone, 0, "0", true}, Row{PathHold::kNone, 1, "f", true},
        Row{PathHold::kNone, -1, "0", false}, Row{PathHold::kBegun, -1, "f", true},
        Row{PathHold::kClaimed, -1, "f", true}, Row{PathHold::kStarted, -1, "f", true}}) {
    Scenario fresh;
    std::swap(s.in.job.status, fresh.in.job.status);
    Other().hold = row.other;
    Other().since = s.in.now - Milliseconds(row.older_by_ms);
    Other().uid = row.uid;
    const Decision d = Decide(s.in, s.options);
    EXPECT_EQ(FindCondition(d.status, kPlanned)->reason == "CheckpointPathInUse", row.waits)
        << static_cast<int>(row.other) << " " << row.older_by_ms << " " << row.uid;
    EXPECT_EQ(d.status.placement.has_value(), !row.waits);
  }
}

// Whatever two jobs are, exactly one of them waits as long as neither is started.
TEST_F(PathInUse, NeverBothAndNeverNone) {
  std::mt19937_64 random(placement::Seed());
  for (int i = 0; i < 300; ++i) {
    const auto draw = [&](PathUser& user) {
      user.hold = static_cast<PathHold>(random() % 3);
      user.since = s.in.now - Milliseconds(random() % 2);
    };
    PathUser a = Other(), b = Other();
    a.uid = "a";
    b.uid = "b";
    draw(a);
    draw(b);
    const auto waits = [this](const PathUser& mine, const PathUser& other) {
      Input in = s.in;
      in.job.meta.uid = mine.uid;
      in.job.meta.creation_time = mine.since;
      if (mine.hold == PathHold::kBegun) in.job.status.attempt = 1;
      in.path_neighbours[0].job = other;
      in.pods_fresh = true;
      if (mine.hold < PathHold::kClaimed) {
        return FindCondition(Decide(in, s.options).status, kPlanned)->reason == "CheckpointPathInUse";
      }
      // A claim whose pods are there, and not started.
      PathNeighbour alone;
      std::swap(in.path_neighbours[0], alone);
      Scenario claimed;
      claimed.in = in;
      claimed.Step();
      claimed.in.path_neighbours = {alone};
      const Decision d = claimed.Step();
      return d.status.stop && d.status.stop->reason == std::string("Undo");
    };
    EXPECT_NE(waits(a, b), waits(b, a)) << "round " << i;
  }
}

TEST_F(PathInUse, AClaimIsTakenBackBeforeItsPodsStart) {
  PathNeighbour other;
  std::swap(other, s.in.path_neighbours[0]);
  s.Step();
  ASSERT_TRUE(s.status().placement);
  other.job.hold = PathHold::kStarted;  // of an operator that did not know of this one's claim
  s.in.path_neighbours = {other};
  s.Step();
  ASSERT_TRUE(s.status().stop);
  EXPECT_EQ(s.status().stop->reason, "Undo");
  EXPECT_THAT(s.status().reason, HasSubstr("is in use by TrainingJob other, which runs"));
  for (const api::PodSnapshot& pod : s.in.pods) EXPECT_TRUE(pod.gated && pod.deleting);
  s.Reap();
  s.Steps();
  EXPECT_EQ(s.ConditionReason(kPlanned), "False/CheckpointPathInUse");
  EXPECT_EQ(s.status().restarts.user + s.status().restarts.infrastructure, 0) << "no budget pays";
}

TEST_F(PathInUse, OneThatRunsIsLeftAlone) {
  PathNeighbour other;
  std::swap(other, s.in.path_neighbours[0]);
  s.Start();
  other.job.hold = PathHold::kStarted;
  other.job.since = s.in.now - Milliseconds(1000);
  s.in.path_neighbours = {other};
  s.Step();
  EXPECT_EQ(s.Phase(), "Running");
  EXPECT_EQ(s.ConditionReason(kPlanned), "True/Planned");
}

TEST_F(PathInUse, PodsThatAJobLeftBehindCount) {
  Other() = {};
  api::PodSnapshot pod;
  pod.name = "old-0";
  pod.phase = api::PodPhase::kRunning;
  pod.node = "node-0";
  s.in.path_neighbours[0].pods = {pod};
  s.Step();
  EXPECT_THAT(
      FindCondition(s.status(), kPlanned)->message,
      "path /data/ck/tiny of the node is still in use by pod old-0 of another job; this job starts when that pod "
      "is gone");
  // Deleted on a node that is lost: gone a minute later, and looked at then.
  s.in.path_neighbours[0].pods[0].deleting = true;
  s.in.nodes[0].ready = false;
  s.in.nodes[0].conditions["Ready"] = "Unknown";
  EXPECT_EQ(s.Step().requeue_after, s.options.pod_termination_timeout);
  s.in.now += s.options.pod_termination_timeout;
  s.Step();
  EXPECT_EQ(Planned(), "Planned");
}

TEST_F(PathInUse, SaysWhatStateTheOtherIsIn) {
  Other().since = s.in.now - Milliseconds(1000);
  const auto said = [this] {
    s.Step();
    return FindCondition(s.status(), kPlanned)->message;
  };
  Other().suspended = true;
  EXPECT_THAT(said(), HasSubstr("TrainingJob other, which is suspended and keeps its directory;"));
  Other().deleting = true;
  EXPECT_THAT(said(), HasSubstr("TrainingJob other, which is being deleted;"));
  Other().suspended = Other().deleting = false;
  Other().hold = PathHold::kBegun;
  EXPECT_THAT(said(), HasSubstr("TrainingJob other, which is between two attempts;"));
  Other().checkpoints += "/best";
  EXPECT_THAT(said(), HasSubstr("path /data/ck/tiny of the node meets path /data/ck/tiny/best of the node, which is in "
                                "use by TrainingJob other,"));
}

TEST_F(PathInUse, AnExportMayNotGoAmongTheCheckpointsOfAnother) {
  s.in.job.spec.checkpoint->export_on_success = api::VolumeDirectory{"corpus", "models/a"};
  Other().hold = PathHold::kStarted;
  Other().checkpoints = "persistentVolumeClaim/corpus/models";
  s.Step();
  EXPECT_EQ(
      FindCondition(s.status(), kPlanned)->message,
      "spec.checkpoint.exportOnSuccess: path models/a of claim corpus meets path models of claim corpus, which is in "
      "use by TrainingJob other, which runs; export to another path, or this job starts when that one has ended or "
      "is deleted");
  // The other way round it is the other's export that waits for its turn, or runs already.
  Other().checkpoints = "hostPath/elsewhere";
  Other().exports = "hostPath/data/ck/tiny/model";
  s.Step();
  EXPECT_EQ(Planned(), "CheckpointPathInUse");
  // Two exports find out by themselves: the second finds a directory that is not empty.
  Other().exports = "persistentVolumeClaim/corpus/models/a";
  s.Step();
  EXPECT_EQ(Planned(), "Planned");
}

}  // namespace
}  // namespace trainyard::lifecycle
