// The cadence of saves by Young and Daly under injected failures: the share of the time that is training against that
// of the best fixed cadence, which a search finds with the same failures. Pure; every run prints its seed.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <random>
#include <vector>

#include "operator/lifecycle/failure_rate.h"
#include "trainer/contract/cadence.h"

namespace trainyard::lifecycle {
namespace {

uint64_t Seed() {
  const char* given = std::getenv("TRAINYARD_TEST_SEED");
  const uint64_t seed = given != nullptr ? std::strtoull(given, nullptr, 10) : 20261130;
  std::printf("seed %llu (set TRAINYARD_TEST_SEED to change it)\n", static_cast<unsigned long long>(seed));
  return seed;
}

// All in seconds.
struct Job {
  double work = 0;     // to be done
  double mtbf = 0;     // of the gang, exponentially distributed
  double cost = 0;     // that a save takes from training
  double write = 0;    // from the start of a save until it counts
  double restart = 0;  // from a failure until training goes on
};

// Until the failure of each attempt, the same for every cadence that is tried.
std::vector<double> Lives(const Job& job, uint64_t seed) {
  std::mt19937_64 rng(seed);
  std::exponential_distribution<double> life(1 / job.mtbf);
  std::vector<double> lives;
  for (double sum = 0; sum < 20 * job.work;) sum += lives.emplace_back(life(rng));
  return lives;
}

// Share of the wall time that is training whose result counts. `interval`: of an attempt, by its number.
double Goodput(const Job& job, const std::vector<double>& lives, const std::function<double(size_t)>& interval) {
  double wall = 0, saved = 0;
  for (size_t attempt = 0; attempt < lives.size(); ++attempt) {
    const double every = interval(attempt);
    double up = 0, done = saved, pending = saved, counts_at = 0;
    while (true) {
      const double stretch = std::min(every, job.work - done);
      if (up + stretch > lives[attempt]) break;
      up += stretch;
      done += stretch;
      if (counts_at <= up) saved = pending;
      if (done >= job.work) return job.work / (wall + up);
      pending = done;
      counts_at = up + job.write;
      up += job.cost;
      if (up > lives[attempt]) break;
    }
    if (counts_at <= lives[attempt]) saved = std::max(saved, pending);
    wall += lives[attempt] + job.restart;
  }
  return saved / wall;  // a cadence with which it never ends
}

double MeanGoodput(const Job& job, const std::vector<std::vector<double>>& runs, double every) {
  double sum = 0;
  for (const auto& lives : runs) sum += Goodput(job, lives, [every](size_t) { return every; });
  return sum / static_cast<double>(runs.size());
}

// The best of a fine grid of fixed cadences, from a tenth of the formula's to ten times it.
std::pair<double, double> BestFixed(const Job& job, const std::vector<std::vector<double>>& runs) {
  const double middle = std::sqrt(2 * job.cost * job.mtbf);
  std::pair<double, double> best;
  for (double factor = 0.1; factor < 10; factor *= 1.05) {
    const double goodput = MeanGoodput(job, runs, middle * factor);
    if (goodput > best.second) best = {middle * factor, goodput};
  }
  return best;
}

const std::vector<Job> kJobs = {
    {.work = 4e6, .mtbf = 20'000, .cost = 20, .write = 60, .restart = 120},     // a large gang on poor nodes
    {.work = 2e7, .mtbf = 100'000, .cost = 2, .write = 90, .restart = 300},     // asynchronous saves, long writes
    {.work = 3e5, .mtbf = 1'800, .cost = 15, .write = 15, .restart = 60},       // spot nodes
    {.work = 2e7, .mtbf = 100'000, .cost = 300, .write = 300, .restart = 600},  // a slow disk
    {.work = 2e5, .mtbf = 1'000, .cost = 100, .write = 100, .restart = 30},     // where the first order is poor
};

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
      ours += Goodput(job, lives, [&](size_t attempt) {
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
