#include "operator/runtime/task_pool.h"

#include <algorithm>
#include <atomic>
#include <barrier>
#include <numeric>

#include <gtest/gtest.h>

namespace trainyard::runtime {
namespace {

TEST(TaskPool, EveryCallIsMadeOnceAndAllHaveEndedWhenItReturns) {
  TaskPool pool(4);
  std::vector<std::atomic<int>> calls(1000);
  pool.ForEach(calls.size(), [&](size_t i) {
    ++calls[i];
    return true;
  });
  EXPECT_TRUE(std::all_of(calls.begin(), calls.end(), [](const auto& n) { return n == 1; }));
  pool.ForEach(0, [](size_t) -> bool { throw 1; });
}

TEST(TaskPool, CallsRunAtOnceUpToTheThreadsOfThePool) {
  TaskPool pool(3);
  std::barrier together(3);  // holds each call until three are under way
  std::atomic<int> running{0}, most{0};
  pool.ForEach(9, [&](size_t) {
    const int now = ++running;
    for (int seen = most; now > seen && !most.compare_exchange_weak(seen, now);) {
    }
    together.arrive_and_wait();
    --running;
    return true;
  });
  EXPECT_EQ(most, 3);
}

TEST(TaskPool, AFailureBeginsNothingMore) {
  TaskPool pool(2);
  std::atomic<int> calls{0};
  pool.ForEach(1000, [&](size_t) {
    ++calls;
    return false;
  });
  EXPECT_LE(calls, 2);
  EXPECT_GE(calls, 1);
}

TEST(TaskPool, BatchesOfManyCallersShareIt) {
  TaskPool pool(3);
  std::atomic<int> sum{0};
  {
    std::vector<std::jthread> callers;
    for (int c = 0; c < 8; ++c) {
      callers.emplace_back([&] {
        for (int round = 0; round < 50; ++round) {
          pool.ForEach(7, [&](size_t) {
            ++sum;
            return true;
          });
        }
      });
    }
  }
  EXPECT_EQ(sum, 8 * 50 * 7);
}

}  // namespace
}  // namespace trainyard::runtime
