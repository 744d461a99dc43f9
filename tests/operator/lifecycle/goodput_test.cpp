// The cadence of saves by Young and Daly under injected failures: the share of the time that is training against that
// of the best fixed cadence, which a search finds with the same failures. Pure; every run prints its seed.
#include <gtest/gtest.h>

#include "operator/lifecycle/failure_rate.h"
#include "tests/trainer/loop/goodput_simulation.h"
#include "trainer/contract/cadence.h"

namespace trainyard::lifecycle {
namespace {

using namespace trainyard::testing;  // NOLINT: the simulation

TEST(YoungDaly, LosesLessThanThreePercentAgainstTheBestFixedCadence) {
  const uint64_t seed = Seed();
  for (const Job& job : kJobs) {
    std::vector<std::vector<double>> runs;
    for (uint64_t i = 0; i < 12; ++i) runs.push_back(Lives(job, seed + i));
    const auto [best_every, best] = BestFixed(job, runs);
    const double every = contract::SaveInterval(job.cost, job.mtbf, job.write, 1);
    const double ours = MeanGoodput(job, runs, every);
    std::printf("mtbf %.0f s, cost %.0f s: every %.0f s gives %.4f; the best, every %.0f s, gives %.4f\n", job.mtbf,
                job.cost, every, ours, best_every, best);
    EXPECT_GT(ours, 0.97 * best);
  }
}

// As it is in a cluster: nobody knows the rate. The operator begins with its prior, which is wrong by factors of 6 to
// 1,000 here, and learns from each attempt.
TEST(YoungDaly, LosesLessThanThreePercentWithTheRateThatTheOperatorLearns) {
  const uint64_t seed = Seed();
  constexpr int64_t kGpus = 8;
  for (const Job& job : kJobs) {
    std::vector<std::vector<double>> runs;
    for (uint64_t i = 0; i < 12; ++i) runs.push_back(Lives(job, seed + i));
    const double best = BestFixed(job, runs).second;
    double ours = 0, first = 0, last = 0;
    for (const auto& lives : runs) {
      api::Exposure own;
      size_t attempts = 0;
      ours += Goodput(job, lives, [&](size_t attempt, size_t) {
        for (; attempts < attempt; ++attempts) {
          own.gpu_hours += kGpus * lives[attempts] / 3600;
          ++own.failures;
        }
        const double hours = EstimateFailures(kGpus, own, {}).mean_hours;
        last = contract::SaveInterval(job.cost, hours * 3600, job.write, 1);
        if (attempt == 0) first = last;
        return last;
      });
    }
    ours /= static_cast<double>(runs.size());
    std::printf("mtbf %.0f s, cost %.0f s: every %.0f s at first, %.0f s at last gives %.4f; the best %.4f\n", job.mtbf,
                job.cost, first, last, ours, best);
    EXPECT_GT(ours, 0.97 * best);
  }
}

}  // namespace
}  // namespace trainyard::lifecycle
