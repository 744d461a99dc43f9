#include "operator/runtime/worker_pool.h"

#include <condition_variable>
#include <map>
#include <mutex>
#include <stdexcept>

#include <gtest/gtest.h>

namespace trainyard::runtime {
namespace {

using Requeue = std::optional<Milliseconds>;

class WorkerPoolTest : public testing::Test {
 protected:
  // Counts the calls per key; returns which call this is.
  int Called(const std::string& key) {
    std::lock_guard lock(mutex_);
    changed_.notify_all();
    return ++calls_[key];
  }
  bool Await(const std::string& key, int calls) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, std::chrono::seconds(10), [&] { return calls_[key] >= calls; });
  }
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, int> calls_;
  WorkQueue queue_;
};

TEST_F(WorkerPoolTest, RetriesErrorsAndExceptionsUntilTheyAreOver) {
  WorkerPool pool(queue_, 2, [this](const std::string& key) -> Result<Requeue> {
    const int call = Called(key);
    if (call == 1) return Fail(ErrorCode::kUnavailable, "not now");
    if (call == 2) throw std::runtime_error("broken");
    if (call == 3) throw 42;
    return Requeue();
  });
  queue_.Add("a");
  queue_.Add("b");
  EXPECT_TRUE(Await("a", 4));
  EXPECT_TRUE(Await("b", 4));
  EXPECT_TRUE(pool.Stop());
  EXPECT_EQ(pool.counters().failed, 6u);
  EXPECT_EQ(pool.counters().exceptions, 4u);
  EXPECT_EQ(pool.counters().succeeded, 2u);
  EXPECT_EQ(queue_.Failures("a"), 0) << "success forgets";
}

TEST_F(WorkerPoolTest, ASuccessMayAskToComeAgain) {
  WorkerPool pool(queue_, 1, [this](const std::string& key) -> Result<Requeue> {
    return Called(key) < 3 ? Requeue(Milliseconds(1)) : Requeue();
  });
  queue_.Add("a");
  EXPECT_TRUE(Await("a", 3));
}

TEST_F(WorkerPoolTest, StopWaitsForTheCallUnderWay) {
  std::atomic<bool> finished{false};
  std::atomic<bool> release{false};
  WorkerPool pool(queue_, 1, [&](const std::string& key) -> Result<Requeue> {
    Called(key);
    release.wait(false);
    finished = true;
    return Requeue();
  });
  queue_.Add("a");
  queue_.Add("b");
  ASSERT_TRUE(Await("a", 1));
  std::jthread releaser([&] {
    release = true;
    release.notify_all();
  });
  pool.Stop();
  EXPECT_TRUE(finished);
  EXPECT_EQ(queue_.Get(), std::nullopt);
}

}  // namespace
}  // namespace trainyard::runtime
