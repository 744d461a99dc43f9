#include "operator/runtime/work_queue.h"

#include <atomic>
#include <map>
#include <random>
#include <thread>

#include <gtest/gtest.h>

namespace trainyard::runtime {
namespace {

using std::chrono::milliseconds;

class WorkQueueTest : public testing::Test {
 protected:
  WorkQueueOptions Options() {
    WorkQueueOptions options;
    options.now = [this] { return SteadyTime(milliseconds(now_ms_.load())); };
    return options;
  }
  void Advance(WorkQueue& queue, int64_t ms) {
    now_ms_ += ms;
    queue.Wake();
  }
  std::atomic<int64_t> now_ms_{1'000'000};
};

TEST_F(WorkQueueTest, AKeyAddedTwiceComesOnce) {
  WorkQueue queue(Options());
  queue.Add("a");
  queue.Add("b");
  queue.Add("a");
  EXPECT_EQ(queue.Size(), 2u);
  EXPECT_EQ(queue.Get(), "a");
  EXPECT_EQ(queue.Get(), "b");
}

TEST_F(WorkQueueTest, AKeyAddedWhileItIsWorkedOnComesAgainAfterDone) {
  WorkQueue queue(Options());
  queue.Add("a");
  ASSERT_EQ(queue.Get(), "a");
  queue.Add("a");
  queue.Add("a");
  EXPECT_EQ(queue.Size(), 0u) << "never twice at once";
  queue.Done("a");
  EXPECT_EQ(queue.Size(), 1u);
  ASSERT_EQ(queue.Get(), "a");
  queue.Done("a");
  EXPECT_TRUE(queue.Idle());
}

TEST_F(WorkQueueTest, DelayedKeysComeInTheOrderOfTheirTimes) {
  WorkQueue queue(Options());
  queue.AddAfter("late", milliseconds(300));
  queue.AddAfter("early", milliseconds(100));
  queue.AddAfter("now", milliseconds(0));
  EXPECT_EQ(queue.Get(), "now");
  Advance(queue, 99);
  EXPECT_EQ(queue.Size(), 0u);
  Advance(queue, 1);
  EXPECT_EQ(queue.Get(), "early");
  EXPECT_EQ(queue.Waiting(), 1u);
  Advance(queue, 200);
  EXPECT_EQ(queue.Get(), "late");
}

TEST_F(WorkQueueTest, TheEarlierOfTwoDelaysWins) {
  WorkQueue queue(Options());
  queue.AddAfter("a", milliseconds(500));
  queue.AddAfter("a", milliseconds(100));
  queue.AddAfter("a", milliseconds(900));
  Advance(queue, 100);
  ASSERT_EQ(queue.Size(), 1u);
  ASSERT_EQ(queue.Get(), "a");
  queue.Done("a");
  Advance(queue, 1000);
  EXPECT_TRUE(queue.Idle()) << "the later ones are forgotten";
}

TEST_F(WorkQueueTest, FailuresBackOffAndForgetResets) {
  WorkQueue queue(Options());
  int64_t wanted = 5;
  for (int i = 0; i < 6; ++i, wanted *= 2) {
    queue.AddRateLimited("a");
    Advance(queue, wanted - 1);
    EXPECT_EQ(queue.Size(), 0u) << "failure " << i + 1;
    Advance(queue, 1);
    ASSERT_EQ(queue.Size(), 1u) << "failure " << i + 1;
    queue.Get();
    queue.Done("a");
  }
  EXPECT_EQ(queue.Failures("a"), 6);
  queue.Forget("a");
  EXPECT_EQ(queue.Failures("a"), 0);
  queue.AddRateLimited("a");
  Advance(queue, 5);
  EXPECT_EQ(queue.Size(), 1u);
}

TEST(RateLimiter, StopsAtItsMaximumAndSharesOneBucket) {
  RateLimiter limiter({});
  SteadyTime now{milliseconds(1)};
  for (int i = 0; i < 40; ++i) limiter.When("a", now += std::chrono::seconds(1));
  EXPECT_EQ(limiter.When("a", now), Milliseconds(1'000'000));
  // 100 at once are free, then ten a second.
  RateLimiter shared({});
  for (int i = 0; i < 100; ++i) EXPECT_EQ(shared.When(std::to_string(i), now), Milliseconds(5));
  EXPECT_EQ(shared.When("x", now), Milliseconds(100));
  EXPECT_EQ(shared.When("y", now), Milliseconds(200));
  EXPECT_EQ(shared.When("z", now + std::chrono::seconds(60)), Milliseconds(5));
}

TEST_F(WorkQueueTest, ShutDownHandsOutWhatIsQueuedAndRefusesMore) {
  WorkQueue queue(Options());
  queue.Add("a");
  queue.AddAfter("b", milliseconds(1));
  queue.ShutDown();
  queue.Add("c");
  EXPECT_EQ(queue.Get(), "a");
  EXPECT_EQ(queue.Get(), std::nullopt);
}

TEST_F(WorkQueueTest, DrainWaitsForTheKeysBeingWorkedOn) {
  WorkQueue queue(Options());
  queue.Add("a");
  queue.Add("b");
  ASSERT_EQ(queue.Get(), "a");
  EXPECT_FALSE(queue.Drain(milliseconds(1)));
  std::jthread worker([&] { queue.Done("a"); });
  EXPECT_TRUE(queue.Drain(milliseconds(10'000)));
  EXPECT_EQ(queue.Get(), std::nullopt) << "what was queued is dropped";
}

TEST(WorkQueue, ADelayedKeyWakesAWaitingWorker) {
  WorkQueue queue;
  queue.AddAfter("a", milliseconds(5));
  EXPECT_EQ(queue.Get(), "a");
}

// Many adders and workers: a key is never with two workers, and no add is lost.
TEST(WorkQueue, NeverHandsAKeyToTwoWorkersAndLosesNone) {
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  constexpr int kKeys = 7;
  constexpr int kAdds = 3000;
  WorkQueue queue;
  std::atomic<int> busy[kKeys] = {};
  std::atomic<int> wanted[kKeys] = {};  // value of the last add
  std::atomic<int> done[kKeys] = {};    // value that the last run saw
  std::atomic<bool> twice{false};
  std::vector<std::jthread> workers;
  for (int w = 0; w < 4; ++w) {
    workers.emplace_back([&] {
      while (auto key = queue.Get()) {
        const int k = std::stoi(*key);
        if (++busy[k] != 1) twice = true;
        done[k] = wanted[k].load();
        --busy[k];
        queue.Done(*key);
      }
    });
  }
  {
    std::vector<std::jthread> adders;
    for (int a = 0; a < 3; ++a) {
      adders.emplace_back([&, a] {
        std::mt19937 random(seed + a);
        for (int i = 0; i < kAdds; ++i) {
          const int k = static_cast<int>(random() % kKeys);
          ++wanted[k];
          if (random() % 4 == 0) {
            queue.AddAfter(std::to_string(k), milliseconds(random() % 3));
          } else {
            queue.Add(std::to_string(k));
          }
        }
      });
    }
  }
  for (int k = 0; k < kKeys; ++k) queue.Add(std::to_string(k));
  queue.ShutDown();
  workers.clear();
  EXPECT_FALSE(twice);
  for (int k = 0; k < kKeys; ++k) EXPECT_EQ(done[k], wanted[k]) << "key " << k;
}

}  // namespace
}  // namespace trainyard::runtime
