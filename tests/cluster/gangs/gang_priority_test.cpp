// A more important gang takes the place of less important ones: whole gangs, after they have saved, at no cost to them.
#include <gmock/gmock.h>

#include <algorithm>
#include <mutex>
#include <set>

#include "tests/cluster/gangs/gang_fixture.h"
#include "trainer/contract/contract.h"

namespace trainyard::gangs {
namespace {

using cluster::Kind;
using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;
using ::testing::UnorderedElementsAreArray;

class GangPriority : public GangTest {
 protected:
  void SetUp() override {
    GangTest::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    for (const auto& [name, value] : kClasses) {
      const auto made = direct().Create(Kind::kPriorityClass, {{"apiVersion", "scheduling.k8s.io/v1"},
                                                               {"kind", "PriorityClass"},
                                                               {"metadata", {{"name", name}}},
                                                               {"value", value}});
      ASSERT_TRUE(made) << made.error().message;
    }
  }

  void TearDown() override {
    GangTest::TearDown();
    if (IsSkipped()) return;
    for (const auto& [name, value] : kClasses) (void)direct().Delete(Kind::kPriorityClass, {"", name}, {});
  }

  // Containers exit as a program does that was told to stop, when they have saved.
  void MakeNodesThatSave(int count) {
    MakeNodes(count, {.exit_on_term = 143, .saves = [this](const json& pod) {
                        std::lock_guard lock(mutex_);
                        return saving_.contains(cluster::LabelOf(pod, contract::kLabelJobName));
                      }});
  }
  void Submit(const std::string& name, int pods, const std::string& priority_class) {
    SubmitGang(name, pods, 8, {{"priorityClassName", priority_class}});
  }
  // From now on the pods of this job save when they are told to stop, for as long as nobody says that they are done.
  void LetSave(const std::string& name) {
    std::lock_guard lock(mutex_);
    saving_.insert(name);
  }
  void HasSaved(const std::string& name) {
    {
      std::lock_guard lock(mutex_);
      saving_.erase(name);
    }
    kubelet_->LookAgain();
  }
  // All pods of the job are told to stop, and have all the time that a save may take.
  void AwaitSaving(const std::string& name, size_t pods) {
    EXPECT_TRUE(kubelet_->AwaitPods(
        kPatience,
        [&](const auto& now) {
          return pods == static_cast<size_t>(std::count_if(now.begin(), now.end(), [&](const auto& one) {
                   const json& pod = *one.second;
                   return cluster::LabelOf(pod, contract::kLabelJobName) == name &&
                          pod["metadata"].value("deletionGracePeriodSeconds", int64_t{-1}) ==
                              pod["spec"].at("terminationGracePeriodSeconds");
                 }));
        }))
        << name << " is not told to stop, with all its time";
  }
  static json ConditionOf(const json& job, const std::string& type) {
    for (const json& condition : job["status"].value("conditions", json::array())) {
      if (condition.value("type", "") == type) return condition;
    }
    return json::object();
  }
  // It stopped for another, holds nothing, and paid nothing.
  void AwaitMadeRoom(const std::string& name, int64_t attempt) {
    const json job = AwaitPhase(name, "Queued");
    EXPECT_FALSE(job["status"].contains("placement")) << job["status"].dump(1);
    EXPECT_EQ(AttemptOf(job), attempt);
    EXPECT_EQ(Paid(name), 0);
  }

  // These jobs get their turns, in whatever order, and end well.
  void SeeThrough(const std::vector<std::string>& names) {
    EXPECT_TRUE(Eventually([&] {
      size_t succeeded = 0;
      for (const std::string& name : names) {
        const std::string phase = PhaseOf(JobNow(name));
        if (phase == "Running") Finish(name);
        succeeded += phase == "Succeeded";
      }
      return succeeded == names.size();
    }));
  }

  static inline const std::vector<std::pair<std::string, int>> kClasses = {{"gangs-low", 10}, {"gangs-high", 1000}};
  std::mutex mutex_;  // guards saving_
  std::set<std::string> saving_;
};

TEST_F(GangPriority, AGangThatMattersMoreTakesThePlaceOfOneThatMattersLess) {
  MakeNodesThatSave(2);
  StartWatching();
  Submit("low", 2, "gangs-low");
  const std::vector<std::string> place = NodesOf(AwaitUp("low", 1));
  LetSave("low");
  Submit("high", 2, "gangs-high");
  AwaitSaving("low", 2);
  const json waits = AwaitPhase("high", "Queued");
  EXPECT_THAT(waits["status"].value("reason", ""), HasSubstr(ns_ + "/low (16 GPUs"));
  EXPECT_FALSE(waits["status"].contains("placement")) << "it holds GPUs while it waits";
  HasSaved("low");
  EXPECT_THAT(NodesOf(AwaitUp("high", 1)), UnorderedElementsAreArray(place));
  AwaitMadeRoom("low", 1);
  Finish("high");
  AwaitPhase("high", "Succeeded");
  AwaitUp("low", 2);
  EXPECT_EQ(Paid("low"), 0);
  Finish("low");
  AwaitPhase("low", "Succeeded");
  EXPECT_EQ(History().undone, 0);
}

// What the first of them leaves is kept until the second has left as well: from it, and from whoever comes meanwhile.
TEST_F(GangPriority, WhatTwoVictimsLeaveIsKeptForWhomTheyStopped) {
  MakeNodesThatSave(2);
  StartWatching();
  for (const char* name : {"a", "b"}) {
    Submit(name, 1, "gangs-low");
    AwaitUp(name, 1);
    LetSave(name);
  }
  Submit("high", 2, "gangs-high");
  AwaitSaving("a", 1), AwaitSaving("b", 1);
  HasSaved("a");
  AwaitMadeRoom("a", 1);
  // Each is decided on while a node is free.
  for (const char* newcomer : {"c", "d"}) {
    Submit(newcomer, 1, "gangs-low");
    const json waits = AwaitPhase(newcomer, "Queued");
    EXPECT_THAT(waits["status"].value("reason", ""), HasSubstr("behind " + ns_ + "/high (16 GPUs, priority 1000)"));
  }
  HasSaved("b");
  AwaitUp("high", 1);
  AwaitMadeRoom("a", 1), AwaitMadeRoom("b", 1);
  for (const auto& [uid, pod] : kubelet_->Seen()) EXPECT_THAT(pod, Not(AnyOf(StartsWith("c-"), StartsWith("d-"))));
  Finish("high");
  SeeThrough({"high", "a", "b", "c", "d"});
  for (const char* name : {"a", "b", "c", "d"}) {
    EXPECT_EQ(AttemptOf(JobNow(name)), *name < 'c' ? 2 : 1) << name;
    EXPECT_EQ(Paid(name), 0) << name;
  }
  EXPECT_EQ(History().undone, 0);
}

// Its pods are refused by a quota after it has got its place: nobody stops for it again before it says anything new.
TEST_F(GangPriority, AGangThatCannotStartStopsOthersOnce) {
  MakeNodes(2);
  SetQuota(8);
  StartWatching();
  Submit("low", 1, "gangs-low");
  AwaitUp("low", 1);
  Submit("high", 2, "gangs-high");
  AwaitUp("low", 2);  // it stopped, high was refused, and it has its place again
  const json waits = AwaitPhase("high", "Queued");
  const json placed = ConditionOf(waits, "Placed");
  EXPECT_EQ(placed.value("reason", ""), "NoRoom") << waits["status"].dump(1);
  EXPECT_THAT(placed.value("message", ""), HasSubstr("held by " + ns_ + "/low (8 GPUs"));
  EXPECT_EQ(PhaseOf(JobNow("low")), "Running");
  EXPECT_EQ(AttemptOf(JobNow("low")), 2);
  EXPECT_EQ(Paid("low"), 0);
  // The quota alone gives it no new right, what its owner changes does.
  SetQuota(24);
  PatchSpec("high", {{"env", json::array({{{"name", "TRY"}, {"value", "again"}}})}});
  AwaitRunning("high", AttemptOf(JobNow("high")) + 1);
  AwaitMadeRoom("low", 2);
  Finish("high");
  AwaitPhase("high", "Succeeded");
  AwaitUp("low", 3);
  Finish("low");
  AwaitPhase("low", "Succeeded");
  EXPECT_EQ(Paid("low"), 0);
}

}  // namespace
}  // namespace trainyard::gangs
