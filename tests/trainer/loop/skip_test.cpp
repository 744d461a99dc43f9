// Losses that are not finite: who made them, and steps that are passed over without a trace in weights and optimizer.
#include <cmath>
#include <limits>
#include <mutex>

#include "tests/trainer/loop/thread_ranks.h"
#include "trainer/loop/state.h"
#include "trainer/loop/train_step.h"

namespace trainyard::loop {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr int kWorld = 3;
constexpr int kPoisoned = 1;  // the rank

class SkipTest : public ThreadRanksTest {
 protected:
  SkipTest() { job_["training"]["onNonFiniteLoss"] = "SkipStep"; }

  static Outcome<void> Steps(Session& s, int64_t count) {
    for (int64_t i = 0; i < count; ++i) {
      if (auto done = TrainStep(s, s.progress.step + 1); !done) return Fails(done.error());
    }
    return {};
  }

  // Everything an update may change.
  static std::vector<at::Tensor> State(Session& s) {
    std::vector<at::Tensor> state;
    for (const engine::ShardView& shard : s.engine->Shards()) {
      state.push_back(shard.master.clone());
      for (const at::Tensor& moment : shard.state) state.push_back(moment.clone());
    }
    return state;
  }

  // Weights of one rank turn to NaN; the returned function puts them back.
  static std::function<void()> Poison(Session& s) {
    if (s.env.rank != kPoisoned) return [] {};
    std::vector<std::pair<at::Tensor, at::Tensor>> saved;
    for (const engine::ShardView& shard : s.engine->Shards()) {
      saved.emplace_back(shard.master, shard.master.clone());
      shard.master.fill_(std::numeric_limits<double>::quiet_NaN());
    }
    return [saved] {
      for (const auto& [live, copy] : saved) live.copy_(copy);
    };
  }

  // Three steps, one that is skipped, one more. Returns the parameters' hash.
  std::string Run(const std::string& strategy, const std::function<void(Session&)>& fourth_step) {
    job_["parallelism"]["strategy"] = strategy;
    std::string hash;
    const std::string failure = OnRanks(kWorld, [&](Session& s) -> Outcome<void> {
      if (auto done = Steps(s, 3); !done) return done;
      fourth_step(s);
      if (auto done = Steps(s, 1); !done) return done;
      const std::string mine = s.engine->ParameterHash();
      if (s.env.rank == 0) hash = mine;
      return {};
    });
    EXPECT_EQ(failure, "");
    return hash;
  }
};

TEST_F(SkipTest, ASkippedStepLeavesNoTraceButItsData) {
  for (const std::string strategy : {"DDP", "FSDP"}) {
    SCOPED_TRACE(strategy);
    const std::string skipped = Run(strategy, [](Session& s) {
      const std::vector<at::Tensor> before = State(s);
      const auto heal = Poison(s);
      s.engine->OnLoaded();
      const auto result = TrainStep(s, 4);
      ASSERT_TRUE(result) << result.error().message;
      EXPECT_TRUE(std::isnan(result->loss));
      heal();
      s.engine->OnLoaded();
      const std::vector<at::Tensor> after = State(s);
      ASSERT_EQ(before.size(), after.size());
      for (size_t i = 0; i < before.size(); ++i) EXPECT_TRUE(at::equal(before[i], after[i])) << i;
      EXPECT_EQ(s.progress.step, 4);
      EXPECT_EQ(s.progress.cursor, 32);
      EXPECT_EQ(s.progress.skipped, 1);
      EXPECT_TRUE(std::isfinite(*s.progress.loss)) << "that of the step before";
    });
    const auto pass_over = [](int64_t skipped_steps) {
      return [skipped_steps](Session& s) {
        s.progress.step = 4;
        s.progress.cursor = 32;
        s.progress.skipped = skipped_steps;
      };
    };
    EXPECT_EQ(skipped, Run(strategy, pass_over(1)));
    EXPECT_NE(skipped, Run(strategy, pass_over(0))) << "the fifth step is the optimizer's fourth";
  }
}

TEST_F(SkipTest, TheCountIsSaved) {
  const std::string failure = OnRanks(1, [](Session& s) -> Outcome<void> {
    s.progress.skipped = 7;
    const auto back = ParseTrainState(s, nlohmann::json::parse(TrainStateJson(s)));
    if (!back) return Fails(back.error());
    EXPECT_EQ(back->skipped, 7);
    return {};
  });
  EXPECT_EQ(failure, "");
}

TEST_F(SkipTest, TwentyInARowAreEnough) {
  std::mutex mutex;
  std::vector<std::string> failures;
  OnRanks(kWorld, [&](Session& s) -> Outcome<void> {
    Poison(s);
    s.engine->OnLoaded();
    auto ended = Steps(s, 30);
    std::lock_guard lock(mutex);
    EXPECT_EQ(s.progress.step, 20);
    if (!ended) {
      failures.push_back(ended.error().message);
      EXPECT_EQ(ended.error().exit_code, contract::kExitNonFinite);
    }
    return ended;
  });
  ASSERT_EQ(failures.size(), static_cast<size_t>(kWorld));
  for (const std::string& failure : failures) {
    EXPECT_THAT(failure, AllOf(HasSubstr("of step 21 is not finite"), HasSubstr("the 20 steps before it")));
  }
}

TEST_F(SkipTest, StopNamesStepAndRank) {
  job_["training"].erase("onNonFiniteLoss");  // Stop is what an older operator means
  job_["parallelism"]["strategy"] = "DDP";
  std::mutex mutex;
  std::vector<std::string> failures;
  OnRanks(kWorld, [&](Session& s) -> Outcome<void> {
    if (auto done = Steps(s, 2); !done) return done;
    Poison(s);  // of one replica: the others compute finite losses
    auto ended = Steps(s, 1);
    std::lock_guard lock(mutex);
    if (!ended) failures.push_back(ended.error().message);
    return ended;
  });
  ASSERT_EQ(failures.size(), static_cast<size_t>(kWorld));
  for (const std::string& failure : failures) {
    EXPECT_THAT(failure, HasSubstr("the loss on rank 1 of step 3 is not finite"));
  }
}

}  // namespace
}  // namespace trainyard::loop
