#include "operator/runtime/log_gate.h"

#include <gtest/gtest.h>

namespace trainyard::runtime {
namespace {

using std::chrono::seconds;

TEST(LogGate, TellsEachStateOnce) {
  SteadyTime now{seconds(1000)};
  LogGate gate([&] { return now; });
  EXPECT_TRUE(gate.Passes("pods", "refused"));
  for (int i = 0; i < 10; ++i) {
    now += seconds(30);
    EXPECT_FALSE(gate.Passes("pods", "refused"));
  }
  EXPECT_TRUE(gate.Passes("nodes", "refused")) << "another thing";
  EXPECT_TRUE(gate.Passes("pods", "forbidden")) << "another message";
  EXPECT_FALSE(gate.Passes("pods", "forbidden"));
  EXPECT_TRUE(gate.Clear("pods"));
  EXPECT_FALSE(gate.Clear("pods"));
  EXPECT_TRUE(gate.Passes("pods", "forbidden")) << "after it was over";
}

TEST(LogGate, TellsAgainAfterQuietAndRemindsOfWhatLasts) {
  SteadyTime now{seconds(1000)};
  LogGate gate([&] { return now; });
  EXPECT_TRUE(gate.Passes("pods", "refused"));
  now += seconds(91);
  EXPECT_TRUE(gate.Passes("pods", "refused"));
  int told = 0;
  for (int i = 0; i < 60; ++i) {
    now += seconds(30);
    told += gate.Passes("pods", "refused") ? 1 : 0;
  }
  EXPECT_EQ(told, 3) << "half an hour, one reminder in ten minutes";
}

}  // namespace
}  // namespace trainyard::runtime
