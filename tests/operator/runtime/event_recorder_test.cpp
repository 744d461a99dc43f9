#include "operator/runtime/event_recorder.h"

#include <map>
#include <mutex>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/operator/runtime/store_cluster.h"

namespace trainyard::runtime {
namespace {

using cluster::Kind;
using nlohmann::json;

constexpr Milliseconds kPatience{20'000};

class EventRecorderTest : public testing::Test {
 protected:
  EventRecorderOptions Options() {
    EventRecorderOptions options;
    options.retry_after = Milliseconds(1);
    options.now = [this] { return now_; };
    options.on_result = [this](const char* result) {
      std::lock_guard lock(mutex_);
      ++results_[result];
    };
    return options;
  }
  int Results(const std::string& result) {
    std::lock_guard lock(mutex_);
    return results_[result];
  }
  static EventRecorder::About Job(const std::string& name) {
    return {"trainyard.dev/v1alpha1", "TrainingJob", {"default", name}, "uid-of-" + name};
  }
  std::vector<cluster::Object> Events() { return cluster_.List(Kind::kEvent, {})->items; }

  FakeClock clock_{TimePoint(Milliseconds(1'800'000'000'000))};
  SteadyTime now_ = SteadyTime(std::chrono::seconds(1000));
  StoreCluster cluster_{clock_};
  std::mutex mutex_;  // guards results_
  std::map<std::string, int> results_;
};

TEST_F(EventRecorderTest, WritesWhatKubectlDescribeShows) {
  EventRecorder recorder(cluster_, clock_, Options());
  recorder.Record(Job("tiny"), "Normal", "Placed", "attempt 1: on node a");
  ASSERT_TRUE(recorder.Flush(kPatience));
  ASSERT_EQ(Events().size(), 1u);
  const json event = *Events()[0];
  EXPECT_THAT(event["metadata"]["name"].get<std::string>(), testing::StartsWith("tiny."));
  EXPECT_EQ(event["metadata"]["namespace"], "default");
  EXPECT_EQ(event["involvedObject"]["uid"], "uid-of-tiny");
  EXPECT_EQ(event["involvedObject"]["kind"], "TrainingJob");
  EXPECT_EQ(event["type"], "Normal");
  EXPECT_EQ(event["reason"], "Placed");
  EXPECT_EQ(event["message"], "attempt 1: on node a");
  EXPECT_EQ(event["count"], 1);
  EXPECT_EQ(event["firstTimestamp"], "2027-01-15T08:00:00Z");
  EXPECT_EQ(event["source"]["component"], "trainyard-operator");
}

TEST_F(EventRecorderTest, TheSameEventAgainIsACountOnTheFirst) {
  EventRecorder recorder(cluster_, clock_, Options());
  recorder.Record(Job("tiny"), "Warning", "NoRoom", "needs 8 GPUs");
  clock_.Advance(Milliseconds(60'000));
  recorder.Record(Job("tiny"), "Warning", "NoRoom", "needs 8 GPUs");
  recorder.Record(Job("tiny"), "Warning", "NoRoom", "needs 16 GPUs");
  recorder.Record(Job("other"), "Warning", "NoRoom", "needs 8 GPUs");
  ASSERT_TRUE(recorder.Flush(kPatience));
  ASSERT_EQ(Events().size(), 3u);
  int counted = 0;
  for (const auto& event : Events()) {
    if ((*event)["count"] == 1) continue;
    ++counted;
    EXPECT_EQ((*event)["count"], 2);
    EXPECT_EQ((*event)["firstTimestamp"], "2027-01-15T08:00:00Z");
    EXPECT_EQ((*event)["lastTimestamp"], "2027-01-15T08:01:00Z");
  }
  EXPECT_EQ(counted, 1);
}

TEST_F(EventRecorderTest, AnEventThatTheServerHasForgottenIsMadeAnew) {
  EventRecorder recorder(cluster_, clock_, Options());
  recorder.Record(Job("tiny"), "Normal", "Running", "again");
  ASSERT_TRUE(recorder.Flush(kPatience));
  ASSERT_TRUE(cluster_.Delete(Kind::kEvent, cluster::KeyOf(*Events()[0]), {}).has_value());
  recorder.Record(Job("tiny"), "Normal", "Running", "again");
  ASSERT_TRUE(recorder.Flush(kPatience));
  ASSERT_EQ(Events().size(), 1u);
  EXPECT_EQ((*Events()[0])["count"], 1);
}

TEST_F(EventRecorderTest, AnObjectThatWillNotBeQuietIsHeldTo25AndThenOneInFiveMinutes) {
  EventRecorder recorder(cluster_, clock_, Options());
  for (int i = 0; i < 100; ++i) recorder.Record(Job("loud"), "Normal", "Said", "word " + std::to_string(i));
  recorder.Record(Job("quiet"), "Normal", "Said", "a word");
  ASSERT_TRUE(recorder.Flush(kPatience));
  EXPECT_EQ(Events().size(), 26u);
  EXPECT_EQ(Results("dropped"), 75);
  now_ += std::chrono::minutes(5);
  recorder.Record(Job("loud"), "Normal", "Said", "after five minutes");
  recorder.Record(Job("loud"), "Normal", "Said", "and one more");
  ASSERT_TRUE(recorder.Flush(kPatience));
  EXPECT_EQ(Events().size(), 27u);
}

TEST_F(EventRecorderTest, AServerThatIsAwayIsTriedAgainAndThenTheEventIsGivenUp) {
  cluster_.SetAway(true);
  EventRecorder recorder(cluster_, clock_, Options());
  recorder.Record(Job("tiny"), "Normal", "Lost", "nobody will read this");
  ASSERT_TRUE(recorder.Flush(kPatience));
  EXPECT_EQ(Results("failed"), 1);
  cluster_.SetAway(false);
  recorder.Record(Job("tiny"), "Normal", "Running", "back");
  ASSERT_TRUE(recorder.Flush(kPatience));
  EXPECT_EQ(Events().size(), 1u);
  EXPECT_EQ(Results("written"), 1);
}

TEST_F(EventRecorderTest, AFullQueueDropsAndCounts) {
  cluster_.SetAway(true);
  EventRecorderOptions options = Options();
  options.max_queued = 10;
  options.burst = 1000;
  options.retry_after = std::chrono::hours(1);  // the first event keeps the thread
  EventRecorder recorder(cluster_, clock_, options);
  for (int i = 0; i < 50; ++i) recorder.Record(Job("tiny"), "Normal", "Said", std::to_string(i));
  EXPECT_GE(Results("dropped"), 39);
  recorder.Stop(Milliseconds(0));
  EXPECT_EQ(Results("dropped"), 50) << "none is lost uncounted";
}

TEST_F(EventRecorderTest, StopWritesWhatIsLeftAndTakesNoMore) {
  EventRecorder recorder(cluster_, clock_, Options());
  for (int i = 0; i < 20; ++i) recorder.Record(Job("tiny"), "Normal", "Said", std::to_string(i));
  recorder.Stop(kPatience);
  EXPECT_EQ(Events().size(), 20u);
  recorder.Record(Job("tiny"), "Normal", "Said", "too late");
  EXPECT_EQ(Results("dropped"), 1);
}

TEST_F(EventRecorderTest, ALongMessageIsCutBetweenCharacters) {
  EventRecorder recorder(cluster_, clock_, Options());
  std::string text = "x";
  while (text.size() < 1100) text += "\xC3\xA4";
  recorder.Record(Job("tiny"), "Normal", "Said", text);
  ASSERT_TRUE(recorder.Flush(kPatience));
  EXPECT_EQ((*Events()[0])["message"].get<std::string>(), text.substr(0, 1023));
}

}  // namespace
}  // namespace trainyard::runtime
